//! What was measured on a host before a change: numbers and facts for preflight to judge.
//!
//! Nothing here decides. `host::preflight` fills these in, `plan` reads them.

use std::fmt;

use camino::Utf8PathBuf;

/// Room on one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that may be used, without what is reserved for root.
    pub bytes: u64,
    /// Files and folders that may be made; `None` where the file system has no such limit.
    pub inodes: Option<u64>,
    /// Bytes that must stay free (the repo's `min-free-space`).
    pub reserve: u64,
}

/// Room where a change needs some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rooms {
    /// The file system of the repo and of the deployments.
    pub repo: Room,
    /// The file system of `/boot`.
    pub boot: Room,
    /// Whether both are one file system.
    pub boot_is_on_repo: bool,
}

/// A kernel, its initramfs and its device trees: what a deployment puts into `/boot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPair {
    /// The kernel's version: the name of its folder.
    pub version: String,
    /// Bytes that it takes in `/boot`.
    pub bytes: u64,
    /// libostree's checksum over the content. Deployments with equal ones share one copy in `/boot`.
    pub bootcsum: String,
    /// Whether there is an initramfs.
    pub has_initramfs: bool,
}

/// What a commit holds that decides whether it can be deployed and booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFacts {
    /// The kernel that libostree would take. `None`: it cannot be deployed at all.
    pub kernel: Option<KernelPair>,
    /// Versions of all kernels in `/usr/lib/modules`. With several, which one boots is chance.
    pub kernel_versions: Vec<String>,
    /// Whether there is an os-release file; without one no boot entry can be written.
    pub has_os_release: bool,
    /// Where the defaults of `/etc` stand.
    pub etc: EtcLayout,
    /// Whether the image demands a signed composefs, which a local commit cannot have.
    pub demands_signed_composefs: bool,
    /// What checking it out takes beside the repo's objects.
    pub checkout: Checkout,
}

/// Where a commit keeps the defaults of `/etc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcLayout {
    /// In one place, as it must be.
    Sound,
    /// In `/etc` and in `/usr/etc`: libostree refuses to deploy it.
    Both,
    /// Nowhere: libostree deploys it, and the deployment has no `/etc`.
    Neither,
}

/// What a checkout makes anew: files are hard links into the repo, folders and `/etc` are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checkout {
    /// Folders of the tree, and files and folders of the copy of `/etc`.
    pub inodes: u64,
    /// Bytes in the copy of `/etc`.
    pub etc_bytes: u64,
}

/// A local change in `/etc` on which libostree's three-way merge fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EtcConflict {
    /// A local file or link stands where the new tree has a folder.
    FileAgainstFolder(Utf8PathBuf),
    /// A local change below a folder that is no folder in the new tree.
    FolderAgainstFile {
        /// What was changed.
        path: Utf8PathBuf,
        /// The folder.
        folder: Utf8PathBuf,
    },
}

impl fmt::Display for EtcConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileAgainstFolder(path) => {
                write!(f, "/etc/{path} is a local file, and the new image has a folder of that name")
            }
            Self::FolderAgainstFile { path, folder } => {
                write!(f, "/etc/{path} was changed here, and /etc/{folder} is no folder in the new image")
            }
        }
    }
}
