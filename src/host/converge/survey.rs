//! The survey: what a converge would change, and what stands in its way. It changes nothing.

mod leaving;
mod obstacles;
mod wanted;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use super::look::{Dress, Eye, Found, Identity, Kind, Sight};
use super::record::{Converging, Record, Stand, read_converging, read_manifest, read_record};
use super::root::{Root, Way};
use super::{Converge, How, shadow};
use crate::model::applied::{APPLIED_VERSION, Applied, Original};
use crate::model::digest::Digest;
use crate::model::manifest::{Entry, Manifest, Node, Scope};

/// An original larger than this is not copied: a config file is not that large, and a full `/etc` would
/// be worse than a refusal.
pub(super) const LARGEST_ORIGINAL: u64 = 16 << 20;
/// All originals of a record together.
const ALL_ORIGINALS: u64 = 128 << 20;
/// So many edits of managed paths are kept, the newest; the others' copies go.
const KEPT_EDITS: usize = 64;
/// How names that are ours for the time of a converge begin: no reader of a `*.d` folder takes files
/// that begin with a dot.
pub(super) const TEMPORARY: &str = ".mcd-";

/// Something that a converge cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The path.
    pub path: Utf8PathBuf,
    /// The class.
    pub kind: ProblemKind,
    /// Why it cannot be done, in words.
    pub why: String,
    /// What to do about it.
    pub next: String,
}

/// Classes of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The path leads through something that is no directory.
    ParentIsNoDirectory,
    /// The path leads through a link that is not root's, or out of where it belongs.
    ParentIsLink,
    /// A directory is where a file or link must be.
    IsDirectory,
    /// A device is there.
    IsDevice,
    /// The file or its directory has the attribute immutable or append-only.
    Immutable,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The file system has no room.
    NoSpace,
    /// What a person has there is too large to be copied, or cannot be described in a record.
    OriginalCannotBeKept,
}

/// What is to be done for one record.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) record: Record,
    pub(super) stand: Stand,
    pub(super) cut: Option<Converging>,
    /// By path; a directory before what is in it.
    pub(super) steps: Vec<Step>,
    pub(super) copies: Vec<Copy>,
    /// Directories of ours that will be empty, the deepest first.
    pub(super) emptied: Vec<Utf8PathBuf>,
    /// Copies that nothing names any more.
    pub(super) drops: Vec<Digest>,
    pub(super) next: Applied,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
}

/// One change.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) path: Utf8PathBuf,
    pub(super) how: How,
    pub(super) act: Act,
    /// What is there now; it is not replaced if it is something else by then.
    pub(super) old: Option<Old>,
}

/// What is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Old {
    pub(super) identity: Identity,
    pub(super) kind: Kind,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum Act {
    /// A directory where nothing is.
    Make(Dress),
    /// A directory in the place of something else.
    Swap(Dress),
    /// A file.
    Put {
        source: Source,
        size: u64,
        digest: Digest,
        dress: Dress,
    },
    /// A link.
    Link {
        target: String,
        dress: Dress,
    },
    /// Another mode, owner or label of a directory.
    Mend {
        dress: Dress,
        was: Dress,
    },
    Remove,
}

/// Where the content of a file comes from.
#[derive(Clone)]
pub(super) enum Source {
    /// What was given to the converge.
    Contents(Option<String>),
    /// The folder of originals.
    Original,
    /// The image's own, in `usr/etc`.
    Image,
    /// Here: `/etc/shadow`, a secret.
    Bytes(Vec<u8>),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Contents(_) => "Contents",
            Self::Original => "Original",
            Self::Image => "Image",
            Self::Bytes(_) => "Bytes",
        })
    }
}

/// A copy to be made of what a person has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) path: Utf8PathBuf,
    /// None for what the record alone describes.
    pub(super) digest: Option<Digest>,
    pub(super) size: u64,
    pub(super) returns: bool,
}

/// What stands in the way of a converge; empty if nothing does.
pub fn preflight(root: &Root, request: &Converge<'_>) -> Result<Vec<Problem>> {
    let eye = Eye::new(root);
    let mut problems = Vec::new();
    for record in records(request.scopes) {
        problems.extend(survey(&eye, request, record)?.problems);
    }
    Ok(problems)
}

/// The records that speak for scopes.
pub(super) fn records(scopes: &[Scope]) -> BTreeSet<Record> {
    scopes.iter().copied().map(Record::of).collect()
}

