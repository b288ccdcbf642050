//! The host is what is desired: what remains until the node is Done.

use super::annotations::{self, CORDON, CORDON_DAEMON, DESIRED_DRAIN, State};
use super::reason::{Reason, ReasonKind};
use super::{Action, ControllerConfigView, Publish, Row, Step, StepKind, Waits};
use crate::error::ExitKind;
use crate::model::wire::ChangeState;

impl Row<'_> {
    /// Goes one step towards Done.
    pub(super) fn settle(&self) -> Action {
        // What a person prepared on a node that is Done is left alone.
        if self.host.intent.is_some() && !self.is_done() {
            return self.cancel();
        }
        if self.change_for_target().is_some_and(|change| change.state == ChangeState::Booted) {
            return self.judged();
        }
        self.differs()
            .or_else(|| self.uncordoned())
            .or_else(|| self.controller_config_is_bad())
            .unwrap_or_else(|| self.done())
    }

    fn is_done(&self) -> bool {
        let now = &self.node.annotations;
        now.state == Some(State::Done) && now.current_config == self.target.config
    }

    /// Waits for the verdict of the health checks; nothing is uncordoned before.
    fn judged(&self) -> Action {
        if let Some(action) = self.working() {
            return action;
        }
        let patch = self.patch();
        if !patch.is_empty() {
            return Action::Publish(Publish { patch, reason: None });
        }
        super::wait(Waits::Verdict)
    }

    fn differs(&self) -> Option<Action> {
        let memory = &self.view.memory;
        let failed = memory.failed.as_ref().filter(|failed| failed.step == StepKind::Verify);
        let heals = self.view.settings.self_heal;
        if let Some(failed) = failed
            && self.view.now < failed.retry_at()
        {
            let differs = failed.failed.code == ExitKind::Differs.code();
            let kind = if differs { ReasonKind::Drift } else { ReasonKind::VerifyFailed };
            let mut text = failed.failed.line();
            if !failed.failed.differs.is_empty() {
                text = format!("{} ({text})", failed.failed.differs.join(", "));
            }
            return Some(self.degrade(&Reason::new(kind, text), true, Waits::Retry, Some(failed.retry_at())));
        }
        if let Some(drift) = &self.host.drift {
            if heals {
                return Some(Action::Host(Step::Verify { repair: true }));
            }
            let text = format!(
                "the host differs from {}: {}; `mcd diff` on it shows how, `mcd verify --repair` puts it right",
                self.target.config,
                drift.differs.join(", ")
            );
            let reason = Reason::new(ReasonKind::Drift, text);
            return Some(self.degrade(&reason, true, Waits::Person, None));
        }
        let is_verified = memory
            .verified
            .as_ref()
            .is_some_and(|(target, boot)| *target == self.target && *boot == self.host.boot_id);
        (!is_verified).then_some(Action::Host(Step::Verify { repair: heals }))
    }

    fn uncordoned(&self) -> Option<Action> {
        let now = &self.node.annotations;
        if let Some(order) = self.release() {
            let patch = self.patch().set(DESIRED_DRAIN, &now.desired_drain, &order);
            return Some(Action::Publish(Publish { patch, reason: None }));
        }
        if self.uncordon_is_slow() {
            let text = format!(
                "the node is as {} says, but nobody makes it schedulable; look at the log of the drain \
                 controller",
                self.target.config
            );
            let reason = Reason::new(ReasonKind::UncordonSlow, text);
            return Some(self.degrade(&reason, true, Waits::Uncordon, None));
        }
        self.carry_out_uncordon()
    }

    fn controller_config_is_bad(&self) -> Option<Action> {
        let memory = &self.view.memory;
        match (&self.view.controller_config, &memory.controller_config_failed) {
            (ControllerConfigView::Bad { why, .. }, _) => {
                let reason = Reason::new(ReasonKind::ControllerConfigInvalid, why.clone());
                Some(self.degrade(&reason, false, Waits::Person, None))
            }
            (ControllerConfigView::Found { version }, Some((failed, step))) if failed == version => {
                let text = format!(
                    "certificates and pull secret of the cluster cannot be laid down: {}",
                    step.failed.line()
                );
                let reason = Reason::new(ReasonKind::ControllerConfigFailed, text);
                Some(self.degrade(&reason, false, Waits::Retry, Some(step.retry_at())))
            }
            _ => None,
        }
    }

    fn done(&self) -> Action {
        let now = &self.node.annotations;
        let image = self.target.image.as_deref().unwrap_or_default();
        let mut patch = self
            .patch()
            .set(annotations::CURRENT_CONFIG, &now.current_config, &self.target.config)
            .state(now, State::Done, "");
        patch = if image.is_empty() {
            patch.remove(annotations::CURRENT_IMAGE, &now.current_image)
        } else {
            patch.set(annotations::CURRENT_IMAGE, &now.current_image, image)
        };
        patch = patch.remove(annotations::DRAIN_SINCE, &now.drain_since);
        if now.cordon == CORDON_DAEMON || !self.node.unschedulable {
            patch = patch.remove(CORDON, &now.cordon);
        }
        if patch.is_empty() {
            return super::wait(Waits::Change);
        }
        Action::Publish(Publish { patch, reason: None })
    }
}
