//! A tar stream as a sequence of entries, with limits.
//!
//! Headers are decoded by the `tar` crate; which block is what is decided here, because sizes and
//! names must be bounded before memory is spent on them. GNU long names and PAX headers are
//! understood; sparse files are refused.

use std::io::{BufRead, Read};

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use tar::{EntryType, Header};

use super::limits::{MAX_ENTRIES, MAX_PATH, MAX_PAX, MAX_XATTRS};
use super::objects::Xattrs;

const BLOCK: u64 = 512;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Dir,
    Link,
    HardLink,
    /// A device, a FIFO: what OSTree cannot hold.
    Special,
}

/// One entry; its data, if any, is read from the [`Tarball`].
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// As written, without trailing slashes.
    pub(super) path: Vec<u8>,
    /// Target of a symbolic or hard link.
    pub(super) target: Vec<u8>,
    pub(super) kind: EntryKind,
    /// Permission bits only.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// Seconds since the epoch; OSTree gives its objects 0.
    pub(super) mtime: u64,
    /// `SCHILY.xattr.*`.
    pub(super) xattrs: Xattrs,
}

/// Extensions that precede an entry.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    xattrs: Xattrs,
}

/// The reader.
#[derive(Debug)]
pub(super) struct Tarball<R> {
    input: R,
    /// Data of the current entry that was not read yet.
    left: u64,
    /// Zeros after it.
    padding: u64,
    entries: u64,
}

impl<R: BufRead> Tarball<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, entries: 0 }
    }

    /// The stream, for its verdict.
    pub(super) fn into_inner(self) -> R {
        self.input
    }

    /// The next entry; what is unread of the current one is skipped.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            self.entries += 1;
            ensure!(self.entries <= MAX_ENTRIES, "the layer has more than {MAX_ENTRIES} entries, the limit");
            let size = header.entry_size().context("the size of a tar entry is not a number")?;
            self.set_size(size);
            match header.entry_type() {
                EntryType::GNULongName => extensions.path = Some(self.long_name(size)?),
                EntryType::GNULongLink => extensions.target = Some(self.long_name(size)?),
                EntryType::XHeader => self.pax(size, &mut extensions)?,
                EntryType::XGlobalHeader => {
                    ensure!(size <= MAX_PAX, "a PAX header of {size} bytes; the limit is {MAX_PAX}")
                }
                EntryType::GNUSparse => {
                    bail!("the layer holds a sparse file in GNU form, which no image builder writes")
                }
                kind => return Ok(Some(self.entry(&header, kind, extensions)?)),
            }
        }
    }

    /// All data of the current entry. The caller has bounded its size.
    pub(super) fn read_all(&mut self) -> Result<Vec<u8>> {
        let size = usize::try_from(self.left)?;
        let mut data = vec![0; size];
        self.read_exact(&mut data).context("reading a tar entry")?;
        Ok(data)
    }

    fn read_exact(&mut self, data: &mut [u8]) -> Result<()> {
        self.input.read_exact(data).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => anyhow!("the tar stream ends inside an entry"),
            _ => Error::new(error).context("reading a tar entry"),
        })?;
        self.left -= data.len() as u64;
        Ok(())
    }

    fn set_size(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    fn skip_rest(&mut self) -> Result<()> {
        let mut skip = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        while skip > 0 {
            let available = self.input.fill_buf()?.len();
            ensure!(available > 0, "the tar stream ends inside an entry");
            let step = skip.min(available as u64);
            self.input.consume(usize::try_from(step)?);
            skip -= step;
        }
        Ok(())
    }

    /// The next header; none at the end: a block of zeros, or no more bytes.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < block.len() {
            let count = self.input.read(&mut block[filled..])?;
            if count == 0 && filled == 0 {
                return Ok(None);
            }
            ensure!(count > 0, "the tar stream ends inside a header");
            filled += count;
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum counts its own field as spaces.
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        ensure!(header.cksum().ok() == Some(sum), "a tar header has a wrong checksum");
        Ok(Some(header))
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>> {
        ensure!(size <= MAX_PATH + 1, "a name of {size} bytes; the limit is {MAX_PATH}");
        let mut name = self.read_all()?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn pax(&mut self, size: u64, extensions: &mut Extensions) -> Result<()> {
        ensure!(size <= MAX_PAX, "a PAX header of {size} bytes; the limit is {MAX_PAX}");
        let data = self.read_all()?;
        parse_pax(&data, extensions)
    }

    fn entry(&mut self, header: &Header, kind: EntryType, extensions: Extensions) -> Result<Entry> {
        let kind = match kind {
            EntryType::Regular | EntryType::Continuous => EntryKind::File,
            EntryType::Directory => EntryKind::Dir,
            EntryType::Symlink => EntryKind::Link,
            EntryType::Link => EntryKind::HardLink,
            EntryType::Block | EntryType::Char | EntryType::Fifo => EntryKind::Special,
            // The seventh-edition form of a file; a name that ends with a slash is a folder.
            other if other.as_byte() == 0 => EntryKind::File,
            other => {
                bail!("the layer holds a tar entry of the unknown type '{}'", char::from(other.as_byte()))
            }
        };
        let number = |value: Option<u64>, header: std::io::Result<u64>, what: &str| -> Result<u32> {
            let value = value
                .map_or(header, Ok)
                .with_context(|| format!("the {what} of a tar entry is not a number"))?;
            u32::try_from(value)
                .with_context(|| format!("the {what} {value} of a tar entry is larger than 32 bits"))
        };
        if let Some(size) = extensions.size {
            self.set_size(size);
        }
        if kind != EntryKind::File {
            // Some writers repeat the size of the target in links; no data follows.
            self.set_size(if kind == EntryKind::Special { self.left } else { 0 });
        }
        let mut path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let is_dir = kind == EntryKind::File && path.last() == Some(&b'/');
        while path.len() > 1 && path.last() == Some(&b'/') {
            path.pop();
        }
        let target = extensions
            .target
            .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))
            .unwrap_or_default();
        for name in [&path, &target] {
            ensure!(name.len() as u64 <= MAX_PATH, "a path of {} bytes; the limit is {MAX_PATH}", name.len());
        }
        Ok(Entry {
            path,
            target,
            kind: if is_dir { EntryKind::Dir } else { kind },
            mode: header.mode().context("the mode of a tar entry is not a number")? & 0o7777,
            uid: number(extensions.uid, header.uid(), "owner")?,
            gid: number(extensions.gid, header.gid(), "group")?,
            size: self.left,
            // One that is no number is certainly not the epoch.
            mtime: header.mtime().unwrap_or(1),
            xattrs: extensions.xattrs,
        })
    }
}

