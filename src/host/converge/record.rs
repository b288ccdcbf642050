//! The records of what was laid down, and of what is being laid down.
//!
//! They are read leniently: what an older `mcd` does not know, or what is damaged in one entry, must
//! not hide the rest from it. They are replaced as a whole and durably.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::root::{Root, Way};
use crate::host::durable;
use crate::model::applied::{
    Applied, ETC_CONVERGING, ETC_ORIGINALS, ETC_RECORD, VAR_CONVERGING, VAR_ORIGINALS, VAR_RECORD,
};
use crate::model::digest::Digest;
use crate::model::manifest::{Manifest, Scope};

/// Which record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// `/etc/mcd/applied.json`; speaks for `/usr` too on a root without OSTree.
    Etc,
    /// `/var/lib/mcd/applied.json`.
    Var,
}

/// A record as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// There is none.
    Missing,
    /// It cannot be read, for this reason.
    Damaged(String),
    /// What was laid down.
    Known(Box<Applied>),
}

impl Stand {
    /// The record, if it could be read.
    pub fn known(&self) -> Option<&Applied> {
        match self {
            Self::Known(applied) => Some(applied),
            Self::Missing | Self::Damaged(_) => None,
        }
    }
}

/// What is being laid down: stands beside the record from before the first change to after the last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Converging {
    /// The record that will be written.
    pub(super) to: Applied,
    /// What was there before, and what runs that were cut short may have left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) also: Vec<Manifest>,
    /// All directories that may have been made.
    #[serde(default)]
    pub(super) made: Vec<Utf8PathBuf>,
    /// Copies of originals that go.
    #[serde(default)]
    pub(super) drops: Vec<Digest>,
}

impl Record {
    /// The record that speaks for a scope.
    pub fn of(scope: Scope) -> Self {
        match scope {
            Scope::Usr | Scope::Etc => Self::Etc,
            Scope::Var => Self::Var,
        }
    }

    /// Its file, without leading slash.
    pub fn path(self) -> &'static str {
        match self {
            Self::Etc => ETC_RECORD,
            Self::Var => VAR_RECORD,
        }
    }

    /// The folder of its originals, without leading slash.
    pub fn originals(self) -> &'static str {
        match self {
            Self::Etc => ETC_ORIGINALS,
            Self::Var => VAR_ORIGINALS,
        }
    }

    pub(super) fn converging(self) -> &'static str {
        match self {
            Self::Etc => ETC_CONVERGING,
            Self::Var => VAR_CONVERGING,
        }
    }

    /// The folder that it stands in, without leading slash.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Etc => "etc/mcd",
            Self::Var => "var/lib/mcd",
        }
    }
}

/// Reads a record. Fails only where the disk does.
pub fn read_record(root: &Root, record: Record) -> Result<Stand> {
    Ok(match read_file(root, record.path())? {
        None => Stand::Missing,
        Some(bytes) => match parse_applied(&bytes) {
            Ok(applied) => Stand::Known(Box::new(applied)),
            Err(error) => Stand::Damaged(format!("{error:#}")),
        },
    })
}

/// Reads what a run that was cut short has left. Damaged is as good as missing: it is durable before
/// it has its name.
pub(super) fn read_converging(root: &Root, record: Record) -> Result<Option<Converging>> {
    let Some(bytes) = read_file(root, record.converging())? else { return Ok(None) };
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { return Ok(Some(Converging::default())) };
    let part = |name: &str| value.get(name).cloned().unwrap_or_default();
    let also = part("also").as_array().cloned().unwrap_or_default();
    Ok(Some(Converging {
        to: applied_from(part("to")).unwrap_or_default(),
        also: also.into_iter().filter_map(|manifest| manifest_from(manifest).ok()).collect(),
        made: serde_json::from_value(part("made")).unwrap_or_default(),
        drops: serde_json::from_value(part("drops")).unwrap_or_default(),
    }))
}

/// The manifest that a commit carries, if it does; `root` is the root of a deployment.
pub(super) fn read_manifest(root: &Root) -> Result<Option<Manifest>> {
    read_file(root, crate::model::manifest::MANIFEST_PATH)?.map(|bytes| parse_manifest(&bytes)).transpose()
}

/// Reads a manifest, leaving out entries that cannot be understood.
pub fn parse_manifest(bytes: &[u8]) -> Result<Manifest> {
    // Twice as fast as by way of a value, and hardly ever not enough.
    if let Ok(manifest) = serde_json::from_slice(bytes) {
        return Ok(tidy(manifest));
    }
    manifest_from(serde_json::from_slice(bytes).context("Reading a manifest")?)
}

/// Reads a record, leaving out entries that cannot be understood.
pub fn parse_applied(bytes: &[u8]) -> Result<Applied> {
    if let Ok(applied) = serde_json::from_slice(bytes) {
        return Ok(tidy_record(applied));
    }
    applied_from(serde_json::from_slice(bytes).context("Reading a record")?)
}

fn applied_from(mut value: Value) -> Result<Applied> {
    keep_readable::<crate::model::applied::Original>(&mut value, "originals");
    let manifest = value.get_mut("manifest").map(Value::take);
    let manifest = manifest.filter(|manifest| !manifest.is_null()).map(manifest_from).transpose()?;
    if let Some(object) = value.as_object_mut() {
        object.remove("manifest");
    }
    let applied: Applied = serde_json::from_value(value)?;
    Ok(tidy_record(Applied { manifest: manifest.unwrap_or_default(), ..applied }))
}

