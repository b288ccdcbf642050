//! Plain tar layers: what a Containerfile puts on top of a base, or all layers of a plain image.
//!
//! A layer becomes a commit of its own, so that it need not be fetched again. Its tree holds the
//! entries where [`place`] puts them, with whiteouts (`.wh.NAME`, `.wh..wh..opq`) as the empty files
//! that the layer has for them: that is ostree-ext's form, and both take up what the other wrote.
//! Directories that the layer only implies are listed in the commit's metadata: laid over what is
//! below they must not change its modes.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::encapsulated::put_content;
use super::label::Labels;
use super::legacy::{LegacyLayer, LegacyReader};
use super::limits::{MAX_TREE, TREE_DIR, TREE_FILE};
use super::objects::{Checksum, Commit, DirMeta, DirTree, FileMeta, Kind, S_IFDIR, S_IFLNK, S_IFREG};
use super::place::{Base, Place, place};
use super::staging::{Staged, create_new};
use super::tarball::{Entry, EntryKind, Tarball};
use super::writer::{LayerWrites, Pending, What, Writers, Written};

/// Metadata of a layer's commit: directories that it does not describe.
pub(super) const IMPLIED: &str = "mcd.implied-directories";

/// What a layer's commit is made of, before the checksums are known.
#[derive(Debug)]
pub(super) struct Layer {
    root: Dir,
    slots: usize,
    /// Files that are objects of the repo already.
    known: Vec<(usize, Checksum)>,
    /// What was left out, counted by top-level name or kind.
    pub(super) dropped: BTreeMap<String, u64>,
    /// What it holds of a legacy image's repo.
    pub(super) legacy: Option<LegacyLayer>,
}

#[derive(Debug, Default)]
struct Dir {
    /// None: implied by a path below it.
    meta: Option<DirMeta>,
    children: BTreeMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    Dir(Dir),
    /// The number of the slot that its checksum comes to.
    File(usize),
    Link(usize),
}

/// Reads one layer.
#[derive(Debug)]
pub(super) struct LayerReader<'a> {
    writers: &'a Writers,
    writes: &'a Arc<LayerWrites>,
    labels: Labels,
    base: Base,
    layer: Layer,
    /// Bytes of names and attributes that the layer's tree holds, at most.
    held: usize,
    /// The path before, whose folders need not be held again.
    last: Vec<u8>,
    /// Where an image may be a legacy one.
    legacy: Option<LegacyReader<'a>>,
    /// Whether nothing else of the layer counts.
    only_legacy: bool,
    /// Objects of the base's repo that the build changed through a hard link: whoever links to one
    /// means the new content.
    changed: HashMap<Checksum, Changed>,
}

/// Content that was put aside.
#[derive(Debug)]
struct Changed {
    /// Owner, mode, attributes, size.
    entry: Entry,
    /// The file in the layer's scratch folder.
    name: String,
}

/// Whether a plain layer may hold a legacy image's repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Legacy {
    /// It does not, or as mere content.
    No,
    /// Only reading tells.
    Maybe,
    /// It does, and nothing else counts.
    Yes,
}

impl<'a> LayerReader<'a> {
    pub(super) fn new(
        writers: &'a Writers,
        writes: &'a Arc<LayerWrites>,
        labels: Labels,
        base: Base,
        legacy: Legacy,
    ) -> Self {
        let layer = Layer {
            root: Dir::default(),
            slots: 0,
            known: Vec::new(),
            dropped: BTreeMap::new(),
            legacy: None,
        };
        Self {
            writers,
            writes,
            labels,
            base,
            layer,
            held: 0,
            last: Vec::new(),
            legacy: (legacy != Legacy::No).then(|| LegacyReader::new(writers, writes)),
            only_legacy: legacy == Legacy::Yes,
            changed: HashMap::new(),
        }
    }

    /// Reads all entries.
    pub(super) fn read<R: BufRead>(mut self, tar: &mut Tarball<R>) -> Result<(Layer, Labels)> {
        while let Some(entry) = tar.next()? {
            self.entry(tar, &entry)
                .with_context(|| format!("entry '{}'", String::from_utf8_lossy(&entry.path)))?;
        }
        self.layer.legacy =
            self.legacy.map(|reader| reader.found).filter(|found| found.is_some || self.only_legacy);
        Ok((self.layer, self.labels))
    }

