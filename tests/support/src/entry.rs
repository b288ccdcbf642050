//! One entry of a tree or of a tar layer, honest or not, and how it is written to a tar stream.
//!
//! Paths are bytes and are written as they are: `../x`, `/x` and empty names are wanted here. What
//! a header cannot hold goes where the chosen style puts it: GNU long-name entries, or PAX records
//! (as container builders write, also for every non-ASCII name).

use std::io::{self, Read, Write};

use anyhow::{Context as _, Result};
use ostree::gio;
use ostree::prelude::*;

/// Where a file's bytes come from.
#[derive(Debug, Clone)]
pub enum Body {
    /// Held in memory.
    Bytes(Vec<u8>),
    /// The content of this object of the image's repo, and its length: real trees do not fit in memory.
    Object(String, u64),
    /// So many zero bytes.
    Zeros(u64),
}

/// What an entry is.
#[derive(Debug, Clone)]
pub enum Node {
    /// A regular file.
    File(Body),
    /// A directory.
    Dir,
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A hard link to this path in the same archive.
    HardLink(Vec<u8>),
    /// A character device, major and minor.
    CharDevice(u32, u32),
    /// A block device, major and minor.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A GNU sparse file without data that claims this real size.
    Sparse(u64),
}

/// One entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name, without a leading `./`.
    pub path: Vec<u8>,
    /// What it is.
    pub node: Node,
    /// Permission bits, without the file type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds.
    pub mtime: u64,
    /// Extended attributes: PAX `SCHILY.xattr.*` in a tar, real ones in a commit.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// More PAX records, as they are.
    pub pax: Vec<(String, Vec<u8>)>,
    /// A length for the header that is not that of the data.
    pub claimed_size: Option<u64>,
}

/// How names that need more than a plain header are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarStyle {
    /// As the exporter of OSTree commits does: GNU entries, directories without a slash at the end
    /// (but `./` and `etc/`), and `./` before those with long names.
    Ostree,
    /// GNU `L`/`K` entries; non-ASCII names as they are.
    Gnu,
    /// PAX `path`/`linkpath` records for long and for non-ASCII names.
    Pax,
}

impl Entry {
    fn new(path: impl AsRef<[u8]>, node: Node, mode: u32) -> Self {
        Self {
            path: path.as_ref().to_vec(),
            node,
            mode,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Vec::new(),
            pax: Vec::new(),
            claimed_size: None,
        }
    }

    /// A regular file, mode 0644.
    pub fn file(path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        Self::new(path, Node::File(Body::Bytes(content.as_ref().to_vec())), 0o644)
    }

    /// An executable file, mode 0755.
    pub fn program(path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        Self::file(path, content).mode(0o755)
    }

    /// A file of `length` zero bytes: a decompression bomb when compressed.
    pub fn zeros(path: impl AsRef<[u8]>, length: u64) -> Self {
        Self::new(path, Node::File(Body::Zeros(length)), 0o644)
    }

    /// A directory, mode 0755.
    pub fn dir(path: impl AsRef<[u8]>) -> Self {
        Self::new(path, Node::Dir, 0o755)
    }

