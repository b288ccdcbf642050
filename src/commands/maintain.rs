//! `mcd pin`, `mcd unpin`, `mcd cancel` and `mcd cleanup`.

use anyhow::Result;
use serde::Serialize;

use super::{Ended, open};
use crate::error::{ExitKind, Fault};
use crate::host::{Cancelled, Freed, Host, Pinned, PruneOptions, Pruned, Settled, pull};
use crate::model::event::{Event, EventSink};
use crate::options::{CleanupOptions, PinOptions, Target};
use crate::plan::{Bytes, short_name};
use crate::ui::Printer;

/// The last JSON line of `pin` and `unpin`.
#[derive(Debug, Serialize)]
struct PinOutcome {
    outcome: &'static str,
    deployment: String,
}

pub(super) fn pin(options: PinOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&options.target)?;
    let progress = printer.progress(if options.pinned { "pin" } else { "unpin" });
    let locked = host.lock(open::wait(&options.target, progress.as_ref()))?;
    let name = options.which.resolve(&locked.status()?)?.name.clone();
    let pinned = locked.set_pinned(&name, options.pinned)?;
    let short = short_name(&name);
    let (outcome, text) = match pinned {
        Pinned::Yes => ("pinned", format!("{short} is pinned: no change and no cleanup removes it\n")),
        Pinned::No => ("unpinned", format!("{short} is not pinned any more\n")),
        Pinned::StillKept => (
            "kept",
            format!("{short} is not pinned any more, but stays for now: it is the last good deployment\n"),
        ),
        Pinned::Unchanged if options.pinned => ("unchanged", format!("{short} is pinned already\n")),
        Pinned::Unchanged => ("unchanged", format!("{short} is not pinned\n")),
    };
    progress.end(&PinOutcome { outcome, deployment: name.to_string() }, || text);
    Ok(Ended::Done)
}

/// The last JSON line of `cancel`.
#[derive(Debug, Serialize)]
struct CancelOutcome {
    outcome: &'static str,
    id: Option<String>,
    staged: Option<String>,
}

pub(super) fn cancel(target: Target, printer: &Printer) -> Result<Ended> {
    let host = open::host(&target)?;
    let progress = printer.progress("cancel");
    let Cancelled { intent, staged, damaged, unrecorded } =
        host.lock(open::wait(&target, progress.as_ref()))?.cancel(&open::who("cancel"))?;
    if let Some(why) = unrecorded {
        let message = format!("it is dropped, but the history does not tell of it: {why}");
        progress.event(Event::Warning { message });
    }
    let text = match (&intent, &staged) {
        (None, None) if damaged => "dropped the record of a change, which could not be read\n".to_owned(),
        (None, None) => "nothing is prepared or staged\n".to_owned(),
        (Some(intent), None) => format!("dropped the prepared change {}\n", intent.id),
        (_, Some(staged)) => format!("dropped the staged deployment {}\n", short_name(staged)),
    };
    let outcome = CancelOutcome {
        outcome: if intent.is_none() && staged.is_none() && !damaged { "nothing-to-do" } else { "cancelled" },
        id: intent.map(|intent| intent.id),
        staged: staged.map(|name| name.to_string()),
    };
    progress.end(&outcome, || text);
    Ok(Ended::Done)
}

/// The last JSON line of `cleanup`.
#[derive(Debug, Default, Serialize)]
struct CleanupOutcome {
    outcome: &'static str,
    images: Vec<String>,
    layers: usize,
    changes: usize,
    objects: u64,
    bytes: u64,
}

pub(super) fn cleanup(options: CleanupOptions, printer: &Printer) -> Result<Ended> {
    let host = open::host(&options.target)?;
    let progress = printer.progress("cleanup");
    if options.after_boot && !settle(&host, &options.target, progress.as_ref())? {
        let outcome = CleanupOutcome { outcome: "nothing-to-do", ..CleanupOutcome::default() };
        progress.end(&outcome, String::new);
        return Ok(Ended::Done);
    }
    let leftovers = |repo: &ostree::Repo, only_count: bool| {
        Ok(if only_count { pull::leftovers(repo)? } else { pull::remove_leftovers(repo)? }.bytes)
    };
    let prune = PruneOptions { dry_run: options.dry_run, idle: options.after_boot, leftovers: &leftovers };
    match host.prune(&prune)? {
        Pruned::Done(freed) => {
            let text = describe(&freed, options.dry_run);
            let outcome = CleanupOutcome {
                outcome: if options.dry_run { "planned" } else { "cleaned" },
                images: freed.images,
                layers: freed.layers,
                changes: freed.changes,
                objects: freed.objects,
                bytes: freed.bytes,
            };
            progress.end(&outcome, || text);
        }
        Pruned::PutOff { holder } if options.after_boot || options.target.wait => {
            let outcome = CleanupOutcome { outcome: "put-off", ..CleanupOutcome::default() };
            progress.end(&outcome, || {
                format!("put off: {holder} uses the repo; run `mcd cleanup` again later\n")
            });
        }
        Pruned::PutOff { holder } => {
            return Err(Fault::new(ExitKind::Busy, "the repo is in use")
                .why(format!("{holder} holds its lock"))
                .into());
        }
    }
    Ok(Ended::Done)
}

/// Judges the boot that just happened; tells whether it is time to prune.
fn settle(host: &Host, target: &Target, sink: &dyn EventSink) -> Result<bool> {
    let Settled { good, fulfilled, lost } = host.lock(open::wait(target, sink))?.after_boot()?;
    if let Some(intent) = fulfilled {
        sink.event(Event::Note { message: format!("change {} is complete: the host runs it", intent.id) });
    }
    if let Some(lost) = lost {
        sink.event(Event::Warning { message: lost });
    }
    if let Some(good) = &good {
        sink.event(Event::Note { message: format!("deployment {} is good", short_name(good)) });
    }
    Ok(good.is_some())
}

fn describe(freed: &Freed, dry_run: bool) -> String {
    let verb = if dry_run { "would free" } else { "freed" };
    let mut text = String::new();
    for image in &freed.images {
        text.push_str(&format!("{image}\n"));
    }
    text.push_str(&format!(
        "{verb} {}: {} images, {} layers, {} objects\n",
        Bytes(freed.bytes),
        freed.images.len(),
        freed.layers,
        freed.objects
    ));
    text
}
