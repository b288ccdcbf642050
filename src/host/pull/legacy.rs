//! Legacy oscontainers: an archive repo at `/srv/repo`, spread over plain layers.
//!
//! A content object is a `.filez`: the length of a header (big-endian, 32 bits), four zero bytes, the
//! header as GVariant `(tuuuusa(ayay))` (size, uid, gid, mode, device, link target, extended
//! attributes; integers big-endian), then the content as a raw deflate stream. Metadata objects are
//! as everywhere. Objects go straight from the layer into the host's repo, verified by their names;
//! what an upper layer hides of them does not matter, for a name says the content. Refs are files
//! with a checksum in them, and there it does matter.
//!
//! The layers get no refs of their own: what they hold is only complete together.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use flate2::read::DeflateDecoder;
use ostree::glib::{Variant, VariantTy};

use super::encapsulated::{BaseCommit, put_content};
use super::limits::{MAX_METADATA, MAX_PAX, unpacked};
use super::objects::{Checksum, FileMeta, Kind, S_IFLNK, S_IFMT, S_IFREG, decode_xattrs};
use super::tarball::{Entry, EntryKind, Tarball};
use super::writer::{LayerWrites, Pending, What, Writers};
use crate::error::Fault;

/// Where the repo is in the image.
const ROOT: [&str; 2] = ["srv", "repo"];
/// OCI image spec, "Whiteouts".
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// A repo's configuration, or a ref.
const MAX_TEXT: u64 = 64 * 1024;
/// Commits in the repo of one layer. Real ones have one.
const MAX_COMMITS: usize = 100;

/// What one layer holds of the repo.
#[derive(Debug, Default)]
pub(super) struct LegacyLayer {
    commits: BTreeMap<Checksum, Vec<u8>>,
    detached: BTreeMap<Checksum, Vec<u8>>,
    /// Paths of refs or of folders of refs that are hidden in lower layers; empty: all.
    hidden: Vec<String>,
    refs: BTreeMap<String, Checksum>,
    /// Whether the layer holds anything of a repo.
    pub(super) is_some: bool,
}

/// All layers together.
#[derive(Debug, Default)]
pub(super) struct LegacyRepo {
    commits: BTreeMap<Checksum, Vec<u8>>,
    detached: BTreeMap<Checksum, Vec<u8>>,
    refs: BTreeMap<String, Checksum>,
}

