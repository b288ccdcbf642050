//! What the decision is made from.

use super::annotations::Annotations;
use super::reason::Reason;
use crate::model::wire::{Failed, Hold, HostReport, PlanSummary};

/// Everything that [`super::next`] looks at.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The Node; none if it does not exist or is being deleted.
    pub node: Option<NodeView>,
    /// What was found when the desired MachineConfig was fetched.
    pub config: ConfigView,
    /// The host, if it answered.
    pub host: Option<HostReport>,
    /// The host did not answer: why.
    pub host_fault: Option<String>,
    /// The drain that this process does itself.
    pub drain: SelfDrain,
    /// What the cluster's ControllerConfig carries.
    pub controller_config: ControllerConfigView,
    /// What this process did. Lost with it; everything in it is found out again.
    pub memory: Memory,
    /// Settings of the daemon.
    pub settings: Settings,
    /// Seconds since the epoch.
    pub now: i64,
}

impl View {
    /// Moves every time that this process noted by the clock: that was set by so many seconds.
    pub fn shift(&mut self, seconds: i64) {
        let memory = &mut self.memory;
        let steps =
            memory.failed.iter_mut().chain(memory.controller_config_failed.iter_mut().map(|(_, step)| step));
        let asked = memory.drain_asked.iter_mut().chain(&mut memory.reboot_asked).map(|(_, at)| at);
        let mut all: Vec<&mut i64> = steps.map(|step| &mut step.at).chain(asked).collect();
        if let ConfigView::Absent { at, .. } | ConfigView::Bad { at, .. } = &mut self.config {
            all.push(at);
        }
        for at in all {
            *at = at.saturating_add(seconds);
        }
    }
}

/// The Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeView {
    /// No new pods are put there.
    pub unschedulable: bool,
    /// Its annotations.
    pub annotations: Annotations,
}

/// What was found when a MachineConfig was fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConfigView {
    /// Nothing was fetched yet.
    #[default]
    NotFetched,
    /// It is there.
    Found {
        /// Its name.
        name: String,
    },
    /// There is none of this name.
    Absent {
        /// The name.
        name: String,
        /// When that was seen, in seconds since the epoch.
        at: i64,
        /// How often in a row.
        attempts: u32,
    },
    /// It is no MachineConfig.
    Bad {
        /// The name.
        name: String,
        /// Why not.
        why: String,
        /// When that was seen, in seconds since the epoch.
        at: i64,
    },
}

impl ConfigView {
    /// Which MachineConfig this is about.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::NotFetched => None,
            Self::Found { name } | Self::Absent { name, .. } | Self::Bad { name, .. } => Some(name),
        }
    }
}

/// The cluster's ControllerConfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControllerConfigView {
    /// The cluster has none, or it is not known yet.
    #[default]
    None,
    /// This version of it is to be on the host.
    Found {
        /// `metadata.resourceVersion`.
        version: String,
    },
    /// It cannot be read.
    Bad {
        /// `metadata.resourceVersion`.
        version: String,
        /// Why not: the field.
        why: String,
    },
}

/// The drain that this process does itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SelfDrain {
    /// None.
    #[default]
    Idle,
    /// It is being carried out.
    Running {
        /// The annotation's value that it is for.
        order: String,
    },
    /// It goes on, and something does not leave.
    Blocked {
        /// The annotation's value that it is for.
        order: String,
        /// Which PodDisruptionBudget, webhook or finalizer.
        why: String,
    },
}

/// Settings of the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who drains.
    pub drain: DrainBy,
    /// Whether drift is put right.
    pub self_heal: bool,
}

/// Who drains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DrainBy {
    /// The operator's drain controller, asked by annotation.
    #[default]
    Controller,
    /// This process.
    Itself,
}

/// What a node should become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The MachineConfig.
    pub config: String,
    /// The image, instead of the MachineConfig's.
    pub image: Option<String>,
}

/// What this process did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The last prepare that came to an end.
    pub prepared: Option<Prepared>,
    /// The host said that this is what it is, in the boot of this id.
    pub settled: Option<(Target, String)>,
    /// The host was compared with its records in the boot of this id, and nothing differed.
    pub verified: Option<(Target, String)>,
    /// The last step that failed; none once it succeeded.
    pub failed: Option<FailedStep>,
    /// The ControllerConfig of this version could not be laid down.
    pub controller_config_failed: Option<(String, FailedStep)>,
    /// Since when a drain or uncordon has been waited for: the annotation's value, and seconds since
    /// the epoch.
    pub drain_asked: Option<(String, i64)>,
    /// The reboot was asked for in the boot of this id, at this second.
    pub reboot_asked: Option<(String, i64)>,
    /// The ControllerConfig of this version was laid down.
    pub controller_config_synced: Option<String>,
    /// The force file was used, and is there still.
    pub force_used: bool,
    /// What the node was last called Degraded or Unreconcilable over.
    pub degraded_for: Option<Target>,
}

