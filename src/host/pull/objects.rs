//! OSTree objects as bytes: names, checksums, and the GVariant forms of metadata.
//!
//! * A metadata object (commit, dirtree, dirmeta) is named by the SHA-256 of its bytes.
//! * A content object is named by the SHA-256 of `be32(len V) ‖ 0u32 ‖ V ‖ data`, where V is the
//!   GVariant `(uuuusa(ayay))`: uid, gid, mode (with the type), 0, link target, extended
//!   attributes; integers are big-endian. Links have no data.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use ostree::glib::{FixedSizeVariantArray, Variant, VariantTy};
use ostree::prelude::*;
use sha2::{Digest as _, Sha256};

/// The type bits of a mode.
pub(in crate::host) const S_IFMT: u32 = 0o170_000;
/// A directory.
pub(in crate::host) const S_IFDIR: u32 = 0o040_000;
/// A regular file.
pub(in crate::host) const S_IFREG: u32 = 0o100_000;
/// A symbolic link.
pub(in crate::host) const S_IFLNK: u32 = 0o120_000;

/// The 32 raw bytes of a checksum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::host) struct Checksum(pub(in crate::host) [u8; 32]);

impl Checksum {
    /// The checksum of these bytes: the name of a metadata object.
    pub(in crate::host) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// From 64 lower-case hex digits.
    pub(in crate::host) fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || text.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let mut raw = [0; 32];
        hex::decode_to_slice(text, &mut raw).ok()?;
        Some(Self(raw))
    }

    /// From the bytes in a dirtree or a commit.
    pub(in crate::host) fn from_slice(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::host) enum Kind {
    Commit,
    CommitMeta,
    DirTree,
    DirMeta,
    File,
}

impl Kind {
    /// The suffix of its file in a `bare` repo.
    pub(in crate::host) fn suffix(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::CommitMeta => "commitmeta",
            Self::DirTree => "dirtree",
            Self::DirMeta => "dirmeta",
            Self::File => "file",
        }
    }
}

/// The place of an object below `objects/`.
pub(in crate::host) fn loose_path(checksum: Checksum, kind: Kind) -> String {
    let hex = hex::encode(checksum.0);
    format!("{}/{}.{}", &hex[..2], &hex[2..], kind.suffix())
}

/// What the header of a content object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct FileMeta {
    pub(in crate::host) uid: u32,
    pub(in crate::host) gid: u32,
    /// With the type: a regular file or a link.
    pub(in crate::host) mode: u32,
    /// Where a link points; empty for a file.
    pub(in crate::host) target: String,
    /// Serialised `a(ayay)`.
    pub(in crate::host) xattrs: Arc<[u8]>,
}

impl FileMeta {
    /// Whether it is a symbolic link.
    pub(in crate::host) fn is_link(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK
    }

    /// A hasher that has taken the header; the data comes next.
    pub(in crate::host) fn hasher(&self) -> Sha256 {
        let header = self.header();
        let length =
            u32::try_from(header.len()).expect("extended attributes and targets are bounded far below 4 GiB");
        let mut hasher = Sha256::new();
        hasher.update(length.to_be_bytes());
        hasher.update([0; 4]);
        hasher.update(&header);
        hasher
    }

    /// `(uuuusa(ayay))`, written by hand because it is made for every file of an image: four
    /// integers, the string with its NUL, the array (alignment 1), and one framing offset, the end
    /// of the string, whose width depends on the size of the whole.
    fn header(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.target.len() + 1 + self.xattrs.len() + 8);
        for number in [self.uid, self.gid, self.mode, 0] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(self.target.as_bytes());
        bytes.push(0);
        let end = bytes.len() as u64;
        bytes.extend_from_slice(&self.xattrs);
        let width = offset_width(bytes.len());
        bytes.extend_from_slice(&end.to_le_bytes()[..width]);
        bytes
    }
}

