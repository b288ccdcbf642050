//! The disks that a power cut may leave.
//!
//! A disk keeps what was written before a flush that it has answered. Of what came later it keeps
//! anything: each piece or not, in any order, up to the moment of the cut. So a *cut* is a flush and a
//! choice of what was under way after it. A piece is 4 KiB, the least that a file system writes.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::scratch::Scratch;
use crate::sysroot::mount_tmpfs;
use crate::vm::block_log::{BlockLog, Entry};
use crate::vm::disk::Disk;

const PIECE: u64 = 4096;
/// Two disks, of which a third is in use.
const MEMORY: &str = "size=4g";
/// Where they are.
const FOLDER: &str = "memory";

/// One moment at which the power may go, and what the disk made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// All entries of the log before this one are on the disk.
    pub durable: usize,
    /// The number of flushes among them.
    pub flushes: usize,
    /// What else is on the disk: place on the disk, place in the log, length.
    pub luck: Vec<(u64, u64, u64)>,
    /// How many pieces were lost.
    pub lost: usize,
}

/// All flush boundaries of a log (the start among them), and for each one `chances` random choices of
/// what came before the next. An honest disk keeps the promise of every flush; one that lies, of every
/// `honoured`th. `seed` makes the same choices again.
pub fn cuts(log: &BlockLog, honoured: usize, chances: usize, seed: u64) -> Vec<Cut> {
    let mut random = Random(seed | 1);
    let mut boundaries = vec![0];
    boundaries.extend(log.flushes().iter().skip(honoured - 1).step_by(honoured).map(|index| index + 1));
    let mut cuts = Vec::new();
    for (number, &durable) in boundaries.iter().enumerate() {
        let flushes = number * honoured;
        cuts.push(Cut { durable, flushes, luck: Vec::new(), lost: 0 });
        let end = boundaries.get(number + 1).copied().unwrap_or(log.entries().len());
        let under_way = &log.entries()[durable..end];
        let writes = under_way.iter().filter(|entry| matches!(entry, Entry::Write { .. })).count();
        for _ in 0..if writes == 0 { 0 } else { chances } {
            let moment = random.below(writes) + 1;
            let (luck, lost) = choose(under_way, moment, &mut random);
            cuts.push(Cut { durable, flushes, luck, lost });
        }
    }
    cuts
}

/// Which pieces of the first `moment` writes are on the disk, and how many are not.
fn choose(entries: &[Entry], moment: usize, random: &mut Random) -> (Vec<(u64, u64, u64)>, usize) {
    let (mut luck, mut lost) = (Vec::new(), 0);
    let writes = entries.iter().filter_map(|entry| match *entry {
        Entry::Write { offset, data, length, forced } => Some((offset, data, length, forced)),
        _ => None,
    });
    for (offset, data, length, forced) in writes.take(moment) {
        let mut done = 0;
        while done < length {
            let piece = PIECE.min(length - done);
            if forced || random.below(2) == 0 {
                luck.push((offset + done, data + done, piece));
            } else {
                lost += 1;
            }
            done += piece;
        }
    }
    (luck, lost)
}

/// Makes the disks of cuts, one at a time, in the order of the log.
#[derive(Debug)]
pub struct Replay<'a> {
    log: &'a BlockLog,
    durable: Disk,
    applied: usize,
    scratch: Scratch,
}

impl<'a> Replay<'a> {
    /// `before` is the disk as it was when the log began.
    pub fn new(log: &'a BlockLog, before: &Disk) -> Result<Self> {
        let scratch = Scratch::new()?;
        // Hundreds of copies of a disk are nothing for a real one.
        std::fs::create_dir(scratch.join(FOLDER))?;
        mount_tmpfs(&scratch.join(FOLDER), MEMORY)?;
        let durable = before.copy_to(&scratch.join(FOLDER).join("durable"))?;
        Ok(Self { log, durable, applied: 0, scratch })
    }

    /// The disk after this cut. Cuts must come in order; the disk goes with the next one.
    pub fn disk(&mut self, cut: &Cut) -> Result<Disk> {
        self.advance(cut.durable)?;
        let image: PathBuf = self.scratch.join(FOLDER).join("cut");
        let disk = self.durable.copy_to(&image)?;
        let file = OpenOptions::new().write(true).open(&image)?;
        for &(offset, data, length) in &cut.luck {
            self.log.apply(&file, offset, data, length)?;
        }
        Ok(disk)
    }

    fn advance(&mut self, to: usize) -> Result<()> {
        let file = OpenOptions::new().write(true).open(self.durable.image())?;
        let entries = self.log.entries().get(self.applied..to).context("Cuts come in the log's order")?;
        for entry in entries {
            if let Entry::Write { offset, data, length, .. } = *entry {
                self.log.apply(&file, offset, data, length)?;
            }
        }
        self.applied = to;
        Ok(())
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        // Also when the scratch folder is kept: memory is not.
        let _ = Command::new("umount").arg("-l").arg(self.scratch.join(FOLDER)).output();
    }
}

/// A small generator (xorshift): the same seed, the same choices, on every machine.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;

    /// A log of writes (offset, sectors, flags) and flushes (no sectors).
    fn log(folder: &std::path::Path, entries: &[(u64, u64, u64)]) -> BlockLog {
        let path = folder.join("log");
        let mut file = File::create(&path).unwrap();
        let mut sector = |words: &[u64], rest: &[u8]| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend(rest);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
            file.write_all(&bytes).unwrap();
        };
        sector(&[0x006a_7366_7773_6872, 1, entries.len() as u64], &512_u32.to_le_bytes());
        for (number, &(offset, sectors, flags)) in entries.iter().enumerate() {
            sector(&[offset / 512, sectors, flags, sectors * 512], &[]);
            sector(&[], &vec![number as u8 + 1; sectors as usize * 512]);
        }
        BlockLog::open(&path).unwrap()
    }

    #[test]
    fn cuts_are_boundaries_and_choices() {
        let folder = tempfile::tempdir().unwrap();
        // Two pieces, a flush, a forced piece and a free one.
        let log = log(folder.path(), &[(0, 16, 0), (0, 0, 1), (8192, 8, 2), (16384, 8, 0)]);
        let found = cuts(&log, 1, 20, 7);
        assert_eq!(found, cuts(&log, 1, 20, 7), "the same seed, the same cuts");
        let boundaries: Vec<usize> =
            found.iter().filter(|cut| cut.luck.is_empty() && cut.lost == 0).map(|cut| cut.durable).collect();
        assert_eq!(boundaries, [0, 2]);
        assert_eq!(found.len(), 42);
        for cut in found.iter().filter(|cut| cut.durable == 0 && !cut.luck.is_empty()) {
            assert!(cut.luck.iter().all(|&(offset, _, length)| offset < 8192 && length == PIECE));
        }
        // What was forced is there in every choice; what came later is there in some.
        let later: Vec<_> = found.iter().filter(|cut| cut.durable == 2).skip(1).collect();
        let has = |cut: &&&Cut, place: u64| cut.luck.iter().any(|&(offset, _, _)| offset == place);
        assert!(later.iter().all(|cut| has(&cut, 8192)));
        assert!(later.iter().any(|cut| has(&cut, 16384)) && later.iter().any(|cut| !has(&cut, 16384)));
    }
}
