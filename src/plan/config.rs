//! What differs between two configurations of a host.
//!
//! Entries that are equal in meaning are no change: same kind, bytes, mode and owner, whatever the
//! encoding they came in. A label alone is none either: it follows from the path and the policy of
//! the image.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use crate::model::manifest::{Entry, Manifest, Node, Part};

/// A path at which two manifests differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    /// Where it is, links followed.
    pub path: Utf8PathBuf,
    /// As the config spells it, where that is another path.
    pub asked: Option<Utf8PathBuf>,
    /// What of the config it is.
    pub part: Part,
    /// How it differs.
    pub kind: ChangeKind,
    /// What is there before: the old entry; for an added one what was found at the path, or what the
    /// image has there.
    pub from: Option<Node>,
    /// What is there after: the new entry; for a removed one what the image has there.
    pub to: Option<Node>,
}

/// How a path differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// It becomes managed, and what is there changes.
    Added,
    /// It is no longer managed, and what is there changes.
    Removed,
    /// It stays managed, and what is there changes.
    Changed(Aspects),
    /// It becomes managed, and what is there is as wanted already.
    Adopted,
    /// It is no longer managed, and what is there stays: the image has the same.
    Released,
}

/// What of an entry changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Aspects {
    /// File, directory or link.
    pub kind: bool,
    /// The bytes of a file.
    pub content: bool,
    /// Permissions.
    pub mode: bool,
    /// User or group.
    pub owner: bool,
    /// Where a link leads to.
    pub target: bool,
}

/// Everything that differs between what a host is and what it is asked to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Files, directories and links, by path.
    pub files: Vec<EntryChange>,
    /// Units: what differs of each, by name.
    pub units: BTreeMap<String, Vec<EntryChange>>,
    /// Keys of users.
    pub keys: Vec<EntryChange>,
    /// The user whose password changes.
    pub password: Option<PasswordChange>,
    /// What follows from the rest and asks for nothing of its own: the preset file.
    pub derived: Vec<EntryChange>,
    /// Kernel arguments.
    pub kernel_arguments: Option<ArgumentsChange>,
    /// The image.
    pub image: Option<ImageChange>,
}

/// A password that changes. Never holds the hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PasswordChange {
    /// The user.
    pub user: String,
    /// The new state, in words: `set`, `locked`, `no longer managed`.
    pub what: String,
}

/// Kernel arguments that change, of those that the config asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArgumentsChange {
    /// All that were asked for before, in order.
    pub before: Vec<String>,
    /// All that are asked for now, in order.
    pub after: Vec<String>,
}

/// An image that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageChange {
    /// What the next boot starts, for people: reference and digest.
    pub before: Option<String>,
    /// What is asked for.
    pub after: String,
}

/// The paths at which two manifests differ, by path.
pub fn compare(old: &Manifest, new: &Manifest) -> Vec<EntryChange> {
    compare_found(old, new, &|_| None)
}

/// The same on a host where `found` knows what is at a path that is not managed yet: what is as wanted
/// there is adopted, whoever wrote it. Where it knows nothing, the image's default counts.
pub fn compare_found(
    _old: &Manifest,
    _new: &Manifest,
    _found: &dyn Fn(&Entry) -> Option<Node>,
) -> Vec<EntryChange> {
    Vec::new()
}

/// Whether two nodes mean the same: labels and where contents are kept do not count.
pub fn is_same(_a: &Node, _b: &Node) -> bool {
    false
}

impl Changes {
    /// Sorts what differs between two manifests; image and kernel arguments are added by the caller,
    /// who knows what the next boot starts.
    pub fn between(_old: &Manifest, _new: &Manifest, _found: &dyn Fn(&Entry) -> Option<Node>) -> Self {
        Self::default()
    }

    /// Whether nothing differs: not on disk, and not in what is managed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The change of the file at a path as the config spells it.
    pub fn file(&self, asked: &Utf8Path) -> Option<&EntryChange> {
        self.files.iter().find(|change| change.name() == asked)
    }
}

impl EntryChange {
    /// The path as the config spells it.
    pub fn name(&self) -> &Utf8Path {
        self.asked.as_deref().unwrap_or(&self.path)
    }

    /// Whether what is on disk changes.
    pub fn is_visible(&self) -> bool {
        !matches!(self.kind, ChangeKind::Adopted | ChangeKind::Released)
    }
}
