//! The image commit: a base, or nothing, with plain layers laid over it.
//!
//! Trees are merged in memory from their dirtree objects, and only those that a layer touches are
//! read: never a checkout. Without layers the image commit stands on the base's own root tree.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow};

use super::derived::{IMPLIED, MetadataWriter};
use super::objects::{Checksum, DirMeta, DirTree, Kind, S_IFDIR, encode_xattrs};
use super::read::ObjectReader;

/// OCI image spec, "Whiteouts".
const WHITEOUT: &str = ".wh.";
/// The same: everything that lower layers have in this directory goes.
const OPAQUE: &str = ".wh..wh..opq";

/// A directory of the merged tree.
#[derive(Debug)]
struct Dir {
    meta: Checksum,
    content: Content,
}

/// What a directory lists.
type Files = BTreeMap<String, Checksum>;
type Dirs = BTreeMap<String, Dir>;

#[derive(Debug)]
enum Content {
    /// As this object has it.
    Untouched(Checksum),
    Changed(Files, Dirs),
}

/// Something in a tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    /// A directory, by its attributes.
    Dir(Checksum),
    /// A file or a link.
    File(Checksum),
}

/// Is shown a path and what is there; gives what shall be there instead.
pub(super) type Change<'a> = &'a mut dyn FnMut(&str, Item) -> Result<Option<Checksum>>;

/// A tree under construction.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    reader: &'a ObjectReader,
    root: Option<Dir>,
}

impl<'a> Merge<'a> {
    /// Starts from a commit's root, or from nothing.
    pub(super) fn new(reader: &'a ObjectReader, base: Option<(Checksum, Checksum)>) -> Self {
        let root = base.map(|(tree, meta)| Dir { meta, content: Content::Untouched(tree) });
        Self { reader, root }
    }

    /// Lays a layer's commit over the tree.
    pub(super) fn apply(&mut self, layer: Checksum) -> Result<()> {
        let commit = self.reader.commit(layer)?;
        let implied: BTreeSet<String> = commit.lists.get(IMPLIED).into_iter().flatten().cloned().collect();
        match &mut self.root {
            Some(root) => {
                if !implied.contains("") {
                    root.meta = commit.meta;
                }
                lay_over(self.reader, root, commit.tree, "", &implied)
            }
            None => {
                let mut root = Dir { meta: commit.meta, content: Content::empty() };
                lay_over(self.reader, &mut root, commit.tree, "", &implied)?;
                self.root = Some(root);
                Ok(())
            }
        }
    }

    /// Removes a file; tells whether it was there.
    pub(super) fn remove_file(&mut self, path: &str) -> Result<bool> {
        let reader = self.reader;
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.dir(parents)? {
            Some(dir) => Ok(dir.open(reader)?.0.remove(name).is_some()),
            None => Ok(false),
        }
    }

    /// The file at a path.
    pub(super) fn file(&mut self, path: &str) -> Result<Option<Checksum>> {
        let reader = self.reader;
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.dir(parents)? {
            Some(dir) => Ok(dir.open(reader)?.0.get(name).copied()),
            None => Ok(None),
        }
    }

    /// Whether something has this top-level name.
    pub(super) fn has_top(&mut self, name: &str) -> Result<bool> {
        let reader = self.reader;
        match self.dir("")? {
            Some(root) => {
                let (files, dirs) = root.open(reader)?;
                Ok(files.contains_key(name) || dirs.contains_key(name))
            }
            None => Ok(false),
        }
    }

    /// Puts a file at the top.
    pub(super) fn put_top_file(&mut self, name: &str, file: Checksum) -> Result<()> {
        let reader = self.reader;
        if let Some(root) = self.dir("")? {
            root.open(reader)?.0.insert(name.to_owned(), file);
        }
        Ok(())
    }

    /// Puts an empty directory at the top.
    pub(super) fn put_top_dir(&mut self, name: &str, tree: Checksum, meta: Checksum) -> Result<()> {
        let reader = self.reader;
        if let Some(root) = self.dir("")? {
            root.open(reader)?.1.insert(name.to_owned(), Dir { meta, content: Content::Untouched(tree) });
        }
        Ok(())
    }

    /// The files below a directory, by their path in it.
    pub(super) fn files_below(&mut self, path: &str) -> Result<BTreeMap<String, Checksum>> {
        let reader = self.reader;
        let mut found = BTreeMap::new();
        if let Some(dir) = self.dir(path)? {
            dir.collect(reader, "", &mut found)?;
        }
        Ok(found)
    }

    /// Shows everything in the tree, and puts what `change` gives in its place.
    pub(super) fn change(&mut self, change: Change<'_>) -> Result<()> {
        let reader = self.reader;
        match &mut self.root {
            Some(root) => root.change(reader, "", change),
            None => Ok(()),
        }
    }

