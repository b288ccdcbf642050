//! What a run that did not come to its end knows of an image's first layer.
//!
//! That layer carries the base commit, which may not stand in the repo before its whole tree does. So
//! its objects are published with the others, and the commit waits beside the repo, in
//! `extensions/mcd/partial`, in a file named by the layer's digest, written after the objects are
//! durable. No ref leads to any of it: should a prune take objects away, the layer is fetched again.

use anyhow::{Context as _, Result, ensure};
use cap_std_ext::cap_std::fs::Dir;
use cap_std_ext::dirext::CapStdExtDirExt as _;
use serde::{Deserialize, Serialize};

use super::encapsulated::BaseCommit;
use super::objects::{Checksum, Commit, Kind};
use super::read::ObjectReader;
use crate::model::digest::Digest;

/// libostree leaves `extensions` to others.
const FOLDER: &str = "extensions/mcd/partial";

#[derive(Serialize, Deserialize)]
struct Record {
    /// The commit object's bytes, in hex.
    commit: String,
    detached: Option<String>,
    /// The content objects of the layer.
    content: Vec<String>,
}

fn path(layer: &Digest) -> String {
    format!("{FOLDER}/{}", layer.hex())
}

/// Notes that a first layer's objects are durable.
pub(super) fn note(repo: &Dir, layer: &Digest, base: &BaseCommit, content: &[Checksum]) -> Result<()> {
    let record = Record {
        commit: hex::encode(&base.bytes),
        detached: base.detached.as_ref().map(hex::encode),
        content: content.iter().map(ToString::to_string).collect(),
    };
    let write = || -> Result<()> {
        repo.create_dir_all(FOLDER)?;
        let new = format!("{}.new", path(layer));
        repo.write(&new, serde_json::to_vec(&record)?)?;
        Ok(repo.rename(&new, repo, path(layer))?)
    };
    // Not synced: one that a power cut shortens is no JSON and is not believed.
    write().context("Noting that the image's first layer is in the repo")
}

/// The base commit of a first layer all of whose objects are in the repo.
pub(super) fn load(repo: &Dir, layer: &Digest, reader: &ObjectReader) -> Option<BaseCommit> {
    let bytes = repo.read(path(layer)).ok()?;
    match read(&bytes, reader) {
        Ok(base) => Some(base),
        Err(error) => {
            tracing::debug!("layer {layer} is fetched again: {error:#}");
            None
        }
    }
}

fn read(bytes: &[u8], reader: &ObjectReader) -> Result<BaseCommit> {
    let record: Record = serde_json::from_slice(bytes)?;
    let bytes = hex::decode(&record.commit)?;
    let commit = Commit::decode(&bytes)?;
    for name in &record.content {
        let checksum = Checksum::parse(name).context("a record names no object")?;
        ensure!(reader.has(checksum, Kind::File)?, "object {name} is gone");
    }
    check_directories(reader, commit.tree)?;
    reader.meta(commit.meta)?;
    let detached = record.detached.map(hex::decode).transpose()?;
    Ok(BaseCommit { checksum: Checksum::of(&bytes), bytes, detached })
}

/// All directories; their files may be in other layers.
fn check_directories(reader: &ObjectReader, root: Checksum) -> Result<()> {
    let mut seen = std::collections::HashSet::from([root]);
    let mut waiting = vec![root];
    while let Some(tree) = waiting.pop() {
        for (tree, meta) in reader.tree(tree)?.dirs.into_values() {
            ensure!(reader.has(meta, Kind::DirMeta)?, "object {meta} is gone");
            if seen.insert(tree) {
                waiting.push(tree);
            }
        }
    }
    Ok(())
}

/// Forgets a layer: its commit has a ref now.
pub(super) fn forget(repo: &Dir, layer: &Digest) -> Result<()> {
    Ok(repo.remove_file_optional(path(layer)).map(drop)?)
}

/// Forgets all: nobody is at it any more.
pub(super) fn forget_all(repo: &Dir) -> Result<()> {
    Ok(repo.remove_all_optional(FOLDER).map(drop)?)
}