/// The width of GVariant framing offsets in a container whose `body` bytes need one more offset.
fn offset_width(body: usize) -> usize {
    match body {
        0..=0xfe => 1,
        0xff..=0xfffd => 2,
        0xfffe..=0xffff_fffb => 4,
        _ => 8,
    }
}

/// A sorted list of extended attributes: name without NUL, value.
pub(in crate::host) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Serialises extended attributes as `a(ayay)`, sorted by name.
pub(in crate::host) fn encode_xattrs(xattrs: &Xattrs) -> Arc<[u8]> {
    let mut sorted: Vec<_> = xattrs.iter().collect();
    sorted.sort();
    let pairs = sorted.into_iter().map(|(name, value)| {
        let mut name = name.clone();
        name.push(0);
        Variant::tuple_from_iter([bytes_variant(&name), bytes_variant(value)])
    });
    let array = Variant::array_from_iter_with_type(ty("(ayay)"), pairs);
    Arc::from(array.data())
}

/// Serialised extended attributes as libostree takes them. Owned: a variant keeps what it is made from, and
/// the binding would let it outlive a borrowed one.
pub(in crate::host) fn xattrs_variant(bytes: Arc<[u8]>) -> Variant {
    Variant::from_data_with_type(bytes, ty("a(ayay)"))
}

/// Reads a serialised `a(ayay)`; anything but its one normal form is refused, so that two spellings
/// of the same attributes cannot exist.
pub(in crate::host) fn decode_xattrs(bytes: &[u8]) -> Result<Xattrs> {
    let variant = Variant::from_data_with_type(bytes, ty("a(ayay)"));
    ensure!(variant.is_normal_form(), "extended attributes are not a GVariant a(ayay) in normal form");
    let mut result = Vec::with_capacity(variant.n_children());
    for pair in variant.iter() {
        let (name, value) = (pair.child_value(0), pair.child_value(1));
        let (name, value) = (fixed(&name)?, fixed(&value)?);
        let Some((0, name)) = name.split_last() else {
            return Err(anyhow!("the name of an extended attribute does not end with NUL"));
        };
        ensure!(!name.is_empty() && !name.contains(&0), "an extended attribute has an empty or broken name");
        result.push((name.to_vec(), value.to_vec()));
    }
    Ok(result)
}

/// What a dirmeta object says: `(uuua(ayay))`, integers big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct DirMeta {
    pub(in crate::host) uid: u32,
    pub(in crate::host) gid: u32,
    /// With the type.
    pub(in crate::host) mode: u32,
    pub(in crate::host) xattrs: Arc<[u8]>,
}

impl DirMeta {
    /// The object's bytes.
    pub(in crate::host) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.xattrs.len());
        for number in [self.uid, self.gid, self.mode] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        // The only member of variable size is the last: a tuple needs no framing offset then.
        bytes.extend_from_slice(&self.xattrs);
        bytes
    }

    /// The object as libostree takes it.
    pub(in crate::host) fn variant(&self) -> Variant {
        Variant::from_data_with_type(self.encode(), ty("(uuua(ayay))"))
    }

    /// Reads the object.
    pub(in crate::host) fn decode(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() >= 12, "a dirmeta object of {} bytes is too short", bytes.len());
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let meta = Self { uid: number(0), gid: number(4), mode: number(8), xattrs: Arc::from(&bytes[12..]) };
        ensure!(meta.mode & S_IFMT == S_IFDIR, "a dirmeta object has mode {:o}: not a directory", meta.mode);
        decode_xattrs(&meta.xattrs)?;
        Ok(meta)
    }
}

/// What a dirtree object lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::host) struct DirTree {
    /// Files and links.
    pub(in crate::host) files: BTreeMap<String, Checksum>,
    /// Directories: their dirtree and dirmeta.
    pub(in crate::host) dirs: BTreeMap<String, (Checksum, Checksum)>,
}