impl LegacyRepo {
    /// Lays a layer over those below it.
    pub(super) fn apply(&mut self, layer: LegacyLayer) {
        let is_hidden = |name: &String| {
            layer.hidden.iter().any(|hidden| {
                hidden.is_empty()
                    || name
                        .strip_prefix(hidden.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        self.refs.retain(|name, _| !is_hidden(name));
        self.refs.extend(layer.refs);
        self.commits.extend(layer.commits);
        self.detached.extend(layer.detached);
    }

    /// Whether there is a repo at all.
    pub(super) fn is_there(&self) -> bool {
        !self.commits.is_empty()
    }

    /// The commit that the label names, else that of the only ref.
    pub(super) fn commit(mut self, label: Option<&str>, image: &str) -> Result<BaseCommit> {
        let refuse = |why: String| {
            Fault::refused(format!("image {image} does not say which OSTree commit is meant"))
                .why(why)
                .next("give the image the label com.coreos.ostree-commit, or leave one ref in its repo")
        };
        let checksum = match label {
            Some(label) => Checksum::parse(label).ok_or_else(|| {
                anyhow!("the label com.coreos.ostree-commit names '{label}', which is no commit")
            })?,
            None => {
                let mut named: Vec<Checksum> = self.refs.values().copied().collect();
                named.sort_unstable();
                named.dedup();
                match named.as_slice() {
                    [one] => *one,
                    [] => return Err(refuse("the repo in /srv/repo has no ref".to_owned()).into()),
                    _ => {
                        let refs: Vec<&str> = self.refs.keys().map(String::as_str).collect();
                        let why = format!("the repo in /srv/repo has several refs: {}", refs.join(", "));
                        return Err(refuse(why).into());
                    }
                }
            }
        };
        let bytes = self.commits.remove(&checksum).ok_or_else(|| {
            Fault::refused(format!("image {image} is incomplete"))
                .why(format!(
                    "the repo in /srv/repo does not hold commit {checksum}, which is to be deployed"
                ))
                .next("build the image again")
        })?;
        Ok(BaseCommit { checksum, bytes, detached: self.detached.remove(&checksum) })
    }
}

/// Reads what a layer holds of the repo.
#[derive(Debug)]
pub(super) struct LegacyReader<'a> {
    writers: &'a Writers,
    writes: &'a Arc<LayerWrites>,
    pub(super) found: LegacyLayer,
}

impl<'a> LegacyReader<'a> {
    pub(super) fn new(writers: &'a Writers, writes: &'a Arc<LayerWrites>) -> Self {
        Self { writers, writes, found: LegacyLayer::default() }
    }

    /// Takes an entry if it belongs to the repo. `parts` is its path, without anything to resolve.
    pub(super) fn take<R: BufRead>(
        &mut self,
        tar: &mut Tarball<R>,
        entry: &Entry,
        parts: &[&str],
    ) -> Result<bool> {
        match parts {
            [".wh.srv"] | ["srv", ".wh.repo" | OPAQUE] => self.found.hidden.push(String::new()),
            [first, second] if [*first, *second] == ROOT => self.found.is_some = true,
            [first, second, rest @ ..] if [*first, *second] == ROOT => {
                self.found.is_some = true;
                self.entry(tar, entry, rest)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn entry<R: BufRead>(&mut self, tar: &mut Tarball<R>, entry: &Entry, rest: &[&str]) -> Result<()> {
        let (name, parents) = rest.split_last().unwrap_or((&"", &[]));
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            let mut path = parents.to_vec();
            if *name != OPAQUE {
                path.push(hidden);
            }
            self.found.hidden.push(path.join("/"));
            return Ok(());
        }
        if entry.kind == EntryKind::Dir {
            return Ok(());
        }
        match rest {
            ["config"] => check_config(&text(tar, entry)?),
            ["refs", "heads" | "remotes" | "mirrors", ..] => {
                let text = text(tar, entry)?;
                let checksum = Checksum::parse(text.trim())
                    .ok_or_else(|| anyhow!("a ref holds '{}' where a checksum should be", text.trim()))?;
                self.found.refs.insert(rest.join("/"), checksum);
                Ok(())
            }
            ["objects", folder, name] => self.object(tar, entry, folder, name),
            // Deltas, summaries, caches: nothing that the commit needs.
            _ => Ok(()),
        }
    }

    fn object<R: BufRead>(
        &mut self,
        tar: &mut Tarball<R>,
        entry: &Entry,
        folder: &str,
        name: &str,
    ) -> Result<()> {
        let parsed = name
            .split_once('.')
            .and_then(|(hex, suffix)| Some((Checksum::parse(&format!("{folder}{hex}"))?, suffix)));
        let (checksum, suffix) = parsed.ok_or_else(|| anyhow!("it is not the name of an object"))?;
        ensure!(entry.kind == EntryKind::File, "an object is not a regular file");
        let kind = match suffix {
            "filez" => return self.content(tar, entry, checksum),
            "dirtree" => Kind::DirTree,
            "dirmeta" => Kind::DirMeta,
            "commit" => Kind::Commit,
            "commitmeta" => Kind::CommitMeta,
            "file" => bail!("the repo in /srv/repo is not an archive: only those are read"),
            // Partial commits and the like: marks of libostree's own.
            _ => return Ok(()),
        };
        ensure!(
            entry.size <= MAX_METADATA,
            "a metadata object of {} bytes; the limit is {MAX_METADATA}",
            entry.size
        );
        let bytes = tar.read_all()?;
        if kind == Kind::CommitMeta {
            self.found.detached.insert(checksum, bytes);
            return Ok(());
        }
        let found = Checksum::of(&bytes);
        ensure!(found == checksum, "the object is corrupt: its checksum is {found}");
        if kind == Kind::Commit {
            self.found.commits.insert(checksum, bytes);
            ensure!(self.found.commits.len() <= MAX_COMMITS, "more than {MAX_COMMITS} commits, the limit");
            return Ok(());
        }
        if self.writers.has(checksum, kind)? {
            self.writes.count_reused();
            return Ok(());
        }
        let pending = Pending { what: What::Metadata(kind), expected: Some(checksum), slot: None };
        self.writers.put(self.writes, pending, bytes)
    }

    fn content<R: BufRead>(&mut self, tar: &mut Tarball<R>, entry: &Entry, checksum: Checksum) -> Result<()> {
        if self.writers.has(checksum, Kind::File)? {
            self.writes.count_reused();
            return Ok(());
        }
        let mut prefix = [0; 8];
        tar.read_exact(&mut prefix).context("reading an object's header")?;
        let [a, b, c, d, ..] = prefix;
        let length = u32::from_be_bytes([a, b, c, d]);
        ensure!(u64::from(length) <= MAX_PAX, "an object's header of {length} bytes; the limit is {MAX_PAX}");
        let mut header = vec![0; usize::try_from(length)?];
        tar.read_exact(&mut header).context("reading an object's header")?;
        let (size, meta) = parse_header(&header)?;
        let limit = unpacked(entry.size);
        ensure!(size <= limit, "an object that unpacks to {size} bytes; the limit for its size is {limit}");
        let is_link = meta.is_link();
        let pending = Pending { what: What::Content(meta), expected: Some(checksum), slot: None };
        if is_link {
            return put_content(self.writers, self.writes, pending, &mut std::io::empty(), 0);
        }
        let mut content = DeflateDecoder::new(tar);
        put_content(self.writers, self.writes, pending, &mut content, size)?;
        ensure!(content.read(&mut [0])? == 0, "an object is longer than its header says");
        Ok(())
    }
}

fn text<R: BufRead>(tar: &mut Tarball<R>, entry: &Entry) -> Result<String> {
    ensure!(entry.kind == EntryKind::File, "expected a regular file");
    ensure!(entry.size <= MAX_TEXT, "{} bytes; the limit is {MAX_TEXT}", entry.size);
    String::from_utf8(tar.read_all()?).context("it is not UTF-8")
}

fn check_config(text: &str) -> Result<()> {
    let mode = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "mode").then(|| value.trim())
    });
    match mode {
        // No mode means bare.
        Some("archive" | "archive-z2") => Ok(()),
        other => bail!("the repo in /srv/repo is '{}': only archives are read", other.unwrap_or("bare")),
    }
}

/// Reads `(tuuuusa(ayay))`: the size of the content, and the rest.
fn parse_header(bytes: &[u8]) -> Result<(u64, FileMeta)> {
    let signature = VariantTy::new("(tuuuusa(ayay))").expect("the signature is well formed");
    let header = Variant::from_data_with_type(bytes, signature);
    ensure!(header.is_normal_form(), "an object's header is not in normal form");
    let number = |index: usize| u32::from_be(header.child_get::<u32>(index));
    let mode = number(3);
    let target = header.child_get::<String>(5);
    let xattrs = header.child_value(6);
    decode_xattrs(xattrs.data())?;
    match mode & S_IFMT {
        S_IFREG => ensure!(target.is_empty(), "a regular file has a link's target"),
        S_IFLNK => ensure!(!target.is_empty(), "a link has no target"),
        _ => bail!("an object has mode {mode:o}: neither a file nor a link"),
    }
    ensure!(number(4) == 0, "an object is a device");
    let meta = FileMeta { uid: number(1), gid: number(2), mode, target, xattrs: Arc::from(xattrs.data()) };
    Ok((u64::from_be(header.child_get::<u64>(0)), meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(hidden: &[&str], refs: &[(&str, u8)]) -> LegacyLayer {
        LegacyLayer {
            hidden: hidden.iter().map(|path| (*path).to_owned()).collect(),
            refs: refs.iter().map(|(name, number)| ((*name).to_owned(), Checksum([*number; 32]))).collect(),
            commits: refs.iter().map(|(_, number)| (Checksum([*number; 32]), vec![*number])).collect(),
            ..LegacyLayer::default()
        }
    }

    fn chosen(layers: Vec<LegacyLayer>, label: Option<&str>) -> Result<u8> {
        let mut repo = LegacyRepo::default();
        for layer in layers {
            repo.apply(layer);
        }
        Ok(repo.commit(label, "x")?.bytes[0])
    }

    #[test]
    fn the_commit_is_the_labels_or_the_only_refs() {
        let two = || layer(&[], &[("refs/heads/a", 1), ("refs/heads/b/c", 2)]);
        assert_eq!(chosen(vec![layer(&[], &[("refs/heads/a", 1)])], None).unwrap(), 1);
        assert_eq!(chosen(vec![two()], Some(&"02".repeat(32))).unwrap(), 2);
        assert!(chosen(vec![two()], Some(&"03".repeat(32))).is_err());
        let error = format!("{:#}", chosen(vec![two()], None).unwrap_err());
        assert!(error.contains("refs/heads/a, refs/heads/b/c"), "{error}");
        // Whiteouts hide what is below, never what the layer itself brings.
        for hidden in ["", "refs", "refs/heads/b", "refs/heads/b/c"] {
            let upper = layer(&[hidden], &[("refs/heads/a", 3)]);
            assert_eq!(chosen(vec![two(), upper], None).unwrap(), 3, "{hidden}");
        }
        assert!(chosen(vec![two(), layer(&["refs/heads/other"], &[])], None).is_err());
    }

    #[test]
    fn only_archives_are_read() {
        assert!(check_config("[core]\nrepo_version=1\nmode=archive-z2\n").is_ok());
        assert!(check_config("[core]\nmode = archive\n").is_ok());
        for text in ["[core]\nmode=bare-user\n", "[core]\n", ""] {
            assert!(check_config(text).is_err(), "{text}");
        }
    }
}
