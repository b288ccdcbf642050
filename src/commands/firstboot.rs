//! `mcd firstboot`: until the machine is what its first boot asks for.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::change::{Line, describe};
use super::doctor::said;
use super::pivot::{is_running, outcome_of};
use super::{Ended, open, pull};
use crate::error::{Fault, to_fault};
use crate::host::{FirstBoot, Wait, config_files};
use crate::interrupt::Interrupt;
use crate::logging;
use crate::model::event::{Event, EventSink};
use crate::model::firstboot::absent_if_empty;
use crate::model::image_ref::OsImage;
use crate::model::manifest::Source;
use crate::options::{FirstbootOptions, Reboot, Target};
use crate::pipeline::config::{ConfigRequest, apply};
use crate::pipeline::{self, Outcome, Session, Until};
use crate::plan::backoff::jitter;
use crate::plan::doctor::{Findings, judge};
use crate::plan::firstboot::{Begin, begin, pause};
use crate::ui::{Printer, Progress};

/// How often a signal is looked for in a pause.
const POLL: Duration = Duration::from_millis(100);

pub(super) fn run(options: FirstbootOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&Target { sysroot: None, wait: true })?;
    if !host.is_booted() {
        return Err(Fault::refused("there is no first boot here")
            .why("this system was not booted from an OSTree deployment")
            .next("`mcd apply FILE --sysroot DIR` configures a sysroot that is not booted")
            .into());
    }
    let progress = printer.progress("firstboot");
    let interrupt = Interrupt::listen()?;
    for remark in &options.remarks {
        progress.event(Event::Warning { message: (*remark).to_owned() });
    }
    let session = Session::new(host, progress.clone(), interrupt.clone())?.forced(options.force);
    let first = First { session, options, interrupt: &interrupt, progress: progress.as_ref() };
    interrupt.explain(first.run()).inspect_err(|_| progress.finish())
}

/// A first boot under way.
struct First<'a> {
    session: Session,
    options: FirstbootOptions,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
}

/// What one try came to.
enum Step {
    /// Nothing is left to do; this is what to say last.
    Over(Line, String),
    /// What is made is what the next boot starts.
    Reboot(Line, String),
    /// Something was made; whether it is all is seen by looking again.
    Again,
}

