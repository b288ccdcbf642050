//! The tree that a configuration is worked out against: an image's commit, or a plain root.
//!
//! Paths are those of the running system: `/etc/x`, wherever the commit keeps it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::rc::Rc;

use anyhow::{Context as _, Result};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::{Dir, MetadataExt as _};
use ostree::gio::{self, prelude::*};

use crate::host::pull::objects::{Checksum, DirTree, decode_xattrs};
use crate::host::pull::read::ObjectReader;
use crate::host::pull::reader;
use crate::host::selinux::label_in;
use crate::model::applied::{ETC_ORIGINALS, Original, VAR_ORIGINALS};
use crate::model::manifest::{Manifest, Node};

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;
/// Links that are followed in one path before it counts as a circle: as the kernel does.
const LINKS_MAX: usize = 40;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    /// Permissions.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) label: Option<String>,
}

/// Its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, and the object that it is in a commit.
    File(Option<String>),
    Directory,
    Symlink(String),
    /// A device, pipe or socket.
    Special,
}

/// A tree to look at.
pub(super) trait Target {
    /// What is at a path whose parents are no links. The path itself is not followed.
    fn look(&self, path: &Utf8Path) -> Result<Option<Found>>;

    /// The content of a file.
    fn read(&self, path: &Utf8Path) -> Result<Vec<u8>>;

    /// The names in a folder; none if there is no such folder.
    fn names(&self, folder: &Utf8Path) -> Result<Vec<String>>;

    /// Copies a folder, with all that is in it, to `to/name`. A folder that is not there makes none.
    fn copy(&self, folder: &Utf8Path, to: &Dir, name: &str) -> Result<()>;
}

/// Why a path cannot be resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unresolvable {
    /// A part of it is a file.
    Through(Utf8PathBuf),
    /// Its links lead in a circle.
    Circle,
}

/// Where a path leads when the links above its last part are followed.
pub(super) fn resolve(target: &dyn Target, path: &Utf8Path) -> Result<Result<Utf8PathBuf, Unresolvable>> {
    let Some(name) = path.file_name() else { return Ok(Ok(Utf8PathBuf::from("/"))) };
    let mut rest: Vec<String> = reversed(path.parent().unwrap_or(Utf8Path::new("/")));
    let mut done = Utf8PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        match target.look(&next)?.map(|found| found.kind) {
            Some(Kind::Symlink(to)) => {
                links += 1;
                if links > LINKS_MAX {
                    return Ok(Err(Unresolvable::Circle));
                }
                if to.starts_with('/') {
                    done = Utf8PathBuf::from("/");
                }
                rest.extend(reversed(Utf8Path::new(&to)));
            }
            Some(Kind::Directory) | None => done = next,
            Some(Kind::File(_) | Kind::Special) => return Ok(Err(Unresolvable::Through(next))),
        }
    }
    Ok(Ok(done.join(name)))
}

fn reversed(path: &Utf8Path) -> Vec<String> {
    let parts = path.components().map(|part| part.as_str().to_owned());
    let mut parts: Vec<String> = parts.filter(|part| part != "/" && part != ".").collect();
    parts.reverse();
    parts
}

/// A commit of the repo.
pub(super) struct CommitTree {
    repo: ostree::Repo,
    commit: String,
    /// Where the defaults of `/etc` stand.
    etc: &'static str,
    objects: ObjectReader,
    root: Checksum,
    folders: std::cell::RefCell<HashMap<String, Option<Rc<DirTree>>>>,
}

impl CommitTree {
    pub(super) fn open(repo: &ostree::Repo, commit: &str) -> Result<Self> {
        let checksum = Checksum::parse(commit).with_context(|| format!("{commit} is no commit"))?;
        let objects = reader(repo)?;
        let mut tree = Self {
            repo: repo.clone(),
            commit: commit.to_owned(),
            etc: "usr/etc",
            root: objects.commit(checksum)?.tree,
            objects,
            folders: Default::default(),
        };
        if tree.folder("usr/etc")?.is_none() && tree.folder("etc")?.is_some() {
            tree.etc = "etc";
        }
        Ok(tree)
    }

    /// Where a path of the running system stands in the commit, without leading slash.
    pub(super) fn place(&self, path: &Utf8Path) -> String {
        match path.strip_prefix("/etc") {
            Ok(rest) if rest.as_str().is_empty() => self.etc.to_owned(),
            Ok(rest) => format!("{}/{rest}", self.etc),
            Err(_) => path.as_str().trim_start_matches('/').to_owned(),
        }
    }

