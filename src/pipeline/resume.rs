//! `--resume`: what `--until prepared` left, without network.

use anyhow::Result;
use fn_error_context::context;

use super::Session;
use super::change::{Outcome, nothing_to_do, wait};
use super::commit::{check_before_commit, commit, refuse_failed_before};
use crate::error::Fault;
use crate::model::records::Intent;
use crate::model::status::HostStatus;
use crate::plan;

/// Commits what `--until prepared` left, without network.
#[context("Resuming a prepared change")]
pub fn resume(session: &Session, id: Option<&str>, may_wait: bool) -> Result<Outcome> {
    super::config::continue_live(session, may_wait, false)?;
    let host = session.host.status()?;
    let Some(intent) = session.host.intent()? else {
        return Err(Fault::refused("nothing is prepared on this host")
            .next("prepare a change first: `mcd pivot IMAGE --until prepared`")
            .into());
    };
    if let Some(id) = id
        && id != intent.id
    {
        return Err(Fault::refused(format!("the prepared change is {}, not {id}", intent.id))
            .why("a later request replaced it")
            .next(format!("`mcd pivot --resume={}` commits that one; `mcd status` shows it", intent.id))
            .into());
    }
    if intent.live {
        return super::config::resume_live(session, &intent, may_wait);
    }
    if intent.is_among(&host.deployments) {
        return nothing_to_do(&host);
    }
    refuse_failed_before(session, &intent.commit, &intent.kernel_arguments)?;
    check_before_commit(session, &intent.commit)?;
    let locked = session.host.lock(wait(session, may_wait))?;
    refuse_superseded(&intent, &locked.status()?)?;
    // A person asks: should it be lost again, the next boot may try once more.
    commit(session, &locked, Intent { restaged: 0, ..intent })
}

pub(super) fn refuse_superseded(intent: &Intent, host: &HostStatus) -> Result<()> {
    if host.next_boot().map(|next| &next.name) == intent.base.as_ref() {
        return Ok(());
    }
    let base = intent.base.as_ref().map_or_else(|| "unknown".to_owned(), plan::short_name);
    Err(Fault::refused(format!("change {} was prepared for another host state", intent.id))
        .why(format!("it was compared with deployment {base}, which the next boot no longer starts"))
        .next("ask again: `mcd pivot IMAGE`; what was fetched is still there")
        .into())
}
