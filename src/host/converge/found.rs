//! What a root has at a path that nobody manages yet.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use anyhow::Result;
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::File;

use super::look::{Eye, Sight, open_file};
use super::root::{Root, Way};
use crate::model::digest::Digest;
use crate::model::manifest::Node;

/// What is there; none for what a manifest cannot describe, or where there is no way to it.
pub fn found(root: &Root, path: &Utf8Path) -> Result<Option<Node>> {
    let eye = Eye::new(root);
    match eye.look(path)? {
        Sight::Nothing => Ok(Some(Node::Absent)),
        Sight::Found(it) => it.node(|| eye.digest(path, &it)),
        Sight::Blocked(_) => Ok(None),
    }
}

/// The bytes of the file there, if it is one that still has this digest.
pub fn found_content(root: &Root, path: &Utf8Path, digest: &Digest) -> Result<Option<Vec<u8>>> {
    let Some(Node::File { digest: now, .. }) = found(root, path)? else { return Ok(None) };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let way = Eye::new(root).way_to(parent)?;
    let Way::Open(folder) = &*way else { return Ok(None) };
    if now != *digest {
        return Ok(None);
    }
    let file: OwnedFd = open_file(folder, name)?;
    let mut bytes = Vec::new();
    File::from_std(file.into()).read_to_end(&mut bytes)?;
    Ok((Digest::of(&bytes) == *digest).then_some(bytes))
}
