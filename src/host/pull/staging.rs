//! Where an import writes before anything may trust it, and how that becomes durable.
//!
//! An import owns one folder, `tmp/mcd-import-…`, in the repo. It holds an exclusive `flock` on the
//! folder itself for as long as it lives, so that a folder whose lock can be taken is what a killed
//! run left. Every layer writes below a subfolder of its own.
//!
//! [`Staging::publish`] moves a group of objects into the repo, in an order that makes a power cut
//! at any point harmless:
//!
//! 1. objects and ref files are in the staging folder; `syncfs`: their bytes are durable;
//! 2. rename files, dirtrees and dirmetas into `objects/`; `syncfs`: their names are durable;
//! 3. rename commits; `syncfs`: whoever meets a commit finds all that it names;
//! 4. rename the ref files.
//!
//! A `syncfs` instead of an `fsync` per directory: it costs one journal commit where 256 folders
//! would cost 256 flushes, and it also covers names that another process has put into `objects/`
//! and that this import met as existing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, anyhow, bail};
use camino::Utf8PathBuf;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use rustix::fs::{FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::objects::{Checksum, Kind, loose_path};

/// Every staging folder's name begins so.
const PREFIX: &str = "mcd-import-";
/// The name of what a transaction of libostree's writes begins so, beside a lock.
const TRANSACTION_PREFIX: &str = "staging-";
/// Below `refs/heads`.
const HEADS: &str = "refs/heads";

/// The staging folder of one import.
#[derive(Debug)]
pub(super) struct Staging {
    repo: Dir,
    objects: Dir,
    tmp: Dir,
    name: String,
    dir: Dir,
    /// The repo's folder, open for reading: `Dir` handles cannot be synchronised.
    repo_file: OwnedFd,
    /// Holds the lock on `dir`.
    _lock: OwnedFd,
}

/// One object in the staging folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) checksum: Checksum,
    pub(super) kind: Kind,
    /// Which of its layer's folders holds it.
    pub(super) folder: usize,
}

/// Objects and refs that become durable together.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Objects by the layer folder that holds them.
    pub(super) objects: Vec<(LayerFolder, Vec<Staged>)>,
    /// Refs to set once the objects are safe: name below `refs/heads`, commit.
    pub(super) refs: Vec<(String, Checksum)>,
}

/// The folders of one layer.
#[derive(Debug, Clone)]
pub(super) struct LayerFolder {
    name: String,
    writers: usize,
}

