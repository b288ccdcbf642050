//! Layers that carry an OSTree commit, object by object.
//!
//! Only entries below `sysroot/ostree/repo/objects/` count; the tree beside them, made of hard links
//! to these, is for container tools. Extended attributes precede their `.file`, in one of two
//! encodings:
//!
//! * shared: `<sha256 of the bytes>.file-xattrs` once, then `<file>.file-xattrs-link` as a hard link
//!   to it (ostree-ext up to 0.15);
//! * repeated: `<file>.file-xattrs-link` is a regular file with the bytes (bootc).

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::limits::{CHUNK, MAX_METADATA, MAX_SHARED_XATTRS, MAX_XATTRS};
use super::objects::{Checksum, FileMeta, Kind, S_IFLNK, S_IFREG};
use super::tarball::{Entry, EntryKind, Tarball};
use super::writer::{LayerWrites, Pending, What, Writers};

/// The commit that the first layer carries.
#[derive(Debug, Clone)]
pub(super) struct BaseCommit {
    pub(super) checksum: Checksum,
    pub(super) bytes: Vec<u8>,
    /// Detached metadata: signatures.
    pub(super) detached: Option<Vec<u8>>,
}

/// What a layer of objects held.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) commit: Option<BaseCommit>,
    /// Content objects, sorted.
    pub(super) content: Vec<Checksum>,
}

/// What the name of an entry below `objects/` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Object(Checksum, Kind),
    SharedXattrs(Checksum),
    XattrsLink(Checksum),
}

/// Reads a commit layer (`with_commit`) or a component layer.
#[derive(Debug)]
pub(super) struct ObjectLayer<'a> {
    writers: &'a Writers,
    layer: &'a Arc<LayerWrites>,
    with_commit: bool,
    shared: HashMap<Checksum, Arc<[u8]>>,
    shared_bytes: usize,
    /// Attributes of the `.file` that must come next.
    xattrs: Option<(Checksum, Arc<[u8]>)>,
    /// The attributes met last: neighbours mostly have the same ones.
    last: Option<Arc<[u8]>>,
    objects: Objects,
    detached: Option<(Checksum, Vec<u8>)>,
}

impl<'a> ObjectLayer<'a> {
    pub(super) fn new(writers: &'a Writers, layer: &'a Arc<LayerWrites>, with_commit: bool) -> Self {
        Self {
            writers,
            layer,
            with_commit,
            shared: HashMap::new(),
            shared_bytes: 0,
            xattrs: None,
            last: None,
            objects: Objects::default(),
            detached: None,
        }
    }

    /// Reads all entries.
    pub(super) fn read<R: BufRead>(mut self, tar: &mut Tarball<R>) -> Result<Objects> {
        while let Some(entry) = tar.next()? {
            if let Some(name) = parse_path(&entry.path)? {
                self.entry(tar, &entry, name)
                    .with_context(|| format!("entry '{}'", String::from_utf8_lossy(&entry.path)))?;
            }
        }
        if let Some((file, _)) = self.xattrs {
            bail!("the layer ends where object {file}.file should follow its extended attributes");
        }
        self.objects.content.sort_unstable();
        self.objects.content.dedup();
        if self.with_commit {
            let commit = self
                .objects
                .commit
                .as_mut()
                .ok_or_else(|| anyhow!("the first layer carries no OSTree commit"))?;
            if let Some((checksum, bytes)) = self.detached {
                ensure!(
                    checksum == commit.checksum,
                    "the layer carries signatures of another commit, {checksum}"
                );
                commit.detached = Some(bytes);
            }
        }
        Ok(self.objects)
    }

    fn entry<R: BufRead>(&mut self, tar: &mut Tarball<R>, entry: &Entry, name: Name) -> Result<()> {
        if let Some((file, _)) = &self.xattrs {
            let expected = Name::Object(*file, Kind::File);
            ensure!(name == expected, "{file}.file should follow its extended attributes here");
        }
        match name {
            Name::SharedXattrs(checksum) => self.shared_xattrs(tar, entry, checksum),
            Name::XattrsLink(file) => self.xattrs_link(tar, entry, file),
            Name::Object(checksum, Kind::File) => self.file(tar, entry, checksum),
            Name::Object(checksum, kind) => self.metadata(tar, entry, checksum, kind),
        }
    }

    fn shared_xattrs<R: BufRead>(
        &mut self,
        tar: &mut Tarball<R>,
        entry: &Entry,
        checksum: Checksum,
    ) -> Result<()> {
        let bytes = read_bounded(tar, entry, MAX_XATTRS, "extended attributes")?;
        let found = Checksum::of(&bytes);
        ensure!(found == checksum, "the extended attributes are corrupt: their checksum is {found}");
        self.shared_bytes += bytes.len() + 128;
        ensure!(
            self.shared_bytes <= MAX_SHARED_XATTRS,
            "the layer shares more than {MAX_SHARED_XATTRS} bytes of extended attributes, the limit"
        );
        self.shared.insert(checksum, Arc::from(bytes));
        Ok(())
    }

    fn xattrs_link<R: BufRead>(&mut self, tar: &mut Tarball<R>, entry: &Entry, file: Checksum) -> Result<()> {
        let xattrs = match entry.kind {
            EntryKind::HardLink => {
                let shared = match parse_path(&entry.target)? {
                    Some(Name::SharedXattrs(checksum)) => self.shared.get(&checksum),
                    _ => None,
                };
                Arc::clone(shared.ok_or_else(|| {
                    anyhow!(
                        "it links to '{}', which the layer did not hold before",
                        String::from_utf8_lossy(&entry.target)
                    )
                })?)
            }
            _ => self.interned(read_bounded(tar, entry, MAX_XATTRS, "extended attributes")?),
        };
        self.xattrs = Some((file, xattrs));
        Ok(())
    }

