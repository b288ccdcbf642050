//! What the daemon does next: one pure function from what it sees to one action.
//!
//! ```text
//!   Done ──desired changes──► Working: prepare ─► drain ─► commit ─► reboot ─► verify ─► good
//!     ▲                          │        │  (only if the plan says so)                    │
//!     │                          │        └─► apply live ──────────────────────┐           │
//!     └───────────── uncordon (if drained) ◄───────────────────────────────────┴───────────┘
//!   any step fails: Degraded, the drain is taken back, tried again after a while
//!   refused: Unreconcilable; gone back, or unproven: Degraded until something else is desired
//! ```
//!
//! Nothing here depends on what this process did before: [`Memory`] only saves questions, and a
//! process that starts without it comes to the same end. The loop does one action and comes back.

pub mod annotations;
mod degrade;
mod drain;
mod drive;
pub mod memory;
pub mod phase;
pub mod reason;
mod settle;
#[cfg(test)]
mod tests;
pub mod view;

use annotations::{NodePatch, REBOOTING};
use reason::{Reason, ReasonKind};
pub use view::*;

use crate::model::wire::{Change, ChangeState, HostReport, IntentReport};

/// What all rows look at.
struct Row<'a> {
    view: &'a View,
    node: &'a NodeView,
    host: &'a HostReport,
    target: Target,
    force: bool,
}

/// Decides what to do next.
pub fn next(view: &View) -> Action {
    let Some(node) = &view.node else { return wait(Waits::Node) };
    let Some(host) = &view.host else { return without_host(view, node) };
    if let Some(running) = host.running.first() {
        return Action::Attach(running.id.clone());
    }
    let row = Row { view, node, host, target: target(node), force: view.memory.may_force(host) };
    if row.host.mcd.is_empty() {
        let text = "there is no mcd on this host and the pod's own copy did not help; install it, or see the pod's log";
        return row.degrade(&Reason::new(ReasonKind::HostWithoutMcd, text), false, Waits::Person, None);
    }
    row.adopt()
        .or_else(|| row.controller_config())
        .or_else(|| row.given_up())
        .unwrap_or_else(|| if row.is_there() { row.settle() } else { row.drive() })
}

/// What the node should become.
pub fn target(node: &NodeView) -> Target {
    let annotations = &node.annotations;
    let image = Some(annotations.desired_image.clone()).filter(|image| !image.is_empty());
    Target { config: annotations.desired_config.clone(), image }
}

fn without_host(view: &View, node: &NodeView) -> Action {
    let Some(fault) = &view.host_fault else { return Action::AskHost };
    // Nobody but a person helps a node that was Done; it is as it was, so only an update is late.
    let host = HostReport::default();
    let row = Row { view, node, host: &host, target: target(node), force: false };
    let reason = Reason::new(ReasonKind::HostUnreachable, fault.clone());
    row.degrade(&reason, false, Waits::Retry, Some(view.now + memory::RETRY_FIRST))
}

fn wait(waits: Waits) -> Action {
    Action::Wait(Wait { waits, until: None })
}