impl First<'_> {
    fn run(&self) -> Result<Ended> {
        let mut failures = 0;
        loop {
            let fault = match self.step() {
                Ok(Step::Over(line, text)) => {
                    self.progress.end(&line, || text);
                    return Ok(Ended::Done);
                }
                Ok(Step::Reboot(line, text)) => {
                    if self.options.reboot == Reboot::Never {
                        self.progress.end(&line, || text);
                        return Ok(Ended::Done);
                    }
                    match self.reboot() {
                        Ok(()) => return self.wait_to_be_stopped(),
                        Err(error) => error,
                    }
                }
                Ok(Step::Again) => continue,
                Err(error) => error,
            };
            if !self.options.retries || self.interrupt.signal().is_some() {
                return Err(fault);
            }
            failures += 1;
            let fault = to_fault(&fault);
            self.examine(&fault);
            self.pause(&fault, failures)?;
        }
    }

    fn step(&self) -> Result<Step> {
        let host = &self.session.host;
        let Some(request) = host.first_boot(self.options.file.as_deref())? else {
            return Ok(Step::Over(Line::of("nothing-asked"), "nothing is asked for\n".to_owned()));
        };
        let mut config = crate::model::config::read(vec![request.input.clone()]).map_err(Fault::from)?;
        absent_if_empty(&mut config, request.form);
        let earlier = pipeline::fulfilled(host, Some(&request.digest))?;
        let known = request.known.as_ref();
        match begin(&host.status()?, &config, known, earlier.is_some(), self.options.force) {
            Begin::SetAside => return self.set_aside(&request),
            Begin::Fulfilled if is_running(host)? => return self.clear(&request),
            Begin::Fulfilled => {
                return Ok(Step::Reboot(
                    Line::of("committed"),
                    "the next boot starts what is asked for\n".to_owned(),
                ));
            }
            Begin::CarryOut => {}
        }
        for warning in &config.warnings {
            self.progress.event(Event::Warning { message: warning.to_string() });
        }
        config_files::fetch_remote(&mut config, &self.interrupt.token())?;
        let outcome = apply(&self.session, &self.request(&request, config))?;
        self.made(&request, &outcome)
    }

    fn made(&self, request: &FirstBoot, outcome: &Outcome) -> Result<Step> {
        if let Outcome::Committed { image, name, .. } = outcome {
            logging::committed(image, name, false);
        }
        let (line, text) = describe(outcome, "firstboot");
        match outcome {
            Outcome::NothingToDo(_) if is_running(&self.session.host)? => self.clear(request),
            Outcome::NothingToDo(_) | Outcome::Committed { .. } => Ok(Step::Reboot(line, text)),
            _ => {
                self.progress.event(Event::Note { message: text.trim_end().to_owned() });
                Ok(Step::Again)
            }
        }
    }

    fn clear(&self, request: &FirstBoot) -> Result<Step> {
        if let Some(path) = request.shadows {
            let message = format!("/{path} was not looked at: this machine belongs to a cluster");
            self.progress.event(Event::Warning { message });
        }
        let names = self.session.host.lock(Wait::Telling(self.progress))?.clear_first_boot(request)?;
        let mut text = "this machine is what its first boot asked for\n".to_owned();
        if let Some(name) = names.first() {
            text.push_str(&format!("the request is kept as {name}\n"));
        }
        Ok(Step::Over(Line::of("fulfilled"), text))
    }

    /// A request that a rollback brought back.
    fn set_aside(&self, request: &FirstBoot) -> Result<Step> {
        let known = request.known.as_ref().map_or("dealt with", outcome_of);
        let names = self.session.host.lock(Wait::Telling(self.progress))?.set_first_boot_aside(request)?;
        let kept = if names.is_empty() {
            String::new()
        } else {
            format!("; it is renamed to {}", names.join(" and "))
        };
        self.progress.event(Event::Warning {
            message: format!(
                "the request of the first boot was {known} before and is not run again{kept}; \
                 `mcd firstboot --force --machineconfig-file FILE` runs it"
            ),
        });
        Ok(Step::Over(Line::of("set-aside"), String::new()))
    }

    fn request(&self, request: &FirstBoot, config: crate::model::config::Config) -> ConfigRequest {
        ConfigRequest {
            config,
            source: Source::MachineConfig,
            drops_others: false,
            until: Until::Committed,
            reboot: self.options.reboot != Reboot::Never,
            wait: true,
            pull: pull::settings(self.options.fetch.clone()),
            request_digest: Some(request.digest.clone()),
            who: open::who("firstboot"),
        }
    }

    fn reboot(&self) -> Result<()> {
        self.session.host.reboot(self.options.reboot, self.options.force, self.progress)
    }

    /// Ended, it would let kubelet start in the seconds that the reboot takes.
    fn wait_to_be_stopped(&self) -> Result<Ended> {
        while self.interrupt.signal().is_none() {
            std::thread::sleep(POLL);
        }
        self.progress.end(&Line::of("rebooting"), String::new);
        Ok(Ended::Done)
    }

    /// Says what on the way to the registry is at fault, where that is what failed.
    fn examine(&self, fault: &Fault) {
        let Ok(Some(image)) = self.image() else { return };
        // Everything else has nothing to do with a registry.
        if !fault.to_string().contains(&image.image.location) {
            return;
        }
        let Ok(tried) = self.session.host.try_the_way(&image.image) else { return };
        if tried.is_empty() {
            return;
        }
        if let Some(found) = judge(&Findings { tried, said: Some(said(fault)) }) {
            let message = format!("at fault: {}: {}; {}", found.part, found.why, found.next);
            self.progress.event(Event::Warning { message });
        }
    }

    /// The image that is asked for.
    fn image(&self) -> Result<Option<OsImage>> {
        let Some(request) = self.session.host.first_boot(self.options.file.as_deref())? else {
            return Ok(None);
        };
        Ok(crate::model::config::read(vec![request.input]).map_err(Fault::from)?.image)
    }

    /// Tells what failed, and waits until it is worth another try.
    fn pause(&self, fault: &Fault, attempt: u32) -> Result<()> {
        let pause = jitter(Duration::from_secs(pause(fault.kind, attempt)));
        self.progress.event(Event::Retry {
            what: fault.what.clone(),
            why: fault.why.clone().unwrap_or_default(),
            delay_seconds: pause.as_secs(),
            attempt,
        });
        if let Some(next) = &fault.next {
            self.progress.event(Event::Note { message: next.clone() });
        }
        let begun = Instant::now();
        while begun.elapsed() < pause {
            if self.interrupt.signal().is_some() {
                anyhow::bail!("stopped between two tries");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
