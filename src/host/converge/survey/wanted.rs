//! What must be there, and the directories above it.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::{Act, Problem, ProblemKind, Source, Surveyor, TEMPORARY, image_path};
use crate::host::converge::How;
use crate::host::converge::compare::{dress_of, gaps, kind};
use crate::host::converge::look::{Dress, Found, Kind, Sight};
use crate::host::converge::root::Way;
use crate::model::manifest::{Entry, Node, Scope};

/// A link has no mode of its own.
const NO_MODE: u32 = 0o777;
/// Directories of which nobody says anything.
const PLAIN: Dress = Dress { mode: 0o755, uid: 0, gid: 0, label: None };

impl Surveyor<'_> {
    /// Plans what makes an entry as it must be. One that is so already is adopted.
    pub(super) fn wanted(&mut self, entry: &Entry) -> Result<()> {
        let (path, node) = (&entry.path, &entry.node);
        let object = match node {
            Node::File { object, .. } => object.clone(),
            _ => None,
        };
        let source = Source::Contents(object);
        let sight = match self.leaving_above(path)? {
            Some(_) => Sight::Nothing,
            None => self.eye.look(path)?,
        };
        match sight {
            Sight::Found(found) => {
                let labels = Scope::of(path).is_some_and(|scope| self.eye.is_labelled(scope));
                if gaps(node, Some(&found), labels, |found| self.eye.digest(path, found))?.is_empty() {
                    return Ok(());
                }
                self.replace(path, node, source, &found)
            }
            Sight::Nothing | Sight::Blocked(_) if *node == Node::Absent => Ok(()),
            Sight::Nothing | Sight::Blocked(_) => {
                if self.parents(path)? {
                    self.create(path, node, source, How::Created, true);
                }
                Ok(())
            }
        }
    }

    fn replace(&mut self, path: &Utf8Path, node: &Node, source: Source, found: &Found) -> Result<()> {
        match (kind(node), found.kind) {
            (Some(Kind::Directory), Kind::Directory) => {
                self.keep_directory(path, found);
                self.mend(path, node, found, How::Mended);
                return Ok(());
            }
            (_, Kind::Directory) if !self.holds_only_ours(path)? => {
                let why = "a directory is there, with content that is not the config's".to_owned();
                self.problem(path, ProblemKind::IsDirectory, why, "move the directory away");
                return Ok(());
            }
            (_, Kind::Directory) => self.leave_below(path)?,
            (_, Kind::Device) => {
                self.problem(path, ProblemKind::IsDevice, "a device is there".to_owned(), "remove it");
                return Ok(());
            }
            (_, Kind::Pipe | Kind::Socket) => {
                self.warnings.push(format!("{path} was {}: replaced", found.kind.words()));
            }
            (_, Kind::File | Kind::Symlink) => {
                if self.is_edit(path, found)? {
                    self.set_aside(path, found)?;
                }
            }
        }
        let how = if *node == Node::Absent { How::Removed } else { How::Replaced };
        if let Node::Directory { .. } = node {
            self.planned.insert(path.to_owned());
            self.next.made.push(path.to_owned());
        }
        let act = act(node, source, true);
        self.step(path, how, act, Some(found));
        Ok(())
    }

    /// Another mode of a directory that was there before: the old one returns.
    fn keep_directory(&mut self, path: &Utf8Path, found: &Found) {
        let is_kept = self.next.originals.iter().any(|own| own.path == path && !own.drift);
        let is_ours = self.was_managed(path) || self.laid_made(path);
        if is_kept || is_ours {
            return;
        }
        let Dress { mode, uid, gid, label } = found.dress.clone();
        let node = Node::Directory { mode, uid, gid, label };
        let original = self.original(path, node, false);
        self.next.originals.push(original);
    }

    /// Whether a run of ours made, or may have made, a directory.
    pub(super) fn laid_made(&self, path: &Utf8Path) -> bool {
        let cut = self.cut.iter().flat_map(|cut| cut.made.iter().chain(&cut.to.made));
        self.before.made.iter().chain(cut).any(|made| made == path)
    }

    pub(super) fn mend(&mut self, path: &Utf8Path, node: &Node, found: &Found, how: How) {
        let act = Act::Mend { dress: dress(node), was: found.dress.clone() };
        self.step(path, how, act, Some(found));
    }

    /// Something where nothing is; the directories above are planned.
    pub(super) fn create(&mut self, path: &Utf8Path, node: &Node, source: Source, how: How, is_ours: bool) {
        if let Node::Directory { .. } = node {
            self.planned.insert(path.to_owned());
            if is_ours {
                self.next.made.push(path.to_owned());
            }
        }
        let act = act(node, source, false);
        self.step(path, how, act, None);
    }

    /// Plans the directories above a path. `false` if that is not possible, which is a problem then.
    pub(super) fn parents(&mut self, path: &Utf8Path) -> Result<bool> {
        let Some(parent) = path.parent() else { return Ok(true) };
        if self.planned.contains(parent) {
            return Ok(true);
        }
        if let Some(at) = self.leaving_above(path)? {
            if !self.planned.contains(&at) && !self.make_way(&at, path)? {
                return Ok(false);
            }
            if self.planned.contains(parent) {
                return Ok(true);
            }
            return self.make_parent(parent);
        }
        match &*self.eye.way_to(parent)? {
            Way::Open(_) => return Ok(true),
            Way::Missing => {}
            Way::NoDirectory(at) => {
                let why = format!("{at} is no directory");
                self.problem(path, ProblemKind::ParentIsNoDirectory, why, "move it away");
                return Ok(false);
            }
            Way::Link { path: link, why } => {
                let why = format!("{link} is a link: {why}");
                self.problem(path, ProblemKind::ParentIsLink, why, "replace the link by a directory");
                return Ok(false);
            }
        }
        self.make_parent(parent)
    }

    /// A run may have been cut short between making a directory and giving it its mode and owner.
    pub(super) fn finish_made(&mut self) -> Result<()> {
        let Some(cut) = self.cut else { return Ok(()) };
        for path in cut.made.iter().filter(|path| !self.before.made.contains(path)) {
            let entries = &self.request.to.manifest.entries;
            let is_above = entries.iter().any(|entry| entry.path.starts_with(path) && entry.path != *path);
            let is_entry = self.request.to.manifest.entry(path).is_some();
            if !is_above || is_entry || self.planned.contains(path) || !self.is_in_scope(path) {
                continue;
            }
            let Sight::Found(found) = self.eye.look(path)? else { continue };
            let Dress { mode, uid, gid, label } = self.parent_dress(path)?;
            let node = Node::Directory { mode, uid, gid, label };
            let labels = Scope::of(path).is_some_and(|scope| self.eye.is_labelled(scope));
            let is_so = gaps(&node, Some(&found), labels, |found| self.eye.digest(path, found))?.is_empty();
            if found.kind == Kind::Directory && !is_so {
                self.mend(path, &node, &found, How::Mended);
            }
        }
        Ok(())
    }

    fn make_parent(&mut self, parent: &Utf8Path) -> Result<bool> {
        if !self.parents(parent)? {
            return Ok(false);
        }
        let dress = self.parent_dress(parent)?;
        self.planned.insert(parent.to_owned());
        self.next.made.push(parent.to_owned());
        self.step(parent, How::Created, Act::Make(dress), None);
        Ok(true)
    }

    /// A file or link above a path that leaves, or becomes a directory: the way does not lead through it.
    fn leaving_above(&self, path: &Utf8Path) -> Result<Option<Utf8PathBuf>> {
        let is_no_directory = |entry: &Entry| !matches!(entry.node, Node::Directory { .. } | Node::Absent);
        for above in path.ancestors().skip(1).filter(|above| self.entry_paths.contains(above.as_str())) {
            let to = self.request.to.manifest.entry(above);
            let leaves = to.is_none()
                && self.laid.iter().filter_map(|manifest| manifest.entry(above)).any(is_no_directory);
            let turns = to.is_some_and(|entry| matches!(entry.node, Node::Directory { .. }));
            if (leaves || turns)
                && let Sight::Found(found) = self.eye.look(above)?
                && matches!(found.kind, Kind::File | Kind::Symlink)
            {
                return Ok(Some(above.to_owned()));
            }
        }
        Ok(None)
    }

    /// A file or link of ours stands where a directory must be, and leaves.
    fn make_way(&mut self, at: &Utf8Path, path: &Utf8Path) -> Result<bool> {
        // An entry for a directory at that path comes first, and has made way.
        let stays = self.request.to.manifest.entry(at).is_some();
        let (Sight::Found(found), false) = (self.eye.look(at)?, stays) else {
            let why = format!("{at} is no directory");
            self.problem(path, ProblemKind::ParentIsNoDirectory, why, "move it away");
            return Ok(false);
        };
        if self.is_edit(at, &found)? {
            self.set_aside(at, &found)?;
        }
        let dress = self.parent_dress(at)?;
        self.handled.insert(at.to_owned());
        self.planned.insert(at.to_owned());
        self.next.made.push(at.to_owned());
        self.step(at, How::Replaced, Act::Swap(dress), Some(&found));
        Ok(true)
    }

    /// How a directory above entries is made.
    pub(super) fn parent_dress(&self, path: &Utf8Path) -> Result<Dress> {
        let manifests = std::iter::once(&self.request.to.manifest).chain(self.laid.iter().copied());
        let named = manifests.flat_map(|manifest| &manifest.parents).find(|parent| parent.path == path);
        if let Some(parent) = named {
            let label = parent.label.clone();
            return Ok(Dress { mode: parent.mode & 0o7777, uid: parent.uid, gid: parent.gid, label });
        }
        let image = match image_path(path) {
            Some(image) => self.eye.look(&image)?,
            None => Sight::Nothing,
        };
        Ok(match image {
            Sight::Found(found) if found.kind == Kind::Directory => Dress { label: None, ..found.dress },
            _ => PLAIN,
        })
    }

    /// Whether a directory, which a run of ours made, holds nothing but what is ours too.
    pub(super) fn holds_only_ours(&self, path: &Utf8Path) -> Result<bool> {
        let is_entry = |path: &Utf8Path| self.laid.iter().any(|manifest| manifest.entry(path).is_some());
        if !self.laid_made(path) {
            return Ok(false);
        }
        for name in self.names_in(path)? {
            let child = path.join(&name);
            let is_ours = match self.eye.look(&child)? {
                Sight::Found(found) if found.kind == Kind::Directory => self.holds_only_ours(&child)?,
                Sight::Found(_) => is_entry(&child) || name.starts_with(TEMPORARY),
                _ => true,
            };
            if !is_ours {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is in a directory; names that are no text are nobody's of ours, and shown as such.
    pub(super) fn names_in(&self, path: &Utf8Path) -> Result<Vec<String>> {
        let way = self.eye.way_to(path)?;
        let Way::Open(dir) = &*way else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for item in dir.entries()? {
            names.push(item?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    /// A directory of ours goes as a whole: edits in it are kept.
    pub(super) fn leave_below(&mut self, path: &Utf8Path) -> Result<()> {
        let below: Vec<Utf8PathBuf> = self
            .laid
            .iter()
            .flat_map(|manifest| &manifest.entries)
            .map(|entry| &entry.path)
            .filter(|child| child.starts_with(path) && *child != path)
            .cloned()
            .collect();
        for child in below {
            if !self.handled.insert(child.clone()) {
                continue;
            }
            if let Sight::Found(found) = self.eye.look(&child)?
                && self.is_edit(&child, &found)?
            {
                self.set_aside(&child, &found)?;
            }
        }
        Ok(())
    }

    pub(super) fn problem(&mut self, path: &Utf8Path, kind: ProblemKind, why: String, next: &str) {
        self.problems.push(Problem { path: path.to_owned(), kind, why, next: next.to_owned() });
    }
}

/// What puts a node at a path. `swaps`: something is there.
pub(super) fn act(node: &Node, source: Source, swaps: bool) -> Act {
    let dress = dress(node);
    match node {
        Node::File { digest, size, .. } => Act::Put { source, size: *size, digest: digest.clone(), dress },
        Node::Symlink { target, .. } => Act::Link { target: target.clone(), dress },
        Node::Directory { .. } if swaps => Act::Swap(dress),
        Node::Directory { .. } => Act::Make(dress),
        Node::Absent => Act::Remove,
    }
}

fn dress(node: &Node) -> Dress {
    let (mode, uid, gid, label) = dress_of(node);
    Dress { mode: mode.unwrap_or(NO_MODE) & 0o7777, uid, gid, label: label.map(str::to_owned) }
}
