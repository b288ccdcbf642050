//! `mcd health`: what the checks find, and with `--judge` what becomes of the deployment.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Ended, open};
use crate::host::health::{Checks, tell};
use crate::host::{GaveUp, Host, Judging, Wait, now, reboot};
use crate::interrupt::Interrupt;
use crate::logging;
use crate::model::boots::WentBackBy;
use crate::model::event::{Event, EventSink};
use crate::model::health::{HealthStatus, Verdict};
use crate::options::{HealthOptions, Target};
use crate::plan::health::{Begin, Next, next};
use crate::plan::short_name;
use crate::ui::{Printer, Progress};

/// How often a signal is looked for between two rounds.
const POLL: Duration = Duration::from_millis(100);

pub(super) fn run(options: HealthOptions, printer: &Printer) -> Result<Ended> {
    let target = Target { sysroot: None, wait: true };
    let host = open::host(&target)?;
    let interrupt = Interrupt::listen()?;
    let checks = Checks::of(&host)?;
    if options.judge {
        let judge = Judge { host: &host, checks, interrupt: &interrupt, judging: host.judging()? };
        let progress = printer.progress("health");
        return interrupt.explain(judge.run(progress.as_ref())).inspect_err(|_| progress.finish());
    }
    let judging = host.judging()?;
    let mut found = checks.run(&judging.failing_before, &|| interrupt.signal().is_some());
    interrupt.explain(stop(&interrupt))?;
    found.verdict = crate::host::health::last_told(&host).and_then(|told| told.verdict);
    printer.health(&found)?;
    Ok(if found.is_healthy() { Ended::Done } else { Ended::Differs })
}

/// A boot that is judged.
struct Judge<'a> {
    host: &'a Host,
    checks: Checks,
    interrupt: &'a Interrupt,
    judging: Judging,
}

impl Judge<'_> {
    fn run(&self, sink: &Progress) -> Result<Ended> {
        let deadline = self.checks.settings.deadline;
        let begun = Instant::now();
        let until = now().saturating_add(i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX));
        for warning in &self.checks.settings.warnings {
            sink.event(Event::Warning { message: warning.clone() });
        }
        loop {
            let mut found =
                self.checks.run(&self.judging.failing_before, &|| self.interrupt.signal().is_some());
            // Whoever shuts down ends the checks too: that is no verdict.
            stop(self.interrupt)?;
            found.deadline = Some(until);
            if self.judging.begin == Begin::NotOurs {
                return self.end(found, Verdict::NotJudged, sink);
            }
            let next = match self.judging.begin {
                Begin::Good => Next::Good,
                _ => next(&found.checks, begun.elapsed(), deadline),
            };
            match next {
                Next::Good => return self.good(found, sink),
                Next::Failed { cause } => return self.failed(found, &cause, sink),
                Next::Again => {
                    found.verdict = Some(Verdict::Judging);
                    self.tell(&found, None)?;
                    self.pause()?;
                }
            }
        }
    }

    fn good(&self, mut found: HealthStatus, sink: &Progress) -> Result<Ended> {
        let newly = self.host.lock(Wait::Telling(sink))?.confirm()?;
        found.newly_good = newly.is_some();
        if let Some(name) = &newly {
            logging::good(name);
        }
        self.end(found, Verdict::Good, sink)
    }

    fn failed(&self, found: HealthStatus, cause: &str, sink: &Progress) -> Result<Ended> {
        let running = found.deployment.clone();
        let gave_up = match self.judging.begin {
            Begin::Judge => self.host.lock(Wait::Telling(sink))?.give_up(cause, WentBackBy::Health)?,
            _ => GaveUp::Stays { why: "it was left before, and booted all the same".to_owned() },
        };
        match gave_up {
            GaveUp::WentBack(done) => {
                logging::unhealthy(running.as_ref(), cause, Some(&done.to));
                let message = format!("{cause}: going back to {}", short_name(&done.to));
                sink.event(Event::Warning { message });
                self.end(found, Verdict::GivenUp, sink)?;
                // Nobody is there to ask: what blocks a reboot blocks it for a system that works.
                reboot::ask(true, sink)?;
            }
            GaveUp::Stays { why } => {
                logging::unhealthy(running.as_ref(), cause, None);
                sink.event(Event::Warning { message: format!("{cause}; this deployment stays: {why}") });
                let motd = format!(
                    "mcd: this system is degraded. {cause}.\n     It stays: {why}. See `mcd health`.\n"
                );
                self.tell(&HealthStatus { verdict: Some(Verdict::Degraded), ..found }, Some(&motd))?;
                sink.finish();
            }
        }
        Ok(Ended::Differs)
    }

    fn end(&self, found: HealthStatus, verdict: Verdict, sink: &Progress) -> Result<Ended> {
        let found = HealthStatus { verdict: Some(verdict), ..found };
        self.tell(&found, None)?;
        sink.end(&found, || crate::ui::health_text(&found));
        Ok(Ended::Done)
    }

    /// An automatic rollback is told at each login until the next change is good.
    fn tell(&self, found: &HealthStatus, motd: Option<&str>) -> Result<()> {
        let went_back = self.host.boots()?.went_back.map(|back| crate::ui::went_back_text(&back));
        let went_back = went_back.map(|text| format!("mcd went back, automatically, {text}\n"));
        tell(self.host, found, motd.or(went_back.as_deref()))
    }

    fn pause(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < self.checks.settings.interval {
            std::thread::sleep(POLL);
            stop(self.interrupt)?;
        }
        Ok(())
    }
}

fn stop(interrupt: &Interrupt) -> Result<()> {
    match interrupt.signal() {
        Some(_) => anyhow::bail!("stopped before the verdict"),
        None => Ok(()),
    }
}
