//! From wishes and a target to the manifest, and the contents that it names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::places::{Refused, place_of};
use super::target::{Found, Kind, Target};
use super::units::{self, UnitNode};
use super::wish::{Content, What, Wish, Wishes};
use crate::host::pull::objects::{S_IFDIR, S_IFLNK, S_IFREG};
use crate::host::selinux::Policy;
use crate::model::config::{Blob, Remark};
use crate::model::digest::Digest;
use crate::model::manifest::{
    Enablement, Entry, MANIFEST_VERSION, Manifest, Node, Parent, Part, Scope, Source,
};

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
    pub(super) policy: &'a Policy,
    pub(super) held: &'a dyn Held,
    /// Homes with their owners.
    pub(super) homes: Vec<(Utf8PathBuf, u32, u32)>,
    /// Whether the target is an image: its files come back when a path is given up, and what is in
    /// `/var` is not known. On a plain root they are a person's.
    pub(super) is_commit: bool,
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
        self.add_enablement(&placed, &mut entries, &wishes.unit_fields, &mut made)?;
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
        if let Some(message) = self.conflict(&wish, &path, found.as_ref())? {
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

    /// What the target has that the wish cannot replace.
    fn conflict(&self, wish: &Wish, path: &Utf8Path, found: Option<&Found>) -> Result<Option<&'static str>> {
        if matches!(wish.what, What::File { contents: None, .. })
            && self.is_commit
            && Scope::of(path) == Some(Scope::Var)
        {
            return Ok(Some(
                "nothing can be appended below /var, which is not part of the image; give the whole contents",
            ));
        }
        let Some(found) = found else { return Ok(None) };
        Ok(match (&wish.what, &found.kind) {
            (What::Absent, _) | (What::Directory { .. }, Kind::Directory) => None,
            (What::Directory { .. }, _) => Some("the target has something there that is no directory"),
            (_, Kind::Directory) => Some("the target has a directory there"),
            (_, Kind::Special) => Some("the target has a device, pipe or socket there"),
            (What::File { contents: None, .. }, Kind::Symlink(_)) => {
                Some("the target has a link there, and nothing can be appended to that")
            }
            _ if !wish.overwrite && !self.is_there(wish, path, found)? => Some(
                "overwrite is false, and the target has something else there; say overwrite: true to replace it",
            ),
            _ => None,
        })
    }

    /// Whether the target has just that.
    fn is_there(&self, wish: &Wish, path: &Utf8Path, found: &Found) -> Result<bool> {
        if (wish.uid, wish.gid) != (found.uid, found.gid) {
            return Ok(false);
        }
        Ok(match (&wish.what, &found.kind) {
            (What::File { contents: Some(content), append: None, mode }, Kind::File(_)) => {
                *mode == found.mode && *self.bytes(content)? == *self.target.read(path)?
            }
            (What::Symlink(target), Kind::Symlink(there)) => target == there,
            _ => false,
        })
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
        let Some(found) = found.filter(|_| self.is_commit && Scope::of(path) != Some(Scope::Var)) else {
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
            _ => self.policy.label(path.as_str(), mode),
        }
    }

    /// Adds the links that enable units, and the preset file that says the same.
    fn add_enablement(
        &self,
        placed: &BTreeMap<Utf8PathBuf, Placed>,
        entries: &mut BTreeMap<Utf8PathBuf, Entry>,
        fields: &BTreeMap<String, String>,
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
            self.work_links_out(placed, entries, fields, made)?;
        }
        self.add_preset(entries, made)
    }

    fn work_links_out(
        &self,
        placed: &BTreeMap<Utf8PathBuf, Placed>,
        entries: &mut BTreeMap<Utf8PathBuf, Entry>,
        fields: &BTreeMap<String, String>,
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
        for (unit, message) in links.refused {
            match fields.get(&unit) {
                Some(field) => made.problems.push(Remark {
                    field: format!("{field}.enabled"),
                    message: format!("{unit}: {message}"),
                }),
                // It was accepted on another image: that must not keep the host from this one.
                None => made.warnings.push(format!("unit {unit} is not enabled any more: {message}")),
            }
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
        let lines = preset_lines(&made.manifest.enablement, entries.values());
        if lines.is_empty() || entries.contains_key(path) {
            return Ok(());
        }
        let (digest, size) = keep(Blob::from(lines.into_bytes()), made);
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
        for path in entries.keys() {
            for above in path.ancestors().skip(1) {
                let is_top = matches!(above.as_str(), "/" | "/etc" | "/usr" | "/var");
                if is_top || entries.contains_key(above) {
                    continue;
                }
                if parents.contains_key(above) {
                    break;
                }
                parents.insert(above.to_owned(), self.parent(above)?);
            }
        }
        let mut parents: Vec<Parent> = parents.into_values().collect();
        parents.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(parents)
    }

    fn parent(&self, path: &Utf8Path) -> Result<Parent> {
        let found = self.target.look(path)?.filter(|found| found.kind == Kind::Directory);
        let home = self.homes.iter().find(|(home, ..)| path.starts_with(home));
        let (mode, uid, gid) = match (&found, home) {
            (Some(found), _) => (found.mode, found.uid, found.gid),
            (None, Some((home, uid, gid))) => (mode_in_home(path, home), *uid, *gid),
            (None, None) => (PARENT_MODE, 0, 0),
        };
        Ok(Parent {
            path: path.to_owned(),
            mode,
            uid,
            gid,
            label: self.policy.label(path.as_str(), mode | S_IFDIR)?,
        })
    }
}

