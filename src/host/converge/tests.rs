//! Converging on scratch roots. `root_*` needs privilege.

// Tests look at their roots by plain paths, from outside.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod boots;
mod crash;
mod edits;
mod hostile;
mod laying;
mod order;
mod property;
mod records;
mod users;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use camino::{Utf8Path, Utf8PathBuf};

use super::*;
use crate::error::to_fault;
use crate::model::config::Blob;
use crate::model::digest::Digest;
use crate::model::manifest::{Entry, Node, Parent, Part, Source};

pub(super) const ALL: [Scope; 3] = [Scope::Usr, Scope::Etc, Scope::Var];
pub(super) const BOTH: [Scope; 2] = [Scope::Etc, Scope::Var];

/// A scratch root, and contents for it.
pub(super) struct Scene {
    _scratch: tempfile::TempDir,
    pub(super) path: PathBuf,
    pub(super) contents: RefCell<InMemory>,
    pub(super) now: Cell<i64>,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    pub(super) fn at(scratch: tempfile::TempDir) -> Self {
        let path = scratch.path().join("root");
        for folder in ["etc", "var/lib", "usr/lib"] {
            std::fs::create_dir_all(path.join(folder)).unwrap();
        }
        Self { _scratch: scratch, path, contents: RefCell::default(), now: Cell::new(1_000_000) }
    }

    pub(super) fn root(&self) -> Root {
        Root::open(&self.path).unwrap()
    }

    pub(super) fn real(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Writes a file as a person would.
    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.real(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.real(path)).unwrap_or_else(|error| format!("<{error}>"))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.real(path).symlink_metadata().is_ok()
    }

    /// An entry that is a file with this text.
    pub(super) fn file(&self, path: &str, text: &str, mode: u32) -> Entry {
        entry(path, self.file_node(text, mode))
    }

    pub(super) fn file_node(&self, text: &str, mode: u32) -> Node {
        let digest = Digest::of(text.as_bytes());
        self.contents.borrow_mut().0.insert(digest.clone(), Blob::from(text.as_bytes().to_vec()));
        Node::File {
            digest,
            size: text.len() as u64,
            mode,
            uid: uid(),
            gid: gid(),
            label: None,
            object: None,
        }
    }

    pub(super) fn converge(&self, to: &Applied, scopes: &[Scope]) -> Result<Converged> {
        self.now.set(self.now.get() + 100_000);
        let request = Converge { to, known: &[], scopes, now: self.now.get() };
        converge(&self.root(), &*self.contents.borrow(), &request)
    }

    /// Converges, and checks what must be so after every converge.
    pub(super) fn lay(&self, to: &Applied) -> Converged {
        let done = self.converge(to, &ALL).unwrap_or_else(|error| panic!("{error:?}"));
        self.settled(to);
        done
    }

    /// Nothing differs, nothing is left over, and doing it again does nothing.
    pub(super) fn settled(&self, to: &Applied) {
        assert_eq!(differences(&self.root(), &to.manifest, &ALL).unwrap(), []);
        assert_eq!(self.leftovers(), Vec::<String>::new());
        let before = self.tree();
        let again = self.converge(to, &ALL).unwrap();
        assert_eq!((again.changed, again.set_aside), (Vec::new(), Vec::new()));
        assert!(!again.recorded, "the record is as it was");
        assert_eq!(self.tree(), before);
    }

    /// Names that may only be there for the time of a converge.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let is_ours = |path: &&String| {
            path.contains("/.mcd-") || path.ends_with(".new") || path.ends_with("converging.json")
        };
        self.tree().keys().filter(is_ours).cloned().collect()
    }

    /// All that is in the root, described.
    pub(super) fn tree(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        walk(&self.path, &self.path, &mut found);
        found
    }

    /// The same without our own records.
    pub(super) fn tree_of_others(&self) -> BTreeMap<String, String> {
        let mut tree = self.tree();
        tree.retain(|path, _| {
            !path.starts_with("/etc/mcd") && !path.starts_with("/var/lib/mcd") && path != "/etc/.pwd.lock"
        });
        tree
    }

    pub(super) fn record(&self, record: Record) -> Applied {
        read_record(&self.root(), record).unwrap().known().cloned().unwrap()
    }
}

fn walk(root: &Path, at: &Path, found: &mut BTreeMap<String, String>) {
    for item in std::fs::read_dir(at).unwrap() {
        let path = item.unwrap().path();
        let data = path.symlink_metadata().unwrap();
        let name = format!("/{}", path.strip_prefix(root).unwrap().display());
        let owner = format!("{}:{}", data.uid(), data.gid());
        let mode = data.mode() & 0o7777;
        let what = if data.is_symlink() {
            format!("{owner} -> {}", std::fs::read_link(&path).unwrap().display())
        } else if data.is_dir() {
            walk(root, &path, found);
            format!("{mode:04o} {owner} directory")
        } else if data.is_file() {
            format!("{mode:04o} {owner} {:?}", String::from_utf8_lossy(&std::fs::read(&path).unwrap()))
        } else {
            format!("{mode:04o} {owner} special")
        };
        found.insert(name, what);
    }
}

pub(super) fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(super) fn gid() -> u32 {
    rustix::process::getegid().as_raw()
}

pub(super) fn entry(path: &str, node: Node) -> Entry {
    Entry {
        path: path.into(),
        asked: None,
        source: Source::MachineConfig,
        part: Part::Storage,
        node,
        default: None,
        extra: serde_json::Map::new(),
    }
}

pub(super) fn with_default(entry: Entry, default: Node) -> Entry {
    Entry { default: Some(default), ..entry }
}

pub(super) fn directory(path: &str, mode: u32) -> Entry {
    entry(path, Node::Directory { mode, uid: uid(), gid: gid(), label: None })
}

pub(super) fn link_node(target: &str) -> Node {
    Node::Symlink { target: target.to_owned(), uid: uid(), gid: gid(), label: None }
}

pub(super) fn parent(path: &str, mode: u32) -> Parent {
    Parent { path: path.into(), mode, uid: uid(), gid: gid(), label: None }
}

/// What is to be laid down.
pub(super) fn applied(id: &str, mut entries: Vec<Entry>) -> Applied {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut parents: Vec<Utf8PathBuf> = entries
        .iter()
        .flat_map(|entry| entry.path.ancestors().skip(1).map(Utf8Path::to_owned).collect::<Vec<_>>())
        .filter(|path| path.as_str().matches('/').count() > 1)
        .collect();
    parents.sort();
    parents.dedup();
    let parents = parents.into_iter().map(|path| parent(path.as_str(), 0o755)).collect();
    let manifest = Manifest { version: 1, entries, parents, ..Manifest::default() };
    Applied { version: 1, deployment_id: Some(id.to_owned()), manifest, ..Applied::default() }
}

pub(super) fn hows(done: &Converged) -> Vec<(String, How)> {
    done.changed.iter().map(|change| (change.path.to_string(), change.how)).collect()
}

/// The class and words of a failure.
pub(super) fn fault_of(result: Result<Converged>) -> Fault {
    to_fault(&result.expect_err("it must fail"))
}

pub(super) fn link(target: &str, at: &Path) {
    symlink(target, at).unwrap();
}