/// What is to be done for one record.
pub(super) fn survey(eye: &Eye<'_>, request: &Converge<'_>, record: Record) -> Result<Survey> {
    let stand = read_record(eye.root(), record)?;
    let cut = read_converging(eye.root(), record)?;
    let before = stand.known().cloned().unwrap_or_default();
    let mut surveyor = Surveyor::new(eye, request, record, &before, cut.as_ref());
    surveyor.all()?;
    let mut survey = Survey {
        record,
        steps: std::mem::take(&mut surveyor.steps),
        copies: std::mem::take(&mut surveyor.copies),
        emptied: std::mem::take(&mut surveyor.emptied),
        drops: std::mem::take(&mut surveyor.drops),
        next: std::mem::take(&mut surveyor.next),
        problems: std::mem::take(&mut surveyor.problems),
        warnings: std::mem::take(&mut surveyor.warnings),
        cut: None,
        stand: Stand::Missing,
    };
    drop(surveyor);
    survey.steps.sort_by(|a, b| a.path.cmp(&b.path));
    (survey.stand, survey.cut) = (stand, cut);
    let obstacles = obstacles::find(eye, &survey)?;
    survey.problems.extend(obstacles);
    Ok(survey)
}

impl Survey {
    /// Whether anything on disk changes, beside the record.
    pub(super) fn changes(&self) -> bool {
        !self.steps.is_empty() || !self.emptied.is_empty() || self.cut.is_some()
    }

    /// Whether the record on disk does not say what will be so.
    pub(super) fn record_differs(&self) -> bool {
        match &self.stand {
            Stand::Known(known) => !is_same_record(known, &self.next),
            Stand::Damaged(_) => true,
            // Where nothing was and nothing comes, no record is needed to say so.
            Stand::Missing => {
                let empty =
                    Applied { version: self.next.version, when: self.next.when, ..Applied::default() };
                let without_version = Manifest { version: self.next.manifest.version, ..Manifest::default() };
                self.next != Applied { manifest: without_version, ..empty }
            }
        }
    }

    /// What the record says now, as far as it can be read.
    pub(super) fn before(&self) -> Applied {
        self.stand.known().cloned().unwrap_or_default()
    }
}

