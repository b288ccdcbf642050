//! `mcd serve-request`: what the pod's unit runs on the host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;

use super::{Ended, open};
use crate::error::{Fault, to_fault};
use crate::host::service::{Answer, Replies, Spool, report};
use crate::host::{Host, config_files, drift, reboot};
use crate::interrupt::Interrupt;
use crate::model::config::Input;
use crate::model::event::{Event, EventSink};
use crate::model::image_ref::OsImage;
use crate::model::manifest::Source;
use crate::model::policy::Action;
use crate::model::redact::redact;
use crate::model::wire::{
    Done, Failed, HostRequest, Measured, Outcome as Word, PlanSummary, ReplyBody, SOURCE_CONTROLLER_CONFIG,
    Verb, WIRE_VERSION, Wanted,
};
use crate::options::{ServeOptions, Served};
use crate::pipeline::config::{ConfigRequest, Proposal, apply, propose, repair, verify};
use crate::pipeline::{self, Outcome, PivotRequest, PullSettings, Session, Until};
use crate::plan::apply::Way;
use crate::plan::disruption::{Subject, Verdict};
use crate::plan::drift::TOLD_MAX;
use crate::ui::Printer;

pub(super) fn run(options: ServeOptions, printer: &Printer) -> Result<Ended> {
    // Before there are threads: libostree enters a mount namespace.
    let host = open::host(&options.target);
    let spool = match &options.spool {
        Some(path) => Spool::open(
            Dir::open_ambient_dir(path, ambient_authority())
                .with_context(|| format!("Opening {}", path.display()))?,
        )?,
        None => Spool::of_root(&Dir::open_ambient_dir("/", ambient_authority())?)?,
    };
    match options.what {
        Served::Status => {
            let answer = report(&host?, &spool)?;
            printer.line(&serde_json::to_string(&answer)?);
            Ok(Ended::Done)
        }
        Served::Request(id) => serve(host, &spool, &id),
    }
}

fn serve(host: Result<Host>, spool: &Spool, id: &str) -> Result<Ended> {
    let Some(request) = spool.request(id)? else {
        return Err(Fault::usage(format!("request {id} is not known"))
            .why("its file is not there")
            .next("hand it over first")
            .into());
    };
    let Some(replies) = spool.serve(id)? else { return finished(spool, id) };
    let replies = Arc::new(Teller { replies: Mutex::new(Some(replies)), measured: Mutex::default() });
    let begun = Instant::now();
    let result = host.and_then(|host| {
        let interrupt = Interrupt::listen()?;
        let session = Session::new(host, replies.clone(), interrupt.clone())?.forced(request.force);
        let served = Serving { session: &session, spool, request: &request };
        let done = interrupt.explain(served.carry_out().and_then(|mut end| {
            // After that nobody can be asked any more.
            if let Ok(done) = &mut end {
                done.report = Some(report(&session.host, spool)?);
            }
            Ok(end)
        }))?;
        // Last: the machine goes down while the answer is read.
        if let Ok(done) = &done
            && done.outcome == Word::Rebooting
            && session.host.is_booted()
        {
            reboot::ask(request.force, replies.as_ref())?;
        }
        Ok(done)
    });
    let end = match &result {
        Ok(Ok(done)) => {
            let mut measured = *replies.measured.lock().unwrap_or_else(PoisonError::into_inner);
            measured.milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            Ok(Done { measured, ..done.clone() })
        }
        Ok(Err(failed)) => Err(failed.clone()),
        Err(error) => Err(Failed::from(&to_fault(error))),
    };
    if let Some(open) = replies.replies.lock().unwrap_or_else(PoisonError::into_inner).take() {
        open.end(end)?;
    }
    match result? {
        Ok(_) => Ok(Ended::Done),
        Err(_) => Ok(Ended::Differs),
    }
}

/// Somebody served it already: the same exit code as then.
fn finished(spool: &Spool, id: &str) -> Result<Ended> {
    match spool.answer(id)? {
        Answer::Ended(last) => match last.body {
            ReplyBody::Failed(failed) if failed.code == Ended::Differs.code() => Ok(Ended::Differs),
            ReplyBody::Failed(failed) => {
                Err(Fault { why: failed.why, next: failed.next, ..Fault::failed(failed.what) }.into())
            }
            _ => Ok(Ended::Done),
        },
        _ => Err(Fault::failed(format!("request {id} has no last reply")).into()),
    }
}

/// Turns events into replies.
#[derive(Debug)]
struct Teller {
    replies: Mutex<Option<Replies>>,
    measured: Mutex<Measured>,
}

