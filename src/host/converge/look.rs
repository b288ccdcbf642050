//! Looking at what is on disk, without following the last link, opening a device or waiting for a pipe.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sha2::Digest as _;

use super::root::{Root, Way};
use crate::model::digest::Digest;
use crate::model::manifest::{Node, Scope};

/// How much of a file is read at once.
pub(super) const PIECE: usize = 64 * 1024;
/// The attribute that holds the SELinux label.
const LABEL: &str = "security.selinux";
/// Longer than any label that a policy makes.
const LONGEST_LABEL: usize = 4096;

/// Kinds of things at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    Pipe,
    Socket,
    Device,
}

impl Kind {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a link",
            Self::Pipe => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        }
    }
}

/// Tells one version of a file from another; a rename does not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    dev: u64,
    ino: u64,
    size: i64,
    mtime: i64,
    mtime_nsec: u64,
}

impl Identity {
    /// Whether it is the same thing, whatever is in it by now.
    pub(super) fn is_same_inode(&self, stat: &rustix::fs::Stat) -> bool {
        (self.dev, self.ino) == (stat.st_dev, stat.st_ino)
    }
}

/// Permissions, owner and label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dress {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) label: Option<String>,
}

/// Something on disk.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) dress: Dress,
    pub(super) size: u64,
    pub(super) identity: Identity,
    /// Of a link; none where it is no text.
    pub(super) target: Option<String>,
    file: Option<OwnedFd>,
}

/// What is at a path.
#[derive(Debug)]
pub(super) enum Sight {
    /// Nothing; a directory above may be missing, too.
    Nothing,
    /// This.
    Found(Found),
    /// There is no way to it.
    Blocked(Way),
}

/// Looks at paths of one root.
#[derive(Debug)]
pub(super) struct Eye<'r> {
    root: &'r Root,
    /// Siblings are looked at one after the other: their directory is opened once.
    last: RefCell<Option<(Utf8PathBuf, Rc<Way>)>>,
    buffer: RefCell<Vec<u8>>,
    labelled: [bool; 3],
}

impl<'r> Eye<'r> {
    pub(super) fn new(root: &'r Root) -> Self {
        let mut eye =
            Self { root, last: RefCell::default(), buffer: RefCell::default(), labelled: [false; 3] };
        // A tree without labels is one that no policy is for, or that was not labelled yet.
        eye.labelled = ["/usr", "/etc", "/var"].map(|path| {
            eye.root.way_to(Utf8Path::new(path)).is_ok_and(|way| match way {
                Way::Open(dir) => label_of_fd(&dir).is_some(),
                _ => false,
            })
        });
        eye
    }

    pub(super) fn root(&self) -> &'r Root {
        self.root
    }

    /// Whether labels count there.
    pub(super) fn is_labelled(&self, scope: Scope) -> bool {
        match scope {
            Scope::Usr => self.labelled[0],
            Scope::Etc => self.labelled[1],
            Scope::Var => self.labelled[2],
        }
    }

    /// The way to a directory.
    pub(super) fn way_to(&self, path: &Utf8Path) -> Result<Rc<Way>> {
        if let Some((last, way)) = &*self.last.borrow()
            && last == path
        {
            return Ok(way.clone());
        }
        let way = Rc::new(self.root.way_to(path).with_context(|| format!("Opening {path}"))?);
        self.last.replace(Some((path.to_owned(), way.clone())));
        Ok(way)
    }

    /// What is at an absolute path.
    pub(super) fn look(&self, path: &Utf8Path) -> Result<Sight> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            anyhow::bail!("{path} is no path of an entry");
        };
        let way = self.way_to(parent)?;
        match &*way {
            Way::Open(dir) => {
                let scope = Scope::of(path);
                let labels = scope.is_some_and(|scope| self.is_labelled(scope));
                let found = look_at(dir, name, labels).with_context(|| format!("Looking at {path}"))?;
                Ok(found.map_or(Sight::Nothing, Sight::Found))
            }
            Way::Missing => Ok(Sight::Nothing),
            Way::NoDirectory(at) => Ok(Sight::Blocked(Way::NoDirectory(at.clone()))),
            Way::Link { path, why } => Ok(Sight::Blocked(Way::Link { path: path.clone(), why: why.clone() })),
        }
    }

    /// The digest of a file's content.
    pub(super) fn digest(&self, path: &Utf8Path, found: &Found) -> Result<Digest> {
        let opened;
        let file = match &found.file {
            Some(file) => file,
            None => {
                let way = self.way_to(path.parent().context("An entry has a parent")?)?;
                let Way::Open(dir) = &*way else { anyhow::bail!("{path} went away") };
                opened = open_file(dir, path.file_name().unwrap_or_default())
                    .with_context(|| format!("Opening {path}"))?;
                &opened
            }
        };
        let is_same = identity(&rustix::fs::fstat(file)?) == found.identity;
        ensure!(is_same, "{path} changed while it was looked at");
        digest_of(file, &mut self.buffer.borrow_mut()).with_context(|| format!("Reading {path}"))
    }
}

