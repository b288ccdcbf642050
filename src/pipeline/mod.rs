//! The one way to change a host: observe ▸ plan ▸ preflight ▸ prepare ▸ commit ▸ (reboot).
//!
//! An entry point builds a [`crate::plan::Desired`] and calls [`pivot`]; nothing else deploys. *Prepare* ends
//! with a commit in the repo, a ref that keeps it and an intent on disk; *commit* switches. The
//! network is used before the host lock is taken, never while it is held.

mod acquire;
mod change;
mod commit;
pub mod config;
mod request;
mod restage;
mod resume;

pub use acquire::{PullSettings, Pulled, pull, read_manifest};
pub use change::{Outcome, PivotRequest, Until, pivot};
pub use request::{fulfilled, is_fulfilled};
pub use restage::{Restaged, restage};
pub use resume::resume;

use std::future::Future;
use std::sync::Arc;

use anyhow::Result;

use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::model::event::EventSink;

/// What every verb that changes a host works with.
pub struct Session {
    /// The host or sysroot.
    pub host: Host,
    /// Who is told what happens.
    pub sink: Arc<dyn EventSink>,
    /// Whether what failed on this host before is made again.
    force: bool,
    interrupt: Interrupt,
    runtime: tokio::runtime::Runtime,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("interrupt", &self.interrupt).finish_non_exhaustive()
    }
}

impl Session {
    /// Starts the runtime. The host was opened before, because libostree must change the mount
    /// namespace while the process has one thread.
    pub fn new(host: Host, sink: Arc<dyn EventSink>, interrupt: Interrupt) -> Result<Self> {
        host.make_writable()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { host, sink, force: false, interrupt, runtime })
    }

    /// The same, for somebody who knows that the change failed here before.
    #[must_use]
    pub fn forced(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// What tells it to stop.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Runs network work to its end. A signal cancels it; it then still cleans up after itself.
    fn block_on<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(work)
    }

    /// Stops between two steps when a signal came: nothing is switched that nobody wants any more.
    fn stop_if_asked(&self) -> Result<()> {
        match self.interrupt.signal() {
            Some(_) => anyhow::bail!("stopped between two steps"),
            None => Ok(()),
        }
    }
}
