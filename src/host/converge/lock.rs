//! The host lock for those who have no libostree: the same file, locked the same way.
//!
//! libostree takes an open file description lock on it; the kernel holds that against the record lock
//! that is taken here.

use std::time::Duration;

use anyhow::{Context, Result};
use cap_std_ext::cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::root::Root;
use crate::error::{ExitKind, Fault};
use crate::host::durable;

/// How often a held lock is tried again.
const POLL: Duration = Duration::from_millis(250);
/// OSTree's own, below the root of a deployment that runs or is about to.
const OF_OSTREE: &str = "sysroot/ostree";
/// Ours where there is no OSTree.
const OF_ROOT: &str = "var/lib/mcd";

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct RootLock {
    /// None where nobody can write, and so nobody can be kept out.
    _file: Option<File>,
}

/// Takes the lock of a root: OSTree's own where there is one, else `/var/lib/mcd/lock`. With `wait` it
/// waits for whoever holds it, else that is a fault of class 6.
pub fn lock(root: &Root, wait: bool) -> Result<RootLock> {
    let (folder, path) = match root.dir().open_dir(OF_OSTREE) {
        Ok(folder) => (folder, "/ostree/lock"),
        Err(_) => (own_folder(root)?, "/var/lib/mcd/lock"),
    };
    let Some((file, operation)) = open(&folder).with_context(|| format!("Opening {path}"))? else {
        return Ok(RootLock { _file: None });
    };
    loop {
        match rustix::fs::fcntl_lock(&file, operation) {
            Ok(()) => return Ok(RootLock { _file: Some(file) }),
            Err(Errno::AGAIN | Errno::ACCESS) if wait => std::thread::sleep(POLL),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Err(Fault::new(ExitKind::Busy, "another change of this host is under way")
                    .why(format!("{path} is held"))
                    .next("try again later, or leave --no-wait out to wait for it")
                    .into());
            }
            Err(error) => return Err(error).with_context(|| format!("Locking {path}")),
        }
    }
}

/// A running host may have its sysroot mounted read-only. A shared lock keeps changes out as well.
fn open(folder: &Dir) -> std::io::Result<Option<(File, FlockOperation)>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    match folder.open_with("lock", &options) {
        Ok(file) => return Ok(Some((file, FlockOperation::NonBlockingLockExclusive))),
        Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {}
        Err(error) => return Err(error),
    }
    match folder.open("lock") {
        Ok(file) => Ok(Some((file, FlockOperation::NonBlockingLockShared))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn own_folder(root: &Root) -> Result<Dir> {
    match root.var() {
        Some(var) => durable::private_folder(var, "lib/mcd"),
        None => durable::private_folder(root.dir(), OF_ROOT),
    }
}
