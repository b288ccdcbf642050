//! A configuration as a new deployment: prepared, and committed if that is asked for.

use anyhow::Result;

use super::ConfigRequest;
use super::content::root_of;
use super::live::{record, refuse_problems};
use super::want::Wanted;
use crate::host::converge::{Converge, ProblemKind, preflight};
use crate::host::{HostLocked, history_entry, now};
use crate::model::manifest::Scope;
use crate::model::records::{HistoryOutcome, Intent};
use crate::pipeline::change::wait;
use crate::pipeline::commit::{check_before_commit, commit, refuse_failed_before};
use crate::pipeline::{Outcome, Session, Until};

/// Prepares the wanted next boot, and commits it if the request goes that far.
pub(super) fn deploy(session: &Session, request: &ConfigRequest, wanted: &Wanted<'_>) -> Result<Outcome> {
    session.stop_if_asked()?;
    refuse_failed_before(session, &wanted.next.commit, &wanted.kernel_arguments.to_string())?;
    check_before_commit(session, &wanted.next.commit)?;
    refuse_obstacles(session, wanted)?;
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

/// Refuses what would stand in the way of the boot that lays the configuration down. `/etc` will be a
/// merged copy then: what is immutable or full now is not there.
fn refuse_obstacles(session: &Session, wanted: &Wanted<'_>) -> Result<()> {
    let side = wanted.side();
    if side.status.staged {
        return Ok(());
    }
    let root = root_of(&session.host, side)?;
    let to = record(side, &wanted.next.manifest, Some(&wanted.next.commit));
    let known = [&side.configured.carried];
    let mut problems = Vec::new();
    for scope in Scope::OF_DEPLOYMENT {
        let found = preflight(&root, &Converge { to: &to, known: &known, scopes: &[scope], now: now() })?;
        problems.extend(found.into_iter().filter(|problem| scope == Scope::Var || stays(problem.kind)));
    }
    Ok(refuse_problems(&problems)?)
}

/// Whether a problem in `/etc` is still one in a merged copy of it.
fn stays(kind: ProblemKind) -> bool {
    matches!(
        kind,
        ProblemKind::ParentIsNoDirectory
            | ProblemKind::ParentIsLink
            | ProblemKind::IsDirectory
            | ProblemKind::IsDevice
    )
}

/// The intent of the wanted next boot.
pub(super) fn intent(locked: &HostLocked<'_>, request: &ConfigRequest, wanted: &Wanted<'_>) -> Intent {
    let next = wanted.observed.next.intent(locked.new_id(), wanted.next.commit.clone(), &request.who);
    Intent { reboot: request.reboot, ..wanted.named_in(request, next) }
}
