//! What belongs on a deployment that starts.

use serde::Serialize;

use crate::model::applied::Applied;
use crate::model::manifest::Manifest;

/// What is known of a root.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen<'a> {
    /// It is a deployment, as far as can be told.
    pub is_deployment: bool,
    /// Our id in its origin.
    pub id: Option<&'a str>,
    /// Its commit; none on a root without OSTree, or where the deployment could not be found.
    pub commit: Option<&'a str>,
    /// The manifest in its commit.
    pub manifest: Option<&'a Manifest>,
    /// A manifest in its commit cannot be read.
    pub manifest_damaged: bool,
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

/// What belongs on the root.
pub fn belongs(seen: &Seen<'_>) -> Belongs {
    if !seen.is_deployment {
        return on_plain_root(seen);
    }
    let is_of_this = |record: &Applied| match (seen.id, seen.commit) {
        // A tool that redeploys the same commit copies the origin, and so the id.
        (Some(id), _) => record.deployment_id.as_deref() == Some(id),
        (None, Some(commit)) => record.deployment_commit.as_deref() == Some(commit),
        (None, None) => false,
    };
    match seen.etc {
        // A live apply may have moved on from what the commit says.
        Some(record) if is_of_this(record) => return Belongs::Record,
        None if seen.etc_damaged && seen.var.is_some_and(is_of_this) => return Belongs::VarRecord,
        _ => {}
    }
    match (seen.manifest, seen.etc) {
        (Some(_), _) => Belongs::Commit,
        (None, _) if seen.manifest_damaged || seen.commit.is_none() => Belongs::Unknown,
        (None, Some(_)) => Belongs::Stranger,
        (None, None) if seen.etc_damaged => Belongs::Unknown,
        (None, None) => Belongs::Nothing,
    }
}

/// Without deployments, the record of `/etc` is all there is.
fn on_plain_root(seen: &Seen<'_>) -> Belongs {
    match (seen.etc, seen.etc_damaged, seen.var) {
        (Some(_), ..) => Belongs::Record,
        (None, true, Some(_)) => Belongs::VarRecord,
        (None, true, None) => Belongs::Unknown,
        // An `/etc` that lost its record says nothing about `/var`.
        (None, false, Some(_)) => Belongs::Unknown,
        (None, false, None) => Belongs::Nothing,
    }
}

#[cfg(test)]
mod tests;
