//! From wishes and a target to the manifest, and the contents that it names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::labels::{Labels, S_IFDIR, S_IFLNK, S_IFREG};
use super::places::{Refused, place_of};
use super::target::{Found, Kind, Target};
use super::units::{self, UnitNode};
use super::wish::{Content, What, Wish, Wishes};
use crate::model::config::{Blob, Remark};
use crate::model::digest::Digest;
use crate::model::manifest::{Entry, MANIFEST_VERSION, Manifest, Node, Parent, Part, Scope, Source};

/// The preset file that keeps enablement where PID 1 applies presets at a first boot.
const PRESET: &str = "/etc/systemd/system-preset/20-mcd.preset";
/// Permissions of a directory that has to be made.
const PARENT_MODE: u32 = 0o755;

/// Reads contents that a manifest before named.
pub(super) trait Held {
    /// All of it.
    fn read(&self, digest: &Digest, object: Option<&str>) -> Result<Vec<u8>>;
}

/// What is worked with.
pub(super) struct Composer<'a> {
    pub(super) target: &'a dyn Target,
    pub(super) labels: &'a Labels,
    pub(super) held: &'a dyn Held,
    /// Whether the target's files are the image's own, and come back when a path is given up. On a
    /// plain root they are a person's.
    pub(super) has_defaults: bool,
    /// Made on the same image: labels, and links that come of the same units, can be taken over.
    pub(super) same_image: Option<&'a Manifest>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Composed {
    pub(super) manifest: Manifest,
    /// New contents by digest.
    pub(super) contents: BTreeMap<Digest, Blob>,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<Remark>,
}

/// A wish at its place.
struct Placed {
    wish: Wish,
    found: Option<Found>,
}

