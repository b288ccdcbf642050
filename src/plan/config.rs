//! What differs between two configurations of a host.
//!
//! Entries that are equal in meaning are no change: same kind, bytes, mode and owner, whatever the
//! encoding they came in. A label alone is none either: it follows from the path and the policy of
//! the image.

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use crate::model::manifest::{Entry, Manifest, Node, Part, Password};

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
    /// What is there before: the old entry, or what an added one meets; none if nothing is there.
    pub from: Option<Node>,
    /// What is there after: the new entry, or what comes back where one is removed; none if nothing
    /// is there.
    pub to: Option<Node>,
}

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// File, directory, link, or nothing.
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
    /// Keys of users, by path.
    pub keys: Vec<EntryChange>,
    /// The user whose password changes.
    pub password: Option<PasswordChange>,
    /// What follows from the rest and asks for nothing of its own: the preset file.
    pub derived: Vec<EntryChange>,
    /// Kernel arguments.
    pub kernel_arguments: Option<ArgumentsChange>,
    /// The image.
    pub image: Option<ImageChange>,
    /// The root has no OSTree: what is below `/usr` can change while it runs. Elsewhere it belongs to
    /// the deployment, and a change of it needs a boot whatever a policy says.
    pub usr_is_writable: bool,
}

/// A password that changes. Never holds the hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PasswordChange {
    /// The user.
    pub user: String,
    /// What becomes of the password.
    pub to: PasswordState,
}

/// What becomes of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PasswordState {
    /// Another one.
    Set,
    /// None is accepted.
    Locked,
    /// It is no longer managed.
    Released,
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

/// What a host has now where an entry becomes managed. [`None`] if that is not known: then it is what
/// the image has.
pub type Found<'a> = &'a dyn Fn(&Entry) -> Option<Node>;

/// The paths at which two manifests differ, by path.
pub fn compare(old: &Manifest, new: &Manifest) -> Vec<EntryChange> {
    compare_found(old, new, &|_| None)
}

/// The same on a host: what is as wanted there is adopted, whoever wrote it.
pub fn compare_found(old: &Manifest, new: &Manifest, found: Found<'_>) -> Vec<EntryChange> {
    let (before, after) = (by_path(old), by_path(new));
    let paths: BTreeSet<&Utf8PathBuf> = before.keys().chain(after.keys()).copied().collect();
    paths
        .into_iter()
        .filter_map(|path| change(before.get(path).copied(), after.get(path).copied(), found))
        .collect()
}

fn by_path(manifest: &Manifest) -> BTreeMap<&Utf8PathBuf, &Entry> {
    manifest.entries.iter().map(|entry| (&entry.path, entry)).collect()
}

/// How one path differs.
fn change(old: Option<&Entry>, new: Option<&Entry>, found: Found<'_>) -> Option<EntryChange> {
    let default = |entry: &Entry| entry.default.clone();
    let (entry, kind, from, to) = match (old, new) {
        (None, None) => return None,
        (Some(old), Some(new)) => {
            let aspects = aspects(present_ref(&old.node), present_ref(&new.node));
            if aspects == Aspects::default() {
                return None;
            }
            let (from, to) = (present(old.node.clone()), present(new.node.clone()));
            (new, ChangeKind::Changed(aspects), from, to)
        }
        (None, Some(new)) => {
            let from = found(new).or_else(|| default(new)).and_then(present);
            let to = present(new.node.clone());
            let is_there = aspects(from.as_ref(), to.as_ref()) == Aspects::default();
            (new, if is_there { ChangeKind::Adopted } else { ChangeKind::Added }, from, to)
        }
        (Some(old), None) => {
            let (from, to) = (present(old.node.clone()), default(old).and_then(present));
            let stays = aspects(from.as_ref(), to.as_ref()) == Aspects::default();
            (old, if stays { ChangeKind::Released } else { ChangeKind::Removed }, from, to)
        }
    };
    Some(EntryChange {
        path: entry.path.clone(),
        asked: entry.asked.clone(),
        part: entry.part.clone(),
        kind,
        from,
        to,
    })
}

fn present(node: Node) -> Option<Node> {
    (node != Node::Absent).then_some(node)
}

fn present_ref(node: &Node) -> Option<&Node> {
    (*node != Node::Absent).then_some(node)
}

/// Whether two nodes mean the same: labels and where contents are kept do not count.
pub fn is_same(a: &Node, b: &Node) -> bool {
    aspects(present_ref(a), present_ref(b)) == Aspects::default()
}

