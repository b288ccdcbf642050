//! SELinux labels of a whole tree, when the policy comes with it or changes: that of a plain image,
//! which has none before its layers are laid over each other, or a derived layer's own.
//!
//! The policy decides by path, so every path is looked up; only what gets another label is written
//! anew.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::derived::MetadataWriter;
use super::label::Labels;
use super::merge::{Item, Merge};
use super::objects::{
    Checksum, DirMeta, FileMeta, Kind, S_IFLNK, S_IFMT, Xattrs, decode_xattrs, encode_xattrs, loose_path,
};
use super::read::ObjectReader;
use super::staging::Staging;
use super::stop::Stop;
use super::writer::LayerWrites;

/// Where a policy lies in a commit.
const POLICY: &str = "usr/etc/selinux";
/// The largest list of names or value that the kernel gives.
const XATTR_SIZE_MAX: usize = 64 * 1024;

/// Labels the merged tree by its own policy, if that is not the base's. Gives the policy, for what
/// is added to the tree.
pub(super) fn relabel(
    merge: &mut Merge<'_>,
    base: Option<(Checksum, Checksum)>,
    reader: &ObjectReader,
    staging: &Staging,
    writes: &LayerWrites,
    out: &mut MetadataWriter<'_>,
    stop: &Stop,
) -> Result<Labels> {
    let policy = merge.files_below(POLICY)?;
    let before = match base {
        Some(root) => Merge::new(reader, Some(root)).files_below(POLICY)?,
        None => BTreeMap::new(),
    };
    if policy == before || !policy.contains_key("config") {
        return Ok(Labels::none());
    }
    let mut labels = load(&policy, staging)?;
    let mut files: HashMap<(Checksum, Arc<[u8]>), Checksum> = HashMap::new();
    merge.change(&mut |path, item| {
        stop.check()?;
        match item {
            Item::Dir(meta) => {
                let old = reader.meta(meta)?;
                let xattrs = labels.apply(path, old.mode, decode_xattrs(&old.xattrs)?)?;
                if xattrs == old.xattrs {
                    return Ok(None);
                }
                out.put(&DirMeta { xattrs, ..old }.encode(), Kind::DirMeta).map(Some)
            }
            Item::File(file) => {
                let old = file_meta(reader, staging.objects(), file)?;
                let xattrs = labels.apply(path, old.mode, decode_xattrs(&old.xattrs)?)?;
                if xattrs == old.xattrs {
                    return Ok(None);
                }
                if let Some(known) = files.get(&(file, Arc::clone(&xattrs))) {
                    return Ok(Some(*known));
                }
                let meta = FileMeta { xattrs: Arc::clone(&xattrs), ..old };
                let (checksum, staged) = if meta.is_link() {
                    writes.put_link(&meta)?
                } else {
                    let mut content = staging.objects().open(loose_path(file, Kind::File))?;
                    writes.put_copy(&meta, &mut content)?
                };
                out.staged.extend(staged);
                files.insert((file, xattrs), checksum);
                Ok(Some(checksum))
            }
        }
    })?;
    Ok(labels)
}

/// Loads a policy from its files: libostree wants them in a folder.
fn load(policy: &BTreeMap<String, Checksum>, staging: &Staging) -> Result<Labels> {
    let root = staging.folder("policy")?;
    for (name, file) in policy {
        let target = format!("{POLICY}/{name}");
        if let Some((parent, _)) = target.rsplit_once('/') {
            root.create_dir_all(parent)?;
        }
        let from = loose_path(*file, Kind::File);
        rustix::fs::linkat(staging.objects().as_fd(), &from, root.as_fd(), &target, AtFlags::empty())
            .with_context(|| format!("Linking to object {from}"))?;
    }
    Labels::of_folder(&root)
}

/// What the object's file says about itself.
fn file_meta(reader: &ObjectReader, objects: &Dir, file: Checksum) -> Result<FileMeta> {
    let stat = reader.stat_file(file)?;
    let target = if stat.st_mode & S_IFMT == S_IFLNK {
        let target = rustix::fs::readlinkat(objects.as_fd(), loose_path(file, Kind::File), Vec::new())?;
        target.into_string().context("the target of a link is not UTF-8")?
    } else {
        String::new()
    };
    let xattrs = encode_xattrs(&xattrs_of(objects, file)?);
    Ok(FileMeta { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode, target, xattrs })
}

fn xattrs_of(objects: &Dir, file: Checksum) -> Result<Xattrs> {
    // There is no call that takes a folder and the name of a link.
    let path = format!("/proc/self/fd/{}/{}", objects.as_fd().as_raw_fd(), loose_path(file, Kind::File));
    let mut names = vec![0; XATTR_SIZE_MAX];
    let length = match rustix::fs::llistxattr(&*path, &mut names) {
        Err(Errno::NOTSUP) => 0,
        other => other.with_context(|| format!("Listing extended attributes of object {file}"))?,
    };
    let mut xattrs = Xattrs::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_SIZE_MAX];
        let length = rustix::fs::lgetxattr(&*path, name, &mut value)
            .with_context(|| format!("Reading an extended attribute of object {file}"))?;
        value.truncate(length);
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}