    fn entry<R: BufRead>(&mut self, tar: &mut Tarball<R>, entry: &Entry) -> Result<()> {
        if let Some(legacy) = &mut self.legacy {
            let text = std::str::from_utf8(&entry.path).unwrap_or_default();
            let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
            if legacy.take(tar, entry, &parts)? || self.only_legacy {
                return Ok(());
            }
        }
        let path = match place(&entry.path, self.base)? {
            Place::At(path) => path,
            Place::Dropped(top) => return self.drop_one(format!("/{top}")),
            Place::Repo(object) => return self.repo_entry(&object, entry, tar),
        };
        self.hold(entry)?;
        if path.is_empty() {
            ensure!(entry.kind == EntryKind::Dir, "the root is not a directory");
        }
        match entry.kind {
            EntryKind::Dir => self.dir(&path, entry),
            EntryKind::File | EntryKind::Link => self.file(&path, entry, tar),
            EntryKind::HardLink => self.hard_link(&path, entry),
            EntryKind::Special => self.drop_one("devices and FIFOs"),
        }
    }

    /// Bounds what stays in memory until the layer's end.
    fn hold(&mut self, entry: &Entry) -> Result<()> {
        let same = entry.path.iter().zip(&self.last).take_while(|(one, other)| one == other).count();
        let new = &entry.path[same..];
        let mut dirs = new.iter().filter(|byte| **byte == b'/').count();
        if entry.kind == EntryKind::Dir {
            dirs += 1;
            self.held += entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        }
        self.held += new.len() + dirs * TREE_DIR + TREE_FILE;
        self.last.clone_from(&entry.path);
        ensure!(
            self.held <= MAX_TREE,
            "the layer's directories, names and their attributes take more than {MAX_TREE} bytes, the limit"
        );
        Ok(())
    }

    /// Counts an entry that is left out.
    fn drop_one(&mut self, what: impl Into<String>) -> Result<()> {
        *self.layer.dropped.entry(what.into()).or_default() += 1;
        Ok(())
    }

    fn dir(&mut self, path: &[String], entry: &Entry) -> Result<()> {
        let mode = S_IFDIR | entry.mode;
        let xattrs = self.labels.apply(&path.join("/"), mode, entry.xattrs.clone())?;
        let meta = DirMeta { uid: entry.uid, gid: entry.gid, mode, xattrs };
        let dir = self.layer.root.descend(path)?;
        dir.meta = Some(meta);
        Ok(())
    }

    fn file<R: BufRead>(&mut self, path: &[String], entry: &Entry, tar: &mut Tarball<R>) -> Result<()> {
        let (mode, target) = match entry.kind {
            EntryKind::Link => {
                let target =
                    String::from_utf8(entry.target.clone()).context("the link's target is not UTF-8")?;
                ensure!(!target.is_empty() && !target.contains('\0'), "the link has no valid target");
                (S_IFLNK | 0o777, target)
            }
            _ => (S_IFREG | entry.mode, String::new()),
        };
        // libostree passes over empty values when it reads a file: with one, the object would not be
        // what its name says.
        let xattrs = entry.xattrs.iter().filter(|(_, value)| !value.is_empty()).cloned().collect();
        let xattrs = self.labels.apply(&path.join("/"), mode, xattrs)?;
        let meta = FileMeta { uid: entry.uid, gid: entry.gid, mode, target, xattrs };
        let slot = self.layer.new_slot();
        let node = if meta.is_link() { Node::Link(slot) } else { Node::File(slot) };
        self.layer.root.put(path, node)?;
        let pending = Pending { what: What::Content(meta), expected: None, slot: Some(slot) };
        put_content(self.writers, self.writes, pending, tar, entry.size)
    }

    fn hard_link(&mut self, path: &[String], entry: &Entry) -> Result<()> {
        let target = String::from_utf8_lossy(&entry.target).into_owned();
        let slot = match place(&entry.target, self.base).with_context(|| format!("its target '{target}'"))? {
            Place::At(to) => self.layer.root.find_file(&to).ok_or_else(|| {
                anyhow!("it is a hard link to '{target}', which is no earlier file of this layer")
            })?,
            // Leaving it out too would deploy half of an image, and only a warning would say so.
            Place::Dropped(top) => bail!("it is a hard link to '{target}', but /{top} is left out"),
            Place::Repo(object) => {
                let checksum = object_name(&object)?;
                match self.changed.get(&checksum) {
                    Some(_) => return self.changed_file(path, checksum),
                    None => self.repo_object(checksum)?,
                }
            }
        };
        self.layer.root.put(path, Node::File(slot))
    }

