//! The boot file, `/ostree/mcd-boots` on the physical root: what the boots since a switch showed.
//!
//! The initramfs must be able to write it when the disk is full and `/var` is not mounted. So it
//! has a fixed size and is preallocated: 32 KiB, two slots of 16 KiB which are written in turn, so
//! that a power cut while one is written leaves the other. A slot is, in little-endian order:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic, `MCDBOOT1` |
//! | 8 | sequence number; the greater one is the newer |
//! | 4 | length of the payload in bytes |
//! | 4 | zero |
//! | 32 | SHA-256 of the 24 bytes before it and the payload |
//! | … | the payload, JSON ([`BootRecord`]), then zeros to the end of the slot |
//!
//! The payload grows by addition: fields and values that this version does not know are kept when
//! it writes. Nothing here reads or writes a file.

mod record;
#[cfg(test)]
mod tests;

use sha2::Digest as _;

use crate::error::Fault;

pub use record::{
    BootEntry, BootRecord, BootState, CAUSE_LENGTH_MAX, ENTRIES_MAX, REQUESTS_MAX, RequestOutcome,
    RequestRecord, WentBack, WentBackBy,
};

/// Bytes of the whole file.
pub const FILE_SIZE: usize = 2 * SLOT_SIZE;
/// Bytes of one slot: four blocks of the usual file systems.
pub const SLOT_SIZE: usize = 16 * 1024;
const MAGIC: &[u8; 8] = b"MCDBOOT1";
/// Magic, sequence, length and padding: what the checksum covers besides the payload.
const SUMMED: usize = 24;
const HEADER: usize = SUMMED + 32;

/// One half of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

/// What was found in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFile {
    /// The newest whole record; the empty one if there is none.
    pub record: BootRecord,
    /// What was wrong with the file, if something was. It never stops a boot.
    pub warning: Option<String>,
    newest: Option<(Slot, u64)>,
}

/// Bytes to be written at one place, then synced. No other byte of the file may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotWrite {
    /// Where they go.
    pub slot: Slot,
    /// The whole slot, [`SLOT_SIZE`] bytes.
    pub bytes: Vec<u8>,
}

/// What one slot holds.
enum Content {
    Never,
    Damaged(&'static str),
    Whole(u64, Box<BootRecord>),
}

impl Slot {
    /// Where it begins in the file, in bytes.
    pub fn offset(self) -> u64 {
        match self {
            Self::A => 0,
            Self::B => SLOT_SIZE as u64,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl BootFile {
    /// Reads the file's bytes. A file that is missing is no bytes; one that was never written is
    /// zeros. Damage of one slot leaves the other's record, damage of both the empty record.
    pub fn decode(bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(bytes.len().min(SLOT_SIZE));
        let slots = [(Slot::A, read_slot(first)), (Slot::B, read_slot(second))];
        let mut newest: Option<(Slot, u64, BootRecord)> = None;
        let mut damage = Vec::new();
        for (slot, content) in slots {
            match content {
                Content::Never => {}
                Content::Damaged(why) => damage.push(format!("slot {slot:?}: {why}")),
                Content::Whole(sequence, record) => {
                    if newest.as_ref().is_none_or(|(_, other, _)| sequence > *other) {
                        newest = Some((slot, sequence, *record));
                    }
                }
            }
        }
        let warning = (!damage.is_empty()).then(|| {
            let rest = if newest.is_some() { "the record before it is used" } else { "it starts empty" };
            format!("the boot file is damaged ({}): {rest}", damage.join(", "))
        });
        let (newest, record) = match newest {
            Some((slot, sequence, record)) => (Some((slot, sequence)), record),
            None => (None, BootRecord::default()),
        };
        Self { record, warning, newest }
    }

    /// The next state of the file: the slot that does not hold the newest record, with `record`
    /// within its bounds ([`BootRecord::trim`]). Decode the file again after it is written and
    /// synced, also when that failed: the slot to spare depends on what is there.
    ///
    /// # Errors
    ///
    /// The record does not fit, even with nothing in it that may be dropped.
    pub fn encode_next(&self, record: &BootRecord) -> Result<SlotWrite, Fault> {
        let (slot, sequence) = match self.newest {
            Some((slot, sequence)) => (slot.other(), sequence.saturating_add(1)),
            None => (Slot::A, 1),
        };
        let payload = record.fit(SLOT_SIZE - HEADER)?;
        Ok(SlotWrite { slot, bytes: seal(sequence, &payload) })
    }
}

/// The bytes of a slot. The payload fits.
fn seal(sequence: u64, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(SLOT_SIZE);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let sum = checksum(&bytes, payload);
    bytes.extend_from_slice(&sum);
    bytes.extend_from_slice(payload);
    bytes.resize(SLOT_SIZE, 0);
    bytes
}

fn checksum(head: &[u8], payload: &[u8]) -> [u8; 32] {
    sha2::Sha256::new().chain_update(head).chain_update(payload).finalize().into()
}

fn read_slot(bytes: &[u8]) -> Content {
    if bytes.iter().all(|byte| *byte == 0) {
        return Content::Never;
    }
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else {
        return Content::Damaged("it is cut short");
    };
    let (summed, sum) = header.split_at(SUMMED);
    if !summed.starts_with(MAGIC) {
        return Content::Damaged("its magic is wrong");
    }
    let (Some(sequence), Some(length)) = (number::<8>(summed, 8), number::<4>(summed, 16)) else {
        return Content::Damaged("it is cut short");
    };
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    let Some(payload) = rest.get(..length) else {
        return Content::Damaged("its length is wrong");
    };
    if checksum(summed, payload) != sum {
        return Content::Damaged("its checksum is wrong");
    }
    match serde_json::from_slice(payload) {
        Ok(record) => Content::Whole(u64::from_le_bytes(sequence), Box::new(record)),
        Err(_) => Content::Damaged("its record is in a format that is unknown"),
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
