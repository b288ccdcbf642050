//! The obsolete image format ("oscontainer"): an archive repo at `/srv/repo` of a plain image.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use ostree::gio;
use ostree::glib;
use ostree::prelude::*;

use crate::entry::Entry;
use crate::image::resolve;
use crate::tree::create_repo;

/// The entries of a repo with these branches of `repo`, and the first one's commit.
pub fn repo_entries(repo: &ostree::Repo, refs: &[&str]) -> Result<(Vec<Entry>, String)> {
    let scratch = tempfile::tempdir()?;
    let archive = create_repo(&scratch.path().join("srv/repo"), ostree::RepoMode::Archive)?;
    let commit = resolve(repo, refs.first().context("A legacy image needs a ref")?)?;
    let source = format!("file://{}", repo.path().path().context("The repo has no path")?.display());
    let options = glib::VariantDict::new(None);
    options.insert("refs", refs);
    archive
        .pull_with_options(&source, &options.end(), None, gio::Cancellable::NONE)
        .context("Copying the commits")?;
    let mut entries = vec![Entry::dir("srv")];
    walk(scratch.path(), &scratch.path().join("srv/repo"), &mut entries)?;
    Ok((entries, commit))
}

fn walk(root: &Path, path: &Path, entries: &mut Vec<Entry>) -> Result<()> {
    let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
    if path.is_dir() {
        entries.push(Entry::dir(name));
        let mut children: Vec<_> = fs::read_dir(path)?.collect::<std::io::Result<_>>()?;
        children.sort_by_key(fs::DirEntry::file_name);
        for child in children {
            walk(root, &child.path(), entries)?;
        }
    } else if path.file_name().is_some_and(|name| name != ".lock") {
        entries.push(Entry::file(name, fs::read(path)?));
    }
    Ok(())
}
