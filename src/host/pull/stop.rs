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

/// An error that only follows from another one, which is the cause to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Secondary(pub(super) &'static str);

impl std::fmt::Display for Secondary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Secondary {}

/// The first error that is a cause, or else the first.
pub(super) fn cause(errors: impl IntoIterator<Item = anyhow::Error>) -> Option<anyhow::Error> {
    let mut first = None;
    for error in errors {
        if !is_secondary(&error) {
            return Some(error);
        }
        first.get_or_insert(error);
    }
    first
}

/// Whether an error only follows from another one.
pub(super) fn is_secondary(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Secondary>() || is_secondary_io(cause))
}

/// Readers pass errors through `io::Error`, which hides them from the chain.
fn is_secondary_io(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<Secondary>())
}
