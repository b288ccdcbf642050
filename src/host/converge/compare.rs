//! The one comparer of what is on disk with what must be there.

use std::collections::BTreeMap;

use anyhow::Result;
use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};

use super::look::{Eye, Found, Kind, Sight};
use super::root::{Root, Way};
use super::shadow;
use crate::model::digest::Digest;
use crate::model::manifest::{Manifest, Node, Part, Scope};

/// One difference. Never holds contents, digests or hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Where it is on the running system.
    pub path: Utf8PathBuf,
    /// As the config spells it, where that is another path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Utf8PathBuf>,
    /// What of the config it is; none for a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// What differs.
    pub what: What,
    /// As it must be, in a few words.
    pub expected: String,
    /// As it is, in a few words.
    pub found: String,
}

/// What differs at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
pub fn differences(root: &Root, manifest: &Manifest, scopes: &[Scope]) -> Result<Vec<Difference>> {
    let eye = Eye::new(root);
    let mut found = BTreeMap::new();
    for entry in &manifest.entries {
        let Some(scope) = Scope::of(&entry.path).filter(|scope| scopes.contains(scope)) else { continue };
        let gaps = match eye.look(&entry.path) {
            Ok(Sight::Nothing) => gaps(&entry.node, None, false, |_| unreachable_digest()),
            Ok(Sight::Found(it)) => {
                gaps(&entry.node, Some(&it), eye.is_labelled(scope), |it| eye.digest(&entry.path, it))
            }
            Ok(Sight::Blocked(way)) if entry.node == Node::Absent => {
                drop(way);
                Ok(Vec::new())
            }
            Ok(Sight::Blocked(way)) => Ok(vec![blocked(&way, &entry.node)]),
            Err(error) => Err(error),
        };
        let gaps = gaps.unwrap_or_else(|error| vec![unreadable(&entry.node, &error)]);
        if !gaps.is_empty() {
            found.insert(entry.path.clone(), (Some(entry), gaps));
        }
    }
    let mut all: Vec<Difference> = found
        .into_iter()
        .flat_map(|(path, (entry, gaps))| {
            gaps.into_iter().map(move |gap| Difference {
                path: path.clone(),
                asked: entry.and_then(|entry| entry.asked.clone()),
                part: entry.map(|entry| entry.part.clone()),
                what: gap.what,
                expected: gap.expected,
                found: gap.found,
            })
        })
        .collect();
    if scopes.contains(&Scope::Etc) {
        all.extend(shadow::difference(root, manifest));
    }
    Ok(all)
}

/// One way in which something is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) what: What,
    pub(super) expected: String,
    pub(super) found: String,
}

/// How what was found differs from `node`. The content is read only if all of the rest of it could be
/// the same.
pub(super) fn gaps(
    node: &Node,
    found: Option<&Found>,
    labels: bool,
    digest: impl FnOnce(&Found) -> Result<Digest>,
) -> Result<Vec<Gap>> {
    let gap = |what, expected: String, found: String| Gap { what, expected, found };
    let Some(found) = found else {
        let missing = || gap(What::Missing, words(node), "nothing".to_owned());
        return Ok(if *node == Node::Absent { Vec::new() } else { vec![missing()] });
    };
    let Some(kind) = kind(node) else {
        return Ok(vec![gap(What::Unexpected, words(node), found.kind.words().to_owned())]);
    };
    if found.kind != kind {
        return Ok(vec![gap(What::Kind, kind.words().to_owned(), found.kind.words().to_owned())]);
    }
    let mut gaps = Vec::new();
    match node {
        Node::File { size, .. } if found.size != *size => {
            gaps.push(gap(What::Content, format!("{size} bytes"), format!("{} bytes", found.size)));
        }
        Node::File { digest: wanted, size, .. } if digest(found)? != *wanted => {
            gaps.push(gap(What::Content, format!("{size} bytes"), format!("{size} other bytes")));
        }
        Node::Symlink { target, .. } if found.target.as_ref() != Some(target) => {
            let leads = found.target.as_deref().unwrap_or("no text");
            gaps.push(gap(What::Target, target.clone(), leads.to_owned()));
        }
        _ => {}
    }
    let (mode, uid, gid, label) = dress_of(node);
    if let Some(mode) = mode
        && mode & 0o7777 != found.dress.mode
    {
        gaps.push(gap(What::Mode, format!("{mode:04o}"), format!("{:04o}", found.dress.mode)));
    }
    if (uid, gid) != (found.dress.uid, found.dress.gid) {
        let is = format!("{}:{}", found.dress.uid, found.dress.gid);
        gaps.push(gap(What::Owner, format!("{uid}:{gid}"), is));
    }
    if labels
        && let Some(label) = label
        && found.dress.label.as_deref() != Some(label)
    {
        let is = found.dress.label.as_deref().unwrap_or("none");
        gaps.push(gap(What::Label, label.to_owned(), is.to_owned()));
    }
    Ok(gaps)
}

/// Mode (but of a link), user, group and label.
pub(super) fn dress_of(node: &Node) -> (Option<u32>, u32, u32, Option<&str>) {
    match node {
        Node::File { mode, uid, gid, label, .. } | Node::Directory { mode, uid, gid, label } => {
            (Some(*mode), *uid, *gid, label.as_deref())
        }
        Node::Symlink { uid, gid, label, .. } => (None, *uid, *gid, label.as_deref()),
        Node::Absent => (None, 0, 0, None),
    }
}

/// The kind that a node is on disk.
pub(super) fn kind(node: &Node) -> Option<Kind> {
    match node {
        Node::File { .. } => Some(Kind::File),
        Node::Directory { .. } => Some(Kind::Directory),
        Node::Symlink { .. } => Some(Kind::Symlink),
        Node::Absent => None,
    }
}

fn words(node: &Node) -> String {
    kind(node).map_or("nothing", Kind::words).to_owned()
}

fn blocked(way: &Way, node: &Node) -> Gap {
    let found = match way {
        Way::NoDirectory(path) => format!("{path} is no directory"),
        Way::Link { path, why } => format!("{path} is a link, {why}"),
        Way::Open(_) | Way::Missing => "nothing".to_owned(),
    };
    Gap { what: What::Missing, expected: words(node), found }
}

fn unreadable(node: &Node, error: &anyhow::Error) -> Gap {
    Gap { what: What::Unreadable, expected: words(node), found: format!("{error:#}") }
}

fn unreachable_digest() -> Result<Digest> {
    anyhow::bail!("nothing has no content")
}