impl Composer<'_> {
    /// Works the manifest out. Problems are collected; with any, the manifest is of no use.
    pub(super) fn compose(&self, wishes: Wishes) -> Result<Composed> {
        let mut made =
            Composed { warnings: wishes.warnings, problems: wishes.problems, ..Composed::default() };
        let mut placed: BTreeMap<Utf8PathBuf, Placed> = BTreeMap::new();
        for wish in wishes.all {
            self.place(wish, &mut placed, &mut made)?;
        }
        self.refuse_below_files(&placed, &mut made);
        made.manifest.version = MANIFEST_VERSION;
        made.manifest.enablement = wishes.enablement;
        made.manifest.password = wishes.password;
        if !made.problems.is_empty() {
            return Ok(made);
        }
        let mut entries = BTreeMap::new();
        for (path, one) in &placed {
            let node = self.node(path, one, &mut made)?;
            entries.insert(path.clone(), self.entry(path, one, node)?);
        }
        self.add_enablement(&placed, &mut entries, &mut made)?;
        if !made.problems.is_empty() {
            return Ok(made);
        }
        made.manifest.parents = self.parents(&entries)?;
        made.manifest.entries = entries.into_values().collect();
        Ok(made)
    }

    fn place(
        &self,
        wish: Wish,
        placed: &mut BTreeMap<Utf8PathBuf, Placed>,
        made: &mut Composed,
    ) -> Result<()> {
        let mut refuse = |message: String| made.problems.push(Remark { field: wish.field.clone(), message });
        let path = match place_of(self.target, &wish.asked)? {
            Ok(path) => path,
            Err(refused) => {
                let Refused(message) = refused;
                refuse(format!("{}: {message}", wish.asked));
                return Ok(());
            }
        };
        if let Some(other) = placed.get(&path) {
            let by = if other.wish.source == wish.source { "" } else { " from another source" };
            refuse(format!("{path} is asked for twice: also by {}{by}", other.wish.field));
            return Ok(());
        }
        let found = self.target.look(&path)?;
        if let Some(message) = conflict(&wish, found.as_ref()) {
            refuse(format!("{path}: {message}"));
            return Ok(());
        }
        // Taking a mask away where there is none is nothing.
        if matches!(wish.what, What::Absent) && !is_mask(found.as_ref()) {
            return Ok(());
        }
        placed.insert(path, Placed { wish, found });
        Ok(())
    }

    /// A file or link of the config cannot have others below it.
    fn refuse_below_files(&self, placed: &BTreeMap<Utf8PathBuf, Placed>, made: &mut Composed) {
        for (path, one) in placed {
            let above = path.ancestors().skip(1).find_map(|above| placed.get(above));
            if let Some(above) = above
                && !matches!(above.wish.what, What::Directory { .. })
            {
                let message =
                    format!("{path} is below {}, which the config makes no directory", above.wish.asked);
                made.problems.push(Remark { field: one.wish.field.clone(), message });
            }
        }
    }

    fn node(&self, path: &Utf8Path, one: &Placed, made: &mut Composed) -> Result<Node> {
        let (uid, gid) = (one.wish.uid, one.wish.gid);
        Ok(match &one.wish.what {
            What::File { contents, append, mode } => {
                let (digest, size) = self.content(path, one, contents.as_ref(), append.as_ref(), made)?;
                let label = self.label(path, *mode | S_IFREG)?;
                Node::File { digest, size, mode: *mode, uid, gid, label, object: None }
            }
            What::Directory { mode } => {
                Node::Directory { mode: *mode, uid, gid, label: self.label(path, *mode | S_IFDIR)? }
            }
            What::Symlink(target) => {
                let label = self.label(path, 0o777 | S_IFLNK)?;
                Node::Symlink { target: target.clone(), uid, gid, label }
            }
            What::Absent => Node::Absent,
        })
    }

    fn content(
        &self,
        path: &Utf8Path,
        one: &Placed,
        contents: Option<&Content>,
        append: Option<&Content>,
        made: &mut Composed,
    ) -> Result<(Digest, u64)> {
        if let (Some(Content::Held { digest, size, last: None, .. }), None) = (contents, append) {
            return Ok((digest.clone(), *size));
        }
        let mut bytes = match contents {
            Some(Content::Bytes(blob)) if append.is_none() => return Ok(keep(blob.clone(), made)),
            Some(content) => self.bytes(content)?.into_owned(),
            None if one.found.is_some() => self.target.read(path)?,
            None => Vec::new(),
        };
        if let Some(append) = append {
            let end = self.bytes(append)?;
            made.manifest.appended.insert(path.to_owned(), end.len() as u64);
            bytes.extend_from_slice(&end);
        }
        Ok(keep(Blob::from(bytes), made))
    }

    fn bytes<'c>(&self, content: &'c Content) -> Result<Cow<'c, [u8]>> {
        match content {
            Content::Bytes(blob) => Ok(Cow::Borrowed(blob.bytes())),
            Content::Held { digest, object, last, .. } => {
                let mut bytes = self.held.read(digest, object.as_deref())?;
                if let Some(last) = last {
                    let from = bytes.len().saturating_sub(usize::try_from(*last).unwrap_or(usize::MAX));
                    bytes.drain(..from);
                }
                Ok(Cow::Owned(bytes))
            }
        }
    }

    fn entry(&self, path: &Utf8Path, one: &Placed, node: Node) -> Result<Entry> {
        Ok(Entry {
            path: path.to_owned(),
            asked: (one.wish.asked != *path).then(|| one.wish.asked.clone()),
            source: one.wish.source.clone(),
            part: one.wish.part.clone(),
            node,
            default: self.default(path, one.found.as_ref())?,
            extra: Default::default(),
        })
    }

    /// What the image has at a path, with the label that it will have there.
    fn default(&self, path: &Utf8Path, found: Option<&Found>) -> Result<Option<Node>> {
        let Some(found) = found.filter(|_| self.has_defaults && Scope::of(path) != Some(Scope::Var)) else {
            return Ok(None);
        };
        let (mode, uid, gid) = (found.mode, found.uid, found.gid);
        Ok(match &found.kind {
            Kind::File(object) => {
                let content = self.target.read(path)?;
                Some(Node::File {
                    digest: Digest::of(&content),
                    size: content.len() as u64,
                    mode,
                    uid,
                    gid,
                    label: self.label(path, mode | S_IFREG)?,
                    object: object.clone(),
                })
            }
            Kind::Directory => {
                Some(Node::Directory { mode, uid, gid, label: self.label(path, mode | S_IFDIR)? })
            }
            Kind::Symlink(target) => Some(Node::Symlink {
                target: target.clone(),
                uid,
                gid,
                label: self.label(path, 0o777 | S_IFLNK)?,
            }),
            Kind::Special => None,
        })
    }

    fn label(&self, path: &Utf8Path, mode: u32) -> Result<Option<String>> {
        let before = self.same_image.and_then(|manifest| manifest.entry(path)).map(|entry| &entry.node);
        match (before, mode & 0o170_000) {
            (Some(Node::File { label, .. }), S_IFREG)
            | (Some(Node::Directory { label, .. }), S_IFDIR)
            | (Some(Node::Symlink { label, .. }), S_IFLNK) => Ok(label.clone()),
            _ => self.labels.of(path, mode),
        }
    }

    /// Adds the links that enable units, and the preset file that says the same.
    fn add_enablement(
        &self,
        placed: &BTreeMap<Utf8PathBuf, Placed>,
        entries: &mut BTreeMap<Utf8PathBuf, Entry>,
        made: &mut Composed,
    ) -> Result<()> {
        if made.manifest.enablement.is_empty() {
            return Ok(());
        }
        let digest = fingerprint(entries, made);
        let before = self.same_image.filter(|before| before.enablement_digest.as_ref() == Some(&digest));
        made.manifest.enablement_digest = Some(digest);
        if let Some(before) = before {
            let links = before.entries.iter().filter(|entry| matches!(entry.part, Part::Enablement(_)));
            entries.extend(links.map(|entry| (entry.path.clone(), entry.clone())));
        } else {
            self.work_links_out(placed, entries, made)?;
        }
        self.add_preset(entries, made)
    }

    fn work_links_out(
        &self,
        placed: &BTreeMap<Utf8PathBuf, Placed>,
        entries: &mut BTreeMap<Utf8PathBuf, Entry>,
        made: &mut Composed,
    ) -> Result<()> {
        let mut wanted = units::Wanted::default();
        for (path, entry) in entries.iter().filter(|(path, _)| units::is_read(path)) {
            let node = match &entry.node {
                Node::File { .. } => UnitNode::File(self.content_of(path, entry, placed, made)?),
                Node::Symlink { target, .. } => UnitNode::Link(target),
                Node::Absent => UnitNode::Absent,
                Node::Directory { .. } => continue,
            };
            wanted.nodes.insert(path, node);
        }
        let said = made.manifest.enablement.clone();
        wanted.units = said.iter().map(|(unit, one)| (unit.as_str(), one.enabled)).collect();
        let links = units::links(self.target, &wanted)?;
        drop(wanted);
        made.warnings.extend(links.warnings);
        for unit in links.missing {
            made.problems.push(Remark {
                field: format!("systemd.units[{unit}].enabled"),
                message: "there is no such unit in the config or the image; give its contents, or leave enabled out"
                    .to_owned(),
            });
        }
        for link in links.links {
            let node = match link.target {
                Some(target) => {
                    Node::Symlink { target, uid: 0, gid: 0, label: self.label(&link.path, 0o777 | S_IFLNK)? }
                }
                None => Node::Absent,
            };
            let found = self.target.look(&link.path)?;
            let default = self.default(&link.path, found.as_ref())?;
            let source = said.get(&link.unit).map(|one| one.source.clone()).unwrap_or_default();
            entries.insert(
                link.path.clone(),
                Entry {
                    path: link.path,
                    asked: None,
                    source,
                    part: Part::Enablement(link.unit),
                    node,
                    default,
                    extra: Default::default(),
                },
            );
        }
        Ok(())
    }

    fn content_of<'c>(
        &self,
        path: &Utf8Path,
        entry: &Entry,
        placed: &'c BTreeMap<Utf8PathBuf, Placed>,
        made: &Composed,
    ) -> Result<Cow<'c, [u8]>> {
        let Node::File { digest, .. } = &entry.node else { return Ok(Cow::Borrowed(b"")) };
        if let Some(blob) = made.contents.get(digest) {
            return Ok(Cow::Owned(blob.bytes().to_vec()));
        }
        match placed.get(path).map(|one| &one.wish.what) {
            Some(What::File { contents: Some(content), append: None, .. }) => self.bytes(content),
            _ => Ok(Cow::Borrowed(b"")),
        }
    }

    fn add_preset(&self, entries: &mut BTreeMap<Utf8PathBuf, Entry>, made: &mut Composed) -> Result<()> {
        let path = Utf8Path::new(PRESET);
        let said = made.manifest.enablement.iter();
        let lines: Vec<String> =
            said.filter_map(|(unit, one)| Some(preset_line(unit, one.enabled?))).collect();
        if lines.is_empty() || entries.contains_key(path) {
            return Ok(());
        }
        let (digest, size) = keep(Blob::from(lines.concat().into_bytes()), made);
        let label = self.label(path, 0o644 | S_IFREG)?;
        let node = Node::File { digest, size, mode: 0o644, uid: 0, gid: 0, label, object: None };
        let found = self.target.look(path)?;
        let default = self.default(path, found.as_ref())?;
        let entry = Entry {
            path: path.to_owned(),
            asked: None,
            source: Source::MachineConfig,
            part: Part::Preset,
            node,
            default,
            extra: Default::default(),
        };
        entries.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Every directory above an entry, below `/etc`, `/usr` and `/var`: as the target has it, or as it
    /// must be made.
    fn parents(&self, entries: &BTreeMap<Utf8PathBuf, Entry>) -> Result<Vec<Parent>> {
        let mut parents: HashMap<Utf8PathBuf, Parent> = HashMap::new();
        for (path, entry) in entries {
            for above in path.ancestors().skip(1) {
                let is_top = matches!(above.as_str(), "/" | "/etc" | "/usr" | "/var");
                if is_top || entries.contains_key(above) {
                    continue;
                }
                if parents.contains_key(above) && !matches!(entry.part, Part::Keys(_)) {
                    break;
                }
                parents.insert(above.to_owned(), self.parent(above, entry)?);
            }
        }
        let mut parents: Vec<Parent> = parents.into_values().collect();
        parents.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(parents)
    }

    fn parent(&self, path: &Utf8Path, entry: &Entry) -> Result<Parent> {
        let found = self.target.look(path)?.filter(|found| found.kind == Kind::Directory);
        let (mode, uid, gid) = match (&found, home_of(entry)) {
            (Some(found), _) => (found.mode, found.uid, found.gid),
            // sshd reads no keys below a directory that others may write or somebody else owns.
            (None, Some((home, uid, gid))) if path.starts_with(&home) => (0o700, uid, gid),
            (None, _) => (PARENT_MODE, 0, 0),
        };
        Ok(Parent { path: path.to_owned(), mode, uid, gid, label: self.labels.of(path, mode | S_IFDIR)? })
    }
}