impl DirTree {
    /// The object's bytes: `(a(say)a(sayay))`, both sorted by name.
    pub(in crate::host) fn encode(&self) -> Vec<u8> {
        let files = self
            .files
            .iter()
            .map(|(name, sum)| Variant::tuple_from_iter([name.as_str().to_variant(), bytes_variant(&sum.0)]));
        let dirs = self.dirs.iter().map(|(name, (tree, meta))| {
            Variant::tuple_from_iter([
                name.as_str().to_variant(),
                bytes_variant(&tree.0),
                bytes_variant(&meta.0),
            ])
        });
        let files = Variant::array_from_iter_with_type(ty("(say)"), files);
        let dirs = Variant::array_from_iter_with_type(ty("(sayay)"), dirs);
        Variant::tuple_from_iter([files, dirs]).data().to_vec()
    }

    /// Reads the object; names that would leave the directory are refused.
    pub(in crate::host) fn decode(bytes: &[u8]) -> Result<Self> {
        let variant = Variant::from_data_with_type(bytes, ty("(a(say)a(sayay))"));
        ensure!(variant.is_normal_form(), "a dirtree object is not in normal form");
        let mut tree = Self::default();
        for entry in variant.child_value(0).iter() {
            let name = entry_name(&entry)?;
            tree.files.insert(name, checksum_at(&entry, 1)?);
        }
        for entry in variant.child_value(1).iter() {
            let name = entry_name(&entry)?;
            ensure!(!tree.files.contains_key(&name), "a dirtree names '{name}' twice");
            tree.dirs.insert(name, (checksum_at(&entry, 1)?, checksum_at(&entry, 2)?));
        }
        Ok(tree)
    }
}

fn entry_name(entry: &Variant) -> Result<String> {
    let name = entry.child_value(0);
    let name = name.str().ok_or_else(|| anyhow!("a dirtree entry has no name"))?;
    ensure!(
        !name.is_empty() && name != "." && name != ".." && !name.contains('/'),
        "a dirtree has an entry named '{name}'"
    );
    Ok(name.to_owned())
}

fn checksum_at(entry: &Variant, index: usize) -> Result<Checksum> {
    let value = entry.child_value(index);
    Checksum::from_slice(fixed(&value)?).ok_or_else(|| anyhow!("a checksum in a dirtree is not 32 bytes"))
}

/// A commit object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::host) struct Commit {
    /// Metadata with string values, sorted by key. All that we write.
    pub(in crate::host) strings: BTreeMap<String, String>,
    /// Metadata with lists of strings.
    pub(in crate::host) lists: BTreeMap<String, Vec<String>>,
    /// Seconds since the epoch.
    pub(in crate::host) timestamp: u64,
    /// The root directory's dirtree.
    pub(in crate::host) tree: Checksum,
    /// The root directory's dirmeta.
    pub(in crate::host) meta: Checksum,
}

impl Commit {
    /// The object's bytes: `(a{sv}aya(say)sstayay)` without parent, related objects, subject, body.
    pub(in crate::host) fn encode(&self) -> Vec<u8> {
        let mut metadata: BTreeMap<&str, Variant> = BTreeMap::new();
        metadata.extend(self.strings.iter().map(|(key, value)| (key.as_str(), value.to_variant())));
        metadata.extend(self.lists.iter().map(|(key, value)| (key.as_str(), value.to_variant())));
        let entries = metadata
            .into_iter()
            .map(|(key, value)| Variant::from_dict_entry(&key.to_variant(), &value.to_variant()));
        Variant::tuple_from_iter([
            Variant::array_from_iter_with_type(ty("{sv}"), entries),
            bytes_variant(&[]),
            Variant::array_from_iter_with_type(ty("(say)"), std::iter::empty::<Variant>()),
            "".to_variant(),
            "".to_variant(),
            self.timestamp.to_be().to_variant(),
            bytes_variant(&self.tree.0),
            bytes_variant(&self.meta.0),
        ])
        .data()
        .to_vec()
    }

