//! A configuration as a new deployment: prepared, and committed if that is asked for.

use anyhow::Result;

use super::ConfigRequest;
use super::want::Wanted;
use crate::host::{HostLocked, history_entry, now};
use crate::model::records::{HistoryOutcome, Intent, IntentState, RECORD_VERSION};
use crate::pipeline::change::wait;
use crate::pipeline::commit::{check_before_commit, commit};
use crate::pipeline::{Outcome, Session, Until};

/// Prepares the wanted next boot, and commits it if the request goes that far.
pub(super) fn deploy(session: &Session, request: &ConfigRequest, wanted: &Wanted<'_>) -> Result<Outcome> {
    session.stop_if_asked()?;
    check_before_commit(session, &wanted.next.commit)?;
    let locked = session.host.lock(wait(session, request.wait))?;
    wanted.observed.confirm(&locked)?;
    let intent = intent(&locked, request, wanted);
    locked.keep_derived(&intent.commit, &intent.image_commit)?;
    locked.prepare(&intent)?;
    if request.until == Until::Prepared {
        locked.append_history(history_entry(&intent, HistoryOutcome::Prepared, None))?;
        return Ok(Outcome::Prepared(Box::new(intent)));
    }
    commit(session, &locked, intent)
}

/// The intent of the wanted next boot.
pub(super) fn intent(locked: &HostLocked<'_>, request: &ConfigRequest, wanted: &Wanted<'_>) -> Intent {
    let image = &wanted.image;
    Intent {
        version: RECORD_VERSION,
        id: locked.new_id(),
        state: IntentState::Prepared,
        asked: image.asked.clone(),
        digest: image.digest.clone(),
        asked_digest: image.asked_digest.clone(),
        image_commit: image.commit.clone(),
        commit: wanted.next.commit.clone(),
        kernel_arguments: wanted.kernel_arguments.to_string(),
        base: Some(wanted.observed.next.status.name.clone()),
        request_digest: None,
        reboot: request.reboot,
        kept_image: image.kept.clone(),
        config: Some(request.config.names.clone()),
        live: false,
        who: request.who.clone(),
        when: now(),
        extra: serde_json::Map::new(),
    }
}
