//! Whether a commit's whole tree is in the repo.
//!
//! A commit may be given a ref, or put where another tool takes it for complete, only after this.
//! Trees that a complete commit has at the same path are not looked at again: after a small update
//! the walk is short.

use std::collections::HashSet;

use anyhow::{Result, ensure};

use super::objects::{Checksum, Kind};
use super::read::ObjectReader;
use super::stop::Stop;
use crate::error::Fault;

/// Checks that all that is below `tree` is in the repo. `known` are root trees of complete commits.
pub(super) fn check_tree(
    reader: &ObjectReader,
    tree: Checksum,
    meta: Checksum,
    known: &[Checksum],
    stop: &Stop,
) -> Result<()> {
    let mut walk = Walk { reader, stop, seen: HashSet::new(), metas: HashSet::new() };
    walk.meta(meta, "/")?;
    walk.tree(tree, known, "")
}

fn incomplete(why: String) -> Fault {
    Fault::refused("the image is incomplete")
        .why(why)
        .next("build or push the image again: what was fetched is kept, but nothing leads to it")
}

struct Walk<'a> {
    reader: &'a ObjectReader,
    stop: &'a Stop,
    seen: HashSet<Checksum>,
    metas: HashSet<Checksum>,
}

impl Walk<'_> {
    fn tree(&mut self, tree: Checksum, known: &[Checksum], path: &str) -> Result<()> {
        if known.contains(&tree) || !self.seen.insert(tree) {
            return Ok(());
        }
        self.stop.check()?;
        ensure!(
            path.matches('/').count() <= super::limits::MAX_DEPTH,
            "the tree is deeper than {}, the limit",
            super::limits::MAX_DEPTH
        );
        if !self.reader.has(tree, Kind::DirTree)? {
            return Err(incomplete(format!("no layer holds object {tree}, the directory {path}/")).into());
        }
        let entries = self.reader.tree(tree)?;
        let others = known.iter().map(|known| self.reader.tree(*known)).collect::<Result<Vec<_>>>()?;
        for (name, file) in &entries.files {
            if others.iter().any(|other| other.files.get(name) == Some(file)) {
                continue;
            }
            if !self.reader.has(*file, Kind::File)? {
                let what = format!("no layer holds object {file}, the file {path}/{name}");
                return Err(incomplete(what).into());
            }
        }
        for (name, (child, meta)) in &entries.dirs {
            let below = format!("{path}/{name}");
            self.meta(*meta, &below)?;
            let known: Vec<Checksum> =
                others.iter().filter_map(|other| Some(other.dirs.get(name)?.0)).collect();
            self.tree(*child, &known, &below)?;
        }
        Ok(())
    }

    fn meta(&mut self, meta: Checksum, path: &str) -> Result<()> {
        if self.metas.insert(meta) {
            // Reading it also checks that it describes a directory.
            self.reader
                .meta(meta)
                .map_err(|error| error.context(format!("the attributes of directory {path}")))?;
        }
        Ok(())
    }
}
