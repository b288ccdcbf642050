//! What a host looks like, as `mcd status` prints it and the planner reads it.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

use super::boots::WentBack;
use super::digest::Digest;
use super::health::HealthStatus;
use super::hold::Hold;
use super::image_ref::OsImage;

/// Version of the JSON that `mcd status --json` prints. Grows by addition; raised only when a
/// field changes its meaning.
pub const STATUS_VERSION: u32 = 1;

/// A deployment's name, `CHECKSUM.SERIAL`, as OSTree names its folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeploymentName {
    /// The commit, 64 hex digits.
    pub checksum: String,
    /// Which deployment of that commit, from 0.
    pub serial: u32,
}

/// One deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentStatus {
    /// Its place in the boot order: 0 is what the next boot starts. A staged deployment comes first.
    pub index: usize,
    /// `CHECKSUM.SERIAL`.
    pub name: DeploymentName,
    /// The stateroot (OSTree's "osname").
    pub stateroot: String,
    /// Runs now.
    pub booted: bool,
    /// Waits for the shutdown to be finalised.
    pub staged: bool,
    /// What `mcd rollback` goes to.
    pub rollback: bool,
    /// Kept until a person unpins it.
    pub pinned: bool,
    /// Pinned by `mcd` itself, as the last good one.
    pub kept: bool,
    /// The image, if the origin names one.
    pub image: Option<OsImage>,
    /// The manifest that was imported.
    pub digest: Option<Digest>,
    /// The digest that was asked for, when it differs: that of an index.
    pub asked_digest: Option<Digest>,
    /// The image commit (the merge commit); differs from the checksum for a derived commit.
    pub image_commit: Option<String>,
    /// The OS version that the commit names.
    pub version: Option<String>,
    /// Seconds since the epoch: the commit's time stamp.
    pub timestamp: u64,
    /// Kernel arguments, without `ostree=`.
    pub kernel_arguments: String,
    /// Our id of the change that made it.
    pub id: Option<String>,
    /// An origin without an image: what it says instead (a refspec, `custom-origin`).
    pub other_origin: Option<String>,
    /// How far its change came: `committed`, `booted`, `good`, `unproven`, `failed` or `rolled-back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why it failed, or is unproven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What is managed on it; none where nothing ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigStatus>,
}

/// What is managed on a deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The MachineConfigs that it was made from.
    pub names: Vec<String>,
    /// The number of managed paths.
    pub entries: usize,
    /// The image of extensions that the MachineConfig names; nothing is installed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions_image: Option<String>,
    /// The derived commit that holds the contents, where it is another than the deployment's own: that
    /// of a live apply, or of the deployment whose `/etc` another tool took over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Another tool made the deployment from a configured one: what is managed below `/usr` is not in
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stranger: bool,
    /// What is missing below `/usr` for that reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Utf8PathBuf>,
}

/// What `--until prepared` left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedStatus {
    /// The id that `--resume=ID` takes.
    pub id: String,
    /// The image; none where only kernel arguments change.
    pub image: Option<OsImage>,
    /// Its manifest.
    pub digest: Option<Digest>,
    /// Kernel arguments it will boot with.
    pub kernel_arguments: String,
    /// Whether the switch was asked for already (then it waits for the shutdown, or was lost).
    pub committed: bool,
    /// The MachineConfigs that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Vec<String>>,
}

/// A host, or a sysroot that is not running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// Where the sysroot is.
    pub sysroot: Utf8PathBuf,
    /// Deployments in boot order.
    pub deployments: Vec<DeploymentStatus>,
    /// What is prepared or committed and not yet booted.
    pub prepared: Option<PreparedStatus>,
    /// The last automatic rollback, until the next change is good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<WentBack>,
    /// What the health checks of this boot found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
    /// A person holds back what the cluster would drain or reboot by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// What somebody should know: a lost staged deployment, a rollback and its reason.
    pub notices: Vec<String>,
}

impl HostStatus {
    /// What the next boot starts.
    pub fn next_boot(&self) -> Option<&DeploymentStatus> {
        self.deployments.first()
    }

    /// What runs now.
    pub fn booted(&self) -> Option<&DeploymentStatus> {
        self.deployments.iter().find(|deployment| deployment.booted)
    }
}

impl std::fmt::Display for DeploymentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.checksum, self.serial)
    }
}

impl From<DeploymentName> for String {
    fn from(name: DeploymentName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for DeploymentName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for DeploymentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("deployment '{text}': expected CHECKSUM.SERIAL, 64 hex digits, a dot and a number");
        let (checksum, serial) = text.split_once('.').ok_or_else(refuse)?;
        if checksum.len() != 64 || !checksum.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refuse());
        }
        let serial = serial.parse().map_err(|_| refuse())?;
        Ok(Self { checksum: checksum.to_owned(), serial })
    }
}
