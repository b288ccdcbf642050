//! The compressions that layers come in, as streaming writers.

use std::io::{self, Write};

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// A plain tar.
    None,
    /// One gzip member.
    Gzip,
    /// Several gzip members one after the other, as parallel and seekable writers make them.
    GzipMembers,
    /// One zstd frame.
    Zstd,
    /// Many zstd frames with skippable frames between and after them, as zstd:chunked has it.
    ZstdChunked,
}

/// Input bytes per member or frame of the compressions that have several. Small, so that fixtures
/// of some kilobytes have more than one.
const PIECE: usize = 16 * 1024;

/// Fixtures are written once and read once or twice: the fastest level.
const LEVEL: u32 = 1;

impl Compression {
    /// The layer's media type in an OCI manifest.
    pub fn oci_media_type(self) -> &'static str {
        match self {
            Self::None => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip | Self::GzipMembers => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd | Self::ZstdChunked => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }

    /// The layer's media type in a Docker manifest, version 2, schema 2.
    pub fn docker_media_type(self) -> &'static str {
        match self {
            Self::None => "application/vnd.docker.image.rootfs.diff.tar",
            Self::Gzip | Self::GzipMembers => "application/vnd.docker.image.rootfs.diff.tar.gzip",
            Self::Zstd | Self::ZstdChunked => "application/vnd.docker.image.rootfs.diff.tar.zstd",
        }
    }

    /// A writer that compresses into `out`. Call [`Compressor::finish`] at the end.
    pub fn writer<W: Write>(self, out: W) -> io::Result<Compressor<W>> {
        Ok(match self {
            Self::None => Compressor::Plain(out),
            Self::Gzip => Compressor::Gzip(gzip(out)),
            Self::Zstd => Compressor::Zstd(zstd::Encoder::new(out, LEVEL as i32)?),
            Self::GzipMembers | Self::ZstdChunked => {
                Compressor::Pieces { out, zstd: self == Self::ZstdChunked, buffer: Vec::with_capacity(PIECE) }
            }
        })
    }
}

impl std::str::FromStr for Compression {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "none" => Self::None,
            "gzip" => Self::Gzip,
            "gzip-members" => Self::GzipMembers,
            "zstd" => Self::Zstd,
            "zstd-chunked" => Self::ZstdChunked,
            _ => {
                anyhow::bail!("compression '{text}': expected none, gzip, gzip-members, zstd or zstd-chunked")
            }
        })
    }
}

fn gzip<W: Write>(out: W) -> flate2::write::GzEncoder<W> {
    flate2::write::GzEncoder::new(out, flate2::Compression::new(LEVEL))
}

/// A running compression.
pub enum Compressor<W: Write> {
    /// None.
    Plain(W),
    /// One gzip member.
    Gzip(flate2::write::GzEncoder<W>),
    /// One zstd frame.
    Zstd(zstd::Encoder<'static, W>),
    /// Members or frames of [`PIECE`] input bytes.
    Pieces {
        /// Where they go.
        out: W,
        /// Frames, not members.
        zstd: bool,
        /// Input of the next piece.
        buffer: Vec<u8>,
    },
}

impl<W: Write> std::fmt::Debug for Compressor<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

impl<W: Write> Compressor<W> {
    /// Writes what is held back and the end mark, and gives the inner writer back.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Pieces { mut out, zstd, buffer } => {
                write_piece(&mut out, zstd, &buffer)?;
                Ok(out)
            }
        }
    }
}

impl<W: Write> Write for Compressor<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(data),
            Self::Gzip(encoder) => encoder.write(data),
            Self::Zstd(encoder) => encoder.write(data),
            Self::Pieces { out, zstd, buffer } => {
                let taken = data.len().min(PIECE - buffer.len());
                buffer.extend_from_slice(&data[..taken]);
                if buffer.len() == PIECE {
                    write_piece(out, *zstd, buffer)?;
                    buffer.clear();
                }
                Ok(taken)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_piece<W: Write>(out: &mut W, zstd: bool, data: &[u8]) -> io::Result<()> {
    if !zstd {
        let mut encoder = gzip(out);
        encoder.write_all(data)?;
        encoder.finish()?;
        return Ok(());
    }
    out.write_all(&zstd::encode_all(data, LEVEL as i32)?)?;
    // RFC 8878, 3.1.2: a magic number, a length, and bytes that a decoder passes over.
    let aside = b"bytes that are not part of the content";
    out.write_all(&0x184D_2A50_u32.to_le_bytes())?;
    out.write_all(&(aside.len() as u32).to_le_bytes())?;
    out.write_all(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compression_reads_back() {
        let data: Vec<u8> = (0..100_000_u32).flat_map(|number| number.to_le_bytes()).collect();
        for compression in [
            Compression::None,
            Compression::Gzip,
            Compression::GzipMembers,
            Compression::Zstd,
            Compression::ZstdChunked,
        ] {
            let mut writer = compression.writer(Vec::new()).unwrap();
            writer.write_all(&data).unwrap();
            let packed = writer.finish().unwrap();
            let mut seen = Vec::new();
            match compression {
                Compression::None => seen = packed,
                Compression::Gzip | Compression::GzipMembers => {
                    io::copy(&mut flate2::read::MultiGzDecoder::new(packed.as_slice()), &mut seen)
                        .map(drop)
                        .unwrap();
                }
                Compression::Zstd | Compression::ZstdChunked => {
                    zstd::stream::copy_decode(packed.as_slice(), &mut seen).unwrap();
                }
            }
            assert!(seen == data, "{compression:?}");
        }
    }
}
