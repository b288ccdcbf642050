//! The survey: what a converge would change, and what stands in its way.

use anyhow::Result;
use camino::Utf8PathBuf;
use serde::Serialize;

use super::Converge;
use super::root::Root;
use crate::error::Fault;

/// Something that a converge cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The path.
    pub path: Utf8PathBuf,
    /// The class.
    pub kind: ProblemKind,
    /// Why it cannot be done, in words.
    pub why: String,
    /// What to do about it.
    pub next: String,
}

/// Classes of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The path leads through something that is no directory.
    ParentIsNoDirectory,
    /// The path leads through a link that is not root's, or out of where it belongs.
    ParentIsLink,
    /// A directory is where a file or link must be.
    IsDirectory,
    /// A device is there.
    IsDevice,
    /// The file or its directory has the attribute immutable or append-only.
    Immutable,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The file system has no room.
    NoSpace,
    /// What a person has there is larger than what is set aside.
    OriginalTooLarge,
    /// Nothing holds the content.
    ContentMissing,
}

/// What stands in the way of a converge; empty if nothing does.
pub fn preflight(_root: &Root, _request: &Converge<'_>) -> Result<Vec<Problem>> {
    Err(Fault::failed("the survey is being built").into())
}
