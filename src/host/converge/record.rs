//! The records of what was laid down.

use anyhow::Result;

use super::root::Root;
use crate::error::Fault;
use crate::model::applied::Applied;

/// Which record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// `/etc/mcd/applied.json`; speaks for `/usr` too on a root without OSTree.
    Etc,
    /// `/var/lib/mcd/applied.json`.
    Var,
}

/// A record as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// There is none.
    Missing,
    /// It cannot be read, for this reason.
    Damaged(String),
    /// What was laid down.
    Known(Box<Applied>),
}

impl Stand {
    /// The record, if it could be read.
    pub fn known(&self) -> Option<&Applied> {
        match self {
            Self::Known(applied) => Some(applied),
            Self::Missing | Self::Damaged(_) => None,
        }
    }
}

/// Reads a record. Fails only where the disk does.
pub fn read_record(_root: &Root, _record: Record) -> Result<Stand> {
    Err(Fault::failed("reading records is being built").into())
}