impl EventSink for Teller {
    fn event(&self, event: Event) {
        let message = match event {
            Event::Step { what } => what,
            Event::Warning { message } => format!("warning: {message}"),
            Event::Note { message } => message,
            Event::Waiting { what, holder } => format!("waiting for {what}: {holder}"),
            Event::Retry { what, why, .. } => format!("{what}: {why}; trying again"),
            Event::LayerStarted { size, .. } => return self.measure(|all| all.bytes_fetched += size),
            Event::LayerSkipped { size, .. } => return self.measure(|all| all.bytes_reused += size),
            _ => return,
        };
        if let Some(replies) = self.replies.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
            && let Err(error) = replies.progress(&redact(&message))
        {
            // The work is worth more than the words about it.
            tracing::warn!("a reply cannot be written: {error:#}");
        }
    }
}

impl Teller {
    fn measure(&self, add: impl FnOnce(&mut Measured)) {
        add(&mut self.measured.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// One request on this host.
struct Serving<'a> {
    session: &'a Session,
    spool: &'a Spool,
    request: &'a HostRequest,
}

impl Serving<'_> {
    fn carry_out(&self) -> Result<Result<Done, Failed>> {
        self.refuse_newer()?;
        Ok(Ok(match &self.request.verb {
            Verb::Prepare(wanted) => self.prepare(wanted)?,
            Verb::Commit { change, reboot } => {
                rebooting(done(&pipeline::resume(self.session, Some(change), true)?), *reboot)
            }
            Verb::ApplyLive(wanted) => self.apply_live(wanted)?,
            Verb::Verify { repair } => return self.verify(*repair),
            // The report goes with every answer, and has what was left behind.
            Verb::Status => word(Word::Ok),
            Verb::TakeOver => self.take_over()?,
            Verb::MoveToImage { image, reboot } => {
                rebooting(done(&self.pivot(&image_of(image)?, Until::Committed, *reboot)?), *reboot)
            }
            Verb::Reboot { why } => {
                if !why.is_empty() {
                    self.session.sink.event(Event::Note { message: why.clone() });
                }
                word(Word::Rebooting)
            }
            Verb::Cancel => {
                let locked =
                    self.session.host.lock(crate::host::Wait::Telling(self.session.sink.as_ref()))?;
                locked.cancel(&self.who())?;
                word(Word::Ok)
            }
            Verb::Unknown => {
                return Err(Fault::refused(format!(
                    "request {}: this mcd does not know its verb",
                    self.request.id
                ))
                .why(format!("the pod is newer than mcd {}", env!("CARGO_PKG_VERSION")))
                .next("bring the host forward first: move it to a newer image")
                .into());
            }
        }))
    }

    /// What a later protocol means may be something else. A move to an image never is.
    fn refuse_newer(&self) -> Result<()> {
        if self.request.version <= WIRE_VERSION || matches!(self.request.verb, Verb::MoveToImage { .. }) {
            return Ok(());
        }
        Err(Fault::refused(format!("request {} is of protocol {}", self.request.id, self.request.version))
            .why(format!("mcd {} of this host speaks up to {WIRE_VERSION}", env!("CARGO_PKG_VERSION")))
            .next("ask in that one, or bring the host forward first: move it to a newer image")
            .into())
    }

    fn who(&self) -> String {
        match self.request.who.as_str() {
            "" => "the cluster".to_owned(),
            who => who.to_owned(),
        }
    }

    fn prepare(&self, wanted: &Wanted) -> Result<Done> {
        if wanted.machine_config.is_empty() {
            let Some(image) = &wanted.image else {
                return Err(Fault::refused("nothing is asked for")
                    .why("the request has neither a MachineConfig nor an image")
                    .into());
            };
            let outcome = self.pivot(&image_of(image)?, Until::Prepared, false)?;
            let plan = PlanSummary { drain: true, reboot: true, ..PlanSummary::default() };
            return Ok(Done { plan: Some(plan), ..done(&outcome) });
        }
        let request = self.config_request(wanted, Until::Prepared)?;
        let outcome = apply(self.session, &request)?;
        // With the image here, what it costs is exact.
        let plan = match &outcome {
            Outcome::Prepared(_) => Some(summary(&propose(self.session, &request)?)),
            _ => None,
        };
        Ok(Done { plan, ..done(&outcome) })
    }

    fn apply_live(&self, wanted: &Wanted) -> Result<Done> {
        let request = self.config_request(wanted, Until::Committed)?;
        let proposal = propose(self.session, &request)?;
        if matches!(proposal.way, Some(Way::Deploy)) {
            let why = summary(&proposal).why.join("; ");
            return Err(Fault::refused(format!("{} cannot be applied live", wanted.name))
                .why(why)
                .next("prepare and commit it, and reboot")
                .into());
        }
        Ok(done(&apply(self.session, &request)?))
    }

    fn verify(&self, repairs: bool) -> Result<Result<Done, Failed>> {
        let found = if repairs { repair(self.session, true, &self.who())? } else { verify(self.session)? };
        if found.is_fine() {
            // Whoever follows the host finds that out a moment later; until then the report would be wrong.
            drift::say(self.spool.folder(), None)?;
            return Ok(Ok(word(Word::Ok)));
        }
        Ok(Err(Failed {
            code: Ended::Differs.code(),
            what: "the host differs from its records".to_owned(),
            differs: found.told(),
            next: Some("see `mcd verify` on the host; `mcd verify --repair` puts it right".to_owned()),
            ..Failed::default()
        }))
    }

    fn take_over(&self) -> Result<Done> {
        let root = self.session.host.running_root()?;
        Ok(Done { taken_over: crate::host::service::taken_over(&root), ..word(Word::Ok) })
    }

    fn pivot(&self, image: &OsImage, until: Until, reboot: bool) -> Result<Outcome> {
        let request = PivotRequest {
            image: Some(image.clone()),
            kargs: Vec::new(),
            until,
            reboot,
            wait: true,
            pull: PullSettings::default(),
            request_digest: None,
            who: self.who(),
        };
        pipeline::pivot(self.session, &request)
    }

    fn config_request(&self, wanted: &Wanted, until: Until) -> Result<ConfigRequest> {
        let name = if wanted.name.is_empty() { "the MachineConfig" } else { wanted.name.as_str() };
        let input = Input { name: name.to_owned(), bytes: wanted.machine_config.clone().into_bytes() };
        let mut config = crate::model::config::read(vec![input]).map_err(Fault::from)?;
        for warning in &config.warnings {
            self.session.sink.event(Event::Warning { message: warning.to_string() });
        }
        config_files::fetch_remote(&mut config, &self.session.interrupt().token())?;
        if let Some(image) = &wanted.image {
            config.image = Some(image_of(image)?);
        }
        let source = match wanted.source.as_str() {
            SOURCE_CONTROLLER_CONFIG => Source::ControllerConfig,
            _ => Source::MachineConfig,
        };
        Ok(ConfigRequest {
            config,
            source,
            drops_others: false,
            until,
            // Who reboots is the pod's decision, after the drain.
            reboot: false,
            wait: true,
            pull: PullSettings::default(),
            request_digest: None,
            who: self.who(),
        })
    }
}

fn image_of(text: &str) -> Result<OsImage, Fault> {
    text.parse::<OsImage>().map_err(|invalid| {
        Fault::refused(format!("image reference '{}' is malformed", invalid.text)).why(invalid.reason)
    })
}

fn word(outcome: Word) -> Done {
    Done { outcome, ..Done::default() }
}

fn done(outcome: &Outcome) -> Done {
    match outcome {
        Outcome::NothingToDo(_) => word(Word::Nothing),
        Outcome::Planned(_) => word(Word::Ok),
        Outcome::Prepared(intent) => Done { change: Some(intent.id.clone()), ..word(Word::Prepared) },
        Outcome::Committed { .. } => word(Word::Committed),
        Outcome::Applied(live) => Done { change: Some(live.live.id.clone()), ..word(Word::Applied) },
        Outcome::ReturnedToBooted(_) => word(Word::Nothing),
    }
}

fn rebooting(done: Done, wanted: bool) -> Done {
    let outcome = if wanted && done.outcome == Word::Committed { Word::Rebooting } else { done.outcome };
    Done { outcome, ..done }
}

fn summary(proposal: &Proposal) -> PlanSummary {
    let Verdict { actions, reasons } = &proposal.verdict;
    let is_deployed = matches!(proposal.way, Some(Way::Deploy));
    let has_reboot = is_deployed || actions.contains(&Action::Reboot);
    let telling = reasons.iter().filter(|reason| reason.actions.iter().any(|one| *one != Action::None));
    PlanSummary {
        drain: has_reboot || actions.contains(&Action::Drain),
        reboot: has_reboot,
        actions: actions
            .iter()
            .filter(|one| !matches!(one, Action::Drain | Action::Reboot))
            .map(ToString::to_string)
            .collect(),
        why: telling
            .take(TOLD_MAX)
            .map(|reason| {
                let asks: Vec<String> = reason.actions.iter().map(ToString::to_string).collect();
                format!("{}: {} ({})", subject(&reason.subject), asks.join(", "), reason.why)
            })
            .collect(),
    }
}

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Image => "image".to_owned(),
        Subject::KernelArguments => "kernel arguments".to_owned(),
        Subject::File(path) => format!("file {path}"),
        Subject::Unit(name) => format!("unit {name}"),
        Subject::Keys(user) => format!("keys of {user}"),
    }
}
