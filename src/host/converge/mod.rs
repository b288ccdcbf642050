//! Converging: making an `/etc` and a `/var` hold what a manifest says, so that a kill or a power cut
//! at any point leaves something that the next run completes.
//!
//! It runs in the initramfs too: no libostree, no libselinux. Owners, labels and what holds the
//! contents all stand in the manifest.
//!
//! One converge, for the record of each scope:
//!
//! 1. *Survey*: what is on disk is compared with what must be there and what must go. Nothing to do
//!    ends here; what cannot be done ([`Problem`]) ends here too, before anything changed.
//! 2. `converging.json` beside the record names the target, the originals that will be set aside and
//!    the directories that will be made. It is durable before the first change.
//! 3. Directories are made, originals copied, new files written under names of ours
//!    (`.mcd-…` beside their place); one `syncfs`.
//! 4. Each new file changes places with the old one in one atomic step, which keeps the old one until
//!    the end: an error is undone without needing space. Another `syncfs`.
//! 5. The record is replaced; then the old files and `converging.json` go.
//!
//! A run that finds `converging.json` knows every name that the killed one may have left, whatever the
//! target is now.
//!
//! A person's file is never lost: content that no record of ours names is copied to the folder of
//! originals first. One that stood there before the path was managed returns when the path leaves
//! the config; an edit of a managed path is kept for the person to find.

mod boot;
mod compare;
mod contents;
mod cut;
mod deployment;
#[cfg(feature = "ostree")]
mod found;
mod journal;
mod lock;
mod look;
mod perform;
mod place;
mod record;
mod root;
mod shadow;
mod survey;
mod write;

#[cfg(test)]
mod tests;

pub use boot::{BOOT_REPORT_VERSION, BootReport, BootStage, boot, boot_with};
pub use compare::{Difference, What, differences};
pub use contents::{ContentStore, Contents, DeploymentTree, InMemory, RepoObjects, Several, Wanted, read};
pub use deployment::{Deployment, Effective, all_deployments, deployment_name, deployment_of, effective};
#[cfg(feature = "ostree")]
pub use found::{found, found_content};
pub use lock::{RootLock, lock};
pub use record::{Record, Stand, parse_applied, parse_manifest, read_record};
pub use root::Root;
pub use survey::{Problem, ProblemKind, preflight};

use anyhow::Result;
use camino::Utf8PathBuf;
use serde::Serialize;

use crate::error::Fault;
use crate::model::applied::Applied;
use crate::model::manifest::{Manifest, Scope};

/// What is to be laid down. What was laid down before, the records in the root tell.
#[derive(Debug, Clone, Copy)]
pub struct Converge<'a> {
    /// The ids, commits and manifest that the records will name; `originals`, `made` and `when` are
    /// worked out.
    pub to: &'a Applied,
    /// Further manifests of ours whose contents are no local edits (of the deployment that `/etc` was
    /// merged from, of an undone live apply). The records' own need not be named.
    pub known: &'a [&'a Manifest],
    /// Where. [`Scope::Usr`] only on a root without OSTree; the record of `/etc` speaks for it.
    pub scopes: &'a [Scope],
    /// Seconds since the epoch, for the records.
    pub now: i64,
}

/// What a converge did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Converged {
    /// Paths that were changed, in order.
    pub changed: Vec<Change>,
    /// Copies that were made of what a person had.
    pub set_aside: Vec<SetAside>,
    /// What could not be done and need not stop anybody.
    pub warnings: Vec<String>,
    /// Whether a record was written.
    pub recorded: bool,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where.
    pub path: Utf8PathBuf,
    /// What was done there.
    pub how: How,
}

/// What was done at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Nothing was there.
    Created,
    /// Something else was there.
    Replaced,
    /// It was the config's, and is nobody's now.
    Removed,
    /// What the image has there is back.
    DefaultReturned,
    /// What a person had there is back.
    OriginalReturned,
    /// Only a directory's mode, owner or label changed.
    Mended,
    /// A user's password, in `/etc/shadow`.
    Password,
}

/// A copy of what a person had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// Where it was.
    pub path: Utf8PathBuf,
    /// Where its content is now, absolute; none for a link or a directory's mode, which the record
    /// itself holds.
    pub copy: Option<Utf8PathBuf>,
    /// Whether it returns when the path leaves the config; else it is an edit of a managed path.
    pub returns: bool,
}

/// Lays `request.to` down. An error of class 1 means that nothing changed or everything was undone,
/// one of class 4 that a person, or the next run, must finish it. The caller holds the host lock.
pub fn converge(root: &Root, contents: &dyn Contents, request: &Converge<'_>) -> Result<Converged> {
    let records = survey::records(request.scopes);
    for record in &records {
        perform::sweep(root, *record)?;
    }
    let look = || {
        let eye = look::Eye::new(root);
        records.iter().map(|record| survey::survey(&eye, request, *record)).collect::<Result<Vec<_>>>()
    };
    let mut surveys = look()?;
    let changes_users = surveys.iter().flat_map(|survey| &survey.steps).any(|step| step.how == How::Password);
    let lock = if changes_users { Some(shadow::lock(root)?) } else { None };
    if lock.is_some() {
        // Another program may have changed it before we had the lock.
        surveys = look()?;
    }
    if let Some(fault) = refuse(&surveys) {
        return Err(fault.into());
    }
    perform::perform(root, contents, &surveys)
}

/// What stands in the way, as a fault.
fn refuse(surveys: &[survey::Survey]) -> Option<Fault> {
    let problems: Vec<&Problem> = surveys.iter().flat_map(|survey| &survey.problems).collect();
    let first = problems.first()?;
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more like it"),
    };
    Some(
        Fault::failed(format!("{} cannot be made as the configuration says", first.path))
            .why(format!("{}{more}", first.why))
            .next(first.next.clone()),
    )
}
