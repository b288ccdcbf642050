//! A manifest as a commit on top of an image's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use camino::{Utf8Path, Utf8PathBuf};
use fn_error_context::context;
use ostree::gio::{self, prelude::*};
use ostree::{MutableTree, ObjectType, glib};

use super::compose::{Composed, Held};
use super::target::CommitTree;
use crate::host::pull::objects::{DirMeta, S_IFDIR, S_IFREG, encode_xattrs, xattrs_variant};
use crate::host::selinux::{Policy, attribute};
use crate::host::status::IMAGE_COMMIT;
use crate::model::digest::Digest;
use crate::model::manifest::{CONTENT_FOLDER, DEFAULT_FOLDER, MANIFEST_PATH, Manifest, Node, Parent, Scope};

/// Only root looks into what is carried.
const CARRIED_FOLDER: u32 = 0o700;
const CARRIED_FILE: u32 = 0o600;
/// Commit metadata of the image that is not true of a commit derived from it.
const NOT_CARRIED: &str = "ostree.composefs";

/// Writes a commit.
pub(super) struct Writer<'a> {
    repo: &'a ostree::Repo,
    tree: &'a CommitTree,
    policy: &'a Policy,
    held: &'a dyn Held,
    objects: Objects<'a>,
    root: MutableTree,
    folder_metadata: HashMap<(u32, u32, u32, Option<String>), String>,
    folders: HashMap<String, MutableTree>,
    parents: BTreeMap<Utf8PathBuf, Parent>,
    /// Objects that were not known before.
    pub(super) written: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        repo: &'a ostree::Repo,
        tree: &'a CommitTree,
        policy: &'a Policy,
        held: &'a dyn Held,
        objects: Objects<'a>,
        image_commit: &str,
    ) -> Result<Self> {
        Ok(Self {
            repo,
            tree,
            policy,
            held,
            objects,
            root: MutableTree::from_commit(repo, image_commit)?,
            folder_metadata: HashMap::new(),
            folders: HashMap::new(),
            parents: BTreeMap::new(),
            written: 0,
        })
    }

    /// Writes the objects of the tree, in the repo's transaction. The manifest then names them. Gives
    /// the tree for [`Writer::commit`].
    #[context("Writing the derived tree")]
    pub(super) fn write(&mut self, made: &mut Composed) -> Result<ostree::RepoFile> {
        self.parents =
            made.manifest.parents.iter().map(|parent| (parent.path.clone(), parent.clone())).collect();
        self.remove_stale()?;
        // Folders of the config before what is in them: an entry's path sorts before those below it.
        for index in 0..made.manifest.entries.len() {
            let path = made.manifest.entries[index].path.clone();
            let node = made.manifest.entries[index].node.clone();
            let object = self.put(&path, &node, made).with_context(|| format!("Writing {path}"))?;
            let entry = &mut made.manifest.entries[index];
            if let Node::File { object: of_entry, .. } = &mut entry.node {
                *of_entry = object;
            }
            if let Some(Node::File { object: Some(object), .. }) = &entry.default {
                let place = format!("{DEFAULT_FOLDER}{path}");
                self.file_at(&place, object)?;
            }
        }
        let bytes = manifest_bytes(&made.manifest)?;
        let object = self.carried_file(MANIFEST_PATH, &bytes)?;
        self.file_at(MANIFEST_PATH, &object)?;
        let root = self.repo.write_mtree(&self.root, gio::Cancellable::NONE)?;
        Ok(root
            .downcast_ref::<ostree::RepoFile>()
            .context("The written tree is no file of the repo")?
            .clone())
    }

    /// Puts an entry into the tree. Gives the object that holds a file's content.
    fn put(&mut self, path: &Utf8Path, node: &Node, made: &Composed) -> Result<Option<String>> {
        if Scope::of(path) == Some(Scope::Var) {
            let Node::File { digest, .. } = node else { return Ok(None) };
            let place = format!("{CONTENT_FOLDER}/{}", digest.hex());
            let known = self.objects.carried.get(digest).filter(|object| self.has_file(object));
            let object = match known.map(|object| (*object).to_owned()) {
                Some(object) => object,
                None => {
                    let content = self.content(digest, made)?;
                    self.carried_file(&place, &content)?
                }
            };
            self.file_at(&place, &object)?;
            return Ok(Some(object));
        }
        let place = self.tree.place(path);
        match node {
            Node::File { digest, mode, uid, gid, label, .. } => {
                let known = self.objects.previous.and_then(|previous| previous.entry(path));
                let known =
                    known.filter(|known| known.node.is_same(node)).and_then(|known| object_of(&known.node));
                let object = match known.filter(|object| self.has_file(object)) {
                    Some(object) => object,
                    None => {
                        let content = self.content(digest, made)?;
                        self.write_file(*uid, *gid, *mode, label.as_deref(), &content)?
                    }
                };
                self.file_at(&place, &object)?;
                Ok(Some(object))
            }
            Node::Symlink { target, uid, gid, label } => {
                let xattrs = xattrs_variant(xattrs(label.as_deref()));
                let object = self.repo.write_symlink(
                    None,
                    *uid,
                    *gid,
                    Some(&xattrs),
                    target,
                    gio::Cancellable::NONE,
                )?;
                self.file_at(&place, &object)?;
                Ok(None)
            }
            Node::Directory { mode, uid, gid, label } => {
                let metadata = self.folder_metadata(*uid, *gid, *mode, label.as_deref())?;
                let folder = self.folder(&place)?;
                folder.set_metadata_checksum(&metadata);
                Ok(None)
            }
            Node::Absent => {
                let (parent, name) = place.rsplit_once('/').unwrap_or(("", &place));
                self.folder(parent)?.remove(name, true)?;
                Ok(None)
            }
        }
    }

    /// What an image that was made from a host's own commit brings along of ours.
    fn remove_stale(&mut self) -> Result<()> {
        let Some((folder, _)) = MANIFEST_PATH.rsplit_once('/') else { return Ok(()) };
        let folder = self.folder(folder)?;
        for path in [MANIFEST_PATH, CONTENT_FOLDER, DEFAULT_FOLDER] {
            if let Some(name) = Utf8Path::new(path).file_name() {
                folder.remove(name, true)?;
            }
        }
        Ok(())
    }

    fn has_file(&self, object: &str) -> bool {
        self.repo.has_object(ObjectType::File, object, gio::Cancellable::NONE).unwrap_or(false)
    }

    fn content(&self, digest: &Digest, made: &Composed) -> Result<Vec<u8>> {
        match made.contents.get(digest) {
            Some(blob) => Ok(blob.bytes().to_vec()),
            None => self.held.read(digest, self.objects.any.get(digest).copied()),
        }
    }

    fn carried_file(&mut self, place: &str, content: &[u8]) -> Result<String> {
        let label = self.policy.label(&format!("/{place}"), CARRIED_FILE | S_IFREG)?;
        self.write_file(0, 0, CARRIED_FILE, label.as_deref(), content)
    }

    fn write_file(
        &mut self,
        uid: u32,
        gid: u32,
        mode: u32,
        label: Option<&str>,
        content: &[u8],
    ) -> Result<String> {
        self.written += 1;
        let object = self.repo.write_regfile_inline(
            None,
            uid,
            gid,
            mode | S_IFREG,
            Some(&xattrs_variant(xattrs(label))),
            content,
            gio::Cancellable::NONE,
        )?;
        Ok(object.into())
    }

    fn file_at(&mut self, place: &str, object: &str) -> Result<()> {
        let (parent, name) = place.rsplit_once('/').unwrap_or(("", place));
        Ok(self.folder(parent)?.replace_file(name, object)?)
    }

    /// The folder at a place of the commit, made where it is missing.
    fn folder(&mut self, place: &str) -> Result<MutableTree> {
        if place.is_empty() {
            return Ok(self.root.clone());
        }
        if let Some(known) = self.folders.get(place) {
            return Ok(known.clone());
        }
        let (above, name) = place.rsplit_once('/').unwrap_or(("", place));
        let parent = self.folder(above)?;
        let folder = match parent.lookup(name) {
            Ok((_, Some(folder))) => folder,
            // A name that the config makes a folder, or a folder above an entry.
            _ => {
                let metadata = self.metadata_of_missing(place)?;
                let folder = parent.ensure_dir(name)?;
                folder.set_metadata_checksum(&metadata);
                folder
            }
        };
        self.folders.insert(place.to_owned(), folder.clone());
        Ok(folder)
    }

    fn metadata_of_missing(&mut self, place: &str) -> Result<String> {
        if place.starts_with("usr/lib/mcd") {
            let label = self.policy.label(&format!("/{place}"), CARRIED_FOLDER | S_IFDIR)?;
            return self.folder_metadata(0, 0, CARRIED_FOLDER, label.as_deref());
        }
        let path = match place.strip_prefix("usr/etc/") {
            Some(rest) => format!("/etc/{rest}"),
            None => format!("/{place}"),
        };
        let parent = self.parents.get(Utf8Path::new(&path)).cloned();
        let (uid, gid, mode, label) =
            parent.map_or((0, 0, 0o755, None), |parent| (parent.uid, parent.gid, parent.mode, parent.label));
        self.folder_metadata(uid, gid, mode, label.as_deref())
    }

    fn folder_metadata(&mut self, uid: u32, gid: u32, mode: u32, label: Option<&str>) -> Result<String> {
        let key = (uid, gid, mode, label.map(str::to_owned));
        if let Some(known) = self.folder_metadata.get(&key) {
            return Ok(known.clone());
        }
        let variant = DirMeta { uid, gid, mode: mode | S_IFDIR, xattrs: xattrs(label) }.variant();
        let checksum =
            self.repo.write_metadata(ObjectType::DirMeta, None, &variant, gio::Cancellable::NONE)?;
        let checksum = checksum.to_string();
        self.folder_metadata.insert(key, checksum.clone());
        Ok(checksum)
    }

    /// Writes the commit of that tree. Not in the same transaction: that gives objects their names in
    /// no order, and a kill in between would leave a commit whose tree is not all there.
    #[context("Writing the derived commit")]
    pub(super) fn commit(&self, root: &ostree::RepoFile, image_commit: &str) -> Result<String> {
        let (image, _) = self.repo.load_commit(image_commit)?;
        let commit = self.repo.write_commit_with_time(
            None,
            Some("Image with its configuration"),
            None,
            Some(&metadata(&image, image_commit)),
            root,
            ostree::commit_get_timestamp(&image),
            gio::Cancellable::NONE,
        )?;
        Ok(commit.into())
    }
}

