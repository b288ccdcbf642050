//! The repo's own lock, `repo/.lock`: shared for whoever adds objects, exclusive for whoever deletes
//! them.
//!
//! libostree takes an open-file-description lock on it (seen with strace, 2022.7), which a `flock`
//! neither sees nor stops. Ours is both: the record lock is the one that other tools respect; the
//! `flock` beside it outlives the moment in which a cleanup hands the record lock over to libostree,
//! so that no pull of our own slips in between.

use std::os::fd::{AsFd, OwnedFd};
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

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct RepoLock {
    file: OwnedFd,
}

/// What to lock for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shared,
    Exclusive,
}

/// Takes the lock shared. Waits while somebody prunes, and says for whom; `is_cancelled` ends that.
/// None if it was cancelled.
#[context("Locking the OSTree repo against pruning")]
pub fn shared(repo: &Dir, sink: &dyn EventSink, is_cancelled: &dyn Fn() -> bool) -> Result<Option<RepoLock>> {
    let mut told = false;
    loop {
        let held = match try_lock(repo, Kind::Shared)? {
            Ok(lock) => return Ok(Some(lock)),
            Err(held) => held,
        };
        if is_cancelled() {
            return Ok(None);
        }
        if !told {
            told = true;
            let holder = describe_holder(&held);
            sink.event(Event::Waiting { what: "the OSTree repo's lock".to_owned(), holder });
        }
        std::thread::sleep(TRY_EVERY);
    }
}

/// Takes the lock exclusively, without waiting: pruning puts itself off while others write. The
/// error is who is in the way.
#[context("Locking the OSTree repo for pruning")]
pub fn try_exclusive(repo: &Dir) -> Result<Result<RepoLock, String>> {
    Ok(try_lock(repo, Kind::Exclusive)?.map_err(|held| describe_holder(&held)))
}

impl RepoLock {
    /// Gives up the record lock, for libostree in this process to take its own. What is left keeps
    /// our own pulls away.
    pub fn yield_to_libostree(&self) -> Result<()> {
        Ok(record_lock(&self.file, libc::F_UNLCK).map(drop)?)
    }
}

/// The lock, or the file that somebody else holds. Each try opens the file anew, so that a half taken
/// lock goes with it.
fn try_lock(repo: &Dir, kind: Kind) -> Result<Result<RepoLock, OwnedFd>> {
    let mut options = OpenOptions::new();
    // The mode that libostree gives it.
    options.read(true).write(true).create(true).mode(0o660);
    let file: OwnedFd = repo.open_with(LOCK, &options)?.into_std().into();
    let (record, whole) = match kind {
        Kind::Shared => (libc::F_RDLCK, FlockOperation::NonBlockingLockShared),
        Kind::Exclusive => (libc::F_WRLCK, FlockOperation::NonBlockingLockExclusive),
    };
    if !record_lock(&file, record)? {
        return Ok(Err(file));
    }
    match rustix::fs::flock(&file, whole) {
        Ok(()) => Ok(Ok(RepoLock { file })),
        Err(Errno::WOULDBLOCK) => Ok(Err(file)),
        Err(error) => Err(error.into()),
    }
}

/// An open-file-description lock on the whole file; false where somebody else's is in the way.
fn record_lock(file: &impl AsFd, kind: libc::c_int) -> nix::Result<bool> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
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
        assert!(try_exclusive(&repo).unwrap().is_err());
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
    fn libostree_and_we_stop_each_other() {
        let scratch = tempfile::tempdir().unwrap();
        let path = ostree::gio::File::for_path(scratch.path());
        let open = || {
            let repo = ostree::Repo::new(&path);
            repo.create(ostree::RepoMode::Archive, ostree::gio::Cancellable::NONE).unwrap();
            repo
        };
        let (repo, dir) = (open(), Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap());
        repo.prepare_transaction(ostree::gio::Cancellable::NONE).unwrap();
        let in_the_way = try_exclusive(&dir).unwrap().unwrap_err();
        assert!(in_the_way.contains(&std::process::id().to_string()), "{in_the_way}");
        assert!(shared(&dir, &Silent, &|| false).unwrap().is_some(), "both only add objects");
        repo.abort_transaction(ostree::gio::Cancellable::NONE).unwrap();
        assert!(try_exclusive(&dir).unwrap().is_ok());
    }
}
