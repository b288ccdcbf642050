//! How far an update is, in the words of MachineConfigNode's conditions.
//!
//! Conditions that change together are one write, so a phase is a set of them. `Unknown` means in
//! progress; when the node is Updated all others go back to `False`.

use super::annotations::{DESIRED_DRAIN, STATE, State};
use super::{Action, Step, View, Waits};

/// How far an update is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The node is as desired.
    #[default]
    Updated,
    /// Image and configuration are fetched and checked.
    Preparing,
    /// Workloads leave.
    Draining,
    /// What was prepared becomes the next boot, or is applied.
    Applying,
    /// It reboots.
    Rebooting,
    /// It runs what was asked for: checks, then workloads come back.
    Resuming,
}

/// A condition of a MachineConfigNode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// In one word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// All types, in the order in which an update goes through them.
pub const KINDS: [&str; 14] = [
    "Updated",
    "UpdatePrepared",
    "UpdateExecuted",
    "Cordoned",
    "Drained",
    "AppliedFilesAndOS",
    "RebootedNode",
    "UpdatePostActionComplete",
    "Resumed",
    "UpdateComplete",
    "Uncordoned",
    "NodeDegraded",
    "PinnedImageSetsProgressing",
    "PinnedImageSetsDegraded",
];

/// What the conditions are made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// How far it is.
    pub phase: Phase,
    /// A process that has just begun does not know how far it is.
    pub is_known: bool,
    /// The MachineConfig that is desired.
    pub config: String,
    /// This update drains.
    pub drains: bool,
    /// This update reboots.
    pub reboots: bool,
    /// Why the node is Degraded or Unreconcilable.
    pub degraded: Option<String>,
}

impl Progress {
    /// How far the update is once `action` is what comes next.
    #[must_use]
    pub fn after(&self, view: &View, action: &Action) -> Self {
        let Some(node) = &view.node else { return self.clone() };
        let mut next = self.clone();
        next.config.clone_from(&node.annotations.desired_config);
        if next.config != self.config {
            (next.drains, next.reboots) = (false, false);
            next.degraded = None;
        }
        if let Some(prepared) = &view.memory.prepared {
            (next.drains, next.reboots) = (prepared.plan.drain, prepared.plan.reboot);
        }
        let phase = self.phase_after(action);
        next.phase = phase.unwrap_or(self.phase);
        next.is_known |= phase.is_some();
        if next.phase == Phase::Resuming && self.phase != Phase::Applying {
            // A process that began after the boot has not seen what came before.
            next.reboots = true;
            next.drains |= !node.annotations.desired_drain.is_empty();
        }
        next.degraded = match action {
            Action::Publish(publish) => match &publish.reason {
                Some(reason) if reason.kind.state() != State::Working => Some(reason.annotation()),
                Some(_) => None,
                None if next.phase == Phase::Updated => None,
                None => next.degraded.filter(|_| !publish.patch.annotations.contains_key(STATE)),
            },
            Action::Wait(wait) if wait.waits == Waits::Change => None,
            _ => next.degraded,
        };
        if !next.is_known && next.degraded.is_some() {
            (next.is_known, next.phase) = (true, Phase::Preparing);
        }
        next
    }

    fn phase_after(&self, action: &Action) -> Option<Phase> {
        Some(match action {
            Action::Host(Step::Prepare { .. }) => Phase::Preparing,
            Action::Host(Step::Commit { .. } | Step::ApplyLive { .. }) => Phase::Applying,
            Action::Host(Step::Reboot { .. }) => Phase::Rebooting,
            Action::Wait(wait) => match wait.waits {
                Waits::Change => Phase::Updated,
                Waits::Verdict => Phase::Resuming,
                _ => return None,
            },
            Action::Publish(publish) => {
                let value = |name| publish.patch.annotations.get(name).and_then(Option::as_deref);
                if value(STATE) == Some(State::Done.as_str()) {
                    return Some(Phase::Updated);
                }
                let order = value(DESIRED_DRAIN)?;
                if order.starts_with("drain-") {
                    Phase::Draining
                } else if publish.reason.is_none() {
                    Phase::Resuming
                } else {
                    return None;
                }
            }
            _ => return None,
        })
    }

    /// All conditions.
    pub fn conditions(&self) -> Vec<Condition> {
        KINDS.iter().map(|kind| self.condition(kind)).collect()
    }

    fn condition(&self, kind: &'static str) -> Condition {
        let (status, message) = match kind {
            "NodeDegraded" => match &self.degraded {
                Some(reason) => ("True", reason.clone()),
                None => ("False", "The node is not degraded".to_owned()),
            },
            "Updated" if self.phase == Phase::Updated => {
                ("True", format!("The node is as {} says", self.config))
            }
            "Updated" => ("False", format!("The node goes to {}", self.config)),
            _ => (self.status(kind), self.message(kind)),
        };
        let reason = match status {
            "False" if kind != "NodeDegraded" && kind != "Updated" => "NotYetOccurred".to_owned(),
            _ => format!("{}{kind}", parent(kind)),
        };
        Condition { kind, status, reason, message }
    }

    fn status(&self, kind: &str) -> &'static str {
        let phase = self.phase;
        let passed = |is_begun: bool, is_over: bool| match (is_begun, is_over) {
            (_, true) => "True",
            (true, false) => "Unknown",
            (false, false) => "False",
        };
        if phase == Phase::Updated {
            return "False";
        }
        match kind {
            "UpdatePrepared" => passed(true, phase > Phase::Preparing),
            "UpdateExecuted" => passed(phase >= Phase::Draining, phase >= Phase::Rebooting),
            "Cordoned" if self.drains => passed(false, phase >= Phase::Draining),
            "Drained" if self.drains => passed(phase >= Phase::Draining, phase > Phase::Draining),
            "AppliedFilesAndOS" => passed(phase >= Phase::Applying, phase >= Phase::Rebooting),
            "RebootedNode" if self.reboots => passed(phase >= Phase::Rebooting, phase >= Phase::Resuming),
            "UpdatePostActionComplete" if !self.reboots => passed(false, phase >= Phase::Resuming),
            "Resumed" if self.reboots => passed(false, phase >= Phase::Resuming),
            "UpdateComplete" => passed(phase >= Phase::Resuming, false),
            _ => "False",
        }
    }

    fn message(&self, kind: &str) -> String {
        match (kind, self.phase) {
            (_, Phase::Updated) => {
                format!(
                    "Action during update to {}: This node has not yet entered the {kind} phase",
                    self.config
                )
            }
            ("UpdatePrepared", phase) if phase > Phase::Preparing => {
                format!("Update to {} is prepared. Drain Required: {}", self.config, self.drains)
            }
            ("Drained" | "Cordoned", phase) if phase > Phase::Preparing && !self.drains => {
                "Node drain is not required for this update".to_owned()
            }
            _ if self.status(kind) == "False" => format!("This node has not yet entered the {kind} phase"),
            _ => format!("{kind} of the update to {}", self.config),
        }
    }
}

fn parent(kind: &str) -> &'static str {
    match kind {
        "Cordoned" | "Drained" | "AppliedFilesAndOS" => "UpdateExecuted",
        "RebootedNode" => "UpdatePostActionComplete",
        "Uncordoned" => "UpdateComplete",
        _ => "",
    }
}
