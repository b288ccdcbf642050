//! One layer on its way to a blob, and the lies that can be told about it.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::compress::Compression;
use crate::entry::{Entry, TarStyle, write_tar};
use crate::image::WrittenLayer;
use crate::layout::Layout;

/// What a layer holds.
#[derive(Debug)]
pub enum Content {
    /// These entries.
    Entries(Vec<Entry>),
    /// This tar file, as it is.
    File(PathBuf),
}

/// How a layer differs from what manifest and config say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lie {
    /// The blob lies under a digest that is not its own; the manifest names that.
    WrongDigest,
    /// The manifest claims this many bytes.
    WrongSize(u64),
    /// The config's diff id is not that of the tar stream.
    WrongDiffId,
    /// The blob breaks off after so many bytes; the manifest speaks of the whole.
    Short(u64),
    /// The byte at this offset of the blob is another one.
    Corrupt(u64),
    /// There is no such blob.
    Missing,
    /// The tar stream breaks off after so many bytes; all digests are those of what is there.
    TarEnds(u64),
    /// The compressed stream breaks off so many bytes before its end; the digest is that of what
    /// is there.
    StreamEnds(u64),
    /// These bytes follow the compressed stream; the digest covers them.
    Trailing(Vec<u8>),
}

/// A layer to be written.
#[derive(Debug)]
pub struct Layer {
    /// For the history.
    pub title: String,
    /// What it holds.
    pub content: Content,
    /// How names are written.
    pub style: TarStyle,
    /// How it is compressed.
    pub compression: Compression,
    /// What is not true about it.
    pub lies: Vec<Lie>,
}

impl Layer {
    /// Writes the blob. Gives what manifest and config shall say of it.
    pub fn write(&self, layout: &Layout, repo: Option<&ostree::Repo>) -> Result<WrittenLayer> {
        let limit = self.lies.iter().find_map(|lie| match lie {
            Lie::TarEnds(bytes) => Some(*bytes),
            _ => None,
        });
        let compressor = self.compression.writer(layout.blob_writer()?)?;
        let mut tar = TarWriter { out: compressor, hash: Sha256::new(), left: limit.unwrap_or(u64::MAX) };
        match &self.content {
            Content::Entries(entries) => write_tar(&mut tar, entries, self.style, repo)?,
            Content::File(path) => {
                let mut file = fs::File::open(path).with_context(|| format!("Opening {}", path.display()))?;
                io::copy(&mut file, &mut tar)?;
            }
        }
        let diff_id = format!("sha256:{}", hex::encode(tar.hash.finalize()));
        let (digest, size) = layout.keep(tar.out.finish()?, None)?;
        let mut layer = WrittenLayer { digest, size, diff_id };
        for lie in &self.lies {
            tell(lie, layout, &mut layer).with_context(|| format!("Lying: {lie:?}"))?;
        }
        Ok(layer)
    }
}

/// A tar stream: hashed, and ended early if it shall be.
struct TarWriter<W> {
    out: W,
    hash: Sha256,
    left: u64,
}

impl<W: Write> Write for TarWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let kept = data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.out.write_all(&data[..kept])?;
        self.hash.update(&data[..kept]);
        self.left -= kept as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Another digest, made from an honest one.
fn another(digest: &str) -> String {
    let last = if digest.ends_with('0') { '1' } else { '0' };
    format!("{}{last}", &digest[..digest.len() - 1])
}

fn tell(lie: &Lie, layout: &Layout, layer: &mut WrittenLayer) -> Result<()> {
    let path = layout.blob_path(&layer.digest);
    match lie {
        Lie::WrongDigest => {
            layer.digest = another(&layer.digest);
            fs::rename(path, layout.blob_path(&layer.digest))?;
        }
        Lie::WrongSize(size) => layer.size = *size,
        Lie::WrongDiffId => layer.diff_id = another(&layer.diff_id),
        Lie::Short(bytes) => fs::OpenOptions::new().write(true).open(path)?.set_len(*bytes)?,
        Lie::Corrupt(offset) => {
            let mut blob = fs::read(&path)?;
            let byte = usize::try_from(*offset).ok().and_then(|offset| blob.get_mut(offset));
            *byte.context("The blob is not that long")? ^= 0xff;
            fs::write(&path, blob)?;
        }
        Lie::Missing => fs::remove_file(path)?,
        Lie::TarEnds(_) => {}
        Lie::StreamEnds(_) | Lie::Trailing(_) => {
            let mut blob = Vec::new();
            fs::File::open(&path)?.read_to_end(&mut blob)?;
            match lie {
                Lie::StreamEnds(bytes) => blob.truncate(blob.len().saturating_sub(*bytes as usize)),
                Lie::Trailing(bytes) => blob.extend_from_slice(bytes),
                _ => {}
            }
            fs::remove_file(path)?;
            layer.digest = layout.write_blob(&blob)?;
            layer.size = blob.len() as u64;
        }
    }
    Ok(())
}
