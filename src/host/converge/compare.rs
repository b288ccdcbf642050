//! The one comparer of what is on disk with what must be there.

use anyhow::Result;
use camino::Utf8PathBuf;
use serde::Serialize;

use super::root::Root;
use crate::error::Fault;
use crate::model::manifest::{Manifest, Part, Scope};

/// One difference. Never holds contents, digests or hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where it is on the running system.
    pub path: Utf8PathBuf,
    /// As the config spells it, where that is another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Utf8PathBuf>,
    /// What of the config it is; none for a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// What differs.
    pub what: What,
    /// As it must be, in a few words.
    pub expected: String,
    /// As it is, in a few words.
    pub found: String,
}

/// What differs at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Nothing is there.
    Missing,
    /// Something is there, and nothing may be.
    Unexpected,
    /// Another kind of thing is there.
    Kind,
    /// Other bytes.
    Content,
    /// A link leads elsewhere.
    Target,
    /// Permissions.
    Mode,
    /// User or group.
    Owner,
    /// The SELinux label.
    Label,
    /// The password of a user.
    Password,
    /// It cannot be looked at.
    Unreadable,
}

/// What is not as `manifest` says, sorted by path.
pub fn differences(_root: &Root, _manifest: &Manifest, _scopes: &[Scope]) -> Result<Vec<Difference>> {
    Err(Fault::failed("comparing is being built").into())
}
