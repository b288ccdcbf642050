//! A root file system as a capability: every path is resolved inside of it.
//!
//! Paths of a manifest have their links followed already, so a link that is met on the way was put
//! there later. One of root's is followed as long as it stays where the path belongs. Anybody else's
//! is an obstacle: whoever owns a home directory must not choose where root writes.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::model::manifest::Scope;

/// As many links as the kernel follows in one path.
const MOST_LINKS: usize = 40;
/// Where `/var` is.
const VAR: &str = "var";

/// A root, and where its `/var` is if that is not below it.
#[derive(Debug)]
pub struct Root {
    dir: Dir,
    var: Option<Dir>,
    at: Option<std::path::PathBuf>,
}

/// What is on the way to a directory.
#[derive(Debug)]
pub(super) enum Way {
    /// It is there.
    Open(Dir),
    /// It, or a directory above it, is missing.
    Missing,
    /// Something that is no directory is in the way.
    NoDirectory(Utf8PathBuf),
    /// A link that is not followed is in the way.
    Link {
        /// The link.
        path: Utf8PathBuf,
        /// Why it is not followed.
        why: String,
    },
}

impl Root {
    /// The root at `dir`.
    pub fn new(dir: Dir) -> Self {
        Self { dir, var: None, at: None }
    }

    /// The root with its `/var` elsewhere: a deployment that is not booted.
    #[must_use]
    pub fn with_var(self, var: Dir) -> Self {
        Self { var: Some(var), ..self }
    }

    /// The root at a path of this machine.
    pub fn open(path: &Path) -> Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())
            .with_context(|| format!("Opening the root {}", path.display()))?;
        let at = path.canonicalize().with_context(|| format!("Resolving {}", path.display()))?;
        Ok(Self { at: Some(at), ..Self::new(dir) })
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// `/var` where it is not below the folder.
    pub fn var(&self) -> Option<&Dir> {
        self.var.as_ref()
    }

    /// Where it is on this machine, as far as that is known.
    pub(super) fn at(&self) -> Option<&Path> {
        self.at.as_deref()
    }

    /// The folder that holds an absolute path, and the path below it.
    fn base<'p>(&self, path: &'p Utf8Path) -> (&Dir, bool, &'p Utf8Path) {
        let below = path.strip_prefix("/").unwrap_or(path);
        match (&self.var, below.strip_prefix(VAR)) {
            (Some(var), Ok(rest)) => (var, true, rest),
            _ => (&self.dir, false, below),
        }
    }

    /// The directory at an absolute path, if it is there and may be gone to.
    #[cfg(feature = "ostree")]
    pub(crate) fn folder(&self, path: &Utf8Path) -> Option<Dir> {
        match self.way_to(path) {
            Ok(Way::Open(folder)) => Some(folder),
            _ => None,
        }
    }

    /// Opens the directory at an absolute path.
    pub(super) fn way_to(&self, path: &Utf8Path) -> rustix::io::Result<Way> {
        let (base, _, below) = self.base(path);
        let below = if below.as_str().is_empty() { Utf8Path::new(".") } else { below };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(base, below.as_str(), flags, Mode::empty(), resolve) {
            Ok(fd) => Ok(Way::Open(as_dir(fd))),
            Err(Errno::NOENT) => Ok(Way::Missing),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NOSYS | Errno::XDEV) => {
                Walk::new(self, path)?.walk_to_the_end()
            }
            Err(error) => Err(error),
        }
    }
}

/// A path walked by hand, name by name.
struct Walk<'r> {
    root: &'r Root,
    wanted: &'r Utf8Path,
    left: VecDeque<String>,
    in_var: bool,
    base: OwnedFd,
    gone: Vec<(String, OwnedFd)>,
    links: usize,
    first_link: Option<Utf8PathBuf>,
}

