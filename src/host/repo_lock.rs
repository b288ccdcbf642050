//! The repo's own lock, `repo/.lock`, as libostree takes it: shared for whoever adds objects,
//! exclusive for whoever deletes them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use fn_error_context::context;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::model::event::{Event, EventSink};

const LOCK: &str = ".lock";
/// How often a held lock is tried again. A prune takes seconds.
const TRY_EVERY: Duration = Duration::from_millis(200);

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
        if try_lock(&file, FlockOperation::NonBlockingLockShared)? {
            return Ok(Some(RepoLock { _file: file }));
        }
        if is_cancelled() {
            return Ok(None);
        }
        if !told {
            told = true;
            let holder = holder(&file)?.unwrap_or_else(|| "another process".to_owned());
            sink.event(Event::Waiting { what: "the OSTree repo's lock".to_owned(), holder });
        }
        std::thread::sleep(TRY_EVERY);
    }
}

/// Takes the lock exclusively, without waiting: pruning puts itself off while others write.
#[context("Locking the OSTree repo for pruning")]
pub fn try_exclusive(repo: &Dir) -> Result<Option<RepoLock>> {
    let file = open(repo)?;
    Ok(try_lock(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(RepoLock { _file: file }))
}

fn open(repo: &Dir) -> Result<OwnedFd> {
    let mut options = OpenOptions::new();
    // The mode that libostree gives it.
    options.read(true).write(true).create(true).mode(0o660);
    Ok(repo.open_with(LOCK, &options)?.into_std().into())
}

fn try_lock(file: &OwnedFd, operation: FlockOperation) -> Result<bool> {
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Who holds the lock, as far as the kernel tells.
fn holder(file: &OwnedFd) -> Result<Option<String>> {
    let proc = Dir::open_ambient_dir("/proc", ambient_authority())?;
    let locks = proc.read_to_string("locks").context("Reading /proc/locks")?;
    let stat =
        cap_std_ext::cap_std::fs::File::from_std(file.as_fd().try_clone_to_owned()?.into()).metadata()?;
    let device = (rustix::fs::major(stat.dev()), rustix::fs::minor(stat.dev()));
    let Some(pid) = holder_in(&locks, device, stat.ino()) else { return Ok(None) };
    let command = proc.read_to_string(format!("{pid}/comm")).unwrap_or_default();
    Ok(Some(match command.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    }))
}

/// Finds the holder of a `flock` in the text of `/proc/locks`: `1: FLOCK ADVISORY WRITE PID
/// MAJOR:MINOR:INODE 0 EOF`, major and minor in hex.
fn holder_in(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [_, "FLOCK", _, "WRITE", pid, file, ..] if *file == wanted => {
                pid.parse().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::model::event::Silent;

    #[test]
    fn finds_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:10 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 2 fe:00:10 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 5 fe:00:10 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4242 fe:00:10 0 EOF\n";
        assert_eq!(holder_in(locks, (0xfe, 0), 10), Some(4242));
        assert_eq!(holder_in(locks, (0xfe, 0), 11), None);
        assert_eq!(holder_in(locks, (0xfe, 1), 10), None);
    }

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
}