    fn folder(&self, place: &str) -> Result<Option<Rc<DirTree>>> {
        if let Some(known) = self.folders.borrow().get(place) {
            return Ok(known.clone());
        }
        let tree = match place.rsplit_once('/') {
            _ if place.is_empty() => Some(self.root),
            Some((parent, name)) => self.sub_tree(parent, name)?,
            None => self.sub_tree("", place)?,
        };
        let folder = tree.map(|tree| self.objects.tree(tree)).transpose()?.map(Rc::new);
        self.folders.borrow_mut().insert(place.to_owned(), folder.clone());
        Ok(folder)
    }

    fn sub_tree(&self, parent: &str, name: &str) -> Result<Option<Checksum>> {
        Ok(self.folder(parent)?.and_then(|parent| parent.dirs.get(name).map(|(tree, _)| *tree)))
    }

    fn folder_at(&self, meta: Checksum) -> Result<Found> {
        let meta = self.objects.meta(meta)?;
        let label = label_in(&decode_xattrs(&meta.xattrs)?);
        let mode = meta.mode & PERMISSIONS;
        Ok(Found { kind: Kind::Directory, mode, uid: meta.uid, gid: meta.gid, label })
    }

    fn file_at(&self, checksum: &str) -> Result<Found> {
        let (_, info, xattrs) = self.repo.load_file(checksum, gio::Cancellable::NONE)?;
        let kind = match info.file_type() {
            gio::FileType::Regular => Kind::File(Some(checksum.to_owned())),
            gio::FileType::SymbolicLink => {
                let target = info.symlink_target().unwrap_or_default();
                Kind::Symlink(target.to_string_lossy().into_owned())
            }
            _ => Kind::Special,
        };
        Ok(Found {
            kind,
            mode: info.attribute_uint32("unix::mode") & PERMISSIONS,
            uid: info.attribute_uint32("unix::uid"),
            gid: info.attribute_uint32("unix::gid"),
            label: label_in(&decode_xattrs(xattrs.data())?),
        })
    }

    fn object_at(&self, path: &Utf8Path) -> Result<Option<String>> {
        let place = self.place(path);
        let (parent, name) = place.rsplit_once('/').unwrap_or(("", &place));
        Ok(self.folder(parent)?.and_then(|parent| parent.files.get(name).map(ToString::to_string)))
    }
}

impl std::fmt::Debug for CommitTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitTree").field("commit", &self.commit).finish_non_exhaustive()
    }
}

impl Target for CommitTree {
    fn look(&self, path: &Utf8Path) -> Result<Option<Found>> {
        let place = self.place(path);
        let (parent, name) = place.rsplit_once('/').unwrap_or(("", &place));
        let Some(parent) = self.folder(parent)? else { return Ok(None) };
        if let Some((_, meta)) = parent.dirs.get(name) {
            return self.folder_at(*meta).map(Some);
        }
        parent.files.get(name).map(|checksum| self.file_at(&checksum.to_string())).transpose()
    }

    fn read(&self, path: &Utf8Path) -> Result<Vec<u8>> {
        let object = self.object_at(path)?.with_context(|| format!("The image has no file {path}"))?;
        read_object(&self.repo, &object)
    }

    fn names(&self, folder: &Utf8Path) -> Result<Vec<String>> {
        let Some(folder) = self.folder(&self.place(folder))? else { return Ok(Vec::new()) };
        Ok(folder.files.keys().chain(folder.dirs.keys()).cloned().collect())
    }

    fn copy(&self, folder: &Utf8Path, to: &Dir, name: &str) -> Result<()> {
        let place = self.place(folder);
        if self.folder(&place)?.is_none() {
            return Ok(());
        }
        let options = ostree::RepoCheckoutAtOptions {
            mode: ostree::RepoCheckoutMode::User,
            force_copy: true,
            subpath: Some(format!("/{place}").into()),
            ..Default::default()
        };
        self.repo
            .checkout_at(Some(&options), to.as_fd().as_raw_fd(), name, &self.commit, gio::Cancellable::NONE)
            .with_context(|| format!("Copying {folder} of the image"))
    }
}

/// The content of a file object.
pub(super) fn read_object(repo: &ostree::Repo, object: &str) -> Result<Vec<u8>> {
    let (stream, ..) = repo
        .load_file(object, gio::Cancellable::NONE)
        .with_context(|| format!("Reading file object {object}"))?;
    let Some(stream) = stream else { return Ok(Vec::new()) };
    let mut content = Vec::new();
    loop {
        let part = stream.read_bytes(1 << 20, gio::Cancellable::NONE)?;
        if part.is_empty() {
            return Ok(content);
        }
        content.extend_from_slice(&part);
    }
}

