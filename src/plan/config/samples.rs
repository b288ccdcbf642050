//! Manifests for tests.

use crate::model::digest::Digest;
use crate::model::manifest::{Entry, Manifest, Node, Part};

/// A file of root's.
pub(crate) fn file(content: &str, mode: u32) -> Node {
    Node::File {
        digest: Digest::of(content.as_bytes()),
        size: content.len() as u64,
        mode,
        uid: 0,
        gid: 0,
        label: None,
        object: None,
    }
}

/// A link of root's.
pub(crate) fn link(target: &str) -> Node {
    Node::Symlink { target: target.to_owned(), uid: 0, gid: 0, label: None }
}

/// An entry of `storage` without a default.
pub(crate) fn entry(path: &str, node: Node) -> Entry {
    part(path, node, Part::Storage)
}

/// An entry without a default.
pub(crate) fn part(path: &str, node: Node, part: Part) -> Entry {
    Entry {
        path: path.into(),
        asked: None,
        source: Default::default(),
        part,
        node,
        default: None,
        extra: Default::default(),
    }
}

/// A manifest of these entries.
pub(crate) fn manifest(mut entries: Vec<Entry>) -> Manifest {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Manifest { entries, ..Manifest::default() }
}