    /// A symbolic link.
    pub fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self::new(path, Node::Symlink(target.as_ref().to_vec()), 0o777)
    }

    /// A hard link to an earlier entry of the layer.
    pub fn hard_link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self::new(path, Node::HardLink(target.as_ref().to_vec()), 0o644)
    }

    /// Takes `path` of a lower layer away: an empty `.wh.NAME` beside it.
    pub fn whiteout(path: &str) -> Self {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let separator = if parent.is_empty() { "" } else { "/" };
        Self::file(format!("{parent}{separator}.wh.{name}"), "")
    }

    /// Hides what lower layers have in the directory `path`.
    pub fn opaque(path: &str) -> Self {
        Self::file(format!("{path}/.wh..wh..opq"), "")
    }

    /// A character device.
    pub fn char_device(path: impl AsRef<[u8]>, major: u32, minor: u32) -> Self {
        Self::new(path, Node::CharDevice(major, minor), 0o600)
    }

    /// A block device.
    pub fn block_device(path: impl AsRef<[u8]>, major: u32, minor: u32) -> Self {
        Self::new(path, Node::BlockDevice(major, minor), 0o600)
    }

    /// A named pipe.
    pub fn fifo(path: impl AsRef<[u8]>) -> Self {
        Self::new(path, Node::Fifo, 0o644)
    }

    /// A GNU sparse entry that claims `real_size` bytes and brings none.
    pub fn sparse(path: impl AsRef<[u8]>, real_size: u64) -> Self {
        Self::new(path, Node::Sparse(real_size), 0o644)
    }

    /// With these permission bits (setuid and the like included).
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// With this owner and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// With this modification time.
    #[must_use]
    pub fn mtime(mut self, seconds: u64) -> Self {
        self.mtime = seconds;
        self
    }

    /// With an extended attribute.
    #[must_use]
    pub fn xattr(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.xattrs.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// With a PAX record, as it is.
    #[must_use]
    pub fn pax(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.pax.push((key.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Whose header claims `size` bytes, whatever follows.
    #[must_use]
    pub fn claiming(mut self, size: u64) -> Self {
        self.claimed_size = Some(size);
        self
    }

    /// The name, for messages and for comparing.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// Writes the entry. Object bodies are read from `repo`.
    pub fn write_to<W: Write>(
        &self,
        out: &mut W,
        style: TarStyle,
        repo: Option<&ostree::Repo>,
    ) -> Result<()> {
        let link: &[u8] = match &self.node {
            Node::Symlink(target) | Node::HardLink(target) => target,
            _ => &[],
        };
        let mut records: Vec<(String, Vec<u8>)> = self.pax.clone();
        records
            .extend(self.xattrs.iter().map(|(name, value)| (format!("SCHILY.xattr.{name}"), value.clone())));
        let path = self.header_path(style);
        if style == TarStyle::Pax {
            for (key, text) in [("path", path.as_slice()), ("linkpath", link)] {
                if text.len() > 100 || !text.is_ascii() {
                    records.push((key.to_owned(), text.to_vec()));
                }
            }
        }
        if !records.is_empty() {
            let data: Vec<u8> = records.iter().flat_map(|(key, value)| pax_record(key, value)).collect();
            write_extension(out, b"PaxHeaders/x", tar::EntryType::XHeader, &data)?;
        }
        if style != TarStyle::Pax {
            for (text, kind) in
                [(path.as_slice(), tar::EntryType::GNULongName), (link, tar::EntryType::GNULongLink)]
            {
                if text.len() > 100 {
                    write_extension(out, b"././@LongLink", kind, &[text, b"\0"].concat())?;
                }
            }
        }
        out.write_all(self.header(&path, link).as_bytes())?;
        self.write_body(out, repo).with_context(|| format!("Writing the data of {}", self.name()))
    }

    /// Nearly every tar writer ends a directory's name with a slash.
    fn header_path(&self, style: TarStyle) -> Vec<u8> {
        let path = self.path.clone();
        if !matches!(self.node, Node::Dir) || path.ends_with(b"/") {
            return path;
        }
        match style {
            TarStyle::Ostree if path.len() >= 100 => [b"./", path.as_slice()].concat(),
            TarStyle::Ostree if path != b"." && path != b"etc" => path,
            _ => [path.as_slice(), b"/"].concat(),
        }
    }

    /// The length of the data.
    pub fn data_len(&self) -> u64 {
        match &self.node {
            Node::File(Body::Bytes(bytes)) => bytes.len() as u64,
            Node::File(Body::Object(_, length) | Body::Zeros(length)) => *length,
            _ => 0,
        }
    }

    fn header(&self, path: &[u8], link: &[u8]) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        let (kind, device) = match &self.node {
            Node::File(_) => (tar::EntryType::Regular, None),
            Node::Dir => (tar::EntryType::Directory, None),
            Node::Symlink(_) => (tar::EntryType::Symlink, None),
            Node::HardLink(_) => (tar::EntryType::Link, None),
            Node::CharDevice(major, minor) => (tar::EntryType::Char, Some((*major, *minor))),
            Node::BlockDevice(major, minor) => (tar::EntryType::Block, Some((*major, *minor))),
            Node::Fifo => (tar::EntryType::Fifo, None),
            Node::Sparse(_) => (tar::EntryType::GNUSparse, None),
        };
        header.set_entry_type(kind);
        if let Some((major, minor)) = device {
            header.set_device_major(major).expect("a GNU header has device numbers");
            header.set_device_minor(minor).expect("a GNU header has device numbers");
        }
        if let Node::Sparse(real_size) = self.node {
            header.as_gnu_mut().expect("made as one").set_real_size(real_size);
        }
        header.set_mode(self.mode);
        header.set_uid(self.uid.into());
        header.set_gid(self.gid.into());
        header.set_mtime(self.mtime);
        header.set_size(self.claimed_size.unwrap_or_else(|| self.data_len()));
        let old = header.as_old_mut();
        copy_name(&mut old.name, path);
        copy_name(&mut old.linkname, link);
        header.set_cksum();
        header
    }

    fn write_body<W: Write>(&self, out: &mut W, repo: Option<&ostree::Repo>) -> Result<()> {
        let Node::File(body) = &self.node else { return Ok(()) };
        let written = match body {
            Body::Bytes(bytes) => {
                out.write_all(bytes)?;
                bytes.len() as u64
            }
            Body::Zeros(length) => io::copy(&mut io::repeat(0).take(*length), out)?,
            Body::Object(checksum, length) => {
                let repo = repo.context("An object's body needs a repo")?;
                let (stream, _, _) = repo.load_file(checksum, gio::Cancellable::NONE)?;
                let stream = stream.with_context(|| format!("Object {checksum} is no regular file"))?;
                let copied = io::copy(&mut stream.into_read(), out)?;
                anyhow::ensure!(copied == *length, "object {checksum} has {copied} bytes, not {length}");
                copied
            }
        };
        pad(out, written)
    }
}

fn copy_name(field: &mut [u8; 100], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

fn pad<W: Write>(out: &mut W, length: u64) -> Result<()> {
    let rest = (length % 512) as usize;
    if rest != 0 {
        out.write_all(&[0; 512][rest..])?;
    }
    Ok(())
}

/// An entry that only speaks about the next one.
fn write_extension<W: Write>(out: &mut W, name: &[u8], kind: tar::EntryType, data: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(data.len() as u64);
    copy_name(&mut header.as_old_mut().name, name);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(data)?;
    pad(out, data.len() as u64)
}

/// `LENGTH KEY=VALUE\n`, where LENGTH counts itself.
fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    let mut record = format!("{length} {key}=").into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

/// A whole archive: the entries and the two empty blocks that end it.
pub fn write_tar<W: Write>(
    out: &mut W,
    entries: &[Entry],
    style: TarStyle,
    repo: Option<&ostree::Repo>,
) -> Result<()> {
    for entry in entries {
        entry.write_to(out, style, repo)?;
    }
    out.write_all(&[0; 1024])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(entries: &[Entry], style: TarStyle) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
        let mut bytes = Vec::new();
        write_tar(&mut bytes, entries, style, None).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let link = entry.link_name_bytes().map(|link| link.to_vec()).unwrap_or_default();
                let mut data = Vec::new();
                entry.read_to_end(&mut data).unwrap();
                (entry.path_bytes().to_vec(), link, data.len() as u64)
            })
            .collect()
    }

    #[test]
    fn long_and_foreign_names_survive_both_styles() {
        let long = "d/".repeat(120) + "naïve—名";
        let entries = [
            Entry::file(&long, "abc").xattr("user.x", "1"),
            Entry::hard_link("usr/bin/ünï", &long),
            Entry::symlink("l", "é".repeat(80)),
            Entry::dir("plain"),
            Entry::zeros("z", 1000),
        ];
        for style in [TarStyle::Ostree, TarStyle::Gnu, TarStyle::Pax] {
            let seen = read_back(&entries, style);
            assert_eq!(seen[0], (long.clone().into_bytes(), Vec::new(), 3), "{style:?}");
            assert_eq!(seen[1], ("usr/bin/ünï".into(), long.clone().into_bytes(), 0), "{style:?}");
            assert_eq!(seen[2], (b"l".to_vec(), "é".repeat(80).into_bytes(), 0), "{style:?}");
            assert_eq!(seen[3].0.strip_suffix(b"/").unwrap_or(&seen[3].0), b"plain");
            assert_eq!(seen[4].2, 1000);
        }
    }

    #[test]
    fn names_that_no_tar_tool_writes_are_written() {
        for name in ["../../etc/x", "/etc/x", "a/../../b", ""] {
            assert_eq!(read_back(&[Entry::file(name, "x")], TarStyle::Gnu)[0].0, name.as_bytes());
        }
    }

    #[test]
    fn pax_records_count_themselves() {
        for length in [1, 5, 90, 91, 92, 93, 980, 990, 995] {
            let record = pax_record("k", &vec![b'v'; length]);
            let text = String::from_utf8(record.clone()).unwrap();
            assert_eq!(text.split_once(' ').unwrap().0.parse::<usize>().unwrap(), record.len());
        }
    }
}
