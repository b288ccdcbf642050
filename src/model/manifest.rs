//! The manifest: every entry that `mcd` manages on a deployment, as it must be on disk.
//!
//! It stands in the derived commit (`/usr/lib/mcd/config.json`) and, embedded in an
//! [`Applied`](super::applied::Applied) record, in the `/etc` and `/var` that it was laid down in. It
//! is worked out against the target image: owners are numbers, links in paths are followed, SELinux
//! labels are written down. So the boot step needs neither libostree nor libselinux.
//!
//! It grows by addition: what a newer version added is kept, and an older one finds paths, digests
//! and owners where it knows them.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::config::DisksSaid;
use super::digest::Digest;

/// The version that is written. Raised only when a field changes its meaning.
pub const MANIFEST_VERSION: u32 = 1;
/// Where the manifest stands in a derived commit, without leading slash.
pub const MANIFEST_PATH: &str = "usr/lib/mcd/config.json";
/// The folder in a derived commit that holds the contents of entries outside of the deployment.
pub const CONTENT_FOLDER: &str = "usr/lib/mcd/content";
/// The folder in a derived commit that holds what the image has at managed paths.
pub const DEFAULT_FOLDER: &str = "usr/lib/mcd/default";

/// All managed entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`] of its writer.
    #[serde(default)]
    pub version: u32,
    /// The MachineConfigs that it was made from, for people.
    #[serde(default)]
    pub names: Vec<String>,
    /// The kernel arguments that the config asks for: single ones, in order.
    #[serde(default)]
    pub kernel_arguments: Vec<String>,
    /// `spec.kernelType`, where it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_type: Option<String>,
    /// `spec.extensions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// `spec.baseOSExtensionsContainerImage`: told by `status`, nothing is installed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions_image: Option<String>,
    /// What the config said of disks; none where no config with files was the host's so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<DisksSaid>,
    /// Sorted by path, each path once.
    #[serde(default)]
    pub entries: Vec<Entry>,
    /// Directories above entries, sorted: as they are made where they are missing.
    #[serde(default)]
    pub parents: Vec<Parent>,
    /// The password of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// What is laid down belongs to the machine afterwards: the records then name none of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// What is said of units, by name: their links are worked out anew on each image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enablement: BTreeMap<String, Enablement>,
    /// What those links were worked out from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enablement_digest: Option<Digest>,
    /// Files of which only the end is the config's: how many bytes. On another image they are added
    /// to what that has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub appended: BTreeMap<Utf8PathBuf, u64>,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a config says of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enablement {
    /// Enabled or disabled; none leaves it to the presets.
    pub enabled: Option<bool>,
    /// Whose request says so.
    #[serde(default)]
    pub source: Source,
}

/// One managed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it is on the running system, absolute, links followed (`/var/roothome/x`).
    pub path: Utf8PathBuf,
    /// As the config spells it, where that is another path (`/root/x`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Utf8PathBuf>,
    /// Whose request it comes from.
    #[serde(default)]
    pub source: Source,
    /// What of the config it is.
    #[serde(default)]
    pub part: Part,
    /// What must be there.
    pub node: Node,
    /// What the image has there: it comes back when the path leaves the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Node>,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Node {
    /// A file.
    File {
        /// Of the content.
        digest: Digest,
        /// Of the content, in bytes.
        size: u64,
        /// Permissions with setuid, setgid and sticky.
        mode: u32,
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
        /// The SELinux label that it has at this path; none without a policy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The file object of the repo that holds the content, 64 hex digits; none where there is
        /// no repo: then the content is stored by its digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<String>,
    },
    /// A directory; what is in it is nobody's business.
    Directory {
        /// Permissions with setuid, setgid and sticky.
        mode: u32,
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
        /// The SELinux label.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    /// A symbolic link.
    Symlink {
        /// As written into it.
        target: String,
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
        /// The SELinux label.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    /// Nothing may be there: an enablement link of the image that the config takes away.
    Absent,
}

/// A directory above entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Absolute, links followed.
    pub path: Utf8PathBuf,
    /// Permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The SELinux label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A password in `/etc/shadow`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password {
    /// The user.
    pub user: String,
    /// The hash as `/etc/shadow` holds it; `*` locks it. A secret.
    pub hash: String,
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Password").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Whose request an entry comes from. A request replaces the entries of its own source only.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A MachineConfig or Ignition config.
    #[default]
    MachineConfig,
    /// The cluster's ControllerConfig: certificates and the pull secret of the internal registry.
    ControllerConfig,
    /// A person on this host.
    Local,
    /// What a newer version wrote.
    #[serde(untagged)]
    Other(String),
}

/// What of a config an entry is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A file, directory or link of `storage`.
    #[default]
    Storage,
    /// A unit's file, mask or drop-in; the unit's name.
    Unit(String),
    /// A link that enables a unit, or its absence; the unit's name.
    Enablement(String),
    /// The preset file that keeps enablement at a first boot.
    Preset,
    /// Authorised keys; the user's name.
    Keys(String),
    /// What a newer version wrote.
    #[serde(untagged)]
    Other(Value),
}

/// Which file system an entry belongs to, and so which record speaks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Below `/usr`, or a folder that most images make a link into `/var` and this one does not
    /// (`/opt`): part of the commit itself.
    Usr,
    /// Below `/etc`: the deployment's own copy.
    Etc,
    /// Below `/var`: shared by all deployments.
    Var,
}

impl Scope {
    /// All of them: what is laid down on a root without OSTree.
    pub const ALL: [Self; 3] = [Self::Usr, Self::Etc, Self::Var];
    /// What is laid down on a deployment, whose `/usr` is the commit's own.
    pub const OF_DEPLOYMENT: [Self; 2] = [Self::Etc, Self::Var];

    /// The scope of an absolute path with its links followed; none for a path that no
    /// deployment holds.
    pub fn of(path: &Utf8Path) -> Option<Self> {
        let first = path.strip_prefix("/").ok()?.components().next()?;
        match first.as_str() {
            "usr" | "opt" | "home" | "root" | "srv" | "mnt" => Some(Self::Usr),
            "etc" => Some(Self::Etc),
            "var" => Some(Self::Var),
            _ => None,
        }
    }
}

impl Node {
    /// Whether both are the same on disk; which object of the repo holds the content is no part of it.
    pub fn is_same(&self, other: &Self) -> bool {
        self.without_object() == other.without_object()
    }

    fn without_object(&self) -> Self {
        let mut node = self.clone();
        if let Self::File { object, .. } = &mut node {
            *object = None;
        }
        node
    }
}

impl Manifest {
    /// The entry at a path.
    pub fn entry(&self, path: &Utf8Path) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.path.as_path().cmp(path)).ok()?;
        self.entries.get(found)
    }
}