/// A root file system without OSTree, as it would be without us.
#[derive(Debug)]
pub(super) struct FolderTree {
    root: Dir,
    /// Paths that are managed, and what a person had there.
    managed: BTreeMap<Utf8PathBuf, Option<Original>>,
}

impl FolderTree {
    pub(super) fn without(root: Dir, managed: &Manifest, originals: &[Original]) -> Self {
        let original = |path: &Utf8Path| originals.iter().find(|one| one.path == path).cloned();
        let paths = managed.entries.iter().map(|entry| &entry.path);
        Self { root, managed: paths.map(|path| (path.clone(), original(path))).collect() }
    }

    fn relative(path: &Utf8Path) -> &Utf8Path {
        path.strip_prefix("/").unwrap_or(path)
    }

    fn on_disk(&self, path: &Utf8Path) -> Result<Option<Found>> {
        let relative = Self::relative(path);
        let metadata = match self.root.symlink_metadata(relative) {
            Ok(metadata) => metadata,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("Looking at {path}")),
        };
        let kind = if metadata.is_file() {
            Kind::File(None)
        } else if metadata.is_dir() {
            Kind::Directory
        } else if metadata.is_symlink() {
            let target = self.root.read_link_contents(relative)?;
            Kind::Symlink(target.to_string_lossy().into_owned())
        } else {
            Kind::Special
        };
        let mode = metadata.mode() & PERMISSIONS;
        Ok(Some(Found { kind, mode, uid: metadata.uid(), gid: metadata.gid(), label: None }))
    }
}

impl Target for FolderTree {
    fn look(&self, path: &Utf8Path) -> Result<Option<Found>> {
        // A directory of ours stays one: there may be others' files in it.
        let on_disk = self.on_disk(path)?;
        match (self.managed.get(path), on_disk) {
            (Some(original), on_disk) if on_disk.as_ref().is_none_or(|one| one.kind != Kind::Directory) => {
                Ok(original.as_ref().and_then(|original| found_of(&original.node)))
            }
            (_, on_disk) => Ok(on_disk),
        }
    }

    fn read(&self, path: &Utf8Path) -> Result<Vec<u8>> {
        let Some(Some(original)) = self.managed.get(path) else {
            return self.root.read(Self::relative(path)).with_context(|| format!("Reading {path}"));
        };
        let Node::File { digest, .. } = &original.node else { return Ok(Vec::new()) };
        let copies = [ETC_ORIGINALS, VAR_ORIGINALS].map(|folder| format!("{folder}/{}", digest.hex()));
        let found = copies.iter().find_map(|copy| self.root.read(copy).ok());
        found.with_context(|| format!("The copy of what was at {path} before is gone"))
    }

    fn names(&self, folder: &Utf8Path) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        match self.root.read_dir(Self::relative(folder)) {
            Ok(entries) => {
                for entry in entries {
                    // A name that is no text cannot be one of a config's.
                    names.extend(entry?.file_name().into_string());
                }
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error).with_context(|| format!("Reading {folder}")),
        }
        for (path, original) in &self.managed {
            if path.parent() == Some(folder)
                && original.is_some()
                && let Some(name) = path.file_name()
            {
                names.insert(name.to_owned());
            }
        }
        let mut there = Vec::new();
        for name in names {
            if self.look(&folder.join(&name))?.is_some() {
                there.push(name);
            }
        }
        Ok(there)
    }

    fn copy(&self, folder: &Utf8Path, to: &Dir, name: &str) -> Result<()> {
        if self.look(folder)?.is_none_or(|found| found.kind != Kind::Directory) {
            return Ok(());
        }
        to.create_dir(name)?;
        let inner = to.open_dir(name)?;
        for entry in self.names(folder)? {
            let path = folder.join(&entry);
            match self.look(&path)?.map(|found| found.kind) {
                Some(Kind::File(_)) => inner.write(&entry, self.read(&path)?)?,
                // What it says, not where it leads: an absolute target is a name in the root.
                Some(Kind::Symlink(target)) => inner.symlink_contents(target, &entry)?,
                Some(Kind::Directory) => self.copy(&path, &inner, &entry)?,
                Some(Kind::Special) | None => {}
            }
        }
        Ok(())
    }
}

fn found_of(node: &Node) -> Option<Found> {
    let (kind, mode, uid, gid) = match node {
        Node::File { mode, uid, gid, .. } => (Kind::File(None), *mode, *uid, *gid),
        Node::Directory { mode, uid, gid, .. } => (Kind::Directory, *mode, *uid, *gid),
        Node::Symlink { target, uid, gid, .. } => (Kind::Symlink(target.clone()), 0o777, *uid, *gid),
        Node::Absent => return None,
    };
    Some(Found { kind, mode, uid, gid, label: None })
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}
