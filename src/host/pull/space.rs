//! The free space that an import leaves to others: the repo's `min-free-space` setting.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Error, Result};
use cap_std_ext::cap_std::fs::Dir;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

use crate::error::Fault;
use crate::plan::Bytes;

/// How much is written between two looks at the file system.
const LOOK_EVERY: u64 = 8 * 1024 * 1024;
/// What an object costs beside its bytes: an inode, its attributes, its name.
const OVERHEAD: u64 = 4096;

/// Says how full the file system is when that is why something failed. To be asked before anything
/// is cleaned up.
pub(super) fn explain_full(repo: &Dir, error: Error) -> Error {
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        let code = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let errno = cause.downcast_ref::<Errno>().copied().or(code.map(Errno::from_raw_os_error));
        matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
    };
    if error.chain().any(|cause| cause.is::<Fault>()) || !error.chain().any(is_full) {
        return error;
    }
    let free = rustix::fs::fstatvfs(repo.as_fd()).map(|stat| {
        let bytes = stat.f_bavail * stat.f_frsize;
        // Btrfs and its like have no fixed number of inodes, and say 0 of 0.
        let inodes = if stat.f_files == 0 { String::new() } else { format!(" and {} inodes", stat.f_favail) };
        format!("{}{inodes} are free", Bytes(bytes))
    });
    Fault::refused("the file system with the OSTree repo is full")
        .why(format!("{}: {error:#}", free.unwrap_or_else(|_| "no room is left".to_owned())))
        .next("free space or inodes (`mcd cleanup` drops what no deployment needs) and run the same command again: finished layers are kept")
        .into()
}

/// Watches the free space of the repo's file system.
#[derive(Debug)]
pub(super) struct SpaceGuard {
    repo: Dir,
    keep: u64,
    since: AtomicU64,
}

impl SpaceGuard {
    /// Keeps `keep` bytes free on the repo's file system.
    pub(super) fn new(repo: Dir, keep: u64) -> Self {
        Self { repo, keep, since: AtomicU64::new(0) }
    }

    /// Notes that an object was written; an error once too little is left.
    pub(super) fn wrote(&self, bytes: u64) -> Result<()> {
        let added = bytes + OVERHEAD;
        let before = self.since.fetch_add(added, Ordering::Relaxed);
        if before + added < LOOK_EVERY {
            return Ok(());
        }
        self.since.store(0, Ordering::Relaxed);
        self.check()
    }

    /// Looks now.
    pub(super) fn check(&self) -> Result<()> {
        let stat = rustix::fs::fstatvfs(self.repo.as_fd())?;
        let free = stat.f_bavail * stat.f_frsize;
        if free >= self.keep {
            return Ok(());
        }
        Err(Fault::refused("the import stopped before the disk was full")
            .why(format!(
                "{} are free where the repo is, and its min-free-space setting keeps {} for others",
                Bytes(free),
                Bytes(self.keep)
            ))
            .next("free some space (`mcd cleanup` drops what no deployment needs) and run the same command again: finished layers are kept")
            .into())
    }
}
