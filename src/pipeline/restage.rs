//! A committed change whose deployment is gone: a staged one lives in `/run` and dies with the power,
//! and finalising can fail at the shutdown. The next boot stages it again, once, without network.

use anyhow::Result;
use fn_error_context::context;

use super::Session;
use super::change::{Outcome, wait};
use super::commit::{check_before_commit, commit};
use super::resume::refuse_superseded;
use crate::host::{history_entry, why_not_finalised};
use crate::logging;
use crate::model::event::Event;
use crate::model::records::{HistoryOutcome, Intent};

/// How often a boot stages a lost change again by itself.
const TIMES: u32 = 1;

/// What became of a lost change.
#[derive(Debug)]
pub struct Restaged {
    /// It is staged again.
    pub outcome: Outcome,
    /// The request had asked for a reboot.
    pub reboot: bool,
}

/// Stages again what was lost; none where nothing is, or where a person must ask. What was only
/// prepared, rolled back, cancelled or superseded is never acted on.
#[context("Staging a lost change again")]
pub fn restage(session: &Session) -> Result<Option<Restaged>> {
    let Some(intent) = lost(session)? else { return Ok(None) };
    let why = why_not_finalised();
    let told = match &why {
        Some(why) => format!("the last shutdown could not finalise it ({why})"),
        None => "it was not finalised: the power failed, or the system was not shut down in order".to_owned(),
    };
    let id = &intent.id;
    if intent.restaged >= TIMES {
        let message = format!("change {id} is lost again: {told}; `mcd pivot --resume={id}` tries once more");
        logging::lost(&message);
        session.sink.event(Event::Warning { message });
        return Ok(None);
    }
    let message = format!("change {id} was committed and is lost: {told}; it is staged again");
    logging::lost(&message);
    session.sink.event(Event::Warning { message });
    let locked = session.host.lock(wait(session, true))?;
    // Only now: whoever had the lock may have changed what is asked for.
    let Some(mut intent) = lost(session)? else { return Ok(None) };
    refuse_superseded(&intent, &locked.status()?)?;
    // Durable before the attempt: what ends the machine half-way must not do so at each boot.
    intent.restaged += 1;
    locked.write_intent(&intent)?;
    locked.append_history(history_entry(&intent, HistoryOutcome::Failed, Some(told)))?;
    check_before_commit(session, &intent.commit)?;
    let reboot = intent.reboot;
    let outcome = commit(session, &locked, intent)?;
    Ok(Some(Restaged { outcome, reboot }))
}

/// The committed change that no boot entry has, and that nobody gave up.
fn lost(session: &Session) -> Result<Option<Intent>> {
    let Some(intent) = session.host.intent()?.filter(|intent| intent.is_committed() && !intent.live) else {
        return Ok(None);
    };
    let is_there = intent.is_among(&session.host.status()?.deployments);
    let is_over = session.host.boots()?.entry(&intent.id).is_some_and(|entry| entry.state.is_verdict());
    Ok((!is_there && !is_over).then_some(intent))
}
