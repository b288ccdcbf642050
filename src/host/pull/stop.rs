//! The two reasons for which every thread of an import stops early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::error::{ExitKind, Fault};

/// SIGINT, as a cancelled run ends like an interrupted one.
const SIGINT: u8 = 2;

/// A flag that all threads of an import look at.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks all threads to stop.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether they should.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once the flag is set. It is never the cause that a user sees: whoever set the flag
    /// has that one.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_set() { Err(cancelled().into()) } else { Ok(()) }
    }
}

/// The import was cancelled.
pub(super) fn cancelled() -> Fault {
    Fault::new(ExitKind::Signal(SIGINT), "the import was cancelled; nothing was switched")
        .next("run the same command again: finished layers are kept")
}