    /// An entry below the base's repo. Builders write one when the build touched a file, because
    /// there it is a hard link to its object; the object's time stamp tells whether it changed.
    fn repo_entry<R: BufRead>(&mut self, object: &str, entry: &Entry, tar: &mut Tarball<R>) -> Result<()> {
        if entry.kind != EntryKind::File || entry.mtime == 0 {
            return self.drop_one("/sysroot");
        }
        let Ok(checksum) = object_name(object) else { return self.drop_one("/sysroot") };
        let name = format!("changed-{}", self.changed.len());
        let file = create_new(self.writes.scratch(), &name).context("Creating a file")?;
        let mut file = std::fs::File::from(file);
        let copied = std::io::copy(tar, &mut file)?;
        ensure!(copied == entry.size, "the entry ends early");
        self.changed.insert(checksum, Changed { entry: entry.clone(), name });
        Ok(())
    }

    /// A file that was an object of the base and was changed: a file of its own again.
    fn changed_file(&mut self, path: &[String], checksum: Checksum) -> Result<()> {
        let Some(Changed { entry, name }) = self.changed.get(&checksum) else { return Ok(()) };
        let mode = S_IFREG | entry.mode;
        let xattrs = self.labels.apply(&path.join("/"), mode, entry.xattrs.clone())?;
        let meta = FileMeta { uid: entry.uid, gid: entry.gid, mode, target: String::new(), xattrs };
        let mut content = self.writes.scratch().open(name)?;
        let slot = self.layer.new_slot();
        self.layer.root.put(path, Node::File(slot))?;
        let pending = Pending { what: What::Content(meta), expected: None, slot: Some(slot) };
        put_content(self.writers, self.writes, pending, &mut content, entry.size)
    }

    /// A file that is an object of the base, unchanged.
    fn repo_object(&mut self, checksum: Checksum) -> Result<usize> {
        if !self.writers.has(checksum, Kind::File)? {
            bail!("it is a hard link to object {checksum}, which is in no lower layer");
        }
        let slot = self.layer.new_slot();
        self.layer.known.push((slot, checksum));
        Ok(slot)
    }
}

/// The content object that a path below the repo names.
fn object_name(path: &str) -> Result<Checksum> {
    path.strip_prefix("objects/")
        .and_then(|rest| rest.strip_suffix(".file"))
        .and_then(|rest| Checksum::parse(&rest.replacen('/', "", 1)))
        .ok_or_else(|| {
            anyhow!("it is a hard link to '{path}' in the OSTree repo, which is no content object")
        })
}

impl Dir {
    /// The directory at `path`, made if need be; a file in the way is replaced at the last step
    /// only, for a path must not lead through one.
    fn descend(&mut self, path: &[String]) -> Result<&mut Dir> {
        let mut dir = self;
        for (index, name) in path.iter().enumerate() {
            let last = index + 1 == path.len();
            let node = dir.children.entry(name.clone()).or_insert_with(|| Node::Dir(Dir::default()));
            if !matches!(node, Node::Dir(_)) {
                ensure!(
                    last,
                    "its path leads through '{}', which is not a directory",
                    path[..=index].join("/")
                );
                *node = Node::Dir(Dir::default());
            }
            dir = match node {
                Node::Dir(dir) => dir,
                Node::File(_) | Node::Link(_) => unreachable!("it was made a directory just now"),
            };
        }
        Ok(dir)
    }

    /// Puts a file; the later of two entries for a path counts.
    fn put(&mut self, path: &[String], node: Node) -> Result<()> {
        let (name, parents) = path.split_last().ok_or_else(|| anyhow!("the root is not a file"))?;
        self.parent(parents)?.children.insert(name.clone(), node);
        Ok(())
    }

    fn parent(&mut self, path: &[String]) -> Result<&mut Dir> {
        let mut dir = self;
        for (index, name) in path.iter().enumerate() {
            let node = dir.children.entry(name.clone()).or_insert_with(|| Node::Dir(Dir::default()));
            let Node::Dir(next) = node else {
                bail!("its path leads through '{}', which is not a directory", path[..=index].join("/"));
            };
            dir = next;
        }
        Ok(dir)
    }

    fn find_file(&self, path: &[String]) -> Option<usize> {
        let (name, parents) = path.split_last()?;
        let mut dir = self;
        for part in parents {
            match dir.children.get(part)? {
                Node::Dir(next) => dir = next,
                Node::File(_) | Node::Link(_) => return None,
            }
        }
        match dir.children.get(name)? {
            Node::File(slot) | Node::Link(slot) => Some(*slot),
            Node::Dir(_) => None,
        }
    }
}

