//! The part of a boot before its root starts.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::commands::Ended;
use crate::error::Fault;
use crate::host::boot_hook::{Counted, Starting, reboot};
use crate::host::converge::{BootReport, BootStage, Root, boot_with, lock};
use crate::host::{boot_note, now};
use crate::logging;
use crate::model::boots::WentBackBy;
use crate::model::event::{Event, EventSink as _};
use crate::plan::boot_count::GoingBack;
use crate::plan::short_name;
use crate::ui::{Printer, Progress};

/// Counts the boot of the deployment at `path` and lays down what belongs on it. In an initramfs, one that
/// must be left is left at once, and this does not return.
pub(super) fn run(path: &Path, printer: &Printer) -> Result<Ended> {
    let root = Root::open(path)?;
    let sink = printer.progress("boot");
    let starting = Starting::find(path, &root).unwrap_or_else(|error| {
        sink.event(Event::Warning { message: format!("this boot is not counted: {error:#}") });
        None
    });
    let report = match starting {
        Some(starting) => Before { root: &root, starting, sink: sink.as_ref() }.run()?,
        None => {
            let _lock = lock(&root, true)?;
            boot_with(&root, BootStage::Before, now(), &mut || Ok(()))?
        }
    };
    logging::boot(&report);
    printer.boot(&report)?;
    Ok(Ended::Done)
}

struct Before<'r> {
    root: &'r Root,
    starting: Starting,
    sink: &'r Progress,
}

impl Before<'_> {
    fn run(mut self) -> Result<BootReport> {
        let mut note = self.starting.note();
        match self.starting.count(now()) {
            Ok(Counted::Boots) => note.counted = true,
            Ok(Counted::Stays(cause)) => {
                note.counted = true;
                note.degraded = Some(format!(
                    "{cause}; this deployment stays: no other deployment of this host proved good"
                ));
            }
            Ok(Counted::GoBack(back)) => {
                note.counted = true;
                note.degraded = self.leave(&back, WentBackBy::BootCount)?;
            }
            Err(error) => self.warn(format!("this boot is not counted: {error:#}")),
        }
        let laid_down = self.lay_down();
        if let Err(error) = &laid_down {
            note.unconverged = true;
            let cause = format!("its configuration could not be laid down: {error:#}");
            note.degraded = match self.starting.way_back() {
                Ok(Some(to)) => self.leave(&GoingBack { to, cause }, WentBackBy::Converge)?,
                Ok(None) => Some(format!("{cause}; this deployment stays")),
                Err(error) => Some(format!("{cause}; this deployment stays: {error:#}")),
            };
        }
        if let Some(why) = &note.degraded {
            logging::unhealthy(Some(self.starting.name()), why, None);
            self.warn(why.clone());
        }
        if let Err(error) = boot_note::write(&note) {
            self.warn(format!("{error:#}"));
        }
        laid_down
    }

    fn lay_down(&mut self) -> Result<BootReport> {
        let _lock = lock(self.root, true)?;
        boot_with(self.root, BootStage::Before, now(), &mut || self.starting.make_writable())
    }

    /// On the console: whoever looks at a machine that does not come up has nothing else.
    fn warn(&self, message: String) {
        self.sink.event(Event::Warning { message });
    }

    /// Goes back and reboots. Comes back only with why that could not be done: the boot goes on then.
    fn leave(&mut self, back: &GoingBack, by: WentBackBy) -> Result<Option<String>> {
        if !Starting::is_in_initramfs() {
            return Err(Fault::failed(format!(
                "deployment {} is not started",
                short_name(self.starting.name())
            ))
            .why(back.cause.clone())
            .next("`mcd rollback` makes the last good deployment the next boot")
            .into());
        }
        self.warn(format!("{}: going back to {}", back.cause, short_name(&back.to)));
        let went_back = self.starting.go_back(back, by, now()).and_then(|()| {
            logging::unhealthy(Some(self.starting.name()), &back.cause, Some(&back.to));
            reboot().context("The next boot is switched, and the reboot fails")
        });
        Ok(went_back.err().map(|error| format!("{}; it could not be left: {error:#}", back.cause)))
    }
}
