//! The repo's own lock, `repo/.lock`: shared for whoever adds objects, exclusive for whoever deletes
//! them.
//!
//! libostree takes it as an *open-file-description lock* (`F_OFD_SETLK`), which knows nothing of
//! `flock`: only the same kind keeps its prune out. Our own cleanup must for a moment leave that one
//! to libostree, and holds the `flock` over it; so a pull takes both.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use cap_std_ext::cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use fn_error_context::context;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::lock_holder::describe_holder;
use crate::model::event::{Event, EventSink};

const LOCK: &str = ".lock";
/// How often a held lock is tried again. A prune takes seconds.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// Shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Shared,
    Exclusive,
}

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct RepoLock {
    _file: OwnedFd,
}

/// Takes the lock shared. Waits while somebody prunes, and says for whom; `is_cancelled` ends that.
/// None if it was cancelled.
#[context("Locking the OSTree repo against pruning")]
pub fn shared(repo: &Dir, sink: &dyn EventSink, is_cancelled: &dyn Fn() -> bool) -> Result<Option<RepoLock>> {
    let file = open(repo)?;
    let mut told = false;
    loop {
        if try_lock(&file, Mode::Shared)? {
            return Ok(Some(RepoLock { _file: file }));
        }
        if is_cancelled() {
            return Ok(None);
        }
        if !told {
            told = true;
            sink.event(Event::Waiting {
                what: "the OSTree repo's lock".to_owned(),
                holder: describe_holder(&file),
            });
        }
        std::thread::sleep(TRY_EVERY);
    }
}

/// Takes the lock exclusively, without waiting: pruning puts itself off while others write.
#[context("Locking the OSTree repo for pruning")]
pub fn try_exclusive(repo: &Dir) -> Result<Option<RepoLock>> {
    let file = open(repo)?;
    Ok(try_lock(&file, Mode::Exclusive)?.then_some(RepoLock { _file: file }))
}

fn open(repo: &Dir) -> Result<OwnedFd> {
    let mut options = OpenOptions::new();
    // The mode that libostree gives it.
    options.read(true).write(true).create(true).mode(0o660);
    Ok(repo.open_with(LOCK, &options)?.into_std().into())
}

/// Takes both locks or none.
fn try_lock(file: &OwnedFd, mode: Mode) -> Result<bool> {
    if !try_record_lock(file, mode)? {
        return Ok(false);
    }
    let operation = match mode {
        Mode::Shared => FlockOperation::NonBlockingLockShared,
        Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => {
            set_record_lock(file, libc::F_UNLCK)?;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn try_record_lock(file: &OwnedFd, mode: Mode) -> Result<bool> {
    let kind = match mode {
        Mode::Shared => libc::F_RDLCK,
        Mode::Exclusive => libc::F_WRLCK,
    };
    match set_record_lock(file, kind) {
        Ok(()) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[allow(clippy::cast_possible_truncation)] // The constants are small; their types differ by platform.
fn set_record_lock(file: &OwnedFd, kind: libc::c_int) -> nix::Result<()> {
    // The whole file, as libostree locks it.
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cap_std_ext::cap_std::ambient_authority;

    use super::*;
    use crate::model::event::Silent;

    #[derive(Default)]
    struct Seen(Mutex<Vec<Event>>);
    impl EventSink for Seen {
        fn event(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    #[test]
    fn shared_locks_meet_and_an_exclusive_one_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let repo = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        let first = shared(&repo, &Silent, &|| false).unwrap().unwrap();
        let second = shared(&repo, &Silent, &|| false).unwrap().unwrap();
        assert!(try_exclusive(&repo).unwrap().is_none());
        drop((first, second));

        let pruning = try_exclusive(&repo).unwrap().unwrap();
        let seen = Seen::default();
        let asked = AtomicUsize::new(0);
        let cancelled = || asked.fetch_add(1, Ordering::Relaxed) > 0;
        assert!(shared(&repo, &seen, &cancelled).unwrap().is_none());
        let events = seen.0.lock().unwrap();
        let [Event::Waiting { holder, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert!(holder.contains(&format!("process {}", std::process::id())), "{holder}");
        drop(pruning);
        assert!(shared(&repo, &Silent, &|| false).unwrap().is_some());
    }

    #[test]
    fn libostree_respects_the_lock_and_is_respected() {
        let scratch = tempfile::tempdir().unwrap();
        mcd_test_support::tree::create_repo(scratch.path(), ostree::RepoMode::Archive).unwrap();
        let dir = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        let prune = || {
            let path = format!("--repo={}", scratch.path().display());
            let mut command = std::process::Command::new("timeout");
            command.args(["2", "ostree", "prune", "--refs-only", &path]);
            command.output().unwrap().status.success()
        };
        assert!(prune());
        let held = shared(&dir, &Silent, &|| false).unwrap().unwrap();
        assert!(!prune(), "libostree pruned under a pull's lock");
        drop(held);
        assert!(prune());

        // A record lock, of the kind that libostree's prune takes.
        let pruning = open(&dir).unwrap();
        set_record_lock(&pruning, libc::F_WRLCK).unwrap();
        assert!(shared(&dir, &Silent, &|| true).unwrap().is_none());
        drop(pruning);
        assert!(shared(&dir, &Silent, &|| true).unwrap().is_some());
    }
}
