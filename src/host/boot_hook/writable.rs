//! The physical root, writable for as long as something is written.
//!
//! It may be read-only as a mount (OSTree's `sysroot.readonly`) or as a file system (a kernel command
//! line with `ro`, until the real root remounts it). The first is undone before the second: the less is
//! touched.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::mount::{MountFlags, mount_remount};

/// Puts back what was changed when it is dropped.
#[derive(Debug)]
pub struct Writable {
    path: PathBuf,
    /// How it was mounted, in the order in which it was changed.
    undo: Vec<MountFlags>,
}

impl Writable {
    /// Makes the mount at `path` writable.
    pub fn make(path: &Path) -> Result<Self> {
        let mut this = Self { path: path.to_owned(), undo: Vec::new() };
        for kind in [MountFlags::BIND, MountFlags::empty()] {
            let stat = rustix::fs::statvfs(path)?;
            if !is_read_only(&stat) {
                return Ok(this);
            }
            let flags = kind | kept(&stat);
            mount_remount(path, flags, c"")
                .with_context(|| format!("Making {} writable for the moment", path.display()))?;
            this.undo.push(flags | MountFlags::RDONLY);
        }
        anyhow::ensure!(!is_read_only(&rustix::fs::statvfs(path)?), "{} stays read-only", path.display());
        Ok(this)
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        while let Some(flags) = self.undo.pop() {
            if let Err(error) = mount_remount(&self.path, flags, c"") {
                tracing::warn!("{} stays writable: {error}", self.path.display());
            }
        }
    }
}

fn is_read_only(stat: &StatVfs) -> bool {
    stat.f_flag.contains(StatVfsMountFlags::RDONLY)
}

/// What a remount would take away if it did not name it.
fn kept(stat: &StatVfs) -> MountFlags {
    [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ]
    .into_iter()
    .filter(|(is, _)| stat.f_flag.contains(*is))
    .map(|(_, flag)| flag)
    .collect()
}