impl Staging {
    /// Makes a staging folder in the repo, locked.
    #[context("Creating a staging folder in the repo")]
    pub(super) fn create(repo: &Dir) -> Result<Self> {
        let tmp = repo.open_dir("tmp").context("Opening the repo's tmp")?;
        let objects = repo.open_dir("objects").context("Opening the repo's objects")?;
        for attempt in 0u32..100 {
            let name = format!("{PREFIX}{}-{attempt}", std::process::id());
            match tmp.create_dir(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            let dir = tmp.open_dir(&name)?;
            // Between the two calls somebody may have taken it for a leftover and removed it.
            if let Some(lock) = lock_folder(&dir)?
                && tmp.exists(&name)
            {
                let repo_file = open_folder(repo)?;
                return Ok(Self { repo: repo.try_clone()?, objects, tmp, name, dir, repo_file, _lock: lock });
            }
        }
        bail!("a hundred folders named {PREFIX}{}-… exist already", std::process::id());
    }

    /// Makes the folders of a layer: one for each writer, so that they do not wait for each other's
    /// directory lock.
    #[context("Creating a layer's staging folder")]
    pub(super) fn layer(&self, name: &str, writers: usize) -> Result<(LayerFolder, Vec<Dir>)> {
        self.dir.create_dir(name)?;
        let dir = self.dir.open_dir(name)?;
        let mut folders = Vec::with_capacity(writers);
        for writer in 0..writers {
            let name = writer.to_string();
            dir.create_dir(&name)?;
            folders.push(dir.open_dir(&name)?);
        }
        Ok((LayerFolder { name: name.to_owned(), writers }, folders))
    }

    /// The absolute path of a name in the staging folder, for another program. It need not exist.
    pub(super) fn path_for(&self, name: &str) -> Result<Utf8PathBuf> {
        use std::os::fd::AsRawFd as _;
        let proc = Dir::open_ambient_dir("/proc/self/fd", ambient_authority())?;
        let fd = self.dir.as_fd().as_raw_fd().to_string();
        // The contents of this link are a path and not followed; `read_link` refuses absolute ones.
        let path = Utf8PathBuf::from_path_buf(proc.read_link_contents(fd)?)
            .map_err(|path| anyhow!("the repo's path {} is not UTF-8", path.display()))?;
        Ok(path.join(name))
    }

    /// Makes a folder for another program; its absolute path.
    pub(super) fn make_folder(&self, name: &str) -> Result<Utf8PathBuf> {
        self.dir.create_dir(name)?;
        self.path_for(name)
    }

    /// Makes a folder; it goes with this value.
    pub(super) fn folder(&self, name: &str) -> Result<Dir> {
        self.dir.create_dir(name)?;
        Ok(self.dir.open_dir(name)?)
    }

    /// Drops what a failed attempt at a layer wrote.
    pub(super) fn discard(&self, folder: &LayerFolder) -> Result<()> {
        Ok(self.dir.remove_dir_all(&folder.name)?)
    }

    /// Makes a group durable, then sets its refs. See the module's documentation for the order.
    #[context("Writing imported objects into the repo")]
    pub(super) fn publish(&self, group: &Group) -> Result<()> {
        let refs = self.write_ref_files(&group.refs)?;
        self.sync()?;
        let is_commit = |staged: &Staged| matches!(staged.kind, Kind::Commit | Kind::CommitMeta);
        if self.move_objects(group, |staged| !is_commit(staged))? {
            self.sync()?;
        }
        // Detached metadata first: a commit must never be met without its signatures.
        let commits = self.move_objects(group, |staged| staged.kind == Kind::CommitMeta)?
            | self.move_objects(group, |staged| staged.kind == Kind::Commit)?;
        if commits {
            self.sync()?;
        }
        for (name, (staged, _)) in group.refs.iter().map(|(name, _)| name).zip(&refs) {
            self.move_ref(staged, name)?;
        }
        for (folder, _) in &group.objects {
            self.discard(folder)?;
        }
        Ok(())
    }

    /// Makes everything durable: the last step of an import.
    #[context("Synchronising the repo's file system")]
    pub(super) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.repo_file)?)
    }

    /// The repo's `objects` folder.
    pub(super) fn objects(&self) -> &Dir {
        &self.objects
    }

    #[context("Writing ref files")]
    fn write_ref_files(&self, refs: &[(String, Checksum)]) -> Result<Vec<(String, Checksum)>> {
        let mut written = Vec::with_capacity(refs.len());
        for (index, (_, commit)) in refs.iter().enumerate() {
            let name = format!("ref-{index}");
            self.dir.write(&name, format!("{commit}\n"))?;
            written.push((name, *commit));
        }
        Ok(written)
    }

    /// Moves the chosen objects; tells whether any name in `objects/` changed.
    fn move_objects(&self, group: &Group, choose: impl Fn(&Staged) -> bool) -> Result<bool> {
        let mut moved = false;
        for (folder, objects) in &group.objects {
            let folders = self.open_folders(folder)?;
            for staged in objects.iter().filter(|staged| choose(staged)) {
                let target = loose_path(staged.checksum, staged.kind);
                moved |= move_object(
                    &folders[staged.folder],
                    &staged_name(staged.checksum, staged.kind),
                    &self.objects,
                    &target,
                )
                .with_context(|| format!("Moving object {target}"))?;
            }
        }
        Ok(moved)
    }

    fn open_folders(&self, folder: &LayerFolder) -> Result<Vec<Dir>> {
        (0..folder.writers)
            .map(|writer| Ok(self.dir.open_dir(format!("{}/{writer}", folder.name))?))
            .collect()
    }

    #[context("Setting ref {name}")]
    fn move_ref(&self, staged: &str, name: &str) -> Result<()> {
        let target = format!("{HEADS}/{name}");
        if let Some((parent, _)) = target.rsplit_once('/') {
            self.repo.create_dir_all(parent)?;
        }
        self.dir.rename(staged, &self.repo, &target)?;
        // As libostree does: tools that show the host watch this time stamp.
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        Ok(rustix::fs::futimens(&self.repo_file, &times)?)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.tmp.remove_dir_all(&self.name) {
            tracing::warn!("could not remove the staging folder tmp/{}: {error}", self.name);
        }
    }
}

/// The name of an object in its layer's folder.
pub(super) fn staged_name(checksum: Checksum, kind: Kind) -> String {
    format!("{checksum}.{}", kind.suffix())
}

