//! Configuration that a pivot carries to another image, or to other kernel arguments.

use anyhow::Result;

use super::layering::{Content, Layering};
use super::observe::Observed;
use crate::host::layer::Layered;
use crate::pipeline::Session;

/// The derived commit of `image_commit` with what is managed now. None where nothing of ours ever was
/// on the host: then the image's own commit is deployed.
pub(in crate::pipeline) fn carried<'s>(
    session: &'s Session,
    observed: &Observed,
    image_commit: &str,
) -> Result<Option<(Layered, Layering<'s>)>> {
    let next = &observed.next.configured;
    if !next.is_managed() && !session.host.has_var_record()? {
        return Ok(None);
    }
    let layering = Layering::begin(session)?;
    let previous = next.is_managed().then_some((&next.carried, next.image_commit.as_str()));
    let layered = layering.make(image_commit, Content { config: None, previous })?;
    Ok(Some((layered, layering)))
}