impl Row<'_> {
    /// What a node says that nobody has told what it should be: what the Go daemon knew.
    fn adopt(&self) -> Option<Action> {
        let now = &self.node.annotations;
        if !now.desired_config.is_empty() {
            return None;
        }
        let left = self.host.taken_over.as_ref();
        let file = |name: &str| {
            left.and_then(|left| left.node_annotations.get(name)).filter(|value| !value.is_empty()).cloned()
        };
        let current = Some(now.current_config.clone())
            .filter(|name| !name.is_empty())
            .or_else(|| file(annotations::CURRENT_CONFIG))
            .or_else(|| left.and_then(|left| left.current_config.clone()))
            .or_else(|| self.host.applied_config.clone());
        let desired = file(annotations::DESIRED_CONFIG).or_else(|| current.clone());
        let (Some(current), Some(desired)) = (current, desired) else { return Some(wait(Waits::Desire)) };
        let patch = NodePatch::new().set(annotations::CURRENT_CONFIG, &now.current_config, &current).set(
            annotations::DESIRED_CONFIG,
            "",
            &desired,
        );
        Some(Action::Publish(Publish { patch, reason: None }))
    }

    /// Certificates and the pull secret go before everything else: an update may need them. A failure
    /// stops no update.
    fn controller_config(&self) -> Option<Action> {
        let ControllerConfigView::Found { version } = &self.view.controller_config else { return None };
        let memory = &self.view.memory;
        let is_synced = self.node.annotations.last_synced == *version
            || memory.controller_config_synced.as_ref() == Some(version);
        let is_late = memory
            .controller_config_failed
            .as_ref()
            .is_some_and(|(failed, step)| failed == version && self.view.now < step.retry_at());
        let is_committed = self.host.intent.as_ref().is_some_and(|intent| intent.committed);
        if is_synced || is_late || is_committed {
            return None;
        }
        Some(Action::Host(Step::ControllerConfig { version: version.clone() }))
    }

    /// What went back, or was taken back by a person, is not driven again by itself.
    fn given_up(&self) -> Option<Action> {
        if self.force || self.intent_for_target().is_some_and(|intent| intent.committed) {
            return None;
        }
        let (kind, cause) = self.what_went_wrong()?;
        let name = &self.target.config;
        let text = match kind {
            ReasonKind::ChangeRolledBack => format!(
                "{name} was rolled back by a person{cause}; set another desiredConfig, or create \
                 /run/machine-config-daemon-force to go there again"
            ),
            ReasonKind::ChangeUnproven => format!(
                "{name} did not come up and the host went back{cause}; set another desiredConfig, or create \
                 /run/machine-config-daemon-force to try it again"
            ),
            _ => format!(
                "{name} failed after its boot{cause}; set another desiredConfig, or create \
                 /run/machine-config-daemon-force to try it again"
            ),
        };
        // It runs its last good system: nothing keeps workloads away. One that could not go back does.
        Some(self.degrade(&Reason::new(kind, text), !self.runs_target(), Waits::Person, None))
    }

    fn what_went_wrong(&self) -> Option<(ReasonKind, String)> {
        let cause = |text: &str| if text.is_empty() { String::new() } else { format!(" ({text})") };
        if let Some(back) = &self.host.went_back
            && !self.runs_target()
            && self.is_target(back.config.as_deref(), back.image.as_deref())
        {
            let kind =
                if back.by == "boot-count" { ReasonKind::ChangeUnproven } else { ReasonKind::ChangeFailed };
            return Some((kind, cause(&back.cause)));
        }
        let change = self.change_for_target()?;
        let kind = match change.state {
            ChangeState::Failed => ReasonKind::ChangeFailed,
            ChangeState::Unproven => ReasonKind::ChangeUnproven,
            ChangeState::RolledBack if !self.runs_target() => ReasonKind::ChangeRolledBack,
            _ => return None,
        };
        Some((kind, cause(change.cause.as_deref().unwrap_or_default())))
    }

    /// The host is what is desired, and nothing else is on its way.
    fn is_there(&self) -> bool {
        let is_on_its_way = self.intent_for_target().is_some_and(|intent| intent.committed);
        !self.force && !is_on_its_way && self.runs_target()
    }

    fn runs_target(&self) -> bool {
        if let Some((target, boot)) = &self.view.memory.settled
            && *target == self.target
            && *boot == self.host.boot_id
        {
            return true;
        }
        if self.host.applied_config.as_deref() != Some(self.target.config.as_str()) {
            return false;
        }
        match &self.target.image {
            // An image of its own is given up: only the host can tell whether it runs the config's.
            None => self.node.annotations.current_image.is_empty(),
            Some(image) => {
                let asked = self.host.change.as_ref().and_then(|change| change.image.as_ref());
                asked == Some(image) || self.host.booted_image.as_ref() == Some(image)
            }
        }
    }

    fn is_target(&self, config: Option<&str>, image: Option<&str>) -> bool {
        config == Some(self.target.config.as_str())
            && self.target.image.as_deref().is_none_or(|wanted| image == Some(wanted))
    }

    fn change_for_target(&self) -> Option<&Change> {
        let change = self.host.change.as_ref()?;
        self.is_target(change.config.as_deref(), change.image.as_deref()).then_some(change)
    }

    fn intent_for_target(&self) -> Option<&IntentReport> {
        let intent = self.host.intent.as_ref()?;
        self.is_target(intent.config.as_deref(), intent.image.as_deref()).then_some(intent)
    }

    /// What goes along with every write.
    fn patch(&self) -> NodePatch {
        let now = &self.node.annotations;
        let mut patch = NodePatch::new();
        let waits_for_boot = self.host.intent.as_ref().is_some_and(|intent| intent.committed);
        if now.post_config_action == REBOOTING && !waits_for_boot && !self.host.boot_id.is_empty() {
            patch = patch.set(annotations::POST_CONFIG_ACTION, &now.post_config_action, "");
        }
        if let Some(version) = &self.view.memory.controller_config_synced {
            patch = patch.set(annotations::LAST_SYNCED, &now.last_synced, version);
        }
        patch
    }
}

/// What runs on the host is no longer wanted, and may be stopped: a prepare for something that is not
/// desired any more.
pub fn is_superseded(view: &View, step: &Step) -> bool {
    let (Step::Prepare { target: of, .. }, Some(node)) = (step, &view.node) else { return false };
    *of != target(node)
}