impl<'r> Walk<'r> {
    fn new(root: &'r Root, wanted: &'r Utf8Path) -> rustix::io::Result<Self> {
        let mut walk = Self {
            root,
            wanted,
            left: VecDeque::new(),
            in_var: false,
            base: reopen(&root.dir, OFlags::PATH)?,
            gone: Vec::new(),
            links: 0,
            first_link: None,
        };
        walk.start_at(wanted)?;
        Ok(walk)
    }

    /// Goes back to the root, with this absolute path before what is left.
    fn start_at(&mut self, path: &Utf8Path) -> rustix::io::Result<()> {
        let (base, in_var, below) = self.root.base(path);
        self.base = reopen(base, OFlags::PATH)?;
        self.in_var = in_var;
        self.gone.clear();
        self.push_front(below);
        Ok(())
    }

    fn push_front(&mut self, path: &Utf8Path) {
        for name in path.as_str().split('/').rev().filter(|name| !name.is_empty() && *name != ".") {
            self.left.push_front(name.to_owned());
        }
    }

    fn here(&self) -> &OwnedFd {
        self.gone.last().map_or(&self.base, |(_, fd)| fd)
    }

    fn path(&self) -> Utf8PathBuf {
        let mut path = Utf8PathBuf::from(if self.in_var { "/var" } else { "/" });
        path.extend(self.gone.iter().map(|(name, _)| name));
        path
    }

    fn walk_to_the_end(mut self) -> rustix::io::Result<Way> {
        while let Some(name) = self.left.pop_front() {
            if name == ".." {
                self.gone.pop();
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = match rustix::fs::openat(self.here(), &name, flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Ok(self.dangling().unwrap_or(Way::Missing)),
                Err(error) => return Err(error),
            };
            let stat = rustix::fs::fstat(&fd)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.gone.push((name, fd)),
                FileType::Symlink => {
                    if let Some(refused) = self.follow(&name, &fd, stat.st_uid)? {
                        return Ok(refused);
                    }
                }
                _ => return Ok(Way::NoDirectory(self.path().join(name))),
            }
        }
        if let Some(refused) = self.scoped() {
            return Ok(refused);
        }
        Ok(Way::Open(as_dir(reopen(self.here(), OFlags::RDONLY)?)))
    }

    fn follow(&mut self, name: &str, link: &OwnedFd, owner: u32) -> rustix::io::Result<Option<Way>> {
        let path = self.path().join(name);
        self.links += 1;
        self.first_link.get_or_insert_with(|| path.clone());
        if self.links > MOST_LINKS {
            return Ok(Some(Way::Link { path, why: "it leads in a circle".to_owned() }));
        }
        if !is_trusted(owner) || !is_trusted(rustix::fs::fstat(self.here())?.st_uid) {
            let why = "it belongs to a user, who must not choose where root writes".to_owned();
            return Ok(Some(Way::Link { path, why }));
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let Ok(target) = target.into_string() else {
            return Ok(Some(Way::Link { path, why: "its target is no text".to_owned() }));
        };
        if target.starts_with('/') {
            self.start_at(Utf8Path::new(&target))?;
        } else {
            self.push_front(Utf8Path::new(&target));
        }
        Ok(None)
    }

    /// A link that leads to what is missing.
    fn dangling(&self) -> Option<Way> {
        let why = "it leads nowhere".to_owned();
        self.first_link.clone().map(|path| Way::Link { path, why })
    }

    /// Whether links led out of where the path belongs: another file system may be meant, or one that
    /// is not mounted yet.
    fn scoped(&self) -> Option<Way> {
        if self.links == 0 {
            return None;
        }
        let path = self.path();
        let allowed = match (Scope::of(self.wanted), Scope::of(&path)) {
            (wanted, scope) if wanted == scope => true,
            // An administrator may have `/var/lib/x` on another disk.
            (Some(Scope::Var), None) => path != "/",
            _ => false,
        };
        (!allowed)
            .then(|| Way::Link { path: self.wanted.to_owned(), why: format!("links on it lead to {path}") })
    }
}

fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

fn as_dir(fd: OwnedFd) -> Dir {
    Dir::from_std_file(fd.into())
}

fn reopen(dir: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, ".", flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests;
