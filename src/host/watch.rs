//! Waiting for names in folders to change: inotify, no polling.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::Result;
use fn_error_context::context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

/// What is noticed of a name in a folder: that it was made, written, dressed anew, moved or removed. Not
/// each write of a file that stays open: a log would wake us for every line.
pub(crate) const OF_NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Folders and files that are watched.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: OwnedFd,
    /// The names that matter, by the number of the watch; none: all.
    only: BTreeMap<i32, Option<BTreeSet<String>>>,
}

impl Watch {
    /// One that watches nothing yet.
    #[context("Watching files")]
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { inotify: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?, only: BTreeMap::new() })
    }

    /// Watches what happens in a folder, or to a file. With `only`, these names alone matter; a folder that
    /// is added twice is watched for the names of both.
    pub(crate) fn add(
        &mut self,
        what: impl AsFd,
        events: WatchFlags,
        only: Option<BTreeSet<String>>,
    ) -> rustix::io::Result<()> {
        // By its handle: the path may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", what.as_fd().as_raw_fd());
        let number = add_watch(&self.inotify, path, events)?;
        match (self.only.entry(number).or_insert_with(|| Some(BTreeSet::new())), only) {
            (Some(names), Some(more)) => names.extend(more),
            (names, None) => *names = None,
            (None, Some(_)) => {}
        }
        Ok(())
    }

    /// Takes all events; tells whether one matters.
    #[context("Watching files")]
    pub(crate) fn take(&self) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut matters = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    // Without a name it is about the folder itself; with too many events, about anything.
                    let is_about_all = event.file_name().is_none();
                    let is_lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    let names = self.only.get(&event.wd());
                    matters |= is_lost
                        || names.is_some_and(|names| match names {
                            Some(names) => is_about_all || name.is_some_and(|name| names.contains(name)),
                            None => true,
                        });
                }
                Err(Errno::AGAIN) => return Ok(matters),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until something that matters happens, at most so long; tells whether it did.
    #[context("Watching files")]
    pub(crate) fn wait(&self, patience: Duration) -> Result<bool> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left)?;
            match poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) if self.take()? => return Ok(true),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl std::os::fd::AsRawFd for Watch {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.inotify.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;
    use cap_std_ext::cap_std::fs::Dir;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn names_that_matter_are_noticed_and_no_others() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        let mut watch = Watch::new().unwrap();
        watch.add(&dir, OF_NAMES, Some(BTreeSet::from(["a".to_owned()]))).unwrap();
        watch.add(&dir, OF_NAMES, Some(BTreeSet::from(["b".to_owned()]))).unwrap();
        dir.write("other", "x").unwrap();
        assert!(!watch.wait(SHORT).unwrap());
        for act in [
            &|| dir.write("a", "x").unwrap(),
            &|| dir.rename("a", &dir, "other").unwrap(),
            &|| dir.write("b", "y").unwrap(),
            &|| dir.remove_file("b").unwrap(),
        ] as [&dyn Fn(); 4]
        {
            act();
            assert!(watch.wait(LONG).unwrap());
            while watch.take().unwrap() {}
        }
        drop(dir);
        scratch.close().unwrap();
        assert!(watch.wait(LONG).unwrap(), "the folder itself went");
    }
}
