//! What the pod says to the host's program and what it hears: requests, replies, the host's report.
//!
//! All of it is JSON and grows by addition: a field that a reader does not know is skipped, one that a
//! writer did not know has a default, a verb that the host does not know is answered with
//! [`Outcome::Unknown`]. [`Verb::MoveToImage`] never changes: whatever the two versions, a host can be
//! brought forward by it.
//!
//! A request is written once and names itself by its `id`; asking again with the same id attaches to
//! what runs or ran under it. Replies are numbered from 1 and appended; the last one is
//! [`ReplyBody::Done`] or [`ReplyBody::Failed`].

use serde::{Deserialize, Serialize};

pub use super::hold::Hold;
use crate::error::{ExitKind, Fault};

/// The version that is written. Raised only when a field changes its meaning.
pub const WIRE_VERSION: u32 = 1;
/// The oldest version that a pod still speaks.
pub const FIRST_WIRE_VERSION: u32 = 1;

/// What is asked of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRequest {
    /// [`WIRE_VERSION`] of its writer.
    pub version: u32,
    /// Names the request: letters, digits and `-`, at most 64. The host's unit is named after it.
    pub id: String,
    /// Who asks, for the history: `daemon`, with the pod's name.
    #[serde(default)]
    pub who: String,
    /// Do again what failed, was rolled back or is held by an inhibitor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// What to do.
    #[serde(flatten)]
    pub verb: Verb,
}

/// What a host can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Verb {
    /// Fetch and check everything for this configuration, change nothing that a boot could start, and
    /// say by [`Done::plan`] what committing it costs. A newer one replaces an older prepared one.
    Prepare(Wanted),
    /// Make what was prepared under this id the next boot.
    Commit {
        /// [`Done::change`] of the prepare.
        change: String,
        /// Reboot when that is done.
        #[serde(default)]
        reboot: bool,
    },
    /// Apply on the running root; refused where a reboot is needed.
    ApplyLive(Wanted),
    /// Compare the host with its records; with `repair`, put right what differs.
    Verify {
        /// Put right what differs.
        #[serde(default)]
        repair: bool,
    },
    /// Answer with [`Done::report`].
    Status,
    /// Move to this image, keep the configuration. NEVER CHANGES from version to version.
    MoveToImage {
        /// The image, as a person writes it.
        image: String,
        /// Reboot when that is done.
        #[serde(default)]
        reboot: bool,
    },
    /// Reboot into what was committed.
    Reboot {
        /// Why, for the journal.
        #[serde(default)]
        why: String,
    },
    /// Drop what is prepared and not committed.
    Cancel,
    /// Answer with [`Done::taken_over`]: what a Go daemon left on this host. Changes nothing.
    TakeOver,
    /// A verb of a newer writer.
    #[serde(other)]
    Unknown,
}

/// A configuration that a host should have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The MachineConfig: the object as JSON text. Empty: no configuration is asked for, only an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine_config: String,
    /// Its name, for records and reports.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The image, instead of the one that the MachineConfig names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whose entries these are: `machineconfig` or `controllerconfig` (`model::manifest::Source`).
    #[serde(default = "machine_config_source")]
    pub source: String,
}

/// The source of what a MachineConfig manages.
pub const SOURCE_MACHINE_CONFIG: &str = "machineconfig";
/// The source of what the ControllerConfig manages.
pub const SOURCE_CONTROLLER_CONFIG: &str = "controllerconfig";

fn machine_config_source() -> String {
    SOURCE_MACHINE_CONFIG.to_owned()
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// From 1, without gaps.
    pub seq: u64,
    /// What it says.
    #[serde(flatten)]
    pub body: ReplyBody,
}

/// What one line of an answer says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ReplyBody {
    /// It goes on.
    Progress {
        /// For people: one line, without credentials.
        message: String,
    },
    /// The end: it was done.
    Done(Box<Done>),
    /// The end: it was not.
    Failed(Failed),
    /// What a newer writer says; not an end.
    #[serde(other)]
    Unknown,
}

/// How a request was fulfilled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// In one word.
    #[serde(default)]
    pub outcome: Outcome,
    /// The change's id, for [`Verb::Commit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// What committing or applying it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// What it took.
    #[serde(default)]
    pub measured: Measured,
    /// The host afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<HostReport>,
    /// What a Go daemon left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
}

/// An outcome in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The host is as wanted, running and at the next boot.
    Nothing,
    /// Prepared: [`Verb::Commit`] or, where the plan needs no reboot, [`Verb::ApplyLive`] is next.
    Prepared,
    /// The next boot starts it.
    Committed,
    /// Applied on the running root.
    Applied,
    /// A reboot was asked for.
    Rebooting,
    /// Answered or verified.
    Ok,
    /// A word of a newer writer, or none.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What a change costs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Workloads must leave first.
    #[serde(default)]
    pub drain: bool,
    /// It needs a reboot.
    #[serde(default)]
    pub reboot: bool,
    /// What runs after a live apply, in order: `reload crio.service`.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Why: `file /etc/x: reboot (no policy covers it)`. At most some; never contents.
    #[serde(default)]
    pub why: Vec<String>,
}

