//! What a machine wrote to its disk, in order: the log that qemu's `blklogwrites` keeps.
//!
//! The format is that of the kernel's log-writes target. Sector 0 holds magic, version, number of
//! entries (64 bits each) and the sector's size (32 bits). Each entry begins on a sector of its own
//! with four numbers of 64 bits: first sector on the disk, number of sectors, flags, length of what
//! follows on the next sectors. All are little-endian.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// One thing that reached the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Everything before this is durable.
    Flush,
    /// `length` bytes for `offset`, which are in the log from `data` on. Durable by itself if `forced`.
    Write {
        /// First byte on the disk.
        offset: u64,
        /// First byte in the log.
        data: u64,
        /// How many.
        length: u64,
        /// Whether the guest wanted it durable when it was answered.
        forced: bool,
    },
    /// These bytes are not needed any more, and read as anything.
    Discard {
        /// First byte on the disk.
        offset: u64,
        /// How many.
        length: u64,
    },
}

/// A log.
#[derive(Debug)]
pub struct BlockLog {
    file: File,
    entries: Vec<Entry>,
}

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;

impl BlockLog {
    /// Reads the entries of a log whose machine is off.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("Opening {}", path.display()))?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0).context("Reading the log's head")?;
        let (magic, version, count) = (word(&head, 0), word(&head, 1), word(&head, 2));
        ensure!(magic == MAGIC && version == 1, "no log of version 1: magic {magic:x}, version {version}");
        let sector = u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]]));
        ensure!(sector.is_power_of_two() && sector >= 512, "a sector of {sector} bytes");
        let mut entries = Vec::new();
        let mut at = sector;
        for number in 0..count {
            let mut head = [0; 32];
            file.read_exact_at(&mut head, at)
                .with_context(|| format!("Reading entry {number} of {count}"))?;
            at += sector;
            let (offset, length, flags, data) =
                (word(&head, 0) * sector, word(&head, 1) * sector, word(&head, 2), word(&head, 3));
            if flags & DISCARD != 0 {
                entries.push(Entry::Discard { offset, length });
                continue;
            }
            // A write that carries a flush is one after the other.
            if flags & FLUSH != 0 {
                entries.push(Entry::Flush);
            }
            if length > 0 {
                // qemu leaves the length of the data out.
                ensure!(data == length || data == 0, "entry {number} has {data} bytes for {length}");
                entries.push(Entry::Write { offset, data: at, length, forced: flags & FORCED != 0 });
                at += length;
            }
        }
        Ok(Self { file, entries })
    }

    /// The entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where the flushes are among the entries.
    pub fn flushes(&self) -> Vec<usize> {
        let is_flush = |(index, entry): (usize, &Entry)| (*entry == Entry::Flush).then_some(index);
        self.entries.iter().enumerate().filter_map(is_flush).collect()
    }

    /// Writes `length` bytes of the log from `data` on to `offset` of a disk.
    pub fn apply(&self, disk: &File, offset: u64, data: u64, length: u64) -> Result<()> {
        let mut buffer = vec![0; usize::try_from(length)?];
        self.file.read_exact_at(&mut buffer, data)?;
        disk.write_all_at(&buffer, offset)?;
        Ok(())
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = &bytes[index * 8..][..8];
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read() {
        let mut log = Vec::new();
        let mut sector = |words: &[u64], body: &[u8]| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(body);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
            log.extend(bytes);
        };
        sector(&[MAGIC, 1, 4], &512_u32.to_le_bytes());
        sector(&[8, 2, 0, 0], &[]);
        sector(&[], &[7; 1024]);
        sector(&[0, 0, FLUSH, 0], &[]);
        sector(&[16, 8, DISCARD, 0], &[]);
        sector(&[3, 1, FLUSH | FORCED, 512], &[]);
        sector(&[], &[9; 512]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, log).unwrap();
        let log = BlockLog::open(&path).unwrap();
        assert_eq!(
            log.entries(),
            [
                Entry::Write { offset: 4096, data: 1024, length: 1024, forced: false },
                Entry::Flush,
                Entry::Discard { offset: 8192, length: 4096 },
                Entry::Flush,
                Entry::Write { offset: 1536, data: 3584, length: 512, forced: true },
            ]
        );
        assert_eq!(log.flushes(), [1, 3]);
        let disk = File::create(folder.path().join("disk")).unwrap();
        log.apply(&disk, 1536, 3584, 512).unwrap();
        assert_eq!(std::fs::read(folder.path().join("disk")).unwrap()[1536..], [9; 512]);
    }
}
