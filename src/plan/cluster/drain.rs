//! The drain: asked for by annotation, carried out by the operator's controller or by this process.
//!
//! Whoever carries it out copies the order when it is done. An order that differs from its copy is work
//! to do for the controller, so none is ever left behind.

use super::annotations::{CORDON, CORDON_DAEMON, CORDON_PERSON, DESIRED_DRAIN, DRAIN_SINCE};
use super::reason::{Reason, ReasonKind};
use super::{Action, DrainBy, Publish, Row, SelfDrain, Wait, Waits};

/// After this many seconds a drain counts as stuck: as long as the operator's controller takes until it
/// says so itself.
pub(super) const DRAIN_SLOW: i64 = 3600;
/// After this many seconds an uncordon counts as stuck; the Go daemon waited as long.
pub(super) const UNCORDON_SLOW: i64 = 600;

impl Row<'_> {
    /// Gets the node drained for the target; none once it is.
    pub(super) fn drained(&self) -> Option<Action> {
        let now = &self.node.annotations;
        if now.single_replica {
            return None;
        }
        let order = format!("drain-{}", self.target.config);
        let is_applied = now.last_applied_drain == order;
        if now.desired_drain == order && is_applied {
            if self.node.unschedulable {
                return None;
            }
            // Somebody made it schedulable since: the same order would not be carried out again.
            return Some(self.order(format!("uncordon-{}", self.target.config)));
        }
        if is_applied && now.drain_is_pending() && !now.asks_to_drain() {
            return self.carry_out_uncordon();
        }
        if now.desired_drain != order {
            return Some(self.order(order));
        }
        Some(self.carry_out_drain(&order))
    }

    fn order(&self, order: String) -> Action {
        let now = &self.node.annotations;
        // A cordon is ours as long as a drain of ours is in force, or its end is not carried out yet.
        let is_ours = now.holds_our_drain() || now.cordon == CORDON_DAEMON && now.drain_is_pending();
        let was_cordoned = self.node.unschedulable && !is_ours;
        let whose = if was_cordoned { CORDON_PERSON } else { CORDON_DAEMON };
        let mut patch = self.patch().set(DESIRED_DRAIN, &now.desired_drain, &order);
        if order.starts_with("drain-") {
            patch = patch.set(CORDON, &now.cordon, whose);
            if now.drain_since.is_empty() || !is_ours {
                patch = patch.set(DRAIN_SINCE, &now.drain_since, &self.view.now.to_string());
            }
        }
        Action::Publish(Publish { patch, reason: None })
    }

    fn carry_out_drain(&self, order: &str) -> Action {
        if self.view.settings.drain == DrainBy::Itself {
            match &self.view.drain {
                SelfDrain::Blocked { order: of, why } if of == order => {
                    let text = format!("the node cannot be drained for {}: {why}", self.target.config);
                    let reason = Reason::new(ReasonKind::DrainBlocked, text);
                    return self.degrade(&reason, false, Waits::Drain, None);
                }
                SelfDrain::Running { order: of } if of == order => {}
                _ => return Action::Drain(order.to_owned()),
            }
        }
        let until = self.asked_at(order) + DRAIN_SLOW;
        if self.view.now < until {
            return Action::Wait(Wait { waits: Waits::Drain, until: Some(until) });
        }
        let text = format!(
            "the drain for {} is not done after {} minutes; look for a PodDisruptionBudget or a pod that does \
             not end, and at the log of the drain controller",
            self.target.config,
            DRAIN_SLOW / 60
        );
        self.degrade(&Reason::new(ReasonKind::DrainSlow, text), false, Waits::Drain, None)
    }

    fn asked_at(&self, order: &str) -> i64 {
        match &self.view.memory.drain_asked {
            Some((of, at)) if of == order => *at,
            _ => self.view.now,
        }
    }

    /// The order that takes a drain of ours back; none if there is nothing to take back.
    pub(super) fn release(&self) -> Option<String> {
        let now = &self.node.annotations;
        if now.holds_our_drain() {
            return Some(format!("uncordon-{}", self.uncordon_name()));
        }
        // A person's cordon stays: the drain that nobody carried out yet is withdrawn.
        (now.asks_to_drain() && now.drain_is_pending()).then(|| now.last_applied_drain.clone())
    }

    /// The controller does not look at the name; people do.
    fn uncordon_name(&self) -> &str {
        let current = &self.node.annotations.current_config;
        if self.is_there() || current.is_empty() { &self.target.config } else { current }
    }

    /// Sees an uncordon through; none if none is pending.
    pub(super) fn carry_out_uncordon(&self) -> Option<Action> {
        let now = &self.node.annotations;
        if !now.drain_is_pending() || now.asks_to_drain() {
            return None;
        }
        let order = &now.desired_drain;
        if self.view.settings.drain == DrainBy::Itself
            && !matches!(&self.view.drain, SelfDrain::Running { order: of } if of == order)
        {
            return Some(Action::Drain(order.clone()));
        }
        Some(Action::Wait(Wait {
            waits: Waits::Uncordon,
            until: Some(self.asked_at(order) + UNCORDON_SLOW).filter(|until| *until > self.view.now),
        }))
    }

    /// Lets whatever was ordered last be carried out.
    pub(super) fn see_order_through(&self) -> Action {
        let order = &self.node.annotations.desired_drain;
        let runs = matches!(&self.view.drain, SelfDrain::Running { order: of } | SelfDrain::Blocked { order: of, .. } if of == order);
        if self.view.settings.drain == DrainBy::Itself && !runs {
            return Action::Drain(order.clone());
        }
        Action::Wait(Wait { waits: Waits::Drain, until: None })
    }

    /// An uncordon takes too long.
    pub(super) fn uncordon_is_slow(&self) -> bool {
        let now = &self.node.annotations;
        now.drain_is_pending()
            && !now.asks_to_drain()
            && self.view.now >= self.asked_at(&now.desired_drain) + UNCORDON_SLOW
    }
}