/// The home of the user whose keys an entry holds, and its owner.
fn home_of(entry: &Entry) -> Option<(Utf8PathBuf, u32, u32)> {
    let (Part::Keys(_), Node::File { uid, gid, .. }) = (&entry.part, &entry.node) else { return None };
    let ssh = entry.path.ancestors().find(|path| path.file_name() == Some(".ssh"))?;
    Some((ssh.parent()?.to_owned(), *uid, *gid))
}

fn keep(blob: Blob, made: &mut Composed) -> (Digest, u64) {
    let (digest, size) = (blob.digest(), blob.bytes().len() as u64);
    made.contents.entry(digest.clone()).or_insert(blob);
    (digest, size)
}

fn is_mask(found: Option<&Found>) -> bool {
    matches!(found.map(|found| &found.kind), Some(Kind::Symlink(target)) if target == "/dev/null")
}

/// What the image has that the wish cannot replace.
fn conflict(wish: &Wish, found: Option<&Found>) -> Option<&'static str> {
    let found = found?;
    match (&wish.what, &found.kind) {
        (What::Absent, _) => None,
        (What::Directory { .. }, Kind::Directory) => None,
        (What::Directory { .. }, _) => Some("the target has something there that is no directory"),
        (_, Kind::Directory) => Some("the target has a directory there"),
        (_, Kind::Special) => Some("the target has a device, pipe or socket there"),
        (What::File { contents: None, .. }, Kind::Symlink(_)) => {
            Some("the target has a link there, and nothing can be appended to that")
        }
        _ if !wish.overwrite => {
            Some("overwrite is false, and the target has something there; say overwrite: true to replace it")
        }
        _ => None,
    }
}

/// What the links of units depend on.
fn fingerprint(entries: &BTreeMap<Utf8PathBuf, Entry>, made: &Composed) -> Digest {
    let mut text = String::new();
    for (path, entry) in entries.iter().filter(|(path, _)| units::is_read(path)) {
        let what = match &entry.node {
            Node::File { digest, .. } => digest.to_string(),
            Node::Symlink { target, .. } => format!("-> {target}"),
            Node::Directory { .. } | Node::Absent => continue,
        };
        text.push_str(&format!("{path} {what}\n"));
    }
    for (unit, one) in &made.manifest.enablement {
        text.push_str(&format!("{unit} {:?} {:?}\n", one.enabled, one.source));
    }
    Digest::of(text.as_bytes())
}

/// A line of a preset file; an instance is named after its template.
fn preset_line(unit: &str, enabled: bool) -> String {
    let verb = if enabled { "enable" } else { "disable" };
    let instance = unit.split_once('@').and_then(|(base, rest)| {
        let (instance, kind) = rest.rsplit_once('.')?;
        (!instance.is_empty()).then(|| format!("{verb} {base}@.{kind} {instance}\n"))
    });
    instance.unwrap_or_else(|| format!("{verb} {unit}\n"))
}