    /// The version of the kernel in the tree.
    pub(super) fn kernel(&mut self) -> Result<Option<String>> {
        let reader = self.reader;
        let Some(modules) = self.dir("usr/lib/modules")? else { return Ok(None) };
        for (version, dir) in modules.open(reader)?.1 {
            if dir.open(reader)?.0.contains_key("vmlinuz") {
                return Ok(Some(version.clone()));
            }
        }
        Ok(None)
    }

    fn dir(&mut self, path: &str) -> Result<Option<&mut Dir>> {
        let Some(mut dir) = self.root.as_mut() else { return Ok(None) };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match dir.open(self.reader)?.1.get_mut(name) {
                Some(next) => dir = next,
                None => return Ok(None),
            }
        }
        Ok(Some(dir))
    }

    /// Writes the changed directories; gives root tree and root attributes.
    pub(super) fn write(self, out: &mut MetadataWriter<'_>) -> Result<(Checksum, Checksum)> {
        let root = self.root.ok_or_else(|| anyhow!("the image has no layers"))?;
        let meta = root.meta;
        Ok((root.write(out)?, meta))
    }
}

impl Content {
    fn empty() -> Self {
        Self::Changed(BTreeMap::new(), BTreeMap::new())
    }
}

impl Dir {
    fn open(&mut self, reader: &ObjectReader) -> Result<(&mut Files, &mut Dirs)> {
        if let Content::Untouched(tree) = self.content {
            let DirTree { files, dirs } = reader.tree(tree)?;
            let dirs = dirs
                .into_iter()
                .map(|(name, (tree, meta))| (name, Dir { meta, content: Content::Untouched(tree) }))
                .collect();
            self.content = Content::Changed(files, dirs);
        }
        match &mut self.content {
            Content::Changed(files, dirs) => Ok((files, dirs)),
            Content::Untouched(_) => unreachable!("it was read just now"),
        }
    }

    fn collect(
        &mut self,
        reader: &ObjectReader,
        path: &str,
        found: &mut BTreeMap<String, Checksum>,
    ) -> Result<()> {
        let (files, dirs) = self.open(reader)?;
        found.extend(files.iter().map(|(name, file)| (join(path, name), *file)));
        dirs.iter_mut().try_for_each(|(name, dir)| dir.collect(reader, &join(path, name), found))
    }

    fn change(&mut self, reader: &ObjectReader, path: &str, change: Change<'_>) -> Result<()> {
        if let Some(meta) = change(path, Item::Dir(self.meta))? {
            self.meta = meta;
        }
        let (files, dirs) = self.open(reader)?;
        for (name, file) in files {
            if let Some(new) = change(&join(path, name), Item::File(*file))? {
                *file = new;
            }
        }
        for (name, dir) in dirs {
            dir.change(reader, &join(path, name), change)?;
        }
        Ok(())
    }

    fn write(self, out: &mut MetadataWriter<'_>) -> Result<Checksum> {
        match self.content {
            Content::Untouched(tree) => Ok(tree),
            Content::Changed(files, dirs) => {
                let mut tree = DirTree { files, dirs: BTreeMap::new() };
                for (name, dir) in dirs {
                    let meta = dir.meta;
                    tree.dirs.insert(name, (dir.write(out)?, meta));
                }
                out.put(&tree.encode(), Kind::DirTree)
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn lay_over(
    reader: &ObjectReader,
    below: &mut Dir,
    tree: Checksum,
    path: &str,
    implied: &BTreeSet<String>,
) -> Result<()> {
    let above = reader.tree(tree)?;
    if above.files.contains_key(OPAQUE) {
        below.content = Content::empty();
    }
    let (files, dirs) = below.open(reader)?;
    // Whiteouts hide what is below this layer, never what the layer itself brings.
    for hidden in above.files.keys().filter_map(|name| name.strip_prefix(WHITEOUT)) {
        files.remove(hidden);
        dirs.remove(hidden);
    }
    for (name, file) in above.files.iter().filter(|(name, _)| !name.starts_with(WHITEOUT)) {
        dirs.remove(name);
        files.insert(name.clone(), *file);
    }
    for (name, (child, meta)) in &above.dirs {
        files.remove(name);
        let path = join(path, name);
        let dir = dirs.entry(name.clone()).or_insert_with(|| Dir { meta: *meta, content: Content::empty() });
        if !implied.contains(&path) {
            dir.meta = *meta;
        }
        lay_over(reader, dir, *child, &path, implied)?;
    }
    Ok(())
}

/// Attributes of a directory that root made and everybody may enter.
pub(super) fn plain_dir(mode: u32) -> DirMeta {
    DirMeta { uid: 0, gid: 0, mode: S_IFDIR | mode, xattrs: encode_xattrs(&Vec::new()) }
}
