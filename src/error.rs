//! Errors that people and scripts act on: what happened, why, what to do next, and an exit code.
//!
//! A [`Fault`] travels inside [`anyhow::Error`]; `main` finds it there. An error without one is an
//! unexpected failure: exit code 1, with its chain of contexts as the reason.

use std::fmt;

/// The class of an outcome, as scripts see it in the exit code (design decision 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// Failed, and nothing was changed or everything was undone.
    Failed,
    /// The command line, or a reference on it, is malformed.
    Usage,
    /// Refused: unreconcilable or invalid input, policy, preflight.
    Refused,
    /// Failed and not undone: a person is needed.
    NotUndone,
    /// Something differs or is unhealthy.
    Differs,
    /// Somebody else holds a lock and `--no-wait` was given.
    Busy,
    /// Nothing to do, and `--unchanged-exit-77` was given.
    Unchanged,
    /// Ended by this signal.
    Signal(u8),
}

impl ExitKind {
    /// The process exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::NotUndone => 4,
            Self::Differs => 5,
            Self::Busy => 6,
            Self::Unchanged => 77,
            Self::Signal(number) => 128 + number,
        }
    }
}

/// An error with a message for the person who reads it at 3 a.m.
///
/// Each part is one line, without a final full stop. `what` names the image, file, path, field or
/// unit; `why` is the cause; `next` is the next thing to do. No part ever carries a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The class, for the exit code.
    pub kind: ExitKind,
    /// What could not be done, to which thing.
    pub what: String,
    /// The cause.
    pub why: Option<String>,
    /// What to do next.
    pub next: Option<String>,
}

impl Fault {
    /// A fault of `kind` that says `what` happened.
    pub fn new(kind: ExitKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), why: None, next: None }
    }

    /// Something failed and nothing changed.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(ExitKind::Failed, what)
    }

    /// The command line is wrong.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(ExitKind::Usage, what)
    }

    /// The request is understood and refused.
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(ExitKind::Refused, what)
    }

    /// Adds the cause.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// The fault in an error's chain, or one made from the chain: the outermost context is what, the
/// rest is why.
pub fn to_fault(error: &anyhow::Error) -> Fault {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return fault.clone();
    }
    // A context was put around a fault: its own words stay the most useful ones.
    if let Some(fault) = error.chain().find_map(|cause| cause.downcast_ref::<Fault>()) {
        return fault.clone();
    }
    let why: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
    Fault {
        kind: ExitKind::Failed,
        what: error.to_string(),
        why: (!why.is_empty()).then(|| why.join(": ")),
        next: None,
    }
}
