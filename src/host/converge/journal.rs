//! What was done, so that it can be undone: in memory only, since a kill is mended by the next run.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{AtFlags, RenameFlags};

use super::look::Dress;
use super::perform::open_originals;
use super::place::{Places, temporary, unlink};
use super::record::{Record, Stand, read_record, remove_converging, remove_halves, write_record};
use super::root::Root;
use super::write;
use crate::host::durable;
use crate::model::applied::Applied;
use crate::model::digest::Digest;

/// How one change is taken back.
#[derive(Debug)]
pub(super) enum Undo {
    /// An announcement was made, and none was there before.
    Converging(Record),
    /// A copy of an original was made.
    Copy(Record, Digest),
    /// A directory was made.
    Rmdir(Utf8PathBuf),
    /// A file or link was, or was about to be, made.
    Unlink(Utf8PathBuf),
    /// A path and its temporary name changed places.
    Exchange(Utf8PathBuf),
    /// A path moved to its temporary name (`from_ours`: it goes back from there), or came from it.
    MoveBack { path: Utf8PathBuf, from_ours: bool },
    /// A directory was this before.
    Dress(Utf8PathBuf, Dress),
    /// A record was written; this one stood there.
    Record(Record, Option<Box<Applied>>),
}

/// What was done, in order.
#[derive(Debug, Default)]
pub(super) struct Journal(Vec<Undo>);

impl Journal {
    pub(super) fn push(&mut self, undo: Undo) {
        self.0.push(undo);
    }

    /// Takes everything back, the last first. What could not be taken back is told.
    pub(super) fn undo(&mut self, root: &Root, places: &mut Places<'_>) -> Vec<String> {
        let mut failed = Vec::new();
        while let Some(undo) = self.0.pop() {
            // The announcement stays where something stays: the next run needs it.
            if matches!(undo, Undo::Converging(_)) && !failed.is_empty() {
                continue;
            }
            places.forget();
            if let Err(error) = undo.run(root, places) {
                failed.push(format!("{error:#}"));
            }
        }
        failed
    }
}

impl Undo {
    fn run(&self, root: &Root, places: &mut Places<'_>) -> Result<()> {
        match self {
            Self::Converging(record) => {
                remove_halves(root, *record)?;
                remove_converging(root, *record)
            }
            Self::Copy(record, digest) => match open_originals(root, *record)? {
                Some(folder) => unlink(&folder, digest.hex()),
                None => Ok(()),
            },
            Self::Rmdir(path) => {
                let (dir, name) = places.of(path)?;
                rustix::fs::unlinkat(&dir, &name, AtFlags::REMOVEDIR)
                    .with_context(|| format!("Removing the directory {path}"))
            }
            Self::Unlink(path) => {
                let (dir, name) = places.of(path)?;
                unlink(&dir, &name)
            }
            Self::Exchange(path) => rename(places, path, true, RenameFlags::EXCHANGE),
            Self::MoveBack { path, from_ours } => rename(places, path, *from_ours, RenameFlags::NOREPLACE),
            Self::Dress(path, was) => {
                let (dir, name) = places.of(path)?;
                let (_, directory) = write::open_directory(&dir, &name)?;
                write::dress(&directory, was)
            }
            // A record that could not be written is what it was: on a full disk that is as well.
            Self::Record(record, Some(was)) => match read_record(root, *record)? {
                Stand::Known(is) if is == *was => Ok(()),
                _ => write_record(root, *record, was),
            },
            Self::Record(record, None) => {
                let Some(folder) = super::record::open_folder(root, *record)? else { return Ok(()) };
                let name = record.path().rsplit('/').next().unwrap_or_default();
                durable::remove(&folder, name)
            }
        }
    }
}

fn rename(places: &mut Places<'_>, path: &Utf8Path, from_ours: bool, flags: RenameFlags) -> Result<()> {
    let (dir, name) = places.of(path)?;
    let ours = temporary(path);
    let (from, to) = if from_ours { (&ours, &name) } else { (&name, &ours) };
    rustix::fs::renameat_with(&dir, from, &dir, to, flags).with_context(|| format!("Putting {path} back"))
}
