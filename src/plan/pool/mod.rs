//! What the pool controller does next: one pure function from the cluster's objects to actions.
//!
//! ```text
//!   MachineConfigs ─render─► rendered-POOL-HASH ─roll out─► desiredConfig of nodes
//!                                  │                            │ canary, then at most maxUnavailable
//!                                  │                            │ at a time, zone by zone, oldest first
//!                                  └── removed when no node     └── halts when too many fail
//!                                      and no pool names it
//! ```
//!
//! Nothing is remembered: a halt, a canary and the order follow from what nodes and pools say now, so a
//! controller that starts anew goes on where the last one was. A failed node stays Degraded while it tries
//! again, so that a halt does not flicker.

mod member;
mod render;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub use member::{Node, pool_of};
pub use render::{Rendered, Source, render};

use crate::model::pool::Pool;
use rollout::Rollout;

/// What every rendered MachineConfig's name begins with.
pub const RENDERED: &str = "rendered-";

/// The cluster, as the controller knows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Pools by name.
    pub pools: &'a BTreeMap<String, Pool>,
    /// What the configs of each pool are together, by the pool's name; an error says what is wrong.
    pub rendered: &'a BTreeMap<String, Result<Rendered, String>>,
    /// Rendered MachineConfigs that exist, with the uid of the pool that owns each.
    pub existing: &'a BTreeMap<String, String>,
    /// Nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// Now, as the API server writes times.
    pub now: &'a str,
}

/// What is to be done: one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make this rendered MachineConfig. Nothing else of the pool is done before it exists.
    Create {
        /// The pool that it is for.
        pool: String,
        /// The whole object.
        object: Value,
    },
    /// Write `spec.configuration` of a pool.
    Configure {
        /// The pool.
        pool: String,
        /// `spec.configuration`.
        configuration: Value,
    },
    /// Write a node's `desiredConfig`.
    Assign {
        /// The node.
        node: String,
        /// The MachineConfig.
        config: String,
    },
    /// Write a pool's status.
    Status {
        /// The pool.
        pool: String,
        /// `status`, all of it.
        status: Value,
    },
    /// Remove a rendered MachineConfig that nobody names.
    Remove(String),
}

/// Decides what is to be done, in this order.
pub fn next(view: &View<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    let members = member::members(view.pools, view.nodes);
    for (name, pool) in view.pools {
        if pool.is_leaving {
            continue;
        }
        let nodes = members.of.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let conflicts = members.conflicts.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        of_pool(view, pool, nodes, conflicts, &mut actions);
    }
    actions.extend(garbage(view).into_iter().map(Action::Remove));
    actions
}

fn of_pool(view: &View<'_>, pool: &Pool, nodes: &[&Node], conflicts: &[String], actions: &mut Vec<Action>) {
    let rendered = view.rendered.get(&pool.name);
    let wanted = rendered.and_then(|rendered| rendered.as_ref().ok());
    let fault = match (&pool.spec, rendered) {
        (Err(why), _) | (Ok(_), Some(Err(why))) => Some(why.as_str()),
        _ => None,
    };
    if let Some(wanted) = wanted
        && !view.existing.contains_key(&wanted.name)
    {
        actions.push(Action::Create { pool: pool.name.clone(), object: wanted.object(pool) });
        return;
    }
    // What cannot be rendered leaves the roll-out of what was rendered before alone.
    let target = wanted.map_or(pool.configuration.as_str(), |wanted| wanted.name.as_str());
    if let Some(wanted) = wanted
        && pool.configuration != wanted.name
    {
        let configuration = wanted.configuration();
        actions.push(Action::Configure { pool: pool.name.clone(), configuration });
    }
    let target = Some(target).filter(|target| view.existing.contains_key(*target));
    let rollout = Rollout::new(pool.spec.as_ref().ok(), target, nodes);
    actions.extend(
        rollout
            .assign
            .iter()
            .map(|node| Action::Assign { node: node.clone(), config: target.unwrap_or_default().to_owned() }),
    );
    let status = status::status(pool, wanted, &rollout, fault, conflicts, view.now);
    if status != pool.status {
        actions.push(Action::Status { pool: pool.name.clone(), status });
    }
}

/// Rendered MachineConfigs of ours that neither a pool nor a node names.
fn garbage(view: &View<'_>) -> Vec<String> {
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for pool in view.pools.values() {
        named.insert(&pool.configuration);
        named.extend(pool.status["configuration"]["name"].as_str());
    }
    named.extend(view.rendered.values().flatten().map(|wanted| wanted.name.as_str()));
    for node in view.nodes.values() {
        named.extend([node.annotations.current_config.as_str(), node.annotations.desired_config.as_str()]);
    }
    let is_ours = |name: &str, owner: &str| {
        view.pools
            .values()
            .any(|pool| pool.uid == owner && name.starts_with(&format!("{RENDERED}{}-", pool.name)))
    };
    view.existing
        .iter()
        .filter(|(name, owner)| is_ours(name, owner) && !named.contains(name.as_str()))
        .map(|(name, _)| name.clone())
        .collect()
}

impl Rendered {
    /// The whole MachineConfig, owned by its pool.
    fn object(&self, pool: &Pool) -> Value {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": self.name,
                "ownerReferences": [{
                    "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                    "name": pool.name, "uid": pool.uid, "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": self.spec,
        })
    }

    /// `spec.configuration` of the pool.
    fn configuration(&self) -> Value {
        let source = |name: &String| {
            json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "name": name,
            })
        };
        json!({ "name": self.name, "source": self.sources.iter().map(source).collect::<Vec<_>>() })
    }
}
