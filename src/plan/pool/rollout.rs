//! Which nodes of a pool get the new configuration now.

use super::Node;
use crate::model::pool::Spec;
use crate::plan::cluster::annotations::State;

/// How a pool stands, and who is next.
#[derive(Debug, Default)]
pub(super) struct Rollout<'a> {
    /// The nodes that are told now, in this order.
    pub(super) assign: Vec<String>,
    /// All nodes of the pool.
    pub(super) count: usize,
    /// That have it, for good.
    pub(super) updated: usize,
    /// Of these, that are ready for work.
    pub(super) ready: usize,
    /// On which no workloads run, or soon will not.
    pub(super) unavailable: usize,
    /// That say that something went wrong, by name.
    pub(super) failed: Vec<&'a Node>,
    /// Too many failed with this configuration.
    pub(super) is_halted: bool,
    /// The nodes that must show first what it does: those that were told and are not Done.
    pub(super) canaries: Vec<&'a str>,
    /// No node is told anything.
    pub(super) is_paused: bool,
    /// What is rolled out.
    pub(super) target: Option<&'a str>,
}

/// In which order nodes are told. Those on which no workloads run cost nobody anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It failed with something else: this may be what mends it.
    Failed,
    /// It is on its way to something that is no longer wanted.
    Underway,
    /// Workloads run on it.
    Available,
    /// Somebody keeps workloads away.
    Cordoned,
    /// It failed, or was on its way, and its kubelet is silent: it may take long to answer.
    Silent,
}

impl<'a> Rollout<'a> {
    /// Looks at the nodes of a pool. Without a specification that can be read nobody is told anything.
    pub(super) fn new(spec: Option<&Spec>, target: Option<&'a str>, nodes: &[&'a Node]) -> Self {
        let has = |node: &&&Node| target.is_some_and(|target| node.has(target));
        let mut rollout = Self {
            count: nodes.len(),
            updated: nodes.iter().filter(has).count(),
            ready: nodes.iter().filter(has).filter(|node| node.is_available()).count(),
            unavailable: nodes.iter().filter(|node| !node.is_available()).count(),
            failed: nodes.iter().filter(|node| node.has_failed()).copied().collect(),
            target,
            ..Self::default()
        };
        if let (Some(spec), Some(target)) = (spec, target) {
            rollout.choose(spec, target, nodes);
        }
        rollout
    }

    fn choose(&mut self, spec: &Spec, target: &'a str, nodes: &[&'a Node]) {
        let told: Vec<&&Node> = nodes.iter().filter(|node| node.is_told(target)).collect();
        let failures = told.iter().filter(|node| node.has_failed()).count();
        self.is_halted = failures >= spec.halt_after && told.len() < nodes.len();
        self.is_paused = spec.paused;
        let mut most = nodes.len();
        if self.updated < spec.canary {
            most = spec.canary.saturating_sub(told.len());
            self.canaries =
                told.iter().filter(|node| !node.has(target)).map(|node| node.name.as_str()).collect();
        }
        if self.is_halted || self.is_paused {
            return;
        }
        let mut room = spec.max_unavailable.of(nodes.len()).saturating_sub(self.unavailable);
        let mut candidates: Vec<(Rank, &Node)> = nodes
            .iter()
            .filter(|node| !node.is_told(target))
            .filter_map(|node| Some((rank(node)?, *node)))
            .collect();
        candidates.sort_by_key(|(rank, node)| (*rank, &node.zone, &node.created, &node.name));
        for (rank, node) in candidates {
            if self.assign.len() == most {
                break;
            }
            if rank == Rank::Available {
                if room == 0 {
                    continue;
                }
                room -= 1;
            }
            self.assign.push(node.name.clone());
        }
    }

    /// For people: one node that failed and why, and how many more.
    pub(super) fn failures(&self) -> Option<String> {
        let with_target = |node: &&&Node| self.target.is_some_and(|target| node.is_told(target));
        // Those that halt the roll-out are what a person must look at first.
        let first = self.failed.iter().find(with_target).or(self.failed.first())?;
        let reason = first.annotations.reason.as_str();
        let reason = if reason.is_empty() { "no reason given" } else { reason };
        let state = first.annotations.state.map_or("", State::as_str);
        let more = match self.failed.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("Node {} is {state}{more}: {reason}", first.name))
    }
}

/// The place of a node that was told something else; none while it cannot listen.
fn rank(node: &Node) -> Option<Rank> {
    let is_on_its_way = !node.is_settled();
    match (node.is_ready, node.has_failed()) {
        (true, true) => Some(Rank::Failed),
        (true, false) if is_on_its_way => Some(Rank::Underway),
        (true, false) if node.unschedulable => Some(Rank::Cordoned),
        (true, false) => Some(Rank::Available),
        (false, _) if is_on_its_way => Some(Rank::Silent),
        // A machine that is switched off would hold the roll-out up.
        (false, _) => None,
    }
}
