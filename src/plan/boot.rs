//! What belongs on a deployment that starts.

use serde::Serialize;

use crate::model::applied::Applied;
use crate::model::manifest::Manifest;

/// What is known of a deployment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen<'a> {
    /// Our id in its origin.
    pub id: Option<&'a str>,
    /// Its commit; none on a root without OSTree.
    pub commit: Option<&'a str>,
    /// The manifest in its commit.
    pub manifest: Option<&'a Manifest>,
    /// The record in its `/etc`, if it can be read.
    pub etc: Option<&'a Applied>,
    /// A record in its `/etc` cannot be read.
    pub etc_damaged: bool,
    /// The record in `/var`, if it can be read.
    pub var: Option<&'a Applied>,
}

/// What belongs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Belongs {
    /// What the record of `/etc` says: it is of this deployment.
    Record,
    /// What the record of `/var` says: that of `/etc` is damaged, and this one is of this deployment.
    VarRecord,
    /// What the manifest in the commit says.
    Commit,
    /// What the record of `/etc` says, outside of `/usr`: another tool made the deployment.
    Stranger,
    /// Nothing of ours: `/etc` stays as it is, nothing of ours may remain in `/var`.
    Nothing,
    /// It cannot be known: nothing is touched.
    Unknown,
}

/// What belongs on the deployment.
pub fn belongs(_seen: &Seen<'_>) -> Belongs {
    Belongs::Unknown
}