/// Writes metadata objects of one layer and remembers what it wrote.
#[derive(Debug)]
pub(super) struct MetadataWriter<'a> {
    writers: &'a Writers,
    writes: &'a LayerWrites,
    pub(super) staged: Vec<Staged>,
}

impl<'a> MetadataWriter<'a> {
    pub(super) fn new(writers: &'a Writers, writes: &'a LayerWrites) -> Self {
        Self { writers, writes, staged: Vec::new() }
    }

    /// Writes an object that the repo does not have.
    pub(super) fn put(&mut self, bytes: &[u8], kind: Kind) -> Result<Checksum> {
        let checksum = Checksum::of(bytes);
        self.put_named(bytes, kind, checksum)?;
        Ok(checksum)
    }

    /// The same for detached metadata, which is named by its commit.
    pub(super) fn put_named(&mut self, bytes: &[u8], kind: Kind, name: Checksum) -> Result<()> {
        if !self.writers.has(name, kind)? {
            self.staged.extend(self.writes.put_metadata(bytes, kind, name)?);
        }
        Ok(())
    }
}

impl Layer {
    fn new_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    /// Makes the layer's commit, once all its files are written.
    pub(super) fn commit(
        self,
        written: &Written,
        labels: &mut Labels,
        out: &mut MetadataWriter<'_>,
    ) -> Result<Checksum> {
        let mut slots = vec![None; self.slots];
        for (slot, checksum) in written.slots.iter().chain(&self.known) {
            slots[*slot] = Some(*checksum);
        }
        let mut implied = Vec::new();
        let (tree, meta) = write_dir(&self.root, "", &slots, labels, &mut implied, out)?;
        let mut commit = image_layer_commit(tree, meta);
        if !implied.is_empty() {
            commit.lists.insert(IMPLIED.to_owned(), implied);
        }
        out.put(&commit.encode(), Kind::Commit)
    }
}

/// A commit without history or time: the same layer gives the same one everywhere.
fn image_layer_commit(tree: Checksum, meta: Checksum) -> Commit {
    let strings = [(super::IMPORTER_KEY.to_owned(), super::IMPORTER_VERSION.to_owned())].into();
    Commit { strings, lists: BTreeMap::new(), timestamp: 0, tree, meta }
}

fn write_dir(
    dir: &Dir,
    path: &str,
    slots: &[Option<Checksum>],
    labels: &mut Labels,
    implied: &mut Vec<String>,
    out: &mut MetadataWriter<'_>,
) -> Result<(Checksum, Checksum)> {
    let meta = match &dir.meta {
        Some(meta) => meta.clone(),
        None => {
            implied.push(path.to_owned());
            let mode = S_IFDIR | 0o755;
            DirMeta { uid: 0, gid: 0, mode, xattrs: labels.apply(path, mode, Vec::new())? }
        }
    };
    let mut tree = DirTree::default();
    for (name, node) in &dir.children {
        match node {
            Node::File(slot) | Node::Link(slot) => {
                let checksum = slots[*slot].ok_or_else(|| anyhow!("file {path}/{name} was not written"))?;
                tree.files.insert(name.clone(), checksum);
            }
            Node::Dir(child) => {
                let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                tree.dirs.insert(name.clone(), write_dir(child, &below, slots, labels, implied, out)?);
            }
        }
    }
    Ok((out.put(&tree.encode(), Kind::DirTree)?, out.put(&meta.encode(), Kind::DirMeta)?))
}

/// The commit that keeps the files of a component layer: one directory with an entry for each
/// content object, named by its checksum. ostree-ext makes the same one.
pub(super) fn object_set_commit(content: &[Checksum], out: &mut MetadataWriter<'_>) -> Result<Checksum> {
    let tree = DirTree {
        files: content.iter().map(|checksum| (checksum.to_string(), *checksum)).collect(),
        dirs: BTreeMap::new(),
    };
    let meta =
        DirMeta { uid: 0, gid: 0, mode: S_IFDIR | 0o755, xattrs: super::objects::encode_xattrs(&Vec::new()) };
    let bytes = tree.encode();
    ensure!(
        bytes.len() as u64 <= super::limits::MAX_METADATA,
        "a component layer of {} objects; their list would pass the {} bytes that a metadata object may have",
        content.len(),
        super::limits::MAX_METADATA
    );
    let (tree, meta) = (out.put(&bytes, Kind::DirTree)?, out.put(&meta.encode(), Kind::DirMeta)?);
    let commit = Commit { strings: BTreeMap::new(), lists: BTreeMap::new(), timestamp: 0, tree, meta };
    out.put(&commit.encode(), Kind::Commit)
}
