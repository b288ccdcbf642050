//! Finds the local changes in `/etc` on which libostree's three-way merge would fail.
//!
//! It copies every file that differs from the old defaults (`/usr/etc`) into the new `/etc`, and gives
//! up where that cannot be done: at a folder where the file should go, and below something that is
//! not a folder. On a booted host that happens at the shutdown. Only places where the new tree
//! differs in kind are compared, so the look is quick.

use std::collections::VecDeque;
use std::fmt;

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::{Dir, Metadata, MetadataExt};
use fn_error_context::context;
use ostree::gio;

use super::preflight::{etc_defaults, kind_of};
use super::sysroot::Host;
use crate::error::Fault;

/// Conflicts that an error names before it only counts.
const NAMED: usize = 5;

impl Host {
    /// Refuses a commit into whose `/etc` the local changes cannot be merged.
    pub fn refuse_etc_conflicts(&self, commit: &str) -> Result<()> {
        let conflicts = self.etc_conflicts(commit)?;
        if conflicts.is_empty() {
            return Ok(());
        }
        let mut named: Vec<String> = conflicts.iter().take(NAMED).map(ToString::to_string).collect();
        if conflicts.len() > NAMED {
            named.push(format!("and {} more", conflicts.len() - NAMED));
        }
        Err(Fault::refused("local changes in /etc cannot be merged with the new image")
            .why(named.join("; "))
            .next("move the local files away, then run the same command again: nothing is fetched twice")
            .into())
    }

    /// Conflicts between the `/etc` that a new deployment would start from and the defaults of
    /// `commit`. Other processes may change `/etc` until the shutdown: this is what can be known now.
    #[context("Comparing /etc with the new image")]
    pub fn etc_conflicts(&self, commit: &str) -> Result<Vec<EtcConflict>> {
        let sysroot = self.load()?;
        let Some(source) = super::deploy::merge_deployment(&sysroot) else { return Ok(Vec::new()) };
        let folder = self.root().open_dir(sysroot.deployment_dirpath(&source).as_str())?;
        conflicts(&folder, &etc_defaults(&self.repo()?, commit)?)
    }
}

/// A local change in `/etc` on which libostree's three-way merge fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EtcConflict {
    /// A local file or link stands where the new tree has a folder.
    FileAgainstFolder(Utf8PathBuf),
    /// A local change below a folder that is no folder in the new tree.
    FolderAgainstFile {
        /// What was changed.
        path: Utf8PathBuf,
        /// The folder.
        folder: Utf8PathBuf,
    },
}

impl fmt::Display for EtcConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileAgainstFolder(path) => {
                write!(f, "/etc/{path} is a local file, and the new image has a folder of that name")
            }
            Self::FolderAgainstFile { path, folder } => {
                write!(f, "/etc/{path} was changed here, and /etc/{folder} is no folder in the new image")
            }
        }
    }
}

/// `deployment` is the folder of the old one; `new` the defaults in the new commit.
fn conflicts(deployment: &Dir, new: &gio::File) -> Result<Vec<EtcConflict>> {
    let merge = Merge { etc: deployment.open_dir("etc")?, defaults: deployment.open_dir("usr/etc")? };
    let mut found = Vec::new();
    let mut folders = VecDeque::from([Utf8PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        for (path, local) in merge.entries(&folder)? {
            let Some(new_kind) = kind_of(new, path.as_str()) else { continue };
            match (local.is_dir(), new_kind == gio::FileType::Directory) {
                (true, true) => folders.push_back(path),
                // A folder that is new here replaces what the image has.
                (true, false) if merge.is_default_folder(&path) => {
                    let changed = merge.first_change_below(&path)?;
                    found.extend(
                        changed.map(|changed| EtcConflict::FolderAgainstFile { path: changed, folder: path }),
                    );
                }
                (false, true) if merge.copies(&path, &local)? => {
                    found.push(EtcConflict::FileAgainstFolder(path))
                }
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The two old sides of the merge.
struct Merge {
    etc: Dir,
    defaults: Dir,
}

impl Merge {
    fn entries(&self, folder: &Utf8Path) -> Result<Vec<(Utf8PathBuf, Metadata)>> {
        let dir =
            if folder.as_str().is_empty() { self.etc.try_clone()? } else { self.etc.open_dir(folder)? };
        let mut entries = Vec::new();
        for entry in dir.entries()? {
            let entry = entry?;
            // A name that is no text cannot be one of a commit's either: it is only ever copied.
            let Some(name) = entry.file_name().to_str().map(|name| folder.join(name)) else { continue };
            match entry.metadata() {
                Ok(metadata) => entries.push((name, metadata)),
                // Another process removed it meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(entries)
    }

    fn is_default_folder(&self, path: &Utf8Path) -> bool {
        self.defaults.symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Whether the merge copies this, which is no folder: it is new or differs from its default.
    /// Sockets, pipes and devices are passed over.
    fn copies(&self, path: &Utf8Path, local: &Metadata) -> Result<bool> {
        if !local.is_file() && !local.is_symlink() {
            return Ok(false);
        }
        let Ok(default) = self.defaults.symlink_metadata(path) else { return Ok(true) };
        let owner = |metadata: &Metadata| (metadata.mode(), metadata.uid(), metadata.gid());
        if owner(local) != owner(&default) || local.len() != default.len() {
            return Ok(true);
        }
        if local.is_symlink() {
            return Ok(self.etc.read_link_contents(path)? != self.defaults.read_link_contents(path)?);
        }
        Ok(self.etc.read(path)? != self.defaults.read(path)?)
    }

    /// Something below `folder` that the merge would copy.
    fn first_change_below(&self, folder: &Utf8Path) -> Result<Option<Utf8PathBuf>> {
        let mut folders = VecDeque::from([folder.to_owned()]);
        while let Some(folder) = folders.pop_front() {
            for (path, local) in self.entries(&folder)? {
                if !local.is_dir() {
                    if self.copies(&path, &local)? {
                        return Ok(Some(path));
                    }
                } else if self.is_default_folder(&path) {
                    folders.push_back(path);
                } else {
                    return Ok(Some(path));
                }
            }
        }
        Ok(None)
    }
}