    fn interned(&mut self, bytes: Vec<u8>) -> Arc<[u8]> {
        match &self.last {
            Some(last) if **last == *bytes => Arc::clone(last),
            _ => {
                let xattrs: Arc<[u8]> = Arc::from(bytes);
                self.last = Some(Arc::clone(&xattrs));
                xattrs
            }
        }
    }

    fn file<R: BufRead>(&mut self, tar: &mut Tarball<R>, entry: &Entry, checksum: Checksum) -> Result<()> {
        let (_, xattrs) =
            self.xattrs.take().ok_or_else(|| anyhow!("its extended attributes do not precede it"))?;
        self.objects.content.push(checksum);
        let (mode, target) = match entry.kind {
            EntryKind::File => (S_IFREG | entry.mode, String::new()),
            EntryKind::Link => {
                let target =
                    String::from_utf8(entry.target.clone()).context("the link's target is not UTF-8")?;
                ensure!(!target.is_empty(), "the link has no target");
                (S_IFLNK | 0o777, target)
            }
            _ => bail!("a content object is neither a file nor a symbolic link"),
        };
        if self.writers.has(checksum, Kind::File)? {
            self.layer.count_reused();
            return Ok(());
        }
        let meta = FileMeta { uid: entry.uid, gid: entry.gid, mode, target, xattrs };
        let pending = Pending { what: What::Content(meta), expected: Some(checksum), slot: None };
        put_content(self.writers, self.layer, pending, tar, entry.size)
    }

    fn metadata<R: BufRead>(
        &mut self,
        tar: &mut Tarball<R>,
        entry: &Entry,
        checksum: Checksum,
        kind: Kind,
    ) -> Result<()> {
        ensure!(self.with_commit, "a {} object does not belong into a component layer", kind.suffix());
        let bytes = read_bounded(tar, entry, MAX_METADATA, "a metadata object")?;
        if kind == Kind::CommitMeta {
            ensure!(
                self.detached.replace((checksum, bytes)).is_none(),
                "the layer carries a second set of signatures"
            );
            return Ok(());
        }
        let found = Checksum::of(&bytes);
        ensure!(found == checksum, "the object is corrupt: its checksum is {found}");
        if kind == Kind::Commit {
            ensure!(self.objects.commit.is_none(), "the layer carries a second commit");
            self.objects.commit = Some(BaseCommit { checksum, bytes, detached: None });
            return Ok(());
        }
        if self.writers.has(checksum, kind)? {
            self.layer.count_reused();
            return Ok(());
        }
        let pending = Pending { what: What::Metadata(kind), expected: Some(checksum), slot: None };
        self.writers.put(self.layer, pending, bytes)
    }
}

/// Hands `size` bytes to the writers, whole or in pieces.
pub(super) fn put_content(
    writers: &Writers,
    layer: &Arc<LayerWrites>,
    pending: Pending,
    data: &mut impl Read,
    size: u64,
) -> Result<()> {
    let mut piece = |left: u64| -> Result<Vec<u8>> {
        let mut piece = vec![0; usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))];
        data.read_exact(&mut piece).context("reading a file's content")?;
        Ok(piece)
    };
    if size <= CHUNK as u64 {
        return writers.put(layer, pending, piece(size)?);
    }
    let pieces = writers.put_pieces(layer, pending)?;
    let mut left = size;
    loop {
        let piece = piece(left)?;
        left -= piece.len() as u64;
        let last = piece.is_empty();
        // A writer that is gone has noted why; the layer's end will tell.
        if pieces.send(piece).is_err() || last {
            return Ok(());
        }
    }
}

fn read_bounded<R: BufRead>(tar: &mut Tarball<R>, entry: &Entry, limit: u64, what: &str) -> Result<Vec<u8>> {
    ensure!(entry.kind == EntryKind::File, "expected a regular file");
    ensure!(entry.size <= limit, "{what} of {} bytes; the limit is {limit}", entry.size);
    tar.read_all()
}

/// The object that a path in the layer names; none if the path is no object's.
fn parse_path(path: &[u8]) -> Result<Option<Name>> {
    let path = path.strip_prefix(b"./").or_else(|| path.strip_prefix(b"/")).unwrap_or(path);
    let Some(rest) = path.strip_prefix(b"sysroot/ostree/repo/objects/") else { return Ok(None) };
    let name = std::str::from_utf8(rest).ok().and_then(parse_object);
    let is_folder = rest.len() == 2 || rest.is_empty();
    if name.is_none() && !is_folder {
        bail!("'{}' is not the name of an object", String::from_utf8_lossy(path));
    }
    Ok(name)
}

fn parse_object(rest: &str) -> Option<Name> {
    let (folder, name) = rest.split_once('/')?;
    let (hex, suffix) = name.split_once('.')?;
    let full = match (folder.len(), hex.len()) {
        (2, 62) => format!("{folder}{hex}"),
        (2, 64) if hex.starts_with(folder) => hex.to_owned(),
        _ => return None,
    };
    let checksum = Checksum::parse(&full)?;
    Some(match suffix {
        "commit" => Name::Object(checksum, Kind::Commit),
        "commitmeta" => Name::Object(checksum, Kind::CommitMeta),
        "dirtree" => Name::Object(checksum, Kind::DirTree),
        "dirmeta" => Name::Object(checksum, Kind::DirMeta),
        "file" => Name::Object(checksum, Kind::File),
        "file-xattrs" => Name::SharedXattrs(checksum),
        "file-xattrs-link" => Name::XattrsLink(checksum),
        _ => return None,
    })
}