fn tidy_record(mut applied: Applied) -> Applied {
    applied.originals.retain(|original| is_clean(&original.path));
    applied.made.retain(|path| is_clean(path));
    Applied { manifest: tidy(std::mem::take(&mut applied.manifest)), ..applied }
}

fn manifest_from(mut value: Value) -> Result<Manifest> {
    keep_readable::<crate::model::manifest::Entry>(&mut value, "entries");
    keep_readable::<crate::model::manifest::Parent>(&mut value, "parents");
    Ok(tidy(serde_json::from_value(value)?))
}

/// Sorted, each path once, and none that cannot be ours.
fn tidy(mut manifest: Manifest) -> Manifest {
    manifest.entries.retain(|entry| is_clean(&entry.path));
    manifest.entries.sort_by(|a, b| a.path.cmp(&b.path));
    manifest.entries.dedup_by(|later, first| later.path == first.path);
    manifest.parents.retain(|parent| is_clean(&parent.path));
    manifest.parents.sort_by(|a, b| a.path.cmp(&b.path));
    manifest
}

/// Takes out of the list `name` what is no `T`: a newer version's, or damaged.
fn keep_readable<T: serde::de::DeserializeOwned>(value: &mut Value, name: &str) {
    if let Some(Value::Array(items)) = value.get_mut(name) {
        items.retain(|item| T::deserialize(item).is_ok());
    }
}

/// Whether a path is one that can be ours: below a scope, without `.` and `..`.
pub(super) fn is_clean(path: &Utf8Path) -> bool {
    let Some(below) = path.as_str().strip_prefix('/') else { return false };
    let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
    Scope::of(path).is_some() && below.contains('/') && below.split('/').all(is_name)
}

/// Replaces a record, durably.
#[context("Writing the record /{}", record.path())]
pub(super) fn write_record(root: &Root, record: Record, applied: &Applied) -> Result<()> {
    let bytes = serde_json::to_vec(applied).context("Writing it as JSON")?;
    durable::replace(&make_folder(root, record)?, name_of(record.path()), &bytes)
}

/// Announces what is being laid down, durably.
#[context("Writing /{}", record.converging())]
pub(super) fn write_converging(root: &Root, record: Record, converging: &Converging) -> Result<()> {
    let bytes = serde_json::to_vec(converging).context("Writing it as JSON")?;
    durable::replace(&make_folder(root, record)?, name_of(record.converging()), &bytes)
}

/// Nothing is being laid down any more. Not made durable: met again, it is only looked through again.
pub(super) fn remove_converging(root: &Root, record: Record) -> Result<()> {
    let Some(folder) = open_folder(root, record)? else { return Ok(()) };
    unlink(&folder, name_of(record.converging()))
}

/// Removes what a kill left while a record was being written.
pub(super) fn remove_halves(root: &Root, record: Record) -> Result<()> {
    let Some(folder) = open_folder(root, record)? else { return Ok(()) };
    for path in [record.path(), record.converging()] {
        unlink(&folder, &durable::temporary(name_of(path)))?;
    }
    Ok(())
}

/// Puts a damaged record out of the way: a person may still read something in it.
pub(super) fn keep_damaged(root: &Root, record: Record) -> Result<()> {
    let Some(folder) = open_folder(root, record)? else { return Ok(()) };
    let name = name_of(record.path());
    match folder.rename(name, &folder, format!("{name}.damaged")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Removes a file, if it is there; where it is not, a read-only file system is no obstacle.
fn unlink(folder: &Dir, name: &str) -> Result<()> {
    if folder.symlink_metadata(name).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    match folder.remove_file(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn name_of(path: &'static str) -> &'static str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The folder of a record, if it is there.
pub(super) fn open_folder(root: &Root, record: Record) -> Result<Option<Dir>> {
    let path = format!("/{}", record.folder());
    match root.way_to(Utf8Path::new(&path)).with_context(|| format!("Opening {path}"))? {
        Way::Open(dir) => Ok(Some(dir)),
        Way::Missing => Ok(None),
        Way::NoDirectory(at) => anyhow::bail!("{at} is no directory"),
        Way::Link { path, why } => anyhow::bail!("{path} is a link: {why}"),
    }
}

/// The folder of a record, made if it is missing.
pub(super) fn make_folder(root: &Root, record: Record) -> Result<Dir> {
    if let Some(folder) = open_folder(root, record)? {
        return Ok(folder);
    }
    let parent = Utf8Path::new(record.folder()).parent().context("A folder of ours has a parent")?;
    let (above, below) = match (root.var(), parent.strip_prefix("var")) {
        (Some(var), Ok(rest)) => (var, rest),
        _ => (root.dir(), parent),
    };
    let name = record.folder().rsplit('/').next().unwrap_or_default();
    // `/etc/mcd` also holds what an administrator writes for everybody to read.
    let mode = if record == Record::Etc { 0o755 } else { 0o700 };
    if below.as_str().is_empty() {
        durable::folder(above, name, mode)
    } else {
        durable::folder(&durable::folders(above, below.as_str())?, name, mode)
    }
}

fn read_file(root: &Root, path: &str) -> Result<Option<Vec<u8>>> {
    let path = Utf8PathBuf::from(format!("/{path}"));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    match root.way_to(parent).with_context(|| format!("Opening {parent}"))? {
        Way::Open(dir) => durable::read(&dir, name),
        _ => Ok(None),
    }
}