/// A home is its owner's alone, and sshd reads no keys below a directory that others may write.
fn mode_in_home(path: &Utf8Path, home: &Utf8Path) -> u32 {
    let is_ssh = path.strip_prefix(home).is_ok_and(|below| below.starts_with(".ssh"));
    if path == home || is_ssh { 0o700 } else { PARENT_MODE }
}

fn keep(blob: Blob, made: &mut Composed) -> (Digest, u64) {
    let (digest, size) = (blob.digest(), blob.bytes().len() as u64);
    made.contents.entry(digest.clone()).or_insert(blob);
    (digest, size)
}

fn is_mask(found: Option<&Found>) -> bool {
    matches!(found.map(|found| &found.kind), Some(Kind::Symlink(target)) if target == "/dev/null")
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

/// The lines of a preset file. Instances that are enabled stand on one line with their template, since
/// only the first line that matches counts; one that is disabled stands by its own name.
fn preset_lines<'e>(said: &BTreeMap<String, Enablement>, entries: impl Iterator<Item = &'e Entry>) -> String {
    let mut instances: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut lines = String::new();
    for (unit, one) in said {
        match (one.enabled, instance_of(unit)) {
            (Some(true), Some((template, instance))) => {
                instances.entry(template).or_default().insert(instance);
            }
            (Some(true), None) => lines.push_str(&format!("enable {unit}\n")),
            (Some(false), _) => lines.push_str(&format!("disable {unit}\n")),
            (None, _) => {}
        }
    }
    // The default instance of a template that is enabled itself.
    for entry in entries {
        if let (Part::Enablement(unit), Some(name)) = (&entry.part, entry.path.file_name())
            && let Some((template, instance)) = instance_of(name)
            && *unit == template
            && let Some(others) = instances.get_mut(&template)
        {
            others.insert(instance);
        }
    }
    for (template, instances) in instances {
        let names: Vec<String> = instances.into_iter().collect();
        let line = format!("enable {template} {}\n", names.join(" "));
        let alone = format!("enable {template}\n");
        match lines.find(&alone) {
            Some(at) => lines.replace_range(at..at + alone.len(), &line),
            None => lines.push_str(&line),
        }
    }
    lines
}

/// The template and the instance in the name of an instance.
pub(super) fn instance_of(unit: &str) -> Option<(String, String)> {
    let (base, rest) = unit.split_once('@')?;
    let (instance, kind) = rest.rsplit_once('.')?;
    (!instance.is_empty()).then(|| (format!("{base}@.{kind}"), instance.to_owned()))
}
