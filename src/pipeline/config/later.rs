//! A live apply that is prepared now and made later, by `--resume`.

use anyhow::Result;

use super::ConfigRequest;
use super::content::OnDisk;
use super::layering::{Content, Layering};
use super::live::{Ready, actions_of, carry_out};
use super::next;
use super::observe::{Observed, Side};
use super::want::Wanted;
use crate::error::Fault;
use crate::host::history_entry;
use crate::host::layer::{Layered, manifest_of_commit};
use crate::host::policies::policies;
use crate::model::live::NextBoot;
use crate::model::manifest::Manifest;
use crate::model::records::{HistoryOutcome, Intent};
use crate::pipeline::change::wait;
use crate::pipeline::commit::check_before_commit;
use crate::pipeline::{Outcome, Session};
use crate::plan::apply::means_the_same;

/// Prepares it: commits and refs are there, nothing else happened.
pub(super) fn prepare(session: &Session, request: &ConfigRequest, wanted: &Wanted<'_>) -> Result<Outcome> {
    let (Some(running), Some(layered)) = (&wanted.observed.running, &wanted.live) else {
        return Err(Fault::failed("nothing of this sysroot runs").into());
    };
    let locked = session.host.lock(wait(session, request.wait))?;
    wanted.observed.confirm(&locked)?;
    let intent = Intent {
        base: Some(wanted.observed.next.status.name.clone()),
        config: Some(request.config.names.clone()),
        live: true,
        ..running.intent(locked.new_id(), layered.commit.clone(), &request.who)
    };
    locked.keep_derived(&intent.commit, &intent.image_commit)?;
    locked.prepare(&intent)?;
    locked.append_history(history_entry(&intent, HistoryOutcome::Prepared, None))?;
    Ok(Outcome::Prepared(Box::new(intent)))
}

/// Makes it, if it still needs no reboot.
pub(in crate::pipeline) fn resume(session: &Session, intent: &Intent, may_wait: bool) -> Result<Outcome> {
    let observed = Observed::look(&session.host)?;
    let manifest = manifest_of_commit(&session.host.repo()?, &intent.commit)?;
    let (Some(running), Some(manifest)) = (&observed.running, manifest) else {
        return Err(superseded(intent).into());
    };
    if running.configured.image_commit != intent.image_commit {
        return Err(superseded(intent).into());
    }
    if means_the_same(&running.configured.manifest, &manifest) {
        session.host.lock(wait(session, may_wait))?.clear_intent()?;
        return Ok(Outcome::NothingToDo(running.status.name.clone()));
    }
    let disk = OnDisk::of(session, running)?;
    let changes = super::want::changes_of(session, running, &manifest)?;
    let verdict = disk.verdict(&changes, &policies(&session.host.running_root()?)?);
    if verdict.needs_reboot() {
        return Err(superseded(intent).into());
    }
    let layering = Layering::begin(session)?;
    let done = carry_out(
        session,
        Ready {
            observed: &observed,
            commit: &intent.commit,
            manifest: &manifest,
            actions: actions_of(&verdict),
            next: staged_again(session, &layering, &observed, running, &manifest)?,
            who: &intent.who,
            wait: may_wait,
        },
    )?;
    session.host.lock(wait(session, may_wait))?.clear_intent()?;
    Ok(Outcome::Applied(Box::new(done)))
}

/// What is staged beside it, on the new content.
fn staged_again(
    session: &Session,
    layering: &Layering<'_>,
    observed: &Observed,
    running: &Side,
    manifest: &Manifest,
) -> Result<Option<NextBoot>> {
    if observed.next_runs() {
        return Ok(None);
    }
    let next = &observed.next;
    let before = next::staged(observed);
    let is_same = next.configured.image_commit == running.configured.image_commit
        && next.kernel_arguments.is_equivalent(&running.kernel_arguments);
    if is_same {
        return Ok(Some(NextBoot { before, after: None, staged: true }));
    }
    let previous = Some((manifest, running.configured.image_commit.as_str()));
    let Layered { commit, .. } =
        layering.make(&next.configured.image_commit, Content { config: None, previous })?;
    check_before_commit(session, &commit)?;
    let after = Intent { commit, ..before.clone() };
    Ok(Some(NextBoot { before, after: Some(after), staged: true }))
}

fn superseded(intent: &Intent) -> Fault {
    Fault::refused(format!("change {} was prepared for another host state", intent.id))
        .why("the running system is not the one that it was compared with")
        .next("ask again: `mcd apply FILE`")
}
