//! Whether the request files of the old host API, or of a first boot, still ask for anything. Decided without network: at
//! an early boot there may be none.

use anyhow::Result;

use super::change::Outcome;
use crate::host::{Host, HostRequest};
use crate::model::digest::Digest;
use crate::model::status::HostStatus;
use crate::plan::{self, Decision, Desired};

/// Nothing to do, where the request was committed by an earlier run: the deployment that came of it
/// is what the next boot starts. A tag may have moved since; the request was carried out all the same.
pub fn fulfilled(host: &Host, request: Option<&Digest>) -> Result<Option<Outcome>> {
    let Some(intent) = host.intent()? else { return Ok(None) };
    if intent.request_digest.is_none() || intent.request_digest.as_ref() != request {
        return Ok(None);
    }
    let status = host.status()?;
    let next = status.next_boot().filter(|next| next.id.as_ref() == Some(&intent.id));
    Ok(next.map(|next| Outcome::NothingToDo(next.name.clone())))
}

/// Whether the next boot starts what a request asks for: its digest, or, where it has only a tag, the
/// image that came from that very reference; and its arguments.
pub fn is_fulfilled(host: &HostStatus, request: &HostRequest) -> bool {
    let Some(next) = host.next_boot() else { return false };
    let mut desired = Desired { image: request.image.clone(), resolved: None, kargs: request.kargs.clone() };
    if next.image.is_some() && next.image == desired.image {
        desired.resolved.clone_from(&next.digest);
    }
    matches!(plan::decide(&desired, host), Ok(Some(Decision::NothingToDo)))
}
