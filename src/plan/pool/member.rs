//! Nodes, and which pool each belongs to.

use std::collections::BTreeMap;

use crate::model::pool::Pool;
use crate::plan::cluster::annotations::{Annotations, State};

/// A node, as far as a roll-out needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `topology.kubernetes.io/zone`, empty for none.
    pub zone: String,
    /// `metadata.creationTimestamp`, which sorts as text.
    pub created: String,
    /// Its kubelet says so.
    pub is_ready: bool,
    /// No new pods are put there.
    pub unschedulable: bool,
    /// It is being deleted.
    pub is_leaving: bool,
    /// Ours.
    pub annotations: Annotations,
}

impl Node {
    /// It is as it was told, and its deployment is good.
    pub(super) fn is_settled(&self) -> bool {
        let now = &self.annotations;
        now.desired_config == now.current_config && matches!(now.state, None | Some(State::Done))
    }

    /// It says that something went wrong.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.annotations.state, Some(State::Degraded | State::Unreconcilable))
    }

    /// Workloads run on it and will go on.
    pub(super) fn is_available(&self) -> bool {
        self.is_ready && !self.unschedulable && self.is_settled()
    }

    /// It was told to have `config`.
    pub(super) fn is_told(&self, config: &str) -> bool {
        self.annotations.desired_config == config
    }

    /// It has `config`, for good.
    pub(super) fn has(&self, config: &str) -> bool {
        self.is_told(config) && self.is_settled() && self.annotations.state == Some(State::Done)
    }
}

/// Who belongs where.
#[derive(Debug, Default)]
pub(super) struct Members<'a> {
    /// Nodes by the pool's name.
    pub(super) of: BTreeMap<&'a str, Vec<&'a Node>>,
    /// Nodes that several pools claim, by the name of each, as text for people.
    pub(super) conflicts: BTreeMap<&'a str, Vec<String>>,
}

/// The pool of a node, as the operator chooses: master before all, a custom pool before worker.
///
/// # Errors
///
/// Several custom pools select it: their names.
pub fn pool_of<'a>(pools: &'a BTreeMap<String, Pool>, node: &Node) -> Result<Option<&'a str>, Vec<&'a str>> {
    let selects = |pool: &&Pool| pool.spec.as_ref().is_ok_and(|spec| spec.nodes.selects(&node.labels));
    let all: Vec<&Pool> = pools.values().filter(selects).collect();
    let named = |name: &str| all.iter().find(|pool| pool.name == name).map(|pool| pool.name.as_str());
    let custom: Vec<&str> =
        all.iter().filter(|pool| !pool.is_standard()).map(|pool| pool.name.as_str()).collect();
    match custom.as_slice() {
        _ if named("master").is_some() && custom.len() < 2 => Ok(named("master")),
        [] => Ok(named("worker")),
        [one] => Ok(Some(one)),
        _ => Err(custom),
    }
}

pub(super) fn members<'a>(
    pools: &'a BTreeMap<String, Pool>,
    nodes: &'a BTreeMap<String, Node>,
) -> Members<'a> {
    let mut members = Members::default();
    for node in nodes.values().filter(|node| !node.is_leaving) {
        match pool_of(pools, node) {
            Ok(Some(pool)) => members.of.entry(pool).or_default().push(node),
            Ok(None) => {}
            Err(claims) => {
                let text = format!("Node {} is selected by several pools: {}", node.name, claims.join(", "));
                for pool in claims {
                    members.conflicts.entry(pool).or_default().push(text.clone());
                }
            }
        }
    }
    members
}