impl Found {
    /// It as a node, with the digest of its content; none for what a record cannot describe.
    pub(super) fn node(&self, content: impl FnOnce() -> Result<Digest>) -> Result<Option<Node>> {
        let Dress { mode, uid, gid, label } = self.dress.clone();
        Ok(match self.kind {
            Kind::File => {
                Some(Node::File { digest: content()?, size: self.size, mode, uid, gid, label, object: None })
            }
            Kind::Directory => Some(Node::Directory { mode, uid, gid, label }),
            Kind::Symlink => self.target.clone().map(|target| Node::Symlink { target, uid, gid, label }),
            Kind::Pipe | Kind::Socket | Kind::Device => None,
        })
    }
}

/// What is at `name` in `dir`.
pub(super) fn look_at(dir: &Dir, name: &str, labels: bool) -> Result<Option<Found>> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => Kind::Socket,
        _ => Kind::Device,
    };
    let file = if kind == Kind::File { Some(open_file(dir, name)?) } else { None };
    let target = match kind {
        Kind::Symlink => rustix::fs::readlinkat(dir, name, Vec::new())?.into_string().ok(),
        _ => None,
    };
    let label = match (labels, &file) {
        (false, _) => None,
        (true, Some(file)) => label_of_fd(file),
        (true, None) => label_of_name(dir, name),
    };
    let dress = Dress { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, label };
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    Ok(Some(Found { kind, dress, size, identity: identity(&stat), target, file }))
}

/// Opens a file that is known to be one; should it have become a pipe, nobody waits.
pub(super) fn open_file(dir: &Dir, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

pub(super) fn identity(stat: &rustix::fs::Stat) -> Identity {
    Identity {
        dev: stat.st_dev,
        ino: stat.st_ino,
        size: stat.st_size,
        mtime: stat.st_mtime,
        mtime_nsec: stat.st_mtime_nsec,
    }
}

/// The digest of all that an open file holds, from its start.
pub(super) fn digest_of(file: &OwnedFd, buffer: &mut Vec<u8>) -> rustix::io::Result<Digest> {
    buffer.resize(PIECE, 0);
    let mut hasher = sha2::Sha256::new();
    let mut offset = 0;
    loop {
        match rustix::io::pread(file, buffer.as_mut_slice(), offset) {
            Ok(0) => return Ok(Digest::from_raw(hasher.finalize().into())),
            Ok(length) => {
                hasher.update(&buffer[..length]);
                offset += length as u64;
                // A short read is the end of a regular file.
                if length < PIECE {
                    return Ok(Digest::from_raw(hasher.finalize().into()));
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The label of an open file or directory.
pub(super) fn label_of_fd(file: impl std::os::fd::AsFd) -> Option<String> {
    let mut value = vec![0; LONGEST_LABEL];
    let length = rustix::fs::fgetxattr(file, LABEL, value.as_mut_slice()).ok()?;
    value.truncate(length);
    as_text(value)
}

/// The label of what is at `name`, a link itself and not what it leads to.
fn label_of_name(dir: &Dir, name: &str) -> Option<String> {
    let mut value = vec![0; LONGEST_LABEL];
    let length = rustix::fs::lgetxattr(through_proc(dir, name), LABEL, value.as_mut_slice()).ok()?;
    value.truncate(length);
    as_text(value)
}

fn as_text(mut value: Vec<u8>) -> Option<String> {
    while value.last() == Some(&0) {
        value.pop();
    }
    String::from_utf8(value).ok()
}

/// There is no system call yet for an attribute of a name in an open directory.
fn through_proc(dir: &Dir, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())
}

/// Sets the label of an open file or directory. A file system that has none (or this process's lack of
/// the right) is no error: the label is compared only where there are labels.
pub(super) fn set_label_of_fd(file: impl std::os::fd::AsFd, label: &str) -> rustix::io::Result<()> {
    tolerate(rustix::fs::fsetxattr(file, LABEL, &with_end(label), rustix::fs::XattrFlags::empty()))
}

/// Sets the label of what is at `name`, a link itself and not what it leads to.
pub(super) fn set_label_of_name(dir: &Dir, name: &str, label: &str) -> rustix::io::Result<()> {
    let path = through_proc(dir, name);
    tolerate(rustix::fs::lsetxattr(path, LABEL, &with_end(label), rustix::fs::XattrFlags::empty()))
}

/// libselinux and libostree store the final NUL, too.
fn with_end(label: &str) -> Vec<u8> {
    [label.as_bytes(), b"\0"].concat()
}

fn tolerate(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOENT) => Ok(()),
        result => result,
    }
}