/// What differs between two nodes.
pub fn aspects(from: Option<&Node>, to: Option<&Node>) -> Aspects {
    match (from, to) {
        (None, None) => Aspects::default(),
        (
            Some(Node::File { digest, mode, uid, gid, .. }),
            Some(Node::File { digest: new_digest, mode: new_mode, uid: new_uid, gid: new_gid, .. }),
        ) => Aspects {
            content: digest != new_digest,
            mode: mode != new_mode,
            owner: (uid, gid) != (new_uid, new_gid),
            ..Aspects::default()
        },
        (
            Some(Node::Directory { mode, uid, gid, .. }),
            Some(Node::Directory { mode: new_mode, uid: new_uid, gid: new_gid, .. }),
        ) => {
            Aspects { mode: mode != new_mode, owner: (uid, gid) != (new_uid, new_gid), ..Aspects::default() }
        }
        (
            Some(Node::Symlink { target, uid, gid, .. }),
            Some(Node::Symlink { target: new_target, uid: new_uid, gid: new_gid, .. }),
        ) => Aspects {
            target: target != new_target,
            owner: (uid, gid) != (new_uid, new_gid),
            ..Aspects::default()
        },
        _ => Aspects { kind: true, ..Aspects::default() },
    }
}

impl Changes {
    /// Sorts what differs between two manifests. The image is added by the caller, who knows what the
    /// next boot starts; kernel arguments here are those that the manifests ask for.
    pub fn between(old: &Manifest, new: &Manifest, found: Found<'_>) -> Self {
        let mut changes = Self::default();
        for change in compare_found(old, new, found) {
            match &change.part {
                Part::Storage | Part::Other(_) => changes.files.push(change),
                Part::Unit(name) | Part::Enablement(name) => {
                    changes.units.entry(name.clone()).or_default().push(change);
                }
                Part::Preset => changes.derived.push(change),
                Part::Keys(_) => changes.keys.push(change),
            }
        }
        changes.password = password(old.password.as_ref(), new.password.as_ref());
        if old.kernel_arguments != new.kernel_arguments {
            changes.kernel_arguments = Some(ArgumentsChange {
                before: old.kernel_arguments.clone(),
                after: new.kernel_arguments.clone(),
            });
        }
        changes
    }

    /// Whether nothing differs: not on disk, and not in what is managed.
    pub fn is_empty(&self) -> bool {
        *self == Self { usr_is_writable: self.usr_is_writable, ..Self::default() }
    }

    /// All paths that differ.
    pub fn entries(&self) -> impl Iterator<Item = &EntryChange> {
        self.files.iter().chain(self.units.values().flatten()).chain(&self.keys).chain(&self.derived)
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

    /// The user whose keys these are, if they are keys.
    pub fn user(&self) -> Option<String> {
        match &self.part {
            Part::Keys(user) => Some(user.clone()),
            _ => None,
        }
    }

    /// Whether what is on disk changes.
    pub fn is_visible(&self) -> bool {
        !matches!(self.kind, ChangeKind::Adopted | ChangeKind::Released)
    }

    /// What of it changes on disk.
    pub fn aspects(&self) -> Aspects {
        aspects(self.from.as_ref(), self.to.as_ref())
    }
}

fn password(old: Option<&Password>, new: Option<&Password>) -> Option<PasswordChange> {
    if old == new {
        return None;
    }
    let user = new.or(old)?.user.clone();
    let to = match new {
        None => PasswordState::Released,
        // crypt(3) hashes never start so: no password matches.
        Some(password) if password.hash.starts_with(['*', '!']) => PasswordState::Locked,
        Some(_) => PasswordState::Set,
    };
    Some(PasswordChange { user, to })
}

impl ArgumentsChange {
    /// Arguments that go, and arguments that come. An argument that stands before as often as after
    /// is in neither: then only the order changes.
    pub fn removed_and_added(&self) -> (Vec<&str>, Vec<&str>) {
        (missing(&self.before, &self.after), missing(&self.after, &self.before))
    }
}

/// What of `these` does not stand in `those`, as often as it is missing.
fn missing<'a>(these: &'a [String], those: &[String]) -> Vec<&'a str> {
    let mut rest: Vec<&String> = those.iter().collect();
    let mut missing = Vec::new();
    for one in these {
        match rest.iter().position(|other| *other == one) {
            Some(at) => drop(rest.swap_remove(at)),
            None => missing.push(one.as_str()),
        }
    }
    missing
}
