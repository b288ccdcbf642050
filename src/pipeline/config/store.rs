//! Contents of managed files on a root without a repo: `/var/lib/mcd/content`, one file for each digest.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use cap_std_ext::cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use fn_error_context::context;

use crate::host::converge::{ContentStore, Contents, InMemory, Root};
use crate::host::durable;
use crate::model::applied::CONTENT_STORE;
use crate::model::config::Blob;
use crate::model::digest::Digest;
use crate::model::manifest::{Manifest, Node};

/// Contents may be secrets.
const FILE_MODE: u32 = 0o600;

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
    for (digest, blob) in contents {
        let is_there = store.read(digest.hex()).is_ok_and(|present| present == blob.bytes());
        if !is_there {
            write(&store, digest.hex(), blob.bytes())?;
        }
    }
    durable::sync_folder(&store)
}

fn write(store: &Dir, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = format!(".{name}.new");
    match store.remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    let mut file = store.open_with(&temporary, &options)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(store.rename(&temporary, store, name)?)
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
