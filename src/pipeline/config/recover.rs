//! A live apply that was cut: continued in its direction by the next run.

use anyhow::Result;

use super::content::root_of;
use super::ground::{Deployed, Ground};
use super::live::Run;
use super::observe::Side;
use crate::error::{ExitKind, Fault, to_fault};
use crate::host::{HostLocked, history_of_live};
use crate::model::event::{Event, EventSink};
use crate::model::live::Live;
use crate::model::records::HistoryOutcome;
use crate::pipeline::Session;
use crate::pipeline::change::wait;

/// What somebody who only looks is told.
const CUT: &str = "a live apply was cut; the next change or `mcd verify --repair` ends it first";

/// Ends a live apply that a killed run left, before anything else is decided. `only_look` changes
/// nothing.
pub(in crate::pipeline) fn continue_live(session: &Session, may_wait: bool, only_look: bool) -> Result<()> {
    if session.host.live()?.is_none() {
        return Ok(());
    }
    if only_look {
        session.sink.event(Event::Warning { message: CUT.to_owned() });
        return Ok(());
    }
    let locked = session.host.lock(wait(session, may_wait))?;
    // It may have been one that ran, and ended while the lock was waited for.
    match session.host.live()? {
        Some(live) => go_on(session, &locked, live),
        None => Ok(()),
    }
}

fn go_on(session: &Session, locked: &HostLocked<'_>, live: Live) -> Result<()> {
    let status = locked.status()?;
    let Some(running) = status.booted() else {
        // What does not run is put in order by its own boot.
        return Ok(());
    };
    if live.deployment.as_ref() != Some(&running.name) {
        let why = "another deployment was booted".to_owned();
        locked.append_history(history_of_live(&live, HistoryOutcome::Cancelled, Some(why)))?;
        return locked.clear_live();
    }
    let side = Side::read(locked.host(), running)?;
    let root = root_of(locked.host(), &side)?;
    go_on_with(&Deployed { locked, root }, live, session.sink.as_ref())
}

/// The same on a root without OSTree, with its lock held.
pub(super) fn continue_live_on(
    ground: &dyn Ground,
    live: Option<Live>,
    sink: &dyn EventSink,
    only_look: bool,
) -> Result<()> {
    match live {
        Some(_) if only_look => {
            sink.event(Event::Warning { message: CUT.to_owned() });
            Ok(())
        }
        Some(live) => go_on_with(ground, live, sink),
        None => Ok(()),
    }
}

fn go_on_with(ground: &dyn Ground, live: Live, sink: &dyn EventSink) -> Result<()> {
    let run = Run { ground, sink };
    if live.is_forward() {
        let message = format!("going on with the live apply {}, which was cut", live.id);
        sink.event(Event::Note { message });
        return match run.forward(live) {
            Err(error) if to_fault(&error).kind == ExitKind::NotUndone => Err(error),
            // Undone: it must not keep the request that follows, which may be the remedy, from being made.
            Err(error) => {
                sink.event(Event::Warning { message: format!("{error:#}") });
                Ok(())
            }
            Ok(_) => Ok(()),
        };
    }
    let message = format!("undoing the live apply {}, which failed and was cut", live.id);
    sink.event(Event::Note { message });
    let all = live.actions.len();
    let cause = Fault::failed("it was cut while it was undone").into();
    let error = run.back(live, all, &cause);
    // Undone is what was wanted here; the request that follows is another one.
    if to_fault(&error).kind == ExitKind::NotUndone { Err(error) } else { Ok(()) }
}
