//! `mcd apply`.

use anyhow::Result;

use super::place::{self, Opened};
use crate::commands::change::{Line, describe};
use crate::commands::{Ended, open, pull};
use crate::error::Fault;
use crate::host::config_files;
use crate::interrupt::Interrupt;
use crate::logging;
use crate::model::config::Config;
use crate::model::event::{Event, EventSink};
use crate::model::records::describe_config;
use crate::options::Reboot;
use crate::options::config::{ApplyOptions, AskedConfig};
use crate::pipeline::config::{ConfigRequest, Done, PlainRoot, RootOutcome, apply, apply_to_root};
use crate::pipeline::{self, Outcome, Session, Until};
use crate::ui::{Printer, Progress};

pub(super) fn run(options: ApplyOptions, printer: &Printer) -> Result<Ended> {
    let opened = place::open(&options.place)?;
    let progress = printer.progress("apply");
    let interrupt = Interrupt::listen()?;
    let unchanged = match opened {
        Opened::Root(root) => on_root(&root, &options, &interrupt, progress.as_ref()),
        Opened::Host(host) => {
            let session = Session::new(host, progress.clone(), interrupt.clone())?.forced(options.force);
            on_host(&session, &options, &interrupt, progress.as_ref())
        }
    }
    .inspect_err(|_| progress.finish())?;
    Ok(if unchanged && options.unchanged_exit_77 { Ended::Unchanged } else { Ended::Done })
}

/// Tells whether there was nothing to do.
fn on_host(
    session: &Session,
    options: &ApplyOptions,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<bool> {
    let wants_reboot = session.host.is_booted() && !options.dry_run && options.reboot != Reboot::Never;
    session.host.refuse_soft_reboot(options.reboot)?;
    let outcome = interrupt.explain(match &options.asked {
        AskedConfig::Resume(id) => pipeline::resume(session, id.as_deref(), options.wait),
        AskedConfig::Files(files) => {
            let config = load(files, interrupt, progress)?;
            apply(session, &request(options, config, wants_reboot))
        }
    })?;
    if let Outcome::Committed { image, name, .. } = &outcome {
        logging::committed(image, name, false);
    }
    if let Outcome::Applied(done) = &outcome {
        note_applied(done);
    }
    let (line, text) = describe(&outcome, "apply");
    progress.end(&line, || text);
    let completes = matches!(outcome, Outcome::NothingToDo(_) | Outcome::Committed { .. });
    if wants_reboot && completes && session.host.status()?.next_boot().is_some_and(|next| !next.booted) {
        session.host.reboot(options.reboot, options.force, progress)?;
    }
    Ok(matches!(outcome, Outcome::NothingToDo(_)))
}

/// For the journal.
pub(super) fn note_applied(done: &Done) {
    let actions: Vec<String> = done.live.actions.iter().map(ToString::to_string).collect();
    logging::applied(&describe_config(&done.live.to.manifest.names), done.converged.changed.len(), &actions);
}

fn on_root(
    root: &PlainRoot,
    options: &ApplyOptions,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<bool> {
    let AskedConfig::Files(files) = &options.asked else {
        return Err(Fault::usage(
            "--resume is for OSTree hosts: on a root without OSTree nothing is prepared",
        )
        .into());
    };
    if options.until_prepared {
        return Err(Fault::usage("--until prepared is for OSTree hosts")
            .why("on a root without OSTree there is no deployment that could wait")
            .next("leave it out; --dry-run shows what would be done")
            .into());
    }
    let config = load(files, interrupt, progress)?;
    let outcome = interrupt.explain(apply_to_root(root, &request(options, config, false), progress))?;
    let unchanged = matches!(outcome, RootOutcome::NothingToDo);
    let (line, text) = match outcome {
        RootOutcome::NothingToDo => {
            (Line::of("nothing-to-do"), "nothing to do: the root is just that\n".to_owned())
        }
        RootOutcome::Planned(plan) => Line::planned(plan),
        RootOutcome::Applied(done) => describe(&Outcome::Applied(done), "apply"),
    };
    progress.end(&line, || text);
    Ok(unchanged)
}

/// Reads the files, and says what is allowed and probably not meant.
pub(super) fn load(
    files: &[crate::options::config::ConfigFile],
    interrupt: &Interrupt,
    sink: &dyn EventSink,
) -> Result<Config> {
    let mut config = config_files::load(files)?;
    for warning in &config.warnings {
        sink.event(Event::Warning { message: warning.to_string() });
    }
    config_files::fetch_remote(&mut config, &interrupt.token())?;
    Ok(config)
}

fn request(options: &ApplyOptions, config: Config, reboot: bool) -> ConfigRequest {
    ConfigRequest {
        config,
        source: options.source.clone(),
        drops_others: false,
        until: match options {
            ApplyOptions { dry_run: true, .. } => Until::Planned,
            ApplyOptions { until_prepared: true, .. } => Until::Prepared,
            _ => Until::Committed,
        },
        reboot,
        wait: options.wait,
        pull: pull::settings(options.fetch.clone()),
        request_digest: None,
        who: open::who("apply"),
    }
}