/// Whether `objects` has an object.
pub(super) fn has_object(objects: &Dir, checksum: Checksum, kind: Kind) -> Result<bool> {
    let path = loose_path(checksum, kind);
    match rustix::fs::statat(objects.as_fd(), path.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("Looking for object {path}")),
    }
}

/// Moves one object without replacing; an object that has come to exist is the same by its name.
fn move_object(from: &Dir, name: &str, objects: &Dir, target: &str) -> Result<bool> {
    let rename =
        || rustix::fs::renameat_with(from.as_fd(), name, objects.as_fd(), target, RenameFlags::NOREPLACE);
    let result = match rename() {
        Err(Errno::NOENT) if !objects.exists(&target[..2]) => {
            match objects.create_dir(&target[..2]) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other?,
            }
            rename()
        }
        other => other,
    };
    match result {
        Ok(()) => Ok(true),
        // It may have come from another process a moment ago: its name needs the sync too.
        Err(Errno::EXIST) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock that marks a folder as in use; none if somebody else has it.
fn lock_folder(dir: &Dir) -> Result<Option<OwnedFd>> {
    let file = open_folder(dir)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The folder as a file: `Dir` holds a mere path, which can be neither locked nor synchronised.
fn open_folder(dir: &Dir) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir.as_fd(), ".", flags, Mode::empty())?)
}

/// What killed imports left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Folders in the repo's `tmp`.
    pub folders: Vec<String>,
    /// What they hold together, in bytes on the disk.
    pub bytes: u64,
}

/// Finds what killed imports left in the repo, without touching it.
#[context("Looking for what killed imports left")]
pub fn leftovers(repo: &ostree::Repo) -> Result<Leftovers> {
    let tmp = open_tmp(repo)?;
    let mut found = Leftovers::default();
    for (name, dir, _lock) in abandoned(&tmp)? {
        found.bytes += disk_usage(&dir)?;
        found.folders.push(name);
    }
    found.folders.sort();
    Ok(found)
}

/// Removes what killed imports left; tells what it was.
#[context("Removing what killed imports left")]
pub fn remove_leftovers(repo: &ostree::Repo) -> Result<Leftovers> {
    let tmp = open_tmp(repo)?;
    let mut removed = Leftovers::default();
    // A mere note that saves fetching: who runs now has read it already.
    super::partial::forget_all(&repo_dir(repo)?)?;
    for (name, dir, _lock) in abandoned(&tmp)? {
        removed.bytes += disk_usage(&dir)?;
        tmp.remove_dir_all(&name)?;
        removed.folders.push(name);
    }
    remove_transactions(&tmp)?;
    removed.folders.sort();
    Ok(removed)
}

/// Removes what killed transactions of libostree's left, a folder and a lock each. libostree does that
/// too, a day later. Every living one holds the repo's lock, which the caller has for itself.
fn remove_transactions(tmp: &Dir) -> Result<()> {
    for entry in tmp.entries()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(TRANSACTION_PREFIX) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            tmp.remove_dir_all(&name)?;
        } else {
            tmp.remove_file(&name)?;
        }
    }
    Ok(())
}

fn open_tmp(repo: &ostree::Repo) -> Result<Dir> {
    Ok(repo_dir(repo)?.open_dir("tmp")?)
}

/// The repo's folder as a capability.
pub(super) fn repo_dir(repo: &ostree::Repo) -> Result<Dir> {
    Ok(Dir::reopen_dir(&repo.dfd_borrow())?)
}

/// Staging folders that no living process holds, with their locks taken.
fn abandoned(tmp: &Dir) -> Result<Vec<(String, Dir, OwnedFd)>> {
    let mut found = Vec::new();
    for entry in tmp.entries()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(PREFIX) || !entry.file_type()?.is_dir() {
            continue;
        }
        let dir = match entry.open_dir() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if let Some(lock) = lock_folder(&dir)? {
            found.push((name, dir, lock));
        }
    }
    Ok(found)
}

fn disk_usage(dir: &Dir) -> Result<u64> {
    use cap_std_ext::cap_std::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in dir.entries()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += disk_usage(&entry.open_dir()?)?;
        } else {
            bytes += entry.metadata()?.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// Creates a file that must not exist yet.
pub(super) fn create_new(dir: &Dir, name: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        dir.as_fd(),
        name,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )
}
