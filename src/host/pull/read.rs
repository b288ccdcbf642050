//! Metadata objects of the repo, read without libostree: a walk reads thousands.

use anyhow::{Context as _, Result, ensure};
use cap_std_ext::cap_std::fs::Dir;

use super::limits::MAX_METADATA;
use super::objects::{Checksum, Commit, DirMeta, DirTree, Kind, loose_path};

/// Reads objects from a repo's `objects` folder.
#[derive(Debug)]
pub(in crate::host) struct ObjectReader {
    objects: Dir,
}

impl ObjectReader {
    pub(in crate::host) fn new(objects: Dir) -> Self {
        Self { objects }
    }

    /// The bytes of a metadata object.
    pub(in crate::host) fn bytes(&self, checksum: Checksum, kind: Kind) -> Result<Vec<u8>> {
        use std::io::Read as _;
        let path = loose_path(checksum, kind);
        let file = self.objects.open(&path).with_context(|| format!("Opening object {path}"))?;
        let mut bytes = Vec::new();
        file.take(MAX_METADATA + 1)
            .read_to_end(&mut bytes)
            .with_context(|| format!("Reading object {path}"))?;
        ensure!(
            bytes.len() as u64 <= MAX_METADATA,
            "object {path} is larger than {MAX_METADATA} bytes, the limit"
        );
        Ok(bytes)
    }

    pub(in crate::host) fn commit(&self, checksum: Checksum) -> Result<Commit> {
        Commit::decode(&self.bytes(checksum, Kind::Commit)?)
            .with_context(|| format!("Reading commit {checksum}"))
    }

    pub(in crate::host) fn tree(&self, checksum: Checksum) -> Result<DirTree> {
        DirTree::decode(&self.bytes(checksum, Kind::DirTree)?)
            .with_context(|| format!("Reading dirtree {checksum}"))
    }

    pub(in crate::host) fn meta(&self, checksum: Checksum) -> Result<DirMeta> {
        DirMeta::decode(&self.bytes(checksum, Kind::DirMeta)?)
            .with_context(|| format!("Reading dirmeta {checksum}"))
    }

    /// Whether the repo has an object.
    pub(in crate::host) fn has(&self, checksum: Checksum, kind: Kind) -> Result<bool> {
        super::staging::has_object(&self.objects, checksum, kind)
    }

    /// What the file system says about a content object.
    pub(in crate::host) fn stat_file(&self, checksum: Checksum) -> Result<rustix::fs::Stat> {
        use std::os::fd::AsFd as _;
        let path = loose_path(checksum, Kind::File);
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statat(self.objects.as_fd(), path.as_str(), flags)
            .with_context(|| format!("Looking at object {path}"))
    }

    /// Whether a content object is a regular file without content.
    pub(in crate::host) fn is_empty_file(&self, file: Checksum) -> Result<bool> {
        let stat = self.stat_file(file)?;
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        Ok(stat.st_size == 0 && kind == rustix::fs::FileType::RegularFile)
    }
}
