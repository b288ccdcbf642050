//! From compressed pieces to tar bytes: [`Compressed`] hashes and counts what arrives, [`Decoder`]
//! decompresses it.

use std::io::{self, BufRead, Read};

use anyhow::Result;
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc::Receiver;
use zstd::zstd_safe::{DCtx, DParameter, ResetDirective, get_error_name};

use super::explain::Corrupt;
use super::limits::MAX_ZSTD_WINDOW_LOG;
use super::stop::{Secondary, Stop};
use crate::model::digest::Digest;
use crate::model::oci::{Compression, Layer};

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
    /// By what the bytes are; the manifest's word counts only for layers that it calls plain, whose
    /// tar could begin with anything.
    pub(super) fn format(&mut self, declared: Compression) -> io::Result<Compression> {
        if declared == Compression::None {
            return Ok(Compression::None);
        }
        let magic = self.fill_buf()?;
        let skippable = magic.len() >= 4 && magic[0] & 0xf0 == 0x50 && magic[1..4] == [0x2a, 0x4d, 0x18];
        Ok(if magic.starts_with(&[0x1f, 0x8b]) {
            Compression::Gzip
        } else if skippable || magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Compression::Zstd
        } else {
            Compression::None
        })
    }

    /// Reads to the end; every byte counts for the digest, also after a decoder's own end mark.
    pub(super) fn verify(mut self, layer: &Layer) -> Result<()> {
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

/// zstd's state, the window above all: kept from layer to layer, as a window takes 8 MiB, which cost
/// as many page faults each time that they are new, and are not always given back.
#[derive(Default)]
pub(super) struct ZstdState(Option<DCtx<'static>>);

impl ZstdState {
    fn ready(&mut self) -> io::Result<&mut DCtx<'static>> {
        let error = |code| io::Error::other(format!("zstd: {}", get_error_name(code)));
        if self.0.is_none() {
            self.0 = DCtx::try_create();
        }
        let Some(context) = &mut self.0 else { return Err(io::ErrorKind::OutOfMemory.into()) };
        // The layer before may have ended inside a frame.
        context.reset(ResetDirective::SessionAndParameters).map_err(error)?;
        context.set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG)).map_err(error)?;
        Ok(context)
    }
}

/// What decompresses one layer.
pub(super) enum Decoder<'a> {
    None(Compressed),
    Gzip(Box<MultiGzDecoder<Compressed>>),
    Zstd(Box<zstd::stream::read::Decoder<'a, Compressed>>),
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
        compressed: Compressed,
        format: Compression,
        zstd: &'a mut ZstdState,
    ) -> io::Result<Self> {
        Ok(match format {
            Compression::None => Self::None(compressed),
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(compressed))),
            Compression::Zstd => {
                Self::Zstd(Box::new(zstd::stream::read::Decoder::with_context(compressed, zstd.ready()?)))
            }
        })
    }

    pub(super) fn into_compressed(self) -> Compressed {
        match self {
            Self::None(reader) => reader,
            Self::Gzip(reader) => reader.into_inner(),
            Self::Zstd(reader) => reader.finish(),
        }
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

pub(super) fn mismatch(what: &str, wanted: &Digest, found: &Digest) -> String {
    format!("its {what} should be {wanted} and is {found}")
}