    /// Reads any commit object; metadata of other types than string and list of strings is left out.
    pub(in crate::host) fn decode(bytes: &[u8]) -> Result<Self> {
        let variant = Variant::from_data_with_type(bytes, ty("(a{sv}aya(say)sstayay)"));
        ensure!(variant.is_normal_form(), "a commit object is not in normal form");
        let mut commit = Self {
            strings: BTreeMap::new(),
            lists: BTreeMap::new(),
            timestamp: u64::from_be(variant.child_get::<u64>(5)),
            tree: checksum_at(&variant, 6)?,
            meta: checksum_at(&variant, 7)?,
        };
        for entry in variant.child_value(0).iter() {
            let Some(key) = entry.child_value(0).get::<String>() else { continue };
            let Some(value) = entry.child_value(1).as_variant() else { continue };
            if let Some(text) = value.get::<String>() {
                commit.strings.insert(key, text);
            } else if let Some(list) = value.get::<Vec<String>>() {
                commit.lists.insert(key, list);
            }
        }
        Ok(commit)
    }
}

fn bytes_variant(bytes: &[u8]) -> Variant {
    FixedSizeVariantArray::<&[u8], u8>::from(bytes).to_variant()
}

fn fixed(variant: &Variant) -> Result<&[u8]> {
    variant
        .fixed_array::<u8>()
        .map_err(|_| anyhow!("expected bytes, found GVariant type {}", variant.type_()))
}

fn ty(signature: &'static str) -> &'static VariantTy {
    VariantTy::new(signature).expect("the signatures in this file are well formed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_by_glib(meta: &FileMeta) -> Vec<u8> {
        let xattrs = Variant::from_data_with_type(&*meta.xattrs, ty("a(ayay)"));
        Variant::tuple_from_iter([
            meta.uid.to_be().to_variant(),
            meta.gid.to_be().to_variant(),
            meta.mode.to_be().to_variant(),
            0u32.to_variant(),
            meta.target.to_variant(),
            xattrs,
        ])
        .data()
        .to_vec()
    }

    #[test]
    fn header_equals_glibs_at_every_offset_width() {
        for size in [
            0usize, 1, 200, 210, 215, 220, 225, 230, 240, 300, 65_400, 65_480, 65_500, 65_520, 66_000,
            200_000,
        ] {
            let xattrs = if size == 0 { vec![] } else { vec![(b"user.x".to_vec(), vec![7; size])] };
            for target in ["", "../lib/x"] {
                let meta = FileMeta {
                    uid: 1,
                    gid: 2,
                    mode: S_IFREG | 0o644,
                    target: target.to_owned(),
                    xattrs: encode_xattrs(&xattrs),
                };
                assert_eq!(meta.header(), header_by_glib(&meta), "size {size}");
                assert_eq!(decode_xattrs(&meta.xattrs).unwrap(), xattrs);
            }
        }
    }

    #[test]
    fn metadata_objects_survive_a_round_trip() {
        let sum = |n: u8| Checksum([n; 32]);
        let tree = DirTree {
            files: [("a".to_owned(), sum(1)), ("ü".to_owned(), sum(2))].into(),
            dirs: [("d".to_owned(), (sum(3), sum(4)))].into(),
        };
        assert_eq!(DirTree::decode(&tree.encode()).unwrap(), tree);
        let meta = DirMeta { uid: 0, gid: 5, mode: S_IFDIR | 0o755, xattrs: encode_xattrs(&vec![]) };
        assert_eq!(DirMeta::decode(&meta.encode()).unwrap(), meta);
        let commit = Commit {
            strings: [("version".to_owned(), "1".to_owned())].into(),
            lists: [("l".to_owned(), vec!["x".to_owned()])].into(),
            timestamp: 7,
            tree: sum(8),
            meta: sum(9),
        };
        assert_eq!(Commit::decode(&commit.encode()).unwrap(), commit);
    }

    #[test]
    fn names_that_leave_a_directory_are_refused() {
        for name in ["..", ".", "a/b", ""] {
            let tree = DirTree { files: [(name.to_owned(), Checksum([1; 32]))].into(), ..DirTree::default() };
            assert!(DirTree::decode(&tree.encode()).is_err(), "{name}");
        }
    }
}
