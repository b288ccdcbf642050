//! Noticing on the host that it is not what it was told to be: what is watched, who compares, and where
//! that is said.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::converge::{Record, Root, Stand, parse_manifest, read_record};
use super::durable;
use super::service::SPOOL;
use super::watch::{OF_NAMES, Watch};
use crate::model::manifest::{MANIFEST_PATH, Manifest};
use crate::model::wire::Drift;
use crate::plan::drift::{FOLDERS_MAX, places};

/// What differs, in [`SPOOL`]: a [`Drift`]; not there while nothing does.
const DRIFT: &str = "drift.json";
/// This program, also when another version was installed since.
const PROGRAM: &str = "/proc/self/exe";

/// Everything that is managed on a root, watched; and how many folders are not, because there are too many.
///
/// # Errors
///
/// The kernel gives no more watches.
#[context("Watching what is managed")]
pub(crate) fn watch(root: &Root) -> Result<(Watch, usize)> {
    // A deployment whose configuration nobody laid down yet has it in its commit only.
    let etc = manifest(root, Record::Etc).or_else(|| of_commit(root));
    let records = [etc, manifest(root, Record::Var)];
    let mut watch = Watch::new()?;
    let mut unwatched = 0;
    for (count, (path, names)) in places(records.iter().flatten()).into_iter().enumerate() {
        // What is missing is noticed in the folder above.
        let Some(folder) = root.folder(&path) else { continue };
        if count >= FOLDERS_MAX {
            unwatched += 1;
            continue;
        }
        match watch.add(folder, OF_NAMES, Some(names)) {
            Err(rustix::io::Errno::NOSPC) => unwatched += 1,
            added => added.with_context(|| format!("Watching {path}"))?,
        }
    }
    Ok((watch, unwatched))
}

/// A record that is damaged is no reason not to watch: the comparison says what to do about it.
fn manifest(root: &Root, record: Record) -> Option<Manifest> {
    match read_record(root, record).ok()? {
        Stand::Known(applied) => Some(applied.manifest),
        Stand::Missing | Stand::Damaged(_) => None,
    }
}

fn of_commit(root: &Root) -> Option<Manifest> {
    parse_manifest(&durable::read(root.dir(), MANIFEST_PATH).ok()??).ok()
}

/// Compares in a process of its own, and gives what it said: `mcd verify --json` with `more` arguments.
///
/// Libostree wants a mount namespace of its own. Kept as long as this watch lasts, it would hold every file
/// system that the host unmounts meanwhile, and the memory of every comparison.
#[context("Starting `mcd verify`")]
pub(crate) fn compare(more: &[String]) -> Result<Output> {
    Ok(Command::new(PROGRAM).args(["verify", "--json"]).args(more).stdin(Stdio::null()).output()?)
}

/// What was last said to differ.
pub(crate) fn said(folder: &Dir) -> Option<Drift> {
    let drift: Drift = serde_json::from_slice(&durable::read(folder, DRIFT).ok()??).ok()?;
    (!drift.differs.is_empty()).then_some(drift)
}

/// Says what differs from now on; nothing: everything is as it must be.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn say(folder: &Dir, drift: Option<&Drift>) -> Result<()> {
    match drift {
        Some(drift) => durable::replace(folder, DRIFT, &serde_json::to_vec(drift)?),
        None => durable::remove(folder, DRIFT),
    }
}

/// Where that is said, on the system with this root.
///
/// # Errors
///
/// The folder cannot be made.
pub(crate) fn folder(root: &Root) -> Result<Dir> {
    durable::folders(root.dir(), SPOOL).with_context(|| format!("Making {}", Utf8Path::new("/").join(SPOOL)))
}
