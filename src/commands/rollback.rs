//! `mcd rollback`.

use anyhow::Result;
use camino::Utf8PathBuf;
use serde::Serialize;

use super::{Ended, open};
use crate::error::Fault;
use crate::host::{RollBack, RolledBack};
use crate::logging;
use crate::model::boot_order::rollback_target;
use crate::model::event::{Event, EventSink};
use crate::model::status::DeploymentName;
use crate::options::{Reboot, RollbackOptions};
use crate::plan::short_name;
use crate::ui::Printer;

/// The last JSON line.
#[derive(Debug, Serialize)]
struct Outcome {
    outcome: &'static str,
    to: DeploymentName,
    reverted_files: Vec<Utf8PathBuf>,
    needs_reboot: bool,
}

pub(super) fn run(options: RollbackOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&options.target)?;
    let progress = printer.progress("rollback");
    let status = host.status()?;
    let to = match &options.to {
        Some(name) => name.clone(),
        None => rollback_target(&status.deployments).map(|target| target.name.clone()).ok_or_else(|| {
            Fault::refused("there is no deployment to go back to")
                .why("the sysroot holds only what the next boot starts")
                .next("`mcd status` shows what is there; `mcd pivot IMAGE` makes a new deployment")
        })?,
    };
    host.refuse_soft_reboot(options.reboot)?;
    let losses = host.rollback_losses(&to)?;
    warn_of(&losses, progress.as_ref());
    if options.dry_run {
        let outcome = Outcome {
            outcome: "planned",
            to: to.clone(),
            reverted_files: losses,
            needs_reboot: host.is_booted(),
        };
        progress.end(&outcome, || format!("the next boot would start {}\n", short_name(&to)));
        return Ok(Ended::Done);
    }
    let locked = host.lock(open::wait(&options.target, progress.as_ref()))?;
    let who = open::who("rollback");
    let done = locked.roll_back(&RollBack { to: Some(&to), who: &who, why: None })?;
    drop(locked);
    if done.is_change() {
        logging::committed("an older deployment", &done.to, true);
    }
    if let Some(why) = &done.unrecorded {
        let message = format!("the next boot is switched, but the history does not tell of it: {why}");
        progress.event(Event::Warning { message });
    }
    let outcome = Outcome {
        outcome: if done.is_change() { "rolled-back" } else { "nothing-to-do" },
        to: done.to.clone(),
        reverted_files: losses,
        needs_reboot: done.needs_reboot,
    };
    progress.end(&outcome, || describe(&done));
    if options.reboot != Reboot::Never && done.needs_reboot {
        host.reboot(options.reboot, options.force, progress.as_ref())?;
    }
    Ok(Ended::Done)
}

/// Says before anything is done which files turn old with the rollback: an expired certificate or
/// an old pull secret is what makes a rolled back node useless.
fn warn_of(losses: &[Utf8PathBuf], sink: &dyn EventSink) {
    for path in losses {
        sink.event(Event::Warning { message: format!("{path} goes back to what it was in that deployment") });
    }
}

fn describe(done: &RolledBack) -> String {
    if !done.is_change() {
        return format!("nothing to do: the next boot starts {} already\n", short_name(&done.to));
    }
    let dropped = if done.dropped_staged { "the staged deployment is dropped; " } else { "" };
    let rest = if done.needs_reboot { ", after a reboot" } else { "" };
    format!(
        "{dropped}the next boot starts {} instead of {}{rest}\n",
        short_name(&done.to),
        short_name(&done.from)
    )
}