/// Objects that an earlier manifest names.
#[derive(Default)]
pub(super) struct Objects<'a> {
    previous: Option<&'a Manifest>,
    /// By content, whatever their owner, mode and label.
    any: HashMap<&'a Digest, &'a str>,
    /// By content, as they are carried for `/var`. Only of the same image: another may label them
    /// otherwise.
    carried: HashMap<&'a Digest, &'a str>,
}

impl<'a> Objects<'a> {
    pub(super) fn of(previous: Option<&'a Manifest>, same_image: bool) -> Self {
        let mut objects = Self { previous, ..Self::default() };
        for entry in previous.iter().flat_map(|previous| &previous.entries) {
            if let Node::File { digest, object: Some(object), .. } = &entry.node {
                objects.any.insert(digest, object);
                if same_image && Scope::of(&entry.path) == Some(Scope::Var) {
                    objects.carried.insert(digest, object);
                }
            }
        }
        objects
    }
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("written", &self.written).finish_non_exhaustive()
    }
}

fn object_of(node: &Node) -> Option<String> {
    match node {
        Node::File { object, .. } => object.clone(),
        _ => None,
    }
}

/// The manifest as it stands in the commit.
pub(super) fn manifest_bytes(manifest: &Manifest) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(manifest).context("Writing the manifest as JSON")?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Serialised attributes: the label, if there is one.
fn xattrs(label: Option<&str>) -> Arc<[u8]> {
    encode_xattrs(&label.map(attribute).into_iter().collect())
}

/// The image commit's metadata, without what is not true of this one, and which commit it was. Sorted:
/// the same image and config are the same commit everywhere.
fn metadata(image: &glib::Variant, image_commit: &str) -> glib::Variant {
    let mut pairs: BTreeMap<String, glib::Variant> = BTreeMap::new();
    for pair in image.child_value(0).iter() {
        let key = pair.child_value(0).str().unwrap_or_default().to_owned();
        if !key.starts_with(NOT_CARRIED) {
            pairs.insert(key, pair.child_value(1));
        }
    }
    pairs.insert(IMAGE_COMMIT.to_owned(), image_commit.to_variant().to_variant());
    let entries = pairs.iter().map(|(key, value)| glib::Variant::from_dict_entry(&key.to_variant(), value));
    glib::Variant::array_from_iter_with_type(
        glib::VariantTy::new("{sv}").expect("the type of a dictionary's entry is one"),
        entries,
    )
}
