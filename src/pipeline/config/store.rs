//! Contents of managed files on a root without a repo: `/var/lib/mcd/content`, one file for each digest.

use std::collections::BTreeMap;

use anyhow::Result;
use fn_error_context::context;

use crate::host::converge::{ContentStore, Contents, InMemory, Root};
use crate::host::durable;
use crate::model::applied::CONTENT_STORE;
use crate::model::config::Blob;
use crate::model::digest::Digest;
use crate::model::manifest::{Manifest, Node};

/// What holds the contents.
pub(super) fn contents(root: &Root) -> Result<Box<dyn Contents>> {
    match root.dir().open_dir(CONTENT_STORE) {
        Ok(store) => Ok(Box::new(ContentStore(store))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Box::new(InMemory::default())),
        Err(error) => Err(error.into()),
    }
}

/// Adds what is not there. Durable when this returns.
#[context("Storing the contents of managed files in /{CONTENT_STORE}")]
pub(super) fn add(root: &Root, contents: &BTreeMap<Digest, Blob>) -> Result<()> {
    let store = durable::private_folder(root.dir(), CONTENT_STORE)?;
    let is_missing = |digest: &Digest, blob: &Blob| {
        store.read(digest.hex()).map_or(true, |present| present != blob.bytes())
    };
    let missing = contents.iter().filter(|(digest, blob)| is_missing(digest, blob));
    durable::replace_all(&store, missing.map(|(digest, blob)| (digest.hex(), blob.bytes())))
}

/// Removes what none of the manifests names, and what a killed run left.
#[context("Removing contents that nothing names from /{CONTENT_STORE}")]
pub(super) fn prune(root: &Root, manifests: &[&Manifest]) -> Result<()> {
    let Ok(store) = root.dir().open_dir(CONTENT_STORE) else { return Ok(()) };
    let nodes = manifests.iter().flat_map(|manifest| &manifest.entries);
    let nodes = nodes.flat_map(|entry| std::iter::once(&entry.node).chain(&entry.default));
    let named: std::collections::BTreeSet<&str> = nodes
        .filter_map(|node| match node {
            Node::File { digest, .. } => Some(digest.hex()),
            _ => None,
        })
        .collect();
    for entry in store.entries()? {
        let name = entry?.file_name();
        if name.to_str().is_none_or(|name| !named.contains(name)) {
            store.remove_file(&name)?;
        }
    }
    durable::sync_folder(&store)
}
