//! The one way to change a host: observe ▸ plan ▸ preflight ▸ prepare ▸ commit ▸ (reboot).
//!
//! An entry point builds a [`Desired`] and calls [`pivot`]; nothing else deploys. *Prepare* ends
//! with a commit in the repo, a ref that keeps it and an intent on disk; *commit* switches. The
//! network is used before the host lock is taken, never while it is held.

mod acquire;
mod change;

pub use acquire::{PullSettings, Pulled, pull};
pub use change::{Outcome, PivotRequest, Until, pivot, resume};

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::{ExitKind, Fault};
use crate::host::Host;
use crate::model::event::EventSink;

/// What every verb that changes a host works with.
pub struct Session {
    /// The host or sysroot.
    pub host: Host,
    /// Who is told what happens.
    pub sink: Arc<dyn EventSink>,
    runtime: tokio::runtime::Runtime,
    cancel: CancellationToken,
    signal: Arc<AtomicU8>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("signal", &self.signal).finish_non_exhaustive()
    }
}

impl Session {
    /// Starts the runtime and takes over SIGINT and SIGTERM: from now on they ask the running step
    /// to stop and clean up, and never end the process in the middle of a switch.
    ///
    /// The host is opened first, because libostree must change the mount namespace while the
    /// process has one thread.
    pub fn new(host: Host, sink: Arc<dyn EventSink>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let session = Self { host, sink, runtime, cancel: CancellationToken::new(), signal: Arc::default() };
        session.watch_signals()?;
        Ok(session)
    }

    fn watch_signals(&self) -> Result<()> {
        let _in_runtime = self.runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut stream = signal(kind)?;
            let (cancel, seen) = (self.cancel.clone(), Arc::clone(&self.signal));
            self.runtime.spawn(async move {
                if stream.recv().await.is_some() {
                    seen.store(u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX), Ordering::SeqCst);
                    cancel.cancel();
                }
            });
        }
        Ok(())
    }

    /// Runs network work to its end. A signal cancels it; it then still cleans up after itself.
    fn block_on<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let result = self.runtime.block_on(work);
        match self.ended_by() {
            Some(fault) if result.is_err() => Err(fault.into()),
            _ => result,
        }
    }

    /// Stops between two steps when a signal came. Lets the runtime see pending signals first.
    fn stop_if_asked(&self) -> Result<()> {
        self.runtime.block_on(tokio::task::yield_now());
        self.ended_by().map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn ended_by(&self) -> Option<Fault> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            number => Some(
                Fault::new(ExitKind::Signal(number), "stopped by a signal")
                    .why("the host is as it was; layers that were complete are kept for the next try"),
            ),
        }
    }
}
