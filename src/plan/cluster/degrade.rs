//! Saying what is wrong.

use super::annotations::State;
use super::reason::{Reason, ReasonKind};
use super::{Action, Publish, Row, Wait, Waits};

impl Row<'_> {
    /// Says `reason`, takes a drain of ours back if `release`, then waits.
    pub(super) fn degrade(&self, reason: &Reason, release: bool, waits: Waits, until: Option<i64>) -> Action {
        let now = &self.node.annotations;
        let mut patch = self.patch().state(now, reason.kind.state(), &reason.annotation());
        if release && let Some(order) = self.release() {
            patch = patch.set(super::annotations::DESIRED_DRAIN, &now.desired_drain, &order);
        }
        if !patch.is_empty() {
            return Action::Publish(Publish { patch, reason: Some(reason.clone()) });
        }
        if release && let Some(action) = self.carry_out_uncordon() {
            return action;
        }
        // An order is never left half done, whatever else is wrong.
        if waits != Waits::Drain && now.drain_is_pending() {
            return self.see_order_through();
        }
        Action::Wait(Wait { waits, until })
    }

    /// Says that something is on its way, unless the node is known to be in trouble over just this: a
    /// retry does not hide that.
    pub(super) fn working(&self) -> Option<Action> {
        let now = &self.node.annotations;
        let is_in_trouble = matches!(now.state, Some(State::Degraded | State::Unreconcilable));
        let is_another = self.view.memory.degraded_for.as_ref().is_some_and(|of| *of != self.target);
        if now.state == Some(State::Working) || is_in_trouble && !is_another {
            return None;
        }
        let patch = self.patch().state(now, State::Working, "");
        Some(Action::Publish(Publish { patch, reason: None }))
    }

    /// What holds the update, as a reason while Working. A node does not stand empty meanwhile.
    pub(super) fn held(&self) -> Option<Action> {
        let hold = super::hold(self.view, self.node, self.host)?;
        let why = if hold.why.is_empty() { "no reason given" } else { hold.why.as_str() };
        let end = match hold.until.and_then(|until| jiff::Timestamp::from_second(until).ok()) {
            Some(until) => format!("until {until}"),
            None => "until it is lifted".to_owned(),
        };
        let text = format!("drains and reboots are held {end}: {why}; the update is prepared and waits");
        Some(self.degrade(&Reason::new(ReasonKind::Hold, text), true, Waits::Hold, hold.until))
    }
}
