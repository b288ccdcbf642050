//! What a live apply means for a next boot that is another deployment, and for a change that is
//! prepared: both are made again on the new content, so that neither brings the old one back.

use anyhow::Result;

use super::ConfigRequest;
use super::layering::Content;
use super::observe::Observed;
use super::want::Wanted;
use crate::host::{DeployRequest, HostLocked, history_entry, layer};
use crate::model::kargs::KernelArguments;
use crate::model::live::{Live, NextBoot};
use crate::model::records::{HistoryOutcome, Intent, IntentState};
use crate::pipeline::Session;
use crate::pipeline::commit::check_before_commit;
use crate::plan::apply::After;

/// What becomes of what waits; none where nothing does. Makes and checks the commits that it needs, and
/// so refuses what could not be staged again before anything is changed.
pub(super) fn work_out(
    session: &Session,
    request: &ConfigRequest,
    wanted: &Wanted<'_>,
    after: After,
) -> Result<Option<NextBoot>> {
    match after {
        After::MadeAgain => {
            let before = staged(&wanted.observed);
            let made =
                Intent { commit: wanted.next.commit.clone(), ..wanted.named_in(request, before.clone()) };
            check_before_commit(session, &made.commit)?;
            Ok(Some(NextBoot { before, after: Some(made), staged: true }))
        }
        After::Drops => Ok(Some(NextBoot { before: staged(&wanted.observed), after: None, staged: true })),
        After::Stays => match wanted.observed.waiting() {
            Some(waiting) => waiting_again(session, request, wanted, waiting).map(Some),
            None => Ok(None),
        },
    }
}

/// The intent of what would boot next, whoever made it.
pub(super) fn staged(observed: &Observed) -> Intent {
    let next = &observed.next;
    let known = observed.intent.as_ref().filter(|intent| Some(&intent.id) == next.status.id.as_ref());
    if let Some(intent) = known {
        return intent.clone();
    }
    let id = next.status.id.clone().unwrap_or_else(|| next.status.name.to_string());
    Intent {
        state: IntentState::Committed,
        base: observed.running.as_ref().map(|running| running.status.name.clone()),
        when: i64::try_from(next.status.timestamp).unwrap_or_default(),
        ..next.intent(id, next.status.name.checksum.clone(), "another tool")
    }
}

/// A change that is prepared, or lost, on the new content. Where nothing of it is left but what now runs,
/// it goes.
fn waiting_again(
    session: &Session,
    request: &ConfigRequest,
    wanted: &Wanted<'_>,
    waiting: &Intent,
) -> Result<NextBoot> {
    let repo = session.host.repo()?;
    let previous = layer::manifest_of_commit(&repo, &waiting.commit)?.unwrap_or_default();
    let arguments = KernelArguments::parse(&waiting.kernel_arguments);
    let arguments = match request.kernel_arguments() {
        Some(new) => {
            arguments.replace_managed(&previous.kernel_arguments, new).map_err(crate::error::Fault::from)?
        }
        None => arguments,
    };
    let running = &wanted.observed.next;
    let is_running = waiting.image_commit == running.configured.image_commit
        && arguments.is_equivalent(&running.kernel_arguments);
    if is_running {
        return Ok(NextBoot { before: waiting.clone(), after: None, staged: false });
    }
    let content = Content {
        config: Some((&request.config, &request.source)),
        previous: (!request.drops_others).then_some((&previous, waiting.image_commit.as_str())),
    };
    let layered = wanted.layering.make(&waiting.image_commit, content)?;
    let made = Intent { commit: layered.commit, kernel_arguments: arguments.to_string(), ..waiting.clone() };
    check_before_commit(session, &made.commit)?;
    Ok(NextBoot { before: waiting.clone(), after: Some(made), staged: false })
}

/// Refs for all that is named, before a record names it.
pub(super) fn keep(locked: &HostLocked<'_>, next: &NextBoot) -> Result<()> {
    for intent in [Some(&next.before), next.after.as_ref()].into_iter().flatten() {
        locked.keep_derived(&intent.commit, &intent.image_commit)?;
    }
    Ok(())
}

/// The change with an id of its own, where what is staged is not of ours: another tool copies the
/// origin, and with it the id of the running deployment.
pub(super) fn named(locked: &HostLocked<'_>, observed: &Observed, next: NextBoot) -> NextBoot {
    let is_ours = observed.intent.as_ref().is_some_and(|intent| intent.id == next.before.id);
    let after = next.after.map(|mut after| {
        if !is_ours {
            after.id = locked.new_id();
        }
        after
    });
    NextBoot { after, ..next }
}

/// Makes what waits what it is to be. Doing it again changes nothing.
pub(super) fn bring_forward(locked: &HostLocked<'_>, next: &NextBoot, live: &Live) -> Result<()> {
    match (&next.after, next.staged) {
        (Some(after), true) => stage(locked, after),
        (Some(after), false) => {
            locked.set_keep_ref(&after.id, &after.commit)?;
            locked.write_intent(after)
        }
        (None, true) => locked.return_to_booted(&live.who),
        (None, false) => {
            let Some(dropped) = locked.clear_intent()? else { return Ok(()) };
            let why = Some(format!("superseded by {}", live.id));
            locked.append_history(history_entry(&dropped, HistoryOutcome::Cancelled, why))
        }
    }
}

/// What waited before waits again.
pub(super) fn bring_back(locked: &HostLocked<'_>, next: &NextBoot) -> Result<()> {
    if next.staged {
        return stage(locked, &next.before);
    }
    locked.set_keep_ref(&next.before.id, &next.before.commit)?;
    locked.write_intent(&next.before)
}

/// Stages a change, unless it is what the next boot starts.
fn stage(locked: &HostLocked<'_>, intent: &Intent) -> Result<()> {
    let status = locked.status()?;
    let is_there = status.next_boot().is_some_and(|next| {
        next.name.checksum == intent.commit
            && next.id.as_ref() == Some(&intent.id)
            && KernelArguments::parse(&next.kernel_arguments)
                .is_equivalent(&KernelArguments::parse(&intent.kernel_arguments))
    });
    if is_there {
        return Ok(());
    }
    let committed = Intent { state: IntentState::Committed, ..intent.clone() };
    locked.prepare(&committed)?;
    locked.deploy(&DeployRequest::from(&committed)).map(drop)
}
