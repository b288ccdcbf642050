//! A pool's status: counters and conditions as the operator's MachineConfigPool has them.

use serde_json::{Value, json};

use super::Rendered;
use super::rollout::Rollout;
use crate::model::pool::Pool;

/// Longest message of a condition, in characters: it is read in a terminal.
const MESSAGE_MAX: usize = 1024;

/// A condition.
struct Condition {
    kind: &'static str,
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn new(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true, reason, message: message.into() }
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
            "type": self.kind, "status": status, "reason": self.reason, "message": message,
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
        return [Condition::new("Updated", true, "", text), Condition::new("Updating", false, "", "")];
    }
    let (is_updating, reason, text) = match rollout {
        Rollout { target: None, .. } => (false, "NothingRendered", "There is no rendered config".to_owned()),
        Rollout { is_paused: true, .. } => {
            (false, "Paused", format!("The pool is paused: no further node gets {target}"))
        }
        Rollout { is_halted: true, .. } => {
            (false, "Halted", format!("Too many nodes failed: no further node gets {target}"))
        }
        Rollout { canaries, .. } if !canaries.is_empty() => {
            let first = canaries.join(", ");
            (true, "Canary", format!("Node {first} gets {target} first; the others follow when it is Done"))
        }
        _ => (true, "RollingOut", format!("Nodes are updating to {target}")),
    };
    [Condition::new("Updated", false, "", ""), Condition::new("Updating", is_updating, reason, text)]
}

fn trouble(rollout: &Rollout<'_>, fault: Option<&str>, conflicts: &[String]) -> [Condition; 3] {
    let target = rollout.target.unwrap_or_default();
    let node = match (rollout.failures(), conflicts.first()) {
        (Some(failures), _) if rollout.is_halted => {
            let next = "set a config that works, or mend the node";
            let text = format!("The roll-out of {target} is halted. {failures}; next: {next}");
            Condition::new("NodeDegraded", true, "Halted", text)
        }
        (Some(failures), _) => Condition::new("NodeDegraded", true, "NodesDegraded", failures),
        (None, Some(conflict)) => Condition::new("NodeDegraded", true, "SeveralPools", conflict),
        (None, None) => Condition::new("NodeDegraded", false, "", ""),
    };
    let render = match fault {
        Some(why) => Condition::new("RenderDegraded", true, "RenderFailed", why),
        None => Condition::new("RenderDegraded", false, "", ""),
    };
    let degraded = match (&render, &node) {
        (Condition { is_true: true, message, .. }, _) => {
            Condition::new("Degraded", true, "RenderFailed", message.as_str())
        }
        (_, Condition { is_true: true, reason, message, .. }) => {
            Condition::new("Degraded", true, reason, message.as_str())
        }
        _ => Condition::new("Degraded", false, "", ""),
    };
    [node, render, degraded]
}
