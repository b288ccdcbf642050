//! The image of the wanted next boot: the one that it starts already, the one that runs, or another.

use anyhow::Result;

use super::ConfigRequest;
use super::observe::Observed;
use crate::model::digest::Digest;
use crate::model::image_ref::OsImage;
use crate::model::status::DeploymentStatus;
use crate::pipeline::acquire::{self, Source};
use crate::pipeline::{Session, Until};
use crate::plan::has_image;

/// The image of the wanted next boot.
#[derive(Debug, Clone)]
pub(super) struct WantedImage {
    /// As it was asked for; none where the request names none, or the one that is there.
    pub(super) asked: Option<OsImage>,
    /// What the origin says, where none was asked for.
    pub(super) kept: Option<OsImage>,
    pub(super) digest: Option<Digest>,
    pub(super) asked_digest: Option<Digest>,
    /// The image commit: what derived commits are made from.
    pub(super) commit: String,
    /// It is not fetched: `commit` is that of the next boot, as an estimate.
    pub(super) missing: Option<Box<Source>>,
    /// The next boot starts it.
    pub(super) is_next: bool,
    /// It runs.
    pub(super) runs: bool,
}

/// Finds it, and fetches it where that is needed and the request goes further than a plan.
pub(super) fn find(session: &Session, observed: &Observed, request: &ConfigRequest) -> Result<WantedImage> {
    let Some(image) = &request.config.image else {
        return Ok(kept(observed, &observed.next.status));
    };
    if let Some(wanted) = present(observed, image, None) {
        return Ok(wanted);
    }
    let found = acquire::find(session, image, &request.pull)?;
    if let Some(wanted) = present(observed, image, Some(found.digest())) {
        return Ok(wanted);
    }
    let (asked, digest) = (Some(image.clone()), Some(found.digest().clone()));
    // Where every layer is here already, the image itself is a matter of milliseconds.
    let is_missing = matches!(&found, Source::Fetch(fetch) if fetch.layers.fetch_layers() > 0);
    if request.until == Until::Planned && is_missing {
        let next = kept(observed, &observed.next.status);
        let (is_next, runs) = (false, false);
        return Ok(WantedImage { asked, digest, missing: Some(Box::new(found)), is_next, runs, ..next });
    }
    let pulled = acquire::obtain(session, found)?;
    Ok(WantedImage {
        asked,
        kept: None,
        digest,
        asked_digest: pulled.asked_digest,
        commit: pulled.commit,
        missing: None,
        is_next: false,
        runs: false,
    })
}

/// The image where a deployment that counts has it: the next boot's, or what runs.
fn present(observed: &Observed, image: &OsImage, resolved: Option<&Digest>) -> Option<WantedImage> {
    let has = |status: &DeploymentStatus| has_image(status, image, resolved) == Some(true);
    if has(&observed.next.status) {
        return Some(kept(observed, &observed.next.status));
    }
    let running = observed.running.as_ref().filter(|running| has(&running.status))?;
    Some(WantedImage { asked: Some(image.clone()), kept: None, ..kept(observed, &running.status) })
}

/// The image of a deployment, as it is.
fn kept(observed: &Observed, status: &DeploymentStatus) -> WantedImage {
    let commit_of = |status: &DeploymentStatus| {
        status.image_commit.clone().unwrap_or_else(|| status.name.checksum.clone())
    };
    let commit = commit_of(status);
    WantedImage {
        asked: None,
        kept: status.image.clone(),
        digest: status.digest.clone(),
        asked_digest: status.asked_digest.clone(),
        is_next: commit == commit_of(&observed.next.status),
        runs: observed.running.as_ref().is_some_and(|running| commit == commit_of(&running.status)),
        commit,
        missing: None,
    }
}
