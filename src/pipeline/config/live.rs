//! The live apply: files on the running root, then reloads and restarts, then what the next boot starts.
//!
//! One record ([`Live`]) says how far it is; each stage can be done again from its beginning. What fails
//! turns the direction round; what is cut is continued in its direction by [`super::recover`].

use anyhow::Result;

use super::ConfigRequest;
use super::content::{objects, root_of};
use super::want::Wanted;
use super::{next, observe::Side};
use crate::error::{ExitKind, Fault};
use crate::host::converge::{Converge, Converged, Root, converge, preflight};
use crate::host::{HostLocked, actions, history_entry, now};
use crate::model::applied::{APPLIED_VERSION, Applied};
use crate::model::event::{Event, EventSink};
use crate::model::live::{LIVE_VERSION, Live, LiveAction, LiveState, NextBoot};
use crate::model::manifest::{Manifest, Scope};
use crate::model::policy::Action;
use crate::model::records::{HistoryEntry, HistoryOutcome, Intent, IntentState};
use crate::pipeline::change::wait;
use crate::pipeline::{Outcome, Session, Until, commit};
use crate::plan::apply::After;
use crate::plan::disruption::Verdict;

/// Where a live apply on a deployment works: `/usr` is the commit's own.
const SCOPES: [Scope; 2] = [Scope::Etc, Scope::Var];
/// The service that a change of registries.conf is for.
const CRIO: &str = "crio.service";

/// Makes the change on the running root.
pub(super) fn apply(
    session: &Session,
    request: &ConfigRequest,
    wanted: &Wanted<'_>,
    after: After,
) -> Result<Outcome> {
    let (Some(running), Some(layered)) = (&wanted.observed.running, &wanted.live) else {
        return Err(Fault::failed("nothing of this sysroot runs").into());
    };
    let next = next::work_out(session, request, wanted, after)?;
    let root = root_of(&session.host, running)?;
    let to = record(running, &layered.manifest, &layered.commit);
    refuse_problems(&root, &to)?;
    session.stop_if_asked()?;
    let locked = session.host.lock(wait(session, request.wait))?;
    wanted.observed.confirm(&locked)?;
    let live = Live {
        version: LIVE_VERSION,
        id: locked.new_id(),
        state: LiveState::Converging,
        deployment: Some(running.status.name.clone()),
        back: record(running, &running.configured.manifest, running.contents_commit()),
        to,
        actions: actions_of(&wanted.verdict),
        next,
        who: request.who.clone(),
        when: now(),
        extra: serde_json::Map::new(),
    };
    locked.keep_derived(&layered.commit, &running.configured.image_commit)?;
    if let Some(next) = &live.next {
        next::keep(&locked, next)?;
    }
    locked.write_live(&live)?;
    let done = Run { session, locked: &locked, root: &root }.forward(live)?;
    Ok(Outcome::Applied(Box::new(done)))
}

/// What a live apply did.
#[derive(Debug, Clone)]
pub struct Applied_ {
    /// The record as it ended.
    pub live: Live,
    /// What was laid down.
    pub converged: Converged,
}
