//! The host is not what is desired: the way there.

use super::annotations::State;
use super::memory::RETRY_SLOW;
use super::reason::{Reason, ReasonKind};
use super::{Action, ConfigView, FailedStep, Prepared, Row, Step, StepKind, Wait, Waits};
use crate::error::ExitKind;

/// After this many seconds a host that was asked to reboot counts as stuck: longer than any shutdown
/// that still ends (systemd gives every unit 90 s).
const REBOOT_SLOW: i64 = 600;
/// A commit or live apply that failed this often is left to a person: each try drains the node.
const TRIES_DRAINED: u32 = 3;

impl Row<'_> {
    /// Goes one step towards the target.
    pub(super) fn drive(&self) -> Action {
        if let Some(action) = self.working() {
            return action;
        }
        if let Some(intent) = &self.host.intent
            && intent.committed
        {
            return match self.intent_for_target() {
                Some(intent) => self.reboot_into(intent.plan.drain),
                None => self.cancel(),
            };
        }
        if let Some(action) = self.failed() {
            return action;
        }
        match self.prepared() {
            Some(prepared) => self.carry_out(&prepared),
            None => self.config_is_missing().unwrap_or_else(|| {
                Action::Host(Step::Prepare { target: self.target.clone(), force: self.force })
            }),
        }
    }

    fn config_is_missing(&self) -> Option<Action> {
        let wanted = self.target.config.as_str();
        if self.view.config.name() != Some(wanted) {
            return Some(Action::FetchConfig(wanted.to_owned()));
        }
        match &self.view.config {
            ConfigView::Absent { at, attempts, .. } => {
                let again = at + super::memory::delay(*attempts);
                if self.view.now >= again {
                    return Some(Action::FetchConfig(wanted.to_owned()));
                }
                let text = format!(
                    "MachineConfig {wanted} does not exist; create it, or set desiredConfig to one that does"
                );
                let reason = Reason::new(ReasonKind::ConfigAbsent, text);
                Some(self.degrade(&reason, true, Waits::Retry, Some(again)))
            }
            ConfigView::Bad { why, at, .. } => {
                let again = at + RETRY_SLOW;
                if self.view.now >= again {
                    return Some(Action::FetchConfig(wanted.to_owned()));
                }
                let text = format!("MachineConfig {wanted} cannot be used: {why}");
                let reason = Reason::new(ReasonKind::ConfigInvalid, text);
                Some(self.degrade(&reason, true, Waits::Retry, Some(again)))
            }
            ConfigView::NotFetched | ConfigView::Found { .. } => None,
        }
    }

    /// What is prepared for the target, by this process or found on the host.
    fn prepared(&self) -> Option<Prepared> {
        if let Some(prepared) = &self.view.memory.prepared
            && prepared.target == self.target
            && prepared.force == self.force
        {
            return Some(prepared.clone());
        }
        // What was prepared without force would be refused again.
        if self.force {
            return None;
        }
        self.intent_for_target().map(|intent| Prepared {
            target: self.target.clone(),
            change: Some(intent.id.clone()),
            plan: intent.plan.clone(),
            force: false,
        })
    }

    fn carry_out(&self, prepared: &Prepared) -> Action {
        let needs_hold = prepared.plan.drain || prepared.plan.reboot;
        if needs_hold && let Some(action) = self.held() {
            return action;
        }
        if needs_hold && let Some(action) = self.hold_ended() {
            return action;
        }
        if prepared.plan.drain
            && let Some(action) = self.drained()
        {
            return action;
        }
        match (&prepared.change, prepared.plan.reboot) {
            (Some(change), true) => Action::Host(Step::Commit {
                target: self.target.clone(),
                change: change.clone(),
                force: self.force,
            }),
            // Without an id nothing can be committed: a host that forgot to name it is asked again.
            (None, true) => Action::Host(Step::Prepare { target: self.target.clone(), force: self.force }),
            (_, false) => {
                if let Some(action) = self.config_is_missing() {
                    return action;
                }
                Action::Host(Step::ApplyLive { target: self.target.clone(), force: self.force })
            }
        }
    }

    /// The reason of a hold that ended goes.
    fn hold_ended(&self) -> Option<Action> {
        let now = &self.node.annotations;
        if now.state != Some(State::Working) || now.reason.is_empty() {
            return None;
        }
        let patch = self.patch().state(now, State::Working, "");
        Some(Action::Publish(super::Publish { patch, reason: None }))
    }

    fn reboot_into(&self, drain: bool) -> Action {
        if let Some((boot, at)) = &self.view.memory.reboot_asked
            && *boot == self.host.boot_id
        {
            let until = at + REBOOT_SLOW;
            if self.view.now < until {
                return Action::Wait(Wait { waits: Waits::Reboot, until: Some(until) });
            }
            let text = format!(
                "the host was asked to reboot into {} {} minutes ago and still runs; look at \
                 `systemctl list-jobs` and `systemd-inhibit --list` on it",
                self.target.config,
                REBOOT_SLOW / 60
            );
            let again = until + RETRY_SLOW;
            if self.view.now < again {
                let reason = Reason::new(ReasonKind::RebootFailed, text);
                return self.degrade(&reason, false, Waits::Reboot, Some(again));
            }
        } else if let Some(action) = self.failed() {
            return action;
        }
        if let Some(action) = self.held().or_else(|| self.hold_ended()) {
            return action;
        }
        if drain && let Some(action) = self.drained() {
            return action;
        }
        Action::Host(Step::Reboot { config: self.target.config.clone() })
    }

    /// Drops what is prepared or committed and no longer desired.
    pub(super) fn cancel(&self) -> Action {
        if let Some(failed) = &self.view.memory.failed
            && failed.step == StepKind::Cancel
            && self.view.now < failed.retry_at()
        {
            let text =
                format!("a change that is no longer desired cannot be dropped: {}", failed.failed.line());
            let reason = Reason::new(ReasonKind::CancelFailed, text);
            return self.degrade(&reason, false, Waits::Retry, Some(failed.retry_at()));
        }
        Action::Host(Step::Cancel)
    }

    /// A step for the target failed and is not tried again yet.
    fn failed(&self) -> Option<Action> {
        let failed = self.view.memory.failed.as_ref()?;
        if failed.target != self.target || self.force && !failed.force {
            return None;
        }
        let kind = kind(failed)?;
        let is_left_to_a_person = kind == ReasonKind::NotUndone
            || matches!(kind, ReasonKind::CommitFailed | ReasonKind::ApplyFailed)
                && failed.attempts >= TRIES_DRAINED;
        let until = failed.retry_at();
        if !is_left_to_a_person && self.view.now >= until {
            return None;
        }
        let text = format!("{}: {}", self.target.config, failed.failed.line());
        let (waits, until) =
            if is_left_to_a_person { (Waits::Person, None) } else { (Waits::Retry, Some(until)) };
        // Before the switch the host is as it was. A drain is kept for the next tries, not for ever.
        let release = match kind {
            ReasonKind::NotUndone => false,
            ReasonKind::CommitFailed | ReasonKind::ApplyFailed | ReasonKind::RebootFailed => {
                is_left_to_a_person
            }
            _ => true,
        };
        Some(self.degrade(&Reason::new(kind, text), release, waits, until))
    }
}

fn kind(failed: &FailedStep) -> Option<ReasonKind> {
    if failed.failed.code == ExitKind::NotUndone.code() {
        return Some(ReasonKind::NotUndone);
    }
    Some(match failed.step {
        StepKind::Prepare if failed.failed.is_refused() => ReasonKind::ConfigRefused,
        StepKind::Prepare => ReasonKind::PrepareFailed,
        StepKind::Commit => ReasonKind::CommitFailed,
        StepKind::ApplyLive => ReasonKind::ApplyFailed,
        StepKind::Reboot => ReasonKind::RebootFailed,
        StepKind::Verify | StepKind::Cancel | StepKind::ControllerConfig => return None,
    })
}
