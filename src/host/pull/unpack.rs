//! The tar bytes of a layer, decompressed in a thread of their own.
//!
//! Decompressing takes about as long as everything that follows it in the layer's order: the diff id,
//! the tar, the hand-over to the writers. So [`unpack`] and the reader of [`Unpacked`] are two
//! threads, and a few buffers go round between them: full ones to the reader, empty ones back. A
//! single-layer image keeps two processors busy so.
//!
//! Whoever ends first lets the other end: a reader that gives up closes the way back, upon which no
//! more is decompressed and only the digest is still looked at; a reader that is gone closes both.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use anyhow::{Context as _, Result, anyhow};
use sha2::{Digest as _, Sha256};

use super::decode::{Compressed, Decoder, ZstdState, mismatch};
use super::explain::Invalid;
use super::limits::unpacked;
use super::stop::Secondary;
use crate::model::digest::Digest;
use crate::model::oci::Layer;

/// How much is handed over at a time. Long runs keep the hash function and the decoder efficient.
const BUFFER: usize = 256 * 1024;
/// Buffers that go round: one on each side, and two so that neither waits for the other's turn.
const BUFFERS: usize = 4;

/// What the decompressing thread says.
enum Chunk {
    Data(Vec<u8>),
    /// The bytes cannot be decompressed, or do not come. The verdict follows.
    Failed(io::Error),
    /// Always the last word: whether the compressed layer is the promised one.
    Verdict(Result<()>),
}

/// The decompressing thread's ends.
struct Ends {
    chunks: SyncSender<Chunk>,
    spare: Receiver<Vec<u8>>,
}

/// Starts to decompress a layer in a thread of `scope`.
pub(super) fn unpack<'scope>(
    scope: &'scope Scope<'scope, '_>,
    compressed: Compressed,
    layer: &'scope Layer,
    zstd: &'scope mut ZstdState,
) -> Unpacked {
    let (chunks, chunks_out) = sync_channel(BUFFERS);
    let (spare_in, spare) = channel();
    for _ in 0..BUFFERS {
        // Without memory until it is needed: most layers are small.
        let _ = spare_in.send(Vec::new());
    }
    scope.spawn(move || {
        let ends = Ends { chunks, spare };
        let verdict = ends.decompress(compressed, layer, zstd);
        let _ = ends.chunks.send(Chunk::Verdict(verdict));
    });
    Unpacked {
        chunks: chunks_out,
        spare: spare_in,
        chunk: Vec::new(),
        at: 0,
        verdict: None,
        hasher: Sha256::new(),
        count: 0,
        limit: unpacked(layer.size),
    }
}

impl Ends {
    fn decompress(&self, mut compressed: Compressed, layer: &Layer, zstd: &mut ZstdState) -> Result<()> {
        let format = match compressed.format(layer.media) {
            Ok(format) => format,
            Err(error) => {
                let _ = self.chunks.send(Chunk::Failed(error));
                return compressed.verify(layer);
            }
        };
        let mut decoder = Decoder::new(compressed, format, zstd)?;
        while let Ok(mut buffer) = self.spare.recv() {
            buffer.resize(BUFFER, 0);
            let (filled, end) = fill(&mut decoder, &mut buffer);
            buffer.truncate(filled);
            if filled > 0 && self.chunks.send(Chunk::Data(buffer)).is_err() {
                return Err(Secondary("the layer's reader gave up").into());
            }
            match end {
                None => {}
                Some(Ok(())) => break,
                Some(Err(error)) => {
                    let _ = self.chunks.send(Chunk::Failed(error));
                    break;
                }
            }
        }
        decoder.into_compressed().verify(layer)
    }
}

/// Fills the buffer as far as it goes: how far, and how it ended if it did.
fn fill(decoder: &mut Decoder<'_>, buffer: &mut [u8]) -> (usize, Option<io::Result<()>>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match decoder.read(&mut buffer[filled..]) {
            Ok(0) => return (filled, Some(Ok(()))),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(Err(error))),
        }
    }
    (filled, None)
}

/// The reading side: hashes (the diff id) and bounds the tar bytes of one layer. Both verdicts come
/// from [`Unpacked::finish`], after the last byte.
pub(super) struct Unpacked {
    chunks: Receiver<Chunk>,
    spare: Sender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    /// On the compressed layer; there is no more data then.
    verdict: Option<Result<()>>,
    hasher: Sha256,
    count: u64,
    limit: u64,
}

impl std::fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacked").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Unpacked {
    /// Reads what is left, then compares length, digest and diff id with what was promised.
    pub(super) fn finish(mut self, layer: &Layer) -> Result<()> {
        let read = loop {
            match self.fill_buf().map(<[u8]>::len) {
                Ok(0) => break Ok(()),
                Ok(left) => self.consume(left),
                Err(error) => break Err(error),
            }
        };
        let diff_id = Digest::from_raw(std::mem::take(&mut self.hasher).finalize().into());
        // A stumble over wrong bytes is no news: that they are wrong is.
        self.verify()?;
        read.context(Invalid)?;
        if diff_id != layer.diff_id {
            let what = "diff id (the digest of the uncompressed layer)";
            return Err(anyhow!(mismatch(what, &layer.diff_id, &diff_id)).context(Invalid));
        }
        Ok(())
    }

    /// Has what is left of the compressed layer read, and tells whether it is the promised one.
    pub(super) fn verify(self) -> Result<()> {
        let Self { chunks, spare, verdict, .. } = self;
        drop(spare);
        if let Some(verdict) = verdict {
            return verdict;
        }
        for chunk in chunks {
            if let Chunk::Verdict(verdict) = chunk {
                return verdict;
            }
        }
        Err(Secondary("the layer's decompressor is gone").into())
    }

    fn take(&mut self, data: Vec<u8>) -> io::Result<()> {
        self.hasher.update(&data);
        self.count += data.len() as u64;
        (self.chunk, self.at) = (data, 0);
        if self.count > self.limit {
            return Err(io::Error::other(format!(
                "the layer unpacks to more than {} bytes, the limit for its compressed size",
                self.limit
            )));
        }
        Ok(())
    }
}

impl BufRead for Unpacked {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.chunk.len() && self.verdict.is_none() {
            let empty = std::mem::take(&mut self.chunk);
            self.at = 0;
            if empty.capacity() > 0 {
                // Not wanted any more at the layer's end.
                let _ = self.spare.send(empty);
            }
            match self.chunks.recv() {
                Ok(Chunk::Data(data)) => self.take(data)?,
                Ok(Chunk::Failed(error)) => return Err(error),
                Ok(Chunk::Verdict(verdict)) => self.verdict = Some(verdict),
                Err(_) => return Err(io::Error::other(Secondary("the layer's decompressor is gone"))),
            }
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

impl io::Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
