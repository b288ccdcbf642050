//! The kernel in a commit: what makes an image bootable.

use anyhow::{Result, anyhow};
use fn_error_context::context;

use super::objects::Checksum;
use super::present::reader;
use super::read::ObjectReader;

/// The version of the kernel that a commit carries: the directory in `usr/lib/modules` that has a
/// `vmlinuz`. With several, the first by name, as OSTree takes it.
#[context("Looking for a kernel in commit {commit}")]
pub fn kernel_of(repo: &ostree::Repo, commit: &str) -> Result<Option<String>> {
    let checksum = Checksum::parse(commit).ok_or_else(|| anyhow!("'{commit}' is not a commit"))?;
    let reader = reader(repo)?;
    kernel_below(&reader, reader.commit(checksum)?.tree)
}

/// The same for a root tree.
pub(super) fn kernel_below(reader: &ObjectReader, root: Checksum) -> Result<Option<String>> {
    let mut tree = reader.tree(root)?;
    for name in ["usr", "lib", "modules"] {
        let Some((child, _)) = tree.dirs.get(name) else { return Ok(None) };
        tree = reader.tree(*child)?;
    }
    for (version, (child, _)) in &tree.dirs {
        if reader.tree(*child)?.files.contains_key("vmlinuz") {
            return Ok(Some(version.clone()));
        }
    }
    Ok(None)
}