/// The data of the current entry.
impl<R: BufRead> Read for Tarball<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wanted = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..wanted])?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Records are `LENGTH KEY=VALUE\n`, with the length of the whole record; values may hold anything.
fn parse_pax(mut data: &[u8], extensions: &mut Extensions) -> Result<()> {
    while !data.is_empty() {
        let space =
            data.iter().take(20).position(|byte| *byte == b' ').context("a PAX record has no length")?;
        let length: usize = std::str::from_utf8(&data[..space])
            .ok()
            .and_then(|text| text.parse().ok())
            .context("the length of a PAX record is not a number")?;
        ensure!(
            length > space + 1 && length <= data.len(),
            "a PAX record claims {length} bytes of {}",
            data.len()
        );
        let (record, rest) = data.split_at(length);
        data = rest;
        let record =
            record[space + 1..].strip_suffix(b"\n").context("a PAX record does not end with a line feed")?;
        let equals = record.iter().position(|byte| *byte == b'=').context("a PAX record has no '='")?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        apply_pax(key, value, extensions)?;
    }
    let total: usize = extensions.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    ensure!(total as u64 <= MAX_XATTRS, "extended attributes of {total} bytes; the limit is {MAX_XATTRS}");
    Ok(())
}

fn apply_pax(key: &[u8], value: &[u8], extensions: &mut Extensions) -> Result<()> {
    let number = || -> Result<u64> {
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .with_context(|| format!("the PAX field {} is not a number", String::from_utf8_lossy(key)))
    };
    match key {
        b"path" => extensions.path = Some(value.to_vec()),
        b"linkpath" => extensions.target = Some(value.to_vec()),
        b"size" => extensions.size = Some(number()?),
        b"uid" => extensions.uid = Some(number()?),
        b"gid" => extensions.gid = Some(number()?),
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                ensure!(
                    !name.is_empty() && !name.contains(&0),
                    "a PAX header has an extended attribute without a name"
                );
                extensions.xattrs.retain(|(other, _)| other != name);
                extensions.xattrs.push((name.to_vec(), value.to_vec()));
            } else if key.starts_with(b"GNU.sparse.") {
                bail!("the layer holds a sparse file in PAX form, which no image builder writes");
            }
        }
    }
    Ok(())
}
