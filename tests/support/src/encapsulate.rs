//! An OSTree commit as tar layers: the format of OSTree-native container images, version 1.
//!
//! Every layer starts with the skeleton of a `bare-split-xattrs` repo below `sysroot/ostree/repo`.
//! The first layer holds the commit object, every directory's metadata and the directories
//! themselves; it also holds the content objects that no chunk takes. Each further layer, a
//! *chunk*, holds content objects only. A content object is three things in a row: its extended
//! attributes, the object, and one hard link for each path of the tree that it stands at.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context as _, Result};
use ostree::gio;
use ostree::glib;
use sha2::{Digest as _, Sha256};

use crate::entry::{Body, Entry, Node};

/// How extended attributes of content objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XattrStyle {
    /// Each distinct value once per layer as `.file-xattrs`, and a hard link to it for each object.
    Shared,
    /// A regular `.file-xattrs-link` for each object, and PAX records besides.
    Inline,
}

/// One layer of the base, before it is written.
#[derive(Debug)]
pub struct BaseLayer {
    /// For the image's history.
    pub title: String,
    /// What it holds.
    pub entries: Vec<Entry>,
}

/// Says which chunk an object goes to: gets the first path it stands at; `None` leaves it in the
/// first layer.
pub type ChunkOf<'a> = &'a dyn Fn(&str) -> Option<usize>;

/// A path's chunk among `chunks`: the same path goes to the same chunk in every version of a tree,
/// so that an update changes few layers.
pub fn chunk_by_path(path: &str, chunks: usize) -> Option<usize> {
    let hash = Sha256::digest(path.as_bytes());
    let number = u64::from_be_bytes(hash[..8].try_into().expect("a digest has 32 bytes"));
    (chunks > 0).then(|| (number % chunks as u64) as usize)
}

/// The layers of `commit`: the first, then `chunks` more.
pub fn encapsulate(
    repo: &ostree::Repo,
    commit: &str,
    chunks: usize,
    chunk_of: ChunkOf<'_>,
    style: XattrStyle,
) -> Result<Vec<BaseLayer>> {
    let mut walk = Walk { repo, style, entries: Vec::new(), seen: HashSet::new(), objects: BTreeMap::new() };
    walk.entries.push(Entry::dir("."));
    walk.entries.extend(skeleton());
    let object = repo.load_variant(ostree::ObjectType::Commit, commit)?;
    walk.entries.push(metadata_entry(commit, "commit", &object));
    if let Some(detached) = repo.read_commit_detached_metadata(commit, gio::Cancellable::NONE)? {
        walk.entries.push(metadata_entry(commit, "commitmeta", &detached));
    }
    let tree = hex::encode(object.child_value(6).data_as_bytes());
    let meta = hex::encode(object.child_value(7).data_as_bytes());
    walk.directory("", &tree, &meta).with_context(|| format!("Walking commit {commit}"))?;
    let Walk { entries, objects, .. } = walk;

    let mut layers = vec![BaseLayer { title: format!("ostree export of commit {commit}"), entries }];
    layers
        .extend((0..chunks).map(|index| BaseLayer { title: format!("chunk {index}"), entries: skeleton() }));
    let mut written: Vec<HashSet<String>> = vec![HashSet::new(); layers.len()];
    for (checksum, paths) in objects {
        let index = chunk_of(&paths[0]).map_or(0, |chunk| chunk + 1);
        let layer = layers.get_mut(index).with_context(|| format!("There is no chunk for {}", paths[0]))?;
        let entries = content_entries(repo, &checksum, &paths, style, &mut written[index])
            .with_context(|| format!("Reading object {checksum} ({})", paths[0]))?;
        layer.entries.extend(entries);
    }
    Ok(layers)
}

struct Walk<'a> {
    repo: &'a ostree::Repo,
    style: XattrStyle,
    entries: Vec<Entry>,
    seen: HashSet<String>,
    /// Content objects and the paths that they stand at.
    objects: BTreeMap<String, Vec<String>>,
}