/// A prepare that came to an end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepared {
    /// What was prepared.
    pub target: Target,
    /// For the commit.
    pub change: Option<String>,
    /// What it costs.
    pub plan: PlanSummary,
    /// It was forced.
    pub force: bool,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// Which.
    pub step: StepKind,
    /// For what.
    pub target: Target,
    /// Why.
    pub failed: Failed,
    /// How often in a row.
    pub attempts: u32,
    /// When, in seconds since the epoch.
    pub at: i64,
    /// It was forced.
    pub force: bool,
}

/// A step of the host, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// [`crate::model::wire::Verb::Prepare`]
    Prepare,
    /// [`crate::model::wire::Verb::Commit`]
    Commit,
    /// [`crate::model::wire::Verb::ApplyLive`]
    ApplyLive,
    /// [`crate::model::wire::Verb::Verify`]
    Verify,
    /// [`crate::model::wire::Verb::Cancel`]
    Cancel,
    /// [`crate::model::wire::Verb::Reboot`]
    Reboot,
    /// [`crate::model::wire::Verb::ApplyLive`] of the ControllerConfig's files.
    ControllerConfig,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the host how it is.
    AskHost,
    /// Get this MachineConfig.
    FetchConfig(String),
    /// Write to the Node.
    Publish(Publish),
    /// Let the host do something and follow it to its end.
    Host(Step),
    /// Follow what runs on the host already.
    Attach(String),
    /// Carry this order out: `drain-NAME` or `uncordon-NAME` (self drain).
    Drain(String),
    /// Wait until something changes, at the longest until this time.
    Wait(Wait),
}

/// A write to the Node, and what is told with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Publish {
    /// The write.
    pub patch: super::annotations::NodePatch,
    /// Why the node is not Done, where it is not.
    pub reason: Option<Reason>,
}

/// What the host is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Fetch and check everything.
    Prepare {
        /// What.
        target: Target,
        /// Although it failed before.
        force: bool,
    },
    /// Make it the next boot.
    Commit {
        /// What.
        target: Target,
        /// Its id.
        change: String,
        /// Although it failed before.
        force: bool,
    },
    /// Apply it on the running root.
    ApplyLive {
        /// What.
        target: Target,
        /// Although it failed before.
        force: bool,
    },
    /// Compare the host with its records.
    Verify {
        /// And put right what differs.
        repair: bool,
    },
    /// Drop what is no longer wanted.
    Cancel,
    /// Lay down what the ControllerConfig carries.
    ControllerConfig {
        /// Its version.
        version: String,
    },
    /// Reboot. The write goes first, and its failure stops nothing.
    Reboot {
        /// The MachineConfig that the node boots into.
        config: String,
    },
}

impl Step {
    /// Its name.
    pub fn kind(&self) -> StepKind {
        match self {
            Self::Prepare { .. } => StepKind::Prepare,
            Self::Commit { .. } => StepKind::Commit,
            Self::ApplyLive { .. } => StepKind::ApplyLive,
            Self::Verify { .. } => StepKind::Verify,
            Self::Cancel => StepKind::Cancel,
            Self::ControllerConfig { .. } => StepKind::ControllerConfig,
            Self::Reboot { .. } => StepKind::Reboot,
        }
    }

    /// It is made although it failed before.
    pub fn force(&self) -> bool {
        match self {
            Self::Prepare { force, .. } | Self::Commit { force, .. } | Self::ApplyLive { force, .. } => {
                *force
            }
            _ => false,
        }
    }
}

/// A wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// For what.
    pub waits: Waits,
    /// Look again then, in seconds since the epoch.
    pub until: Option<i64>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A Node of this name.
    Node,
    /// Somebody to say what the node should be.
    Desire,
    /// A change: the node is as desired.
    Change,
    /// A person: it will not be tried again unchanged.
    Person,
    /// The next try.
    Retry,
    /// The drain.
    Drain,
    /// The node to be schedulable again.
    Uncordon,
    /// The health checks.
    Verdict,
    /// The reboot.
    Reboot,
    /// The hold to end.
    Hold,
}

/// The hold that is in force.
pub fn hold(view: &View, node: &NodeView, host: &HostReport) -> Option<Hold> {
    let annotated = Some(node.annotations.hold.trim()).filter(|text| !text.is_empty()).map(Hold::parse);
    let lasting = |hold: &Hold| hold.lasts(view.now);
    annotated.filter(lasting).or_else(|| host.hold.clone().filter(lasting))
}
