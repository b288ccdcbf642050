//! What a config says of disks: `storage.disks`, `raid`, `filesystems` and `luks`.
//!
//! Ignition carries that out when a machine is installed, and nothing does afterwards. A config keeps
//! saying it for as long as the machine lives, so it is kept, compared with what was said before, and
//! written back where configs are rendered. What is compared is a digest: a section may hold keys.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::model::digest::Digest;

/// The sections, as Ignition names them below `storage`.
pub const SECTIONS: [&str; 4] = ["disks", "raid", "filesystems", "luks"];

/// The sections of a config that say something, by name.
pub type Disks = BTreeMap<String, DiskSection>;

/// What was said before: the digest of each section that said something.
pub type DisksSaid = BTreeMap<String, Digest>;

/// One section.
#[derive(Clone, PartialEq, Eq)]
pub struct DiskSection {
    /// Where it stands in the input.
    pub field: String,
    /// Its items, with keys in order and without fields that say nothing. May hold secrets.
    pub items: Vec<Value>,
}

impl fmt::Debug for DiskSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} items", self.field, self.items.len())
    }
}

impl DiskSection {
    /// Of what it says; the order of its items does not count.
    pub fn digest(&self) -> Digest {
        let mut items: Vec<String> = self.items.iter().map(Value::to_string).collect();
        items.sort_unstable();
        Digest::of(items.join("\n").as_bytes())
    }
}

/// The digests of the sections.
pub fn said(disks: &Disks) -> DisksSaid {
    disks.iter().map(|(name, section)| (name.clone(), section.digest())).collect()
}