impl Walk<'_> {
    fn metadata(&mut self, checksum: &str, kind: ostree::ObjectType, suffix: &str) -> Result<glib::Variant> {
        let object = self.repo.load_variant(kind, checksum)?;
        if self.seen.insert(format!("{checksum}.{suffix}")) {
            self.entries.push(metadata_entry(checksum, suffix, &object));
        }
        Ok(object)
    }

    /// `path` is where the directory stands in an image: empty for the root.
    fn directory(&mut self, path: &str, tree: &str, meta: &str) -> Result<()> {
        let dirmeta = self.metadata(meta, ostree::ObjectType::DirMeta, "dirmeta")?;
        // The skeleton has these two already.
        if !path.is_empty() && path != "sysroot" {
            let meta = ostree::DirMetaParsed::from_variant(&dirmeta)?;
            let mut entry = Entry::dir(path).mode(meta.mode & 0o7777).owner(meta.uid, meta.gid);
            if self.style == XattrStyle::Inline {
                entry.xattrs = pax_xattrs(meta.xattrs);
            }
            self.entries.push(entry);
        }
        let dirtree = self.metadata(tree, ostree::ObjectType::DirTree, "dirtree")?;
        let (files, directories) = dirtree.try_get::<ostree::TreeVariantType>()?;
        for (name, checksum) in files {
            self.objects.entry(hex::encode(checksum)).or_default().push(child(path, &name));
        }
        for (name, tree, meta) in directories {
            self.directory(&child(path, &name), &hex::encode(tree), &hex::encode(meta))?;
        }
        if path.is_empty() && !self.entries.iter().any(|entry| entry.path == b"var/tmp") {
            self.entries.push(Entry::dir("var/tmp").mode(0o1777));
        }
        Ok(())
    }
}

/// Where `name` in `parent` stands in an image: there `/usr/etc` is `/etc`, as in a running system.
fn child(parent: &str, name: &str) -> String {
    match (parent, name) {
        ("", name) => name.to_owned(),
        ("usr", "etc") => "etc".to_owned(),
        (parent, name) => format!("{parent}/{name}"),
    }
}

const REPO: &str = "sysroot/ostree/repo";

/// The repo that every layer brings along, without objects.
pub fn skeleton() -> Vec<Entry> {
    let mut entries: Vec<Entry> = ["sysroot", "sysroot/ostree", REPO].map(Entry::dir).into();
    entries.push(Entry::dir(format!("{REPO}/objects")));
    entries.extend((0..=255).map(|byte| Entry::dir(format!("{REPO}/objects/{byte:02x}"))));
    for name in
        ["extensions", "refs", "refs/heads", "refs/mirrors", "refs/remotes", "state", "tmp", "tmp/cache"]
    {
        entries.push(Entry::dir(format!("{REPO}/{name}")));
    }
    entries.push(Entry::file(format!("{REPO}/config"), "[core]\nrepo_version=1\nmode=bare-split-xattrs\n"));
    entries
}

/// Where an object of the embedded repo stands.
pub fn object_path(checksum: &str, suffix: &str) -> String {
    format!("{REPO}/objects/{}/{}.{suffix}", &checksum[..2], &checksum[2..])
}

fn metadata_entry(checksum: &str, suffix: &str, object: &glib::Variant) -> Entry {
    Entry::file(object_path(checksum, suffix), object.data_as_bytes())
}

/// PAX carries what other tools may restore; SELinux labels are made by the host's own policy.
fn pax_xattrs(xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let named = xattrs
        .into_iter()
        .map(|(name, value)| (String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned(), value));
    named.filter(|(name, _)| name != "security.selinux").collect()
}

/// One content object: attributes, object, links.
fn content_entries(
    repo: &ostree::Repo,
    checksum: &str,
    paths: &[String],
    style: XattrStyle,
    written: &mut HashSet<String>,
) -> Result<Vec<Entry>> {
    let (info, xattrs) = repo.query_file(checksum, gio::Cancellable::NONE)?;
    let bytes = xattrs.data_as_bytes();
    let link = object_path(checksum, "file-xattrs-link");
    let mut entries = Vec::new();
    match style {
        XattrStyle::Shared => {
            let name = hex::encode(Sha256::digest(&bytes));
            let shared = object_path(&name, "file-xattrs");
            if written.insert(name) {
                entries.push(Entry::file(&shared, &bytes));
            }
            entries.push(Entry::hard_link(link, shared));
        }
        XattrStyle::Inline => entries.push(Entry::file(link, &bytes)),
    }
    let mode = info.attribute_uint32("unix::mode") & 0o7777;
    let (uid, gid) = (info.attribute_uint32("unix::uid"), info.attribute_uint32("unix::gid"));
    let is_link = info.file_type() == gio::FileType::SymbolicLink;
    let path = object_path(checksum, "file");
    let mut object = if is_link {
        let target = info.symlink_target().context("A symbolic link has no target")?;
        Entry::symlink(&path, target.to_string_lossy().as_bytes())
    } else {
        let mut file = Entry::file(&path, "");
        file.node = Node::File(Body::Object(checksum.to_owned(), info.size() as u64));
        file
    };
    object = object.mode(mode).owner(uid, gid);
    if style == XattrStyle::Inline {
        object.xattrs = pax_xattrs(xattrs.try_get()?);
    }
    let is_empty = !is_link && info.size() == 0;
    entries.push(object);
    for name in paths {
        // Exporters do not link empty files: container storage counts links of one file.
        let entry = if is_empty { Entry::file(name, "") } else { Entry::hard_link(name, &path) };
        entries.push(entry.mode(mode).owner(uid, gid));
    }
    Ok(entries)
}
