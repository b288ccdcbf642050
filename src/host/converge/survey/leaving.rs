//! What must go: paths that were the config's and are not any more.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::wanted::act;
use super::{Act, Source, Surveyor, TEMPORARY, image_path};
use crate::host::converge::How;
use crate::host::converge::compare::{gaps, kind};
use crate::host::converge::look::{Dress, Found, Kind, Sight};
use crate::model::manifest::{Entry, Node, Scope};

/// What comes back at a path.
struct Returning {
    node: Node,
    source: Source,
    how: How,
}

impl Surveyor<'_> {
    /// Plans what must go for all entries that only other manifests have.
    pub(super) fn leave_all(&mut self) -> Result<()> {
        let laid = self.laid.clone();
        let mut leaving: BTreeMap<Utf8PathBuf, Vec<&Entry>> = BTreeMap::new();
        let leaves = |path: &Utf8Path| !self.wanted_paths.contains(path.as_str()) && self.is_in_scope(path);
        for entry in laid.iter().flat_map(|manifest| &manifest.entries).filter(|entry| leaves(&entry.path)) {
            leaving.entry(entry.path.clone()).or_default().push(entry);
        }
        // What could not return when its path left, since something was below it, may be able to now.
        for original in self.next.originals.iter().filter(|own| !own.drift && leaves(&own.path)) {
            leaving.entry(original.path.clone()).or_default();
        }
        for (path, entries) in leaving {
            // Where a directory is made for what comes, what was there before waits.
            if !self.handled.contains(&path) && !self.planned.contains(&path) {
                self.leave(&path, &entries)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, path: &Utf8Path, entries: &[&Entry]) -> Result<()> {
        let found = match self.eye.look(path)? {
            Sight::Found(found) => Some(found),
            Sight::Nothing => None,
            // Another file or link stands above it: nothing of ours is there.
            Sight::Blocked(_) => return Ok(()),
        };
        let mut returning = self.returning(path, entries)?;
        if returning.is_none() && self.stays_as_parent(path) {
            let Dress { mode, uid, gid, label } = self.parent_dress(path)?;
            let node = Node::Directory { mode, uid, gid, label };
            returning = Some(Returning { node, source: Source::Image, how: How::Mended });
        }
        let node = returning.as_ref().map_or(Node::Absent, |returning| returning.node.clone());
        let labels = Scope::of(path).is_some_and(|scope| self.eye.is_labelled(scope));
        let is_so = gaps(&node, found.as_ref(), labels, |found| self.eye.digest(path, found))?.is_empty();
        if !is_so && !self.leave_found(path, entries, found.as_ref(), returning)? {
            return Ok(());
        }
        self.next.originals.retain(|original| original.drift || original.path != path);
        Ok(())
    }

    /// Whether what stood there made room for us.
    fn was_ours(&self, path: &Utf8Path) -> bool {
        self.was_managed(path) || self.before.originals.iter().any(|own| own.path == path && !own.drift)
    }

    /// A directory of ours that was asked for, and now is only above what is asked for.
    fn stays_as_parent(&self, path: &Utf8Path) -> bool {
        let entries = &self.request.to.manifest.entries;
        self.laid_made(path) && entries.iter().any(|entry| entry.path.starts_with(path))
    }

    /// Whether what stood there before us is dealt with.
    fn leave_found(
        &mut self,
        path: &Utf8Path,
        entries: &[&Entry],
        found: Option<&Found>,
        returning: Option<Returning>,
    ) -> Result<bool> {
        let Some(found) = found else {
            let was_taken = entries.iter().any(|entry| entry.node == Node::Absent);
            // A run that was cut short had not laid it down yet: nothing was there before.
            if !self.was_ours(path) && !was_taken {
                return Ok(true);
            }
            let Some(returning) = returning else { return Ok(true) };
            if !self.parents_for_return(path)? {
                return Ok(false);
            }
            self.create(path, &returning.node, returning.source, returning.how, false);
            return Ok(true);
        };
        match found.kind {
            Kind::Directory => return self.leave_directory(path, entries, found, returning),
            Kind::Pipe | Kind::Socket | Kind::Device => {
                self.warnings.push(format!("{path} is {} now: left alone", found.kind.words()));
                return Ok(false);
            }
            Kind::File | Kind::Symlink => {}
        }
        if self.is_edit(path, found)? {
            if !self.was_managed(path) {
                // Never laid down by the run that was cut short, or made since: it is the person's own.
                self.next
                    .originals
                    .iter_mut()
                    .filter(|own| own.path == path)
                    .for_each(|own| own.drift = true);
                return Ok(true);
            }
            self.set_aside(path, found)?;
        }
        let (node, source, how) = match returning {
            Some(returning) => (returning.node, returning.source, returning.how),
            None => (Node::Absent, Source::Image, How::Removed),
        };
        self.step(path, how, act(&node, source, true), Some(found));
        Ok(true)
    }

    fn leave_directory(
        &mut self,
        path: &Utf8Path,
        entries: &[&Entry],
        found: &Found,
        returning: Option<Returning>,
    ) -> Result<bool> {
        match returning {
            Some(Returning { node: node @ Node::Directory { .. }, how, .. }) => {
                self.mend(path, &node, found, how);
                Ok(true)
            }
            Some(Returning { node, source, how }) => {
                let wanted = &self.request.to.manifest.entries;
                let is_used = wanted.iter().any(|entry| entry.path.starts_with(path));
                if is_used || !self.holds_only_ours(path)? {
                    if !entries.is_empty() {
                        let words = "is a directory with other things in it: what was there before waits";
                        self.warnings.push(format!("{path} {words}"));
                    }
                    return Ok(false);
                }
                self.leave_below(path)?;
                self.step(path, how, act(&node, source, true), Some(found));
                Ok(true)
            }
            None => {
                let was_none = entries.iter().all(|entry| kind(&entry.node) != Some(Kind::Directory));
                if was_none && !self.laid_made(path) {
                    self.warnings.push(format!("{path} is a directory now: left alone"));
                }
                Ok(true)
            }
        }
    }

    /// Directories above what returns; where that is not possible, it stays away, and that is said.
    fn parents_for_return(&mut self, path: &Utf8Path) -> Result<bool> {
        let before = self.problems.len();
        if self.parents(path)? {
            return Ok(true);
        }
        for problem in self.problems.split_off(before) {
            self.warnings.push(format!("what was at {path} before cannot return: {}", problem.why));
        }
        Ok(false)
    }

    /// What comes back at a path: what a person had there, else what the image has.
    fn returning(&mut self, path: &Utf8Path, entries: &[&Entry]) -> Result<Option<Returning>> {
        let own = self.next.originals.iter().find(|own| own.path == path && !own.drift).cloned();
        if let Some(original) = own {
            if self.has_copy(&original)? {
                let how = How::OriginalReturned;
                return Ok(Some(Returning { node: original.node, source: Source::Original, how }));
            }
            self.warnings.push(format!("the copy of what was at {path} before is gone"));
        }
        let how = How::DefaultReturned;
        if Scope::of(path) == Some(Scope::Etc) && self.has_image()? {
            if let Some(entry) = self.commit_manifest().and_then(|manifest| manifest.entry(path)) {
                return Ok(default_of(entry, how));
            }
            let label = entries.iter().find_map(|entry| label_of(entry));
            let Some(image) = image_path(path) else { return Ok(None) };
            let Sight::Found(found) = self.eye.look(&image)? else { return Ok(None) };
            let node = found.node(|| self.eye.digest(&image, &found))?;
            let returning = |node| Returning { node: with_label(node, label), source: Source::Image, how };
            return Ok(node.map(returning));
        }
        Ok(entries.iter().find_map(|entry| default_of(entry, how)))
    }

    /// Directories that were made for entries go when they are empty.
    pub(super) fn empty_directories(&mut self) -> Result<()> {
        let mut made: BTreeSet<Utf8PathBuf> = self.before.made.iter().cloned().collect();
        if let Some(cut) = self.cut {
            made.extend(cut.made.iter().chain(&cut.to.made).cloned());
        }
        let new: BTreeSet<Utf8PathBuf> = self.next.made.iter().cloned().collect();
        let mut gone: BTreeSet<Utf8PathBuf> = self
            .steps
            .iter()
            .filter(|step| matches!(step.act, Act::Remove))
            .map(|step| step.path.clone())
            .collect();
        let mut stays: BTreeSet<Utf8PathBuf> = new;
        for path in made.iter().rev().filter(|path| !stays.contains(*path)).cloned().collect::<Vec<_>>() {
            if self.record_of(&path) && !self.is_swapped_away(&path) {
                if self.stays(&path, &gone)? {
                    stays.insert(path);
                } else if matches!(self.eye.look(&path)?, Sight::Found(found) if found.kind == Kind::Directory)
                {
                    gone.insert(path.clone());
                    self.emptied.push(path);
                }
            }
        }
        self.next.made = stays.into_iter().collect();
        Ok(())
    }

    fn record_of(&self, path: &Utf8Path) -> bool {
        Scope::of(path).is_some_and(|scope| super::Record::of(scope) == self.record)
    }

    /// Whether a file or link takes the place of a directory, or of one above it.
    fn is_swapped_away(&self, path: &Utf8Path) -> bool {
        self.steps.iter().any(|step| {
            path.starts_with(&step.path)
                && step.old.as_ref().is_some_and(|old| old.kind == Kind::Directory)
                && !matches!(step.act, Act::Mend { .. })
        })
    }

    /// Whether a directory of ours is still needed, or holds something.
    fn stays(&self, path: &Utf8Path, gone: &BTreeSet<Utf8PathBuf>) -> Result<bool> {
        let entries = &self.request.to.manifest.entries;
        let is_needed =
            entries.iter().any(|entry| entry.node != Node::Absent && entry.path.starts_with(path));
        let is_used = |step: &super::Step| step.path.starts_with(path) && !is_going(&step.act);
        if is_needed || self.steps.iter().any(is_used) {
            return Ok(true);
        }
        if !matches!(self.eye.look(path)?, Sight::Found(found) if found.kind == Kind::Directory) {
            return Ok(false);
        }
        let names = self.names_in(path)?;
        Ok(names.iter().any(|name| !name.starts_with(TEMPORARY) && !gone.contains(&path.join(name))))
    }
}

fn is_going(act: &Act) -> bool {
    matches!(act, Act::Remove | Act::Mend { .. })
}

fn default_of(entry: &Entry, how: How) -> Option<Returning> {
    let node = entry.default.clone()?;
    let object = match &node {
        Node::File { object, .. } => object.clone(),
        Node::Absent => return None,
        _ => None,
    };
    Some(Returning { node, source: Source::Contents(object), how })
}

/// The label at the entry's path: of what the image has there, else of what the config put there.
fn label_of(entry: &Entry) -> Option<String> {
    let label = |node: &Node| match node {
        Node::File { label, .. } | Node::Directory { label, .. } | Node::Symlink { label, .. } => {
            label.clone()
        }
        Node::Absent => None,
    };
    entry.default.as_ref().and_then(label).or_else(|| label(&entry.node))
}

/// The image's tree may bear labels of `/usr/etc`; what returns to `/etc` gets the label of there.
fn with_label(mut node: Node, new: Option<String>) -> Node {
    match &mut node {
        Node::File { label, .. } | Node::Directory { label, .. } | Node::Symlink { label, .. } => {
            *label = new
        }
        Node::Absent => {}
    }
    node
}
