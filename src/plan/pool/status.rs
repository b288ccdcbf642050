//! A pool's status: counters and conditions as the operator's MachineConfigPool has them.

use serde_json::{Value, json};

use super::Rendered;
use super::rollout::Rollout;
use crate::model::pool::Pool;

/// Longest message of a condition, in characters: it is read in a terminal.
const MESSAGE_MAX: usize = 1024;

/// Why a condition is what it is. `docs/runbook.md` says of each what to do; a test compares the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing has been rendered yet.
    NothingRendered,
    /// A person paused the pool.
    Paused,
    /// Too many nodes failed.
    Halted,
    /// The first nodes are not Done yet.
    Canary,
    /// Nodes are on their way.
    RollingOut,
    /// Nodes failed, and others are told all the same.
    NodesDegraded,
    /// A node is in several pools.
    SeveralPools,
    /// The configs cannot be merged, or the pool cannot be read.
    RenderFailed,
}

impl Why {
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 8] = [
        Self::NothingRendered,
        Self::Paused,
        Self::Halted,
        Self::Canary,
        Self::RollingOut,
        Self::NodesDegraded,
        Self::SeveralPools,
        Self::RenderFailed,
    ];

    /// As it is written.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::NothingRendered => "NothingRendered",
            Self::Paused => "Paused",
            Self::Halted => "Halted",
            Self::Canary => "Canary",
            Self::RollingOut => "RollingOut",
            Self::NodesDegraded => "NodesDegraded",
            Self::SeveralPools => "SeveralPools",
            Self::RenderFailed => "RenderFailed",
        }
    }
}

/// A condition.
struct Condition {
    kind: &'static str,
    is_true: bool,
    why: Option<Why>,
    message: String,
}

impl Condition {
    fn new(kind: &'static str, is_true: bool, why: Why, message: impl Into<String>) -> Self {
        Self { kind, is_true, why: Some(why), message: message.into() }
    }

    /// One that needs no words.
    fn plain(kind: &'static str, is_true: bool) -> Self {
        Self { kind, is_true, why: None, message: String::new() }
    }

    /// As it is written; its time stays while its status does.
    fn object(&self, before: &Value, now: &str) -> Value {
        let status = if self.is_true { "True" } else { "False" };
        let known = before["conditions"].as_array().into_iter().flatten();
        let since = known
            .filter(|one| one["type"] == self.kind && one["status"] == status)
            .find_map(|one| one["lastTransitionTime"].as_str())
            .unwrap_or(now);
        let message: String = self.message.chars().take(MESSAGE_MAX).collect();
        json!({
            "type": self.kind, "status": status, "reason": self.why.map_or("", Why::id), "message": message,
            "lastTransitionTime": since,
        })
    }
}

/// `status`, all of it.
pub(super) fn status(
    pool: &Pool,
    wanted: Option<&Rendered>,
    rollout: &Rollout<'_>,
    fault: Option<&str>,
    conflicts: &[String],
    now: &str,
) -> Value {
    let is_updated = rollout.target.is_some() && rollout.updated == rollout.count;
    let (progress, trouble) = (progress(rollout, is_updated), trouble(rollout, fault, conflicts));
    let mut status = json!({
        "observedGeneration": pool.generation,
        "machineCount": rollout.count,
        "updatedMachineCount": rollout.updated,
        "readyMachineCount": rollout.ready,
        "unavailableMachineCount": rollout.unavailable,
        "degradedMachineCount": rollout.failed.len(),
        "conditions": progress.iter().chain(&trouble).map(|one| one.object(&pool.status, now)).collect::<Vec<_>>(),
    });
    // What all nodes have; meanwhile what they had before.
    let configuration = match wanted {
        Some(wanted) if is_updated => wanted.configuration(),
        _ => pool.status["configuration"].clone(),
    };
    if !configuration.is_null() {
        status["configuration"] = configuration;
    }
    status
}

fn progress(rollout: &Rollout<'_>, is_updated: bool) -> [Condition; 2] {
    let target = rollout.target.unwrap_or_default();
    if is_updated {
        let text = format!("All nodes are updated with {target}");
        let updated = Condition { message: text, ..Condition::plain("Updated", true) };
        return [updated, Condition::plain("Updating", false)];
    }
    let (is_updating, why, text) = match rollout {
        Rollout { target: None, .. } => {
            (false, Why::NothingRendered, "There is no rendered config".to_owned())
        }
        Rollout { is_paused: true, .. } => {
            (false, Why::Paused, format!("The pool is paused: no further node gets {target}"))
        }
        Rollout { is_halted: true, .. } => {
            (false, Why::Halted, format!("Too many nodes failed: no further node gets {target}"))
        }
        Rollout { canaries, .. } if !canaries.is_empty() => {
            let first = canaries.join(", ");
            (
                true,
                Why::Canary,
                format!("Node {first} gets {target} first; the others follow when it is Done"),
            )
        }
        _ => (true, Why::RollingOut, format!("Nodes are updating to {target}")),
    };
    [Condition::plain("Updated", false), Condition::new("Updating", is_updating, why, text)]
}

fn trouble(rollout: &Rollout<'_>, fault: Option<&str>, conflicts: &[String]) -> [Condition; 3] {
    let target = rollout.target.unwrap_or_default();
    let node = match (rollout.failures(), conflicts.first()) {
        (Some(failures), _) if rollout.is_halted => {
            let next = "set a config that works, or mend the node";
            let text = format!("The roll-out of {target} is halted. {failures}; next: {next}");
            Condition::new("NodeDegraded", true, Why::Halted, text)
        }
        (Some(failures), _) => Condition::new("NodeDegraded", true, Why::NodesDegraded, failures),
        (None, Some(conflict)) => Condition::new("NodeDegraded", true, Why::SeveralPools, conflict),
        (None, None) => Condition::plain("NodeDegraded", false),
    };
    let render = match fault {
        Some(why) => Condition::new("RenderDegraded", true, Why::RenderFailed, why),
        None => Condition::plain("RenderDegraded", false),
    };
    let degraded = match (&render, &node) {
        (Condition { is_true: true, message, .. }, _) => {
            Condition::new("Degraded", true, Why::RenderFailed, message.as_str())
        }
        (_, Condition { is_true: true, why, message, .. }) => {
            Condition { why: *why, message: message.clone(), ..Condition::plain("Degraded", true) }
        }
        _ => Condition::plain("Degraded", false),
    };
    [node, render, degraded]
}
