//! `mcd apply` on an OSTree host.

use anyhow::Result;

use super::ConfigRequest;
use super::want::Wanted;
use super::{deploy, live, recover};
use crate::pipeline::change::{describe_change, nothing_to_do, wait};
use crate::pipeline::{Outcome, Session, Until, acquire};
use crate::plan::apply::Way;

/// Makes the host what the request says, as far as it goes.
pub fn apply(session: &Session, request: &ConfigRequest) -> Result<Outcome> {
    recover::continue_live(session, request.wait, request.until == Until::Planned)?;
    let wanted = Wanted::work_out(session, request)?;
    let plan = super::propose::plan(session, request, &wanted)?;
    if wanted.way == Way::NothingToDo {
        return Ok(Outcome::NothingToDo(wanted.observed.next.status.name.clone()));
    }
    if request.until == Until::Planned {
        return Ok(Outcome::Planned(plan));
    }
    acquire::refuse_failed("the change", &plan.checks)?;
    match wanted.way {
        Way::NothingToDo => unreachable!(),
        Way::ReturnToBooted => {
            let locked = session.host.lock(wait(session, request.wait))?;
            wanted.observed.confirm(&locked)?;
            locked.return_to_booted(&request.who)?;
            let running = wanted.observed.running.as_ref().map(|running| running.status.name.clone());
            Ok(Outcome::ReturnedToBooted(running.unwrap_or(wanted.observed.next.status.name.clone())))
        }
        Way::Live(after) => live::apply(session, request, &wanted, after),
        Way::Deploy => deploy::deploy(session, request, &wanted),
    }
}
