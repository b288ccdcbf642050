//! The Node's annotations: the words in which the operator's controllers and this daemon talk.
//!
//! Names and values are those of the Go daemon, recorded from the real controllers; `mcd-…` ones are
//! ours. Absent and empty are the same.

use std::collections::BTreeMap;

/// What every name begins with.
pub const PREFIX: &str = "machineconfiguration.openshift.io/";
/// The MachineConfig that the node has. Written by the daemon.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// The MachineConfig that the node should have. Written by a controller.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
/// The image that the node has instead of its MachineConfig's. Written by the daemon.
pub const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
/// The image that the node should have instead of its MachineConfig's. Written by a controller.
pub const DESIRED_IMAGE: &str = "machineconfiguration.openshift.io/desiredImage";
/// [`State`].
pub const STATE: &str = "machineconfiguration.openshift.io/state";
/// Why the state is what it is, at most [`REASON_MAX`] characters.
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// What the daemon asks of the drain controller: `drain-NAME` or `uncordon-NAME`.
pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
/// What was done of it.
pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
/// `SingleReplica`: nowhere to drain to.
pub const TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
/// `Rebooting` from just before a reboot until after it.
pub const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
/// The ControllerConfig that was laid down last.
pub const LAST_SYNCED: &str = "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion";
/// Whose cordon the drain found: [`CORDON_DAEMON`] or [`CORDON_PERSON`]. Ours.
pub const CORDON: &str = "machineconfiguration.openshift.io/mcd-cordon";
/// Since when workloads are kept away, in seconds since the epoch. Ours; for the metrics.
pub const DRAIN_SINCE: &str = "machineconfiguration.openshift.io/mcd-drain-since";
/// A person holds drains and reboots back: [`crate::model::wire::Hold::parse`]. Ours.
pub const HOLD: &str = "machineconfiguration.openshift.io/mcd-hold";

/// Longest reason, in characters, as the Go daemon cut it.
pub const REASON_MAX: usize = 2000;
/// The value of [`POST_CONFIG_ACTION`].
pub const REBOOTING: &str = "Rebooting";
/// The node was schedulable before the drain.
pub const CORDON_DAEMON: &str = "daemon";
/// The node was cordoned by a person already, and stays so.
pub const CORDON_PERSON: &str = "person";
const SINGLE_REPLICA: &str = "SingleReplica";

/// The value of [`STATE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The node is as desired.
    Done,
    /// On the way.
    Working,
    /// Something went wrong; [`REASON`] says what.
    Degraded,
    /// The desired configuration cannot be carried out.
    Unreconcilable,
}

impl State {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "Done",
            Self::Working => "Working",
            Self::Degraded => "Degraded",
            Self::Unreconcilable => "Unreconcilable",
        }
    }

    fn read(text: &str) -> Option<Self> {
        [Self::Done, Self::Working, Self::Degraded, Self::Unreconcilable]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// What the Node's annotations say. Empty: absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is documented at the constant of its name")]
pub struct Annotations {
    pub current_config: String,
    pub desired_config: String,
    pub current_image: String,
    pub desired_image: String,
    pub state: Option<State>,
    pub reason: String,
    pub desired_drain: String,
    pub last_applied_drain: String,
    pub single_replica: bool,
    pub post_config_action: String,
    pub last_synced: String,
    pub cordon: String,
    pub drain_since: String,
    pub hold: String,
}

impl Annotations {
    /// Reads them; what is not ours is skipped.
    pub fn read(all: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| all.get(name).cloned().unwrap_or_default();
        Self {
            current_config: get(CURRENT_CONFIG),
            desired_config: get(DESIRED_CONFIG),
            current_image: get(CURRENT_IMAGE),
            desired_image: get(DESIRED_IMAGE),
            state: State::read(&get(STATE)),
            reason: get(REASON),
            desired_drain: get(DESIRED_DRAIN),
            last_applied_drain: get(LAST_APPLIED_DRAIN),
            single_replica: get(TOPOLOGY) == SINGLE_REPLICA,
            post_config_action: get(POST_CONFIG_ACTION),
            last_synced: get(LAST_SYNCED),
            cordon: get(CORDON),
            drain_since: get(DRAIN_SINCE),
            hold: get(HOLD),
        }
    }

    /// The last drain that was asked for has not been carried out yet.
    pub fn drain_is_pending(&self) -> bool {
        !self.desired_drain.is_empty() && self.desired_drain != self.last_applied_drain
    }

    /// The last thing asked for is that workloads leave.
    pub fn asks_to_drain(&self) -> bool {
        self.desired_drain.starts_with("drain-")
    }

    /// A drain is in force, or asked for, that we must take back.
    pub fn holds_our_drain(&self) -> bool {
        // A node taken over from a Go daemon in the middle of an update has no mark of ours.
        let ours = self.cordon == CORDON_DAEMON || self.cordon.is_empty() && self.state != Some(State::Done);
        self.asks_to_drain() && ours
    }
}

/// A change of the Node: one write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// Annotations to write; none removes one.
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

impl NodePatch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `value` if `now` is something else.
    #[must_use]
    pub fn set(mut self, name: &'static str, now: &str, value: &str) -> Self {
        if now != value {
            self.annotations.insert(name, Some(value.to_owned()));
        }
        self
    }

    /// Removes the annotation if there is one.
    #[must_use]
    pub fn remove(mut self, name: &'static str, now: &str) -> Self {
        if !now.is_empty() {
            self.annotations.insert(name, None);
        }
        self
    }

    /// Writes the state and its reason.
    #[must_use]
    pub fn state(mut self, now: &Annotations, state: State, reason: &str) -> Self {
        if now.state != Some(state) {
            self.annotations.insert(STATE, Some(state.as_str().to_owned()));
        }
        self.set(REASON, &now.reason, reason)
    }

    /// Nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty()
    }
}