/// Works out a [`Survey`].
struct Surveyor<'a> {
    eye: &'a Eye<'a>,
    request: &'a Converge<'a>,
    record: Record,
    before: &'a Applied,
    cut: Option<&'a Converging>,
    /// Manifests that may have been laid down here.
    laid: Vec<&'a Manifest>,
    /// The manifest of the commit that the root is of.
    commit: OnceCell<Option<Manifest>>,
    /// Paths of the entries that are wanted.
    wanted_paths: HashSet<&'a str>,
    /// Paths of all entries of all manifests: most directories are none.
    entry_paths: HashSet<&'a str>,
    /// Paths that need no more looking at.
    handled: BTreeSet<Utf8PathBuf>,
    /// Directories that will be made.
    planned: BTreeSet<Utf8PathBuf>,
    steps: Vec<Step>,
    copies: Vec<Copy>,
    emptied: Vec<Utf8PathBuf>,
    drops: Vec<Digest>,
    next: Applied,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl<'a> Surveyor<'a> {
    fn new(
        eye: &'a Eye<'a>,
        request: &'a Converge<'a>,
        record: Record,
        before: &'a Applied,
        cut: Option<&'a Converging>,
    ) -> Self {
        let mut laid = vec![&before.manifest];
        if let Some(cut) = cut {
            laid.push(&cut.to.manifest);
            laid.extend(&cut.also);
        }
        let to = request.to;
        let paths = |manifest: &'a Manifest| manifest.entries.iter().map(|entry| entry.path.as_str());
        let wanted_paths: HashSet<&str> = paths(&to.manifest).collect();
        let entry_paths =
            laid.iter().flat_map(|manifest| paths(manifest)).chain(wanted_paths.iter().copied());
        let entry_paths = entry_paths.collect();
        let mut extra = before.extra.clone();
        extra.extend(to.extra.clone());
        let next = Applied {
            version: APPLIED_VERSION,
            deployment_id: to.deployment_id.clone(),
            deployment_commit: to.deployment_commit.clone(),
            commit: to.commit.clone(),
            manifest: to.manifest.clone(),
            originals: before.originals.clone(),
            original_password: None,
            made: Vec::new(),
            when: request.now,
            extra,
        };
        Self {
            eye,
            request,
            record,
            before,
            cut,
            laid,
            commit: OnceCell::new(),
            wanted_paths,
            entry_paths,
            handled: BTreeSet::new(),
            planned: BTreeSet::new(),
            steps: Vec::new(),
            copies: Vec::new(),
            emptied: Vec::new(),
            drops: Vec::new(),
            next,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn all(&mut self) -> Result<()> {
        self.take_over_originals()?;
        let to = self.request.to;
        for entry in &to.manifest.entries {
            if self.is_in_scope(&entry.path) {
                self.wanted(entry)?;
            }
        }
        self.finish_made()?;
        self.leave_all()?;
        self.passwords()?;
        self.empty_directories()?;
        self.bound_originals();
        Ok(())
    }

    fn is_in_scope(&self, path: &Utf8Path) -> bool {
        Scope::of(path)
            .is_some_and(|scope| self.request.scopes.contains(&scope) && Record::of(scope) == self.record)
    }

    /// Originals that a run which was cut short had copied. A copy that is missing was not needed yet.
    fn take_over_originals(&mut self) -> Result<()> {
        let Some(cut) = self.cut else { return Ok(()) };
        for original in &cut.to.originals {
            if !self.next.originals.contains(original) && self.has_copy(original)? {
                self.next.originals.push(original.clone());
            }
        }
        Ok(())
    }

    /// Whether the content of an original is there, whole.
    fn has_copy(&self, original: &Original) -> Result<bool> {
        let Node::File { digest, size, .. } = &original.node else { return Ok(true) };
        let path = Utf8PathBuf::from(format!("/{}/{}", self.record.originals(), digest.hex()));
        let Sight::Found(found) = self.eye.look(&path)? else { return Ok(false) };
        Ok(found.kind == Kind::File && found.size == *size && self.eye.digest(&path, &found)? == *digest)
    }

    /// Whether the record says that a path is the config's.
    fn was_managed(&self, path: &Utf8Path) -> bool {
        self.before.manifest.entry(path).is_some()
    }

    /// Nodes that are ours at a path: what any manifest puts there, and what the image has.
    fn own_nodes<'s>(&'s self, path: &'s Utf8Path) -> impl Iterator<Item = &'s Node> {
        let to = std::iter::once(&self.request.to.manifest);
        let manifests = to.chain(self.laid.iter().copied()).chain(self.request.known.iter().copied());
        manifests
            .filter_map(move |manifest| manifest.entry(path))
            .flat_map(|entry: &Entry| std::iter::once(&entry.node).chain(entry.default.as_ref()))
    }

    /// Whether what was found is a person's: no manifest puts it there, and no image has it there.
    fn is_edit(&self, path: &Utf8Path, found: &Found) -> Result<bool> {
        let Some(is) = self.describe(path, found)? else { return Ok(false) };
        if self.own_nodes(path).any(|node| is_same_content(node, &is)) {
            return Ok(false);
        }
        Ok(!self.image_node(path)?.is_some_and(|node| is_same_content(&node, &is)))
    }

    fn describe(&self, path: &Utf8Path, found: &Found) -> Result<Option<Node>> {
        found.node(|| self.eye.digest(path, found))
    }

    /// What the tree of the root's deployment has for a path below `/etc`: the image's, or our own.
    fn image_node(&self, path: &Utf8Path) -> Result<Option<Node>> {
        let Some(path) = image_path(path) else { return Ok(None) };
        match self.eye.look(&path)? {
            Sight::Found(found) => found.node(|| self.eye.digest(&path, &found)),
            _ => Ok(None),
        }
    }

    /// Whether the root is a deployment, which has what belongs in `/etc` in `/usr/etc`.
    fn has_image(&self) -> Result<bool> {
        Ok(matches!(&*self.eye.way_to(Utf8Path::new("/usr/etc"))?, Way::Open(_)))
    }

    /// The manifest of the commit that the root is of. A damaged one is none: said by whoever needs it.
    fn commit_manifest(&self) -> Option<&Manifest> {
        self.commit.get_or_init(|| read_manifest(self.eye.root()).ok().flatten()).as_ref()
    }

    /// Keeps what a person has at a path.
    fn set_aside(&mut self, path: &Utf8Path, found: &Found) -> Result<()> {
        let drift = self.was_managed(path);
        let Some(node) = self.describe(path, found)? else {
            self.problems.push(Problem {
                path: path.to_owned(),
                kind: ProblemKind::OriginalCannotBeKept,
                why: format!("{} that a record cannot describe is there", found.kind.words()),
                next: "move it away".to_owned(),
            });
            return Ok(());
        };
        let digest = match &node {
            Node::File { size, .. } if *size > LARGEST_ORIGINAL => {
                let why = format!("it was edited here, and {size} bytes are too many to be set aside");
                self.too_large(path, why);
                return Ok(());
            }
            Node::File { digest, .. } => Some(digest.clone()),
            _ => None,
        };
        let original = self.original(path, node, drift);
        let is_same = |own: &Original| {
            own.path == original.path && own.drift == drift && is_same_content(&own.node, &original.node)
        };
        if self.next.originals.iter().any(is_same) {
            return Ok(());
        }
        self.copies.push(Copy { path: path.to_owned(), digest, size: found.size, returns: !drift });
        self.next.originals.retain(|own| drift || own.drift || own.path != path);
        self.next.originals.push(original);
        Ok(())
    }

    fn original(&self, path: &Utf8Path, node: Node, drift: bool) -> Original {
        Original { path: path.to_owned(), node, when: self.request.now, drift, extra: serde_json::Map::new() }
    }

    fn too_large(&mut self, path: &Utf8Path, why: String) {
        self.problems.push(Problem {
            path: path.to_owned(),
            kind: ProblemKind::OriginalCannotBeKept,
            why,
            next: "move it to a place of your own".to_owned(),
        });
    }

    /// Lets the oldest edits of managed paths go where there are too many, and finds copies that
    /// nothing names any more.
    fn bound_originals(&mut self) {
        let edits = self.next.originals.iter().filter(|original| original.drift).count();
        let mut surplus = edits.saturating_sub(KEPT_EDITS);
        self.next.originals.retain(|original| {
            let goes = original.drift && surplus > 0;
            surplus -= usize::from(goes);
            !goes
        });
        let total: u64 = self.next.originals.iter().map(|original| size_of(&original.node)).sum();
        if total > ALL_ORIGINALS && !self.copies.is_empty() {
            let path = Utf8PathBuf::from(format!("/{}", self.record.originals()));
            self.too_large(&path, format!("what was edited here and set aside comes to {total} bytes"));
        }
        let named: BTreeSet<&Digest> = self.next.originals.iter().filter_map(digest_of).collect();
        let mut drops: BTreeSet<Digest> = self.cut.iter().flat_map(|cut| cut.drops.iter().cloned()).collect();
        drops.extend(self.before.originals.iter().filter_map(digest_of).cloned());
        drops.extend(self.cut.iter().flat_map(|cut| &cut.to.originals).filter_map(digest_of).cloned());
        drops.retain(|digest| !named.contains(digest));
        self.drops = drops.into_iter().collect();
    }

    fn passwords(&mut self) -> Result<()> {
        if self.record != Record::Etc || !self.request.scopes.contains(&Scope::Etc) {
            return Ok(());
        }
        let from: Vec<&Applied> = std::iter::once(self.before).chain(self.cut.map(|cut| &cut.to)).collect();
        let to = &self.request.to.manifest;
        if to.password.is_none() && from.iter().all(|record| record.manifest.password.is_none()) {
            return Ok(());
        }
        let root = self.eye.root();
        let Some(shadow) = shadow::read(root)? else {
            self.warnings.push(format!("there is no {}: no password was set", shadow::SHADOW));
            return Ok(());
        };
        let exists = |user: &str| shadow::user_exists(root, user);
        let change = shadow::change(&shadow, &from, to, exists, self.request.now);
        self.next.original_password = change.original;
        self.warnings.extend(change.warnings);
        let Some(content) = change.content else { return Ok(()) };
        let path = Utf8Path::new(shadow::SHADOW);
        let Sight::Found(found) = self.eye.look(path)? else { return Ok(()) };
        let (digest, size) = (Digest::of(&content), content.len() as u64);
        let act = Act::Put { source: Source::Bytes(content), size, digest, dress: found.dress.clone() };
        self.step(path, How::Password, act, Some(&found));
        Ok(())
    }

    fn step(&mut self, path: &Utf8Path, how: How, act: Act, found: Option<&Found>) {
        let old = found.map(|found| Old { identity: found.identity, kind: found.kind });
        self.steps.push(Step { path: path.to_owned(), how, act, old });
    }
}

/// Whether two records say the same; when they were written is no part of it.
fn is_same_record(a: &Applied, b: &Applied) -> bool {
    let Applied {
        version,
        deployment_id,
        deployment_commit,
        commit,
        manifest,
        originals,
        original_password,
        made,
        when: _,
        extra,
    } = a;
    (version, deployment_id, deployment_commit, commit)
        == (&b.version, &b.deployment_id, &b.deployment_commit, &b.commit)
        && (originals, original_password, made, extra)
            == (&b.originals, &b.original_password, &b.made, &b.extra)
        && *manifest == b.manifest
}

/// Where the deployment's tree has a path below `/etc`.
pub(super) fn image_path(path: &Utf8Path) -> Option<Utf8PathBuf> {
    path.strip_prefix("/etc").ok().map(|below| Utf8Path::new("/usr/etc").join(below))
}

fn digest_of(original: &Original) -> Option<&Digest> {
    match &original.node {
        Node::File { digest, .. } => Some(digest),
        _ => None,
    }
}

fn size_of(node: &Node) -> u64 {
    match node {
        Node::File { size, .. } => *size,
        _ => 0,
    }
}

/// Whether two nodes are the same but for mode, owner and label.
fn is_same_content(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::File { digest: a, .. }, Node::File { digest: b, .. }) => a == b,
        (Node::Symlink { target: a, .. }, Node::Symlink { target: b, .. }) => a == b,
        (Node::Directory { .. }, Node::Directory { .. }) | (Node::Absent, Node::Absent) => true,
        _ => false,
    }
}
