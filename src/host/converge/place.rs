//! Where a change is made: the directory of a path, and the names that are ours for a while.

use std::rc::Rc;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::root::{Root, Way};
use super::survey::{Act, Step, TEMPORARY};
use crate::model::digest::Digest;

/// So much of the digest of a path tells its temporary name from others in the same directory.
const DIGITS: usize = 16;

/// Finds directories; remembers the last one, since siblings come one after the other.
#[derive(Debug)]
pub(super) struct Places<'r> {
    root: &'r Root,
    last: Option<(Utf8PathBuf, Rc<Dir>)>,
    /// Paths at which a new directory takes the place of a file: what is below is made in it before.
    swaps: Vec<Utf8PathBuf>,
}

/// The name beside a path that is ours while the path is being changed. It is the same in every run: so
/// a run finds what another one left.
pub(super) fn temporary(path: &Utf8Path) -> String {
    format!("{TEMPORARY}{}", &Digest::of(path.as_str().as_bytes()).hex()[..DIGITS])
}

impl<'r> Places<'r> {
    pub(super) fn new<'s>(root: &'r Root, steps: impl Iterator<Item = &'s Step>) -> Self {
        let swaps = steps.filter(|step| matches!(step.act, Act::Swap(_))).map(|step| step.path.clone());
        Self { root, last: None, swaps: swaps.collect() }
    }

    /// Directories have changed: look again.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    fn swap_above(&self, path: &Utf8Path) -> Option<&Utf8PathBuf> {
        self.swaps.iter().find(|swap| path.starts_with(swap) && path != swap.as_path())
    }

    /// Whether a path comes to its place with a directory above it.
    pub(super) fn is_below_swap(&self, path: &Utf8Path) -> bool {
        self.swap_above(path).is_some()
    }

    /// Where something new is made before it is put in its place.
    pub(super) fn new_place(&self, path: &Utf8Path, act: &Act) -> Utf8PathBuf {
        if let Some(swap) = self.swap_above(path) {
            let below = path.strip_prefix(swap).unwrap_or(path);
            return swap.with_file_name(temporary(swap)).join(below);
        }
        match act {
            Act::Make(_) => path.to_owned(),
            _ => path.with_file_name(temporary(path)),
        }
    }

    /// The directory that a path is in, and its name there.
    pub(super) fn of(&mut self, path: &Utf8Path) -> Result<(Rc<Dir>, String)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{path} is no path of an entry");
        };
        match self.folder(parent)? {
            Some(dir) => Ok((dir, name.to_owned())),
            None => bail!("{parent} went away"),
        }
    }

    /// A directory; none if there is none.
    pub(super) fn folder(&mut self, path: &Utf8Path) -> Result<Option<Rc<Dir>>> {
        if let Some((last, dir)) = &self.last
            && last == path
        {
            return Ok(Some(dir.clone()));
        }
        let Way::Open(dir) = self.root.way_to(path).with_context(|| format!("Opening {path}"))? else {
            return Ok(None);
        };
        let dir = Rc::new(dir);
        self.last = Some((path.to_owned(), dir.clone()));
        Ok(Some(dir))
    }
}

/// Removes a file, if it is there.
pub(super) fn unlink(dir: &Dir, name: &str) -> Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("Removing {name}")),
    }
}
