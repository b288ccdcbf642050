//! Waiting for files of the host to change: inotify, no polling.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use anyhow::Result;
use fn_error_context::context;
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches folders and files by their handles.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// Watches of folders of which only some names matter.
    only: Vec<(i32, &'static [&'static str])>,
}

impl Watch {
    #[expect(deprecated, reason = "its successor is unsafe; this descriptor is owned and never replaced")]
    #[context("Watching files of the host")]
    pub(super) fn new() -> Result<Self> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { inotify: AsyncFd::with_interest(inotify, Interest::READABLE)?, only: Vec::new() })
    }

    /// Watches what is made, written, moved and removed in a folder, or done to a file. With `only`,
    /// these names alone matter.
    #[context("Watching files of the host")]
    pub(super) fn add(&mut self, what: impl AsFd, only: &'static [&'static str]) -> Result<()> {
        let path = format!("/proc/self/fd/{}", what.as_fd().as_raw_fd());
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF;
        let number = add_watch(self.inotify.get_ref(), path, flags)?;
        if !only.is_empty() {
            self.only.push((number, only));
        }
        Ok(())
    }

    /// Returns when something that matters changed since the last call.
    pub(super) async fn changed(&self) -> Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let matters = self.read()?;
            ready.clear_ready();
            if matters {
                return Ok(());
            }
        }
    }

    /// Takes all events; tells whether one matters.
    fn read(&self) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut matters = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let only = self.only.iter().find(|(number, _)| *number == event.wd());
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    matters |= only.is_none_or(|(_, names)| name.is_some_and(|name| names.contains(&name)));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(matters),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
