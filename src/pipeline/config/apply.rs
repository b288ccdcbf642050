//! `mcd apply` on an OSTree host.

use anyhow::Result;

use super::ConfigRequest;
use super::live::{Ready, actions_of, carry_out};
use super::want::Wanted;
use super::{deploy, later, next, recover};
use crate::error::Fault;
use crate::pipeline::change::wait;
use crate::pipeline::{Outcome, Session, Until, acquire};
use crate::plan::apply::{After, Way};

/// Makes the host what the request says, as far as it goes.
pub fn apply(session: &Session, request: &ConfigRequest) -> Result<Outcome> {
    recover::continue_live(session, request.wait, request.until == Until::Planned)?;
    let wanted = Wanted::work_out(session, request)?;
    let plan = super::propose::plan(session, request, &wanted)?;
    if request.until == Until::Planned && wanted.way != Way::NothingToDo {
        return Ok(Outcome::Planned(plan));
    }
    acquire::refuse_failed("the change", &plan.checks)?;
    match wanted.way {
        Way::NothingToDo => Ok(Outcome::NothingToDo(wanted.observed.next.status.name.clone())),
        Way::ReturnToBooted => {
            let locked = session.host.lock(wait(session, request.wait))?;
            wanted.observed.confirm(&locked)?;
            locked.return_to_booted(&request.who)?;
            Ok(Outcome::ReturnedToBooted(wanted.side().status.name.clone()))
        }
        Way::Live(_) if request.until == Until::Prepared => later::prepare(session, request, &wanted),
        Way::Live(after) => make_live(session, request, &wanted, after),
        Way::Deploy => deploy::deploy(session, request, &wanted),
    }
}

/// Makes the change on the running system.
fn make_live(
    session: &Session,
    request: &ConfigRequest,
    wanted: &Wanted<'_>,
    after: After,
) -> Result<Outcome> {
    let Some(layered) = &wanted.live else {
        return Err(Fault::failed("nothing of this sysroot runs").into());
    };
    let done = carry_out(
        session,
        Ready {
            observed: &wanted.observed,
            commit: &layered.commit,
            manifest: &layered.manifest,
            actions: actions_of(&wanted.verdict),
            next: next::work_out(session, request, wanted, after)?,
            who: &request.who,
            wait: request.wait,
        },
    )?;
    Ok(Outcome::Applied(Box::new(done)))
}
