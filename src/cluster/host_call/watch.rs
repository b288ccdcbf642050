//! Waiting for files of the host to change, on the daemon's only thread.

use std::os::fd::AsFd;

use anyhow::Result;
use rustix::fs::inotify::WatchFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::host::watch::{OF_NAMES, Watch as Names};

/// Watches folders and files by their handles.
#[derive(Debug)]
pub(in crate::cluster) struct Watch {
    names: AsyncFd<Names>,
}

impl Watch {
    #[expect(deprecated, reason = "its successor is unsafe; this descriptor is owned and never replaced")]
    pub(in crate::cluster) fn new() -> Result<Self> {
        Ok(Self { names: AsyncFd::with_interest(Names::new()?, Interest::READABLE)? })
    }

    /// Watches what is made, written, moved and removed in a folder, or done to a file. With `only`,
    /// these names alone matter.
    pub(in crate::cluster) fn add(&mut self, what: impl AsFd, only: &[&str]) -> Result<()> {
        // Replies are appended to a file that stays open.
        let events = OF_NAMES | WatchFlags::MODIFY;
        let only = (!only.is_empty()).then(|| only.iter().map(|name| (*name).to_owned()).collect());
        Ok(self.names.get_mut().add(what, events, only)?)
    }

    /// Returns when something that matters changed since the last call.
    pub(in crate::cluster) async fn changed(&self) -> Result<()> {
        loop {
            let mut ready = self.names.readable().await?;
            let matters = self.names.get_ref().take()?;
            ready.clear_ready();
            if matters {
                return Ok(());
            }
        }
    }
}
