//! What this process remembers of what it did, and how it learns.

use super::view::{FailedStep, Memory, NodeView, Prepared, Step, StepKind, Target};
use crate::model::wire::{Done, Failed, HostReport, Outcome};
use crate::plan::backoff::doubled;

/// Seconds before the first retry.
pub const RETRY_FIRST: i64 = 10;
/// Seconds between later retries, at most; also between tries of what was refused.
pub const RETRY_SLOW: i64 = 600;

/// Seconds before the try after the `attempts`-th failure in a row.
pub fn delay(attempts: u32) -> i64 {
    let seconds = doubled(RETRY_FIRST.unsigned_abs(), RETRY_SLOW.unsigned_abs(), attempts);
    i64::try_from(seconds).unwrap_or(RETRY_SLOW)
}

impl FailedStep {
    /// When it is tried again, in seconds since the epoch. What was refused is looked at again now and
    /// then: a person may have made room.
    pub fn retry_at(&self) -> i64 {
        self.at + if self.failed.is_refused() { RETRY_SLOW } else { delay(self.attempts) }
    }
}

impl Memory {
    /// The force file is there and has not been used.
    pub fn may_force(&self, host: &HostReport) -> bool {
        host.force && !self.force_used
    }

    /// Learns from the host's report.
    pub fn see_host(&mut self, host: &HostReport) {
        if !host.force {
            self.force_used = false;
        }
        if host.drift.is_some() {
            self.verified = None;
        }
        if self.reboot_asked.as_ref().is_some_and(|(boot, _)| *boot != host.boot_id) {
            self.reboot_asked = None;
        }
    }

    /// Learns from the Node.
    pub fn see_node(&mut self, node: &NodeView, now: i64) {
        let annotations = &node.annotations;
        if !annotations.drain_is_pending() {
            self.drain_asked = None;
        } else if self.drain_asked.as_ref().is_none_or(|(order, _)| *order != annotations.desired_drain) {
            self.drain_asked = Some((annotations.desired_drain.clone(), now));
        }
    }

    /// Learns from the end of a step that was made for `target` in the boot `boot`.
    pub fn see_end(
        &mut self,
        step: &Step,
        target: &Target,
        boot: &str,
        end: &Result<Done, Failed>,
        now: i64,
    ) {
        match end {
            Ok(done) => self.see_success(step, target, boot, done, now),
            Err(failed) => self.see_failure(step, target, failed, now),
        }
    }

    fn see_success(&mut self, step: &Step, target: &Target, boot: &str, done: &Done, now: i64) {
        if let Step::ControllerConfig { version } = step {
            self.controller_config_synced = Some(version.clone());
            self.controller_config_failed = None;
            return;
        }
        self.failed = None;
        match step {
            Step::Prepare { target, force } if done.outcome == Outcome::Nothing => {
                self.prepared = None;
                self.force_used |= force;
                self.settled = Some((target.clone(), boot.to_owned()));
            }
            Step::Prepare { target, force } => {
                self.prepared = Some(Prepared {
                    target: target.clone(),
                    change: done.change.clone(),
                    plan: done.plan.clone().unwrap_or_default(),
                    force: *force,
                });
            }
            Step::Commit { force, .. } => {
                self.prepared = None;
                self.force_used |= force;
            }
            Step::ApplyLive { target, force } => {
                self.prepared = None;
                self.force_used |= force;
                self.settled = Some((target.clone(), boot.to_owned()));
                self.verified = None;
            }
            Step::Verify { .. } => self.verified = Some((target.clone(), boot.to_owned())),
            Step::Cancel => self.prepared = None,
            Step::Reboot { .. } => self.reboot_asked = Some((boot.to_owned(), now)),
            Step::ControllerConfig { .. } => {}
        }
    }

    fn see_failure(&mut self, step: &Step, target: &Target, failed: &Failed, now: i64) {
        let kind = step.kind();
        let before = match step {
            Step::ControllerConfig { version } => {
                self.controller_config_failed.as_ref().filter(|(of, _)| of == version).map(|(_, step)| step)
            }
            _ => self.failed.as_ref(),
        };
        let again = before.filter(|before| before.step == kind && before.target == *target);
        let failed = FailedStep {
            step: kind,
            target: target.clone(),
            failed: failed.clone(),
            attempts: again.map_or(0, |before| before.attempts).saturating_add(1),
            at: now,
            force: step.force(),
        };
        if let Step::ControllerConfig { version } = step {
            self.controller_config_failed = Some((version.clone(), failed));
            return;
        }
        if kind != StepKind::Verify && kind != StepKind::Cancel {
            self.prepared = None;
            self.settled = None;
        }
        if kind == StepKind::Verify {
            self.verified = None;
        }
        self.failed = Some(failed);
    }
}