/// What a step took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Milliseconds of the whole step.
    #[serde(default)]
    pub milliseconds: u64,
    /// Bytes that came over the network.
    #[serde(default)]
    pub bytes_fetched: u64,
    /// Bytes that were there already.
    #[serde(default)]
    pub bytes_reused: u64,
}

/// Why a request was not fulfilled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The exit code that `mcd` would have had (design decision 9): 1 failed, 3 refused, 4 not undone,
    /// 5 differs, 6 busy.
    pub code: u8,
    /// What could not be done.
    pub what: String,
    /// The cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What differs, of [`Verb::Verify`]: paths and units, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
}

impl Failed {
    /// Asking again unchanged cannot help: refused, or the request is malformed.
    pub fn is_refused(&self) -> bool {
        self.code == ExitKind::Refused.code() || self.code == ExitKind::Usage.code()
    }

    /// As one line for people.
    pub fn line(&self) -> String {
        let mut line = self.what.clone();
        if let Some(why) = &self.why {
            line = format!("{line}: {why}");
        }
        if let Some(next) = &self.next {
            line = format!("{line}; {next}");
        }
        line
    }
}

impl From<&Fault> for Failed {
    fn from(fault: &Fault) -> Self {
        Self {
            code: fault.kind.code(),
            what: fault.what.clone(),
            why: fault.why.clone(),
            next: fault.next.clone(),
            differs: Vec::new(),
        }
    }
}

/// A host as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// [`WIRE_VERSION`] that the host speaks.
    #[serde(default)]
    pub version: u32,
    /// The program's version. Empty: no `mcd` on this host.
    #[serde(default)]
    pub mcd: String,
    /// `/proc/sys/kernel/random/boot_id`.
    #[serde(default)]
    pub boot_id: String,
    /// `ID` of os-release.
    #[serde(default)]
    pub os: String,
    /// The version of the booted commit.
    #[serde(default)]
    pub os_version: String,
    /// The image that runs, as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booted_image: Option<String>,
    /// Its manifest's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booted_digest: Option<String>,
    /// The MachineConfig that is laid down on the running root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_config: Option<String>,
    /// The last change, whatever became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// What is prepared or committed and not yet booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<IntentReport>,
    /// The last automatic rollback, until a later change is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<WentBackReport>,
    /// What differs from the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// A person holds drains and reboots back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// `/run/machine-config-daemon-force` is there.
    #[serde(default)]
    pub force: bool,
    /// Requests that run now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningRequest>,
    /// Seconds that the last boot took, from the kernel's start to the units being up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_seconds: Option<u64>,
    /// What a Go daemon left behind and nobody took over yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
}

/// What became of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its id.
    #[serde(default)]
    pub id: String,
    /// The MachineConfig that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The image that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How far it is.
    #[serde(default)]
    pub state: ChangeState,
    /// Why it is not good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// How far a change is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeState {
    /// It runs and nobody has judged it yet.
    Booted,
    /// It runs and passed its checks, or was applied without a reboot.
    Good,
    /// It did not come up often enough; the host went back.
    Unproven,
    /// Its checks failed, or it could not be laid down; the host went back.
    Failed,
    /// A person went back.
    RolledBack,
    /// A word of a newer writer, or none.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What waits for a commit or a boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentReport {
    /// The change's id.
    pub id: String,
    /// The MachineConfig that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The image that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// It is committed: the next boot starts it.
    #[serde(default)]
    pub committed: bool,
    /// What it costs.
    #[serde(default)]
    pub plan: PlanSummary,
}

/// An automatic rollback.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentBackReport {
    /// The MachineConfig that did not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The image that did not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Why.
    pub cause: String,
    /// `boot-count`, `converge` or `health`.
    pub by: String,
    /// Seconds since the epoch.
    pub when: i64,
}

/// What differs from the records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Paths and units, at most 32, with what differs: `/etc/x: content`.
    pub differs: Vec<String>,
    /// Seconds since the epoch, when it was first seen.
    #[serde(default)]
    pub since: i64,
}

/// A request that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRequest {
    /// Its id.
    pub id: String,
    /// Its verb, as on the wire.
    #[serde(default)]
    pub verb: String,
    /// [`Wanted::name`] of it.
    #[serde(default)]
    pub config: String,
    /// [`Wanted::image`] of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl From<&HostRequest> for RunningRequest {
    fn from(request: &HostRequest) -> Self {
        let verb = serde_json::to_value(&request.verb).ok();
        let verb = verb.as_ref().and_then(|verb| verb.get("verb")).and_then(|verb| verb.as_str());
        let (config, image) = match &request.verb {
            Verb::Prepare(wanted) | Verb::ApplyLive(wanted) => (wanted.name.clone(), wanted.image.clone()),
            Verb::MoveToImage { image, .. } => (String::new(), Some(image.clone())),
            _ => (String::new(), None),
        };
        Self { id: request.id.clone(), verb: verb.unwrap_or_default().to_owned(), config, image }
    }
}

/// What a Go daemon left on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// The name in `/etc/machine-config-daemon/currentconfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_config: Option<String>,
    /// The whole MachineConfig of that file, JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config: Option<String>,
    /// `/etc/machine-config-daemon/currentimage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_image: Option<String>,
    /// `/etc/machine-config-daemon/node-annotations.json`.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub node_annotations: std::collections::BTreeMap<String, String>,
}

#[cfg(test)]
mod tests;
