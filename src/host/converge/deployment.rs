//! Which deployment a root is, and what belongs on it.

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

use super::record::Stand;
use super::root::Root;
use crate::error::Fault;
use crate::model::applied::Applied;
use crate::model::manifest::Manifest;
use crate::model::origin::Origin;
use crate::plan::boot::Belongs;

/// A deployment, found without libostree.
#[derive(Debug)]
pub struct Deployment {
    /// Its commit, 64 hex digits.
    pub commit: String,
    /// Its serial.
    pub serial: u32,
    /// Its stateroot.
    pub stateroot: String,
    /// Its origin.
    pub origin: Origin,
    /// The objects of the repo, if they can be reached.
    pub objects: Option<Dir>,
}

/// What belongs on a root now.
#[derive(Debug)]
pub struct Effective {
    /// The deployment; none on a root without OSTree.
    pub deployment: Option<Deployment>,
    /// The manifest in its commit.
    pub commit_manifest: Option<Manifest>,
    /// The record of `/etc`.
    pub etc: Stand,
    /// The record of `/var`, where there is a `/var`.
    pub var: Stand,
    /// The decision.
    pub belongs: Belongs,
    /// What to lay down: ids, commits and manifest; empty where nothing of ours belongs.
    pub to: Applied,
}

/// What belongs on `root`.
pub fn effective(_root: &Root) -> Result<Effective> {
    Err(Fault::failed("reading the deployment is being built").into())
}
