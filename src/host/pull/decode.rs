//! From compressed pieces to verified tar bytes.
//!
//! [`Compressed`] hashes and counts what arrives, [`Unpacked`] decompresses it, hashes the result
//! (the diff id) and bounds it. Both verdicts come from [`Unpacked::finish`], after the last byte.

use std::io::{self, BufRead, Read};

use anyhow::{Context as _, Result, anyhow};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc::Receiver;

use super::explain::{Corrupt, Invalid};
use super::limits::{MAX_ZSTD_WINDOW_LOG, unpacked};
use super::stop::{Secondary, Stop};
use crate::model::digest::Digest;
use crate::model::oci::{Compression, Layer};

/// How much is decompressed at a time. Long runs keep the hash function and the decoder efficient.
const BUFFER: usize = 256 * 1024;

/// What the fetching side sends.
#[derive(Debug)]
pub(super) enum Piece {
    /// Compressed bytes.
    Data(Vec<u8>),
    /// All bytes came, and the source has no complaint.
    End,
    // A source that fails says so on its own side and just goes away here.
}

/// The compressed bytes of one layer.
#[derive(Debug)]
pub(super) struct Compressed {
    pieces: Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
    ended: bool,
    hasher: Sha256,
    count: u64,
    size: u64,
    stop: Stop,
}

impl Compressed {
    pub(super) fn new(pieces: Receiver<Piece>, size: u64, stop: Stop) -> Self {
        Self { pieces, piece: Vec::new(), at: 0, ended: false, hasher: Sha256::new(), count: 0, size, stop }
    }

    fn take(&mut self, data: Vec<u8>) -> io::Result<()> {
        self.count += data.len() as u64;
        if self.count > self.size {
            let size = self.size;
            return Err(io::Error::other(format!(
                "the layer is longer than the {size} bytes of its manifest"
            )));
        }
        self.hasher.update(&data);
        (self.piece, self.at) = (data, 0);
        Ok(())
    }
}

impl Compressed {
    /// Reads to the end; every byte counts for the digest, also after a decoder's own end mark.
    fn verify(mut self, layer: &Layer) -> Result<()> {
        while self.count <= self.size && !self.fill_buf()?.is_empty() {
            self.at = self.piece.len();
        }
        if self.count != layer.size {
            let longer = if self.count > self.size { "more than " } else { "" };
            let (found, wanted) = (self.count.min(self.size), layer.size);
            let why = format!("it has {longer}{found} bytes where the manifest says {wanted}");
            return Err(Corrupt(why).into());
        }
        let digest = Digest::from_raw(self.hasher.finalize().into());
        if digest != layer.digest {
            return Err(Corrupt(mismatch("digest", &layer.digest, &digest)).into());
        }
        Ok(())
    }
}

impl BufRead for Compressed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.piece.len() && !self.ended {
            if self.stop.is_set() {
                return Err(io::Error::other(Secondary("the import is stopping")));
            }
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => self.take(data)?,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::other(Secondary("the stream of the layer ended early"))),
            }
        }
        Ok(&self.piece[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

impl Read for Compressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

enum Decoder {
    None(Compressed),
    Gzip(Box<MultiGzDecoder<Compressed>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Compressed>>),
}

impl Decoder {
    /// By what the bytes are; the manifest's word counts only for layers that it calls plain, whose
    /// tar could begin with anything.
    fn new(mut compressed: Compressed, declared: Compression) -> io::Result<Self> {
        if declared == Compression::None {
            return Ok(Self::None(compressed));
        }
        let magic = compressed.fill_buf()?;
        if magic.starts_with(&[0x1f, 0x8b]) {
            return Ok(Self::Gzip(Box::new(MultiGzDecoder::new(compressed))));
        }
        let skippable = magic.len() >= 4 && magic[0] & 0xf0 == 0x50 && magic[1..4] == [0x2a, 0x4d, 0x18];
        if skippable || magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
            decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
            return Ok(Self::Zstd(Box::new(decoder)));
        }
        Ok(Self::None(compressed))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }

    fn into_compressed(self) -> Compressed {
        match self {
            Self::None(reader) => reader,
            Self::Gzip(reader) => reader.into_inner(),
            Self::Zstd(reader) => reader.finish(),
        }
    }
}

/// The tar bytes of one layer.
pub(super) struct Unpacked {
    decoder: Decoder,
    hasher: Sha256,
    buffer: Box<[u8]>,
    at: usize,
    filled: usize,
    count: u64,
    limit: u64,
}

impl std::fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacked").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Unpacked {
    pub(super) fn new(compressed: Compressed, declared: Compression) -> io::Result<Self> {
        let limit = unpacked(compressed.size);
        Ok(Self {
            decoder: Decoder::new(compressed, declared)?,
            hasher: Sha256::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            at: 0,
            filled: 0,
            count: 0,
            limit,
        })
    }

    /// Reads what is left, then compares length, digest and diff id with what was promised.
    pub(super) fn finish(mut self, layer: &Layer) -> Result<()> {
        let read = loop {
            match self.fill_buf().map(<[u8]>::len) {
                Ok(0) => break Ok(()),
                Ok(left) => self.consume(left),
                Err(error) => break Err(error),
            }
        };
        let diff_id = Digest::from_raw(self.hasher.finalize().into());
        // A stumble over wrong bytes is no news: that they are wrong is.
        self.decoder.into_compressed().verify(layer)?;
        read.context(Invalid)?;
        if diff_id != layer.diff_id {
            let what = "diff id (the digest of the uncompressed layer)";
            return Err(anyhow!(mismatch(what, &layer.diff_id, &diff_id)).context(Invalid));
        }
        Ok(())
    }

    /// Reads what is left of the compressed layer, and tells whether it is the promised one.
    pub(super) fn verify(self, layer: &Layer) -> Result<()> {
        self.decoder.into_compressed().verify(layer)
    }
}

fn mismatch(what: &str, wanted: &Digest, found: &Digest) -> String {
    format!("its {what} should be {wanted} and is {found}")
}

impl BufRead for Unpacked {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.filled {
            let count = self.decoder.read(&mut self.buffer)?;
            (self.at, self.filled) = (0, count);
            self.hasher.update(&self.buffer[..count]);
            self.count += count as u64;
            if self.count > self.limit {
                return Err(io::Error::other(format!(
                    "the layer unpacks to more than {} bytes, the limit for its compressed size",
                    self.limit
                )));
            }
        }
        Ok(&self.buffer[self.at..self.filled])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
