//! `mcd pivot`: an image on the command line, the request files of the old host API, or a change
//! that was prepared before.

use anyhow::Result;

use super::change::{Line, describe};
use super::{Ended, open, pull};
use crate::error::Fault;
use crate::host::{Host, HostRequest, reboot};
use crate::interrupt::Interrupt;
use crate::logging;
use crate::model::boots::RequestOutcome;
use crate::model::event::{Event, EventSink};
use crate::options::{Asked, PivotOptions, Reboot};
use crate::pipeline::{self, Outcome, PivotRequest, Session, Until};
use crate::ui::{Printer, Progress};

pub(super) fn run(options: PivotOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&options.target)?;
    let progress = printer.progress("pivot");
    let interrupt = Interrupt::listen()?;
    let request = host_request(&options, &host, progress.as_ref())?;
    if let Some(request) = &request
        && !options.force
        && set_aside(&options, &host, request, progress.as_ref())?
    {
        progress.end(&Line::of("set-aside"), String::new);
        return Ok(Ended::Done);
    }
    if options.asked == Asked::Lost {
        let session = Session::new(host, progress.clone(), interrupt.clone())?;
        return lost(&session, &interrupt, progress.as_ref());
    }
    let wants_reboot = host.is_booted()
        && !options.dry_run
        && (options.reboot != Reboot::Never || request.as_ref().is_some_and(|request| request.reboot));
    host.refuse_soft_reboot(options.reboot)?;
    let session = Session::new(host, progress.clone(), interrupt.clone())?.forced(options.force);
    let outcome = interrupt
        .explain(change(&session, &options, request.as_ref(), wants_reboot))
        .inspect_err(|_| progress.finish())?;
    if let Some(request) = &request
        && matches!(outcome, Outcome::NothingToDo(_))
        && is_running(&session.host)?
    {
        session.host.lock(open::wait(&options.target, progress.as_ref()))?.clear_request(request)?;
        progress.event(Event::Note { message: "the request is fulfilled; its files are removed".to_owned() });
    }
    if let Outcome::Committed { image, name, .. } = &outcome {
        logging::committed(image, name, false);
    }
    let (line, text) = describe(&outcome, "pivot");
    progress.end(&line, || text);
    if wants_reboot && reboots(&outcome) && !is_running(&session.host)? {
        // The request files know one reboot only.
        let asked = if options.reboot == Reboot::Never { Reboot::Full } else { options.reboot };
        session.host.reboot(asked, options.force, progress.as_ref())?;
    }
    let unchanged = matches!(outcome, Outcome::NothingToDo(_)) && options.unchanged_exit_77;
    Ok(if unchanged { Ended::Unchanged } else { Ended::Done })
}

/// What was committed and got lost, at the boot after. It reboots only if the request had said so.
fn lost(session: &Session, interrupt: &Interrupt, progress: &Progress) -> Result<Ended> {
    let again = interrupt.explain(pipeline::restage(session)).inspect_err(|_| progress.finish())?;
    let Some(again) = again else {
        progress.end(&Line::of("nothing-to-do"), String::new);
        return Ok(Ended::Done);
    };
    if let Outcome::Committed { image, name, .. } = &again.outcome {
        logging::committed(image, name, false);
    }
    let (line, text) = describe(&again.outcome, "pivot");
    progress.end(&line, || text);
    if again.reboot {
        reboot::ask(false, progress)?;
    }
    Ok(Ended::Done)
}

/// The request files, where the command line names neither an image nor arguments.
fn host_request(options: &PivotOptions, host: &Host, sink: &dyn EventSink) -> Result<Option<HostRequest>> {
    if options.asked != Asked::HostApi || !options.kargs.is_empty() {
        return Ok(None);
    }
    let Some(request) = host.request()? else {
        let fault = Fault::usage("no image is named");
        return Err(if host.is_booted() {
            fault.why("/etc/pivot/image-pullspec and /etc/pivot/kernel-args are not there either")
        } else {
            fault.why("the request files in /etc/pivot are read only on the running host")
        }
        .next("name one: `mcd pivot host/name:tag`")
        .into());
    };
    for message in &request.warnings {
        sink.event(Event::Warning { message: message.clone() });
    }
    Ok(Some(request))
}

/// A request that was carried out or rolled back before, met again in an older `/etc`, is not run
/// again: it is renamed, unless the host is what it asks for. Tells whether it was.
fn set_aside(
    options: &PivotOptions,
    host: &Host,
    request: &HostRequest,
    sink: &dyn EventSink,
) -> Result<bool> {
    let Some(known) = &request.known else { return Ok(false) };
    if options.dry_run || pipeline::is_fulfilled(&host.status()?, request) {
        return Ok(false);
    }
    let names = host.lock(open::wait(&options.target, sink))?.set_request_aside()?;
    sink.event(Event::Warning {
        message: format!(
            "the request in /etc/pivot was {} before and is not run again; it is renamed to {}; `mcd pivot --force` \
             with the files in place, or `mcd pivot IMAGE`, runs it",
            outcome_of(known),
            names.join(" and ")
        ),
    });
    Ok(true)
}

pub(super) fn outcome_of(known: &RequestOutcome) -> &'static str {
    match known {
        RequestOutcome::CarriedOut => "carried out",
        RequestOutcome::RolledBack => "rolled back",
        RequestOutcome::Other(_) => "dealt with by a newer mcd",
    }
}

fn change(
    session: &Session,
    options: &PivotOptions,
    request: Option<&HostRequest>,
    wants_reboot: bool,
) -> Result<Outcome> {
    if let Some(request) = request
        && let Some(outcome) = pipeline::fulfilled(&session.host, request.digest.as_ref())?
    {
        return Ok(outcome);
    }
    let image = match &options.asked {
        Asked::Resume(id) => return pipeline::resume(session, id.as_deref(), options.target.wait),
        Asked::Image(image) => Some(image.clone()),
        Asked::HostApi | Asked::Lost => request.and_then(|request| request.image.clone()),
    };
    pipeline::pivot(
        session,
        &PivotRequest {
            image,
            kargs: request.map_or(&options.kargs, |request| &request.kargs).clone(),
            until: match options {
                PivotOptions { dry_run: true, .. } => Until::Planned,
                PivotOptions { until_prepared: true, .. } => Until::Prepared,
                _ => Until::Committed,
            },
            reboot: wants_reboot,
            wait: options.target.wait,
            pull: pull::settings(options.fetch.clone()),
            request_digest: request.and_then(|request| request.digest.clone()),
            who: open::who("pivot"),
        },
    )
}

/// Whether the next boot starts what runs now.
pub(super) fn is_running(host: &Host) -> Result<bool> {
    Ok(host.status()?.next_boot().is_none_or(|next| next.booted))
}

/// Whether an outcome is one that a wanted reboot completes. What was staged before counts: the
/// caller asked for a machine that runs the image, not for work.
fn reboots(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NothingToDo(_) | Outcome::Committed { .. })
}
