//! The parts of a boot in the running system: early, and when it is ended in order.

use std::path::Path;

use anyhow::Result;

use super::lay_down;
use crate::commands::Ended;
use crate::host::converge::{Root, deployment_name};
use crate::host::{GaveUp, Host, Wait, boot_note, health, is_shutting_down, reboot};
use crate::logging;
use crate::model::boot_note::BootNote;
use crate::model::event::{Event, EventSink as _};
use crate::model::status::DeploymentName;
use crate::plan::short_name;
use crate::ui::{Printer, Progress};

/// The record of what is under way, below the root.
const INTENT_FILE: &str = "var/lib/mcd/intent.json";

/// Counts the boot where no hook of the initramfs did, and lays down what belongs on the root. What is
/// to be left is left at once: this does not return then, so that nothing that waits for it starts.
pub(super) fn early(printer: &Printer) -> Result<Ended> {
    let root = Root::open(Path::new("/"))?;
    let Some(name) = deployment_name(&root)? else { return lay_down(&root, printer) };
    let progress = printer.progress("boot");
    let mut early = Early { note: boot_note::read(&name), name, sink: progress.as_ref() };
    if !early.note.counted {
        early.count()?;
    }
    // At nearly every boot nothing is under way.
    if root.dir().exists(INTENT_FILE) {
        early.close_given_up();
    }
    let laid_down = lay_down(&root, printer);
    early.note.unconverged = laid_down.is_err();
    if let Err(error) = &laid_down {
        early.leave(&format!("its configuration could not be laid down: {error:#}"))?;
    } else if early.note.degraded.is_some() {
        early.tell();
    }
    early.write();
    laid_down
}

/// A boot of the running deployment, as far as it came.
struct Early<'a> {
    name: DeploymentName,
    note: BootNote,
    sink: &'a Progress,
}

impl Early<'_> {
    /// A boot file that cannot be written stops no boot.
    fn count(&mut self) -> Result<()> {
        let counted = Host::open(None).and_then(|host| host.lock(Wait::Telling(self.sink))?.count_boot());
        match counted {
            Ok(left) => {
                self.note.counted = true;
                self.write();
                left.map_or(Ok(()), |(cause, gave_up)| self.left(&cause, gave_up))
            }
            Err(error) => {
                let message = format!("this boot is not counted: {error:#}");
                self.sink.event(Event::Warning { message });
                Ok(())
            }
        }
    }

    /// A record that cannot be closed stops no boot.
    fn close_given_up(&self) {
        let closed = Host::open(None).and_then(|host| host.lock(Wait::Telling(self.sink))?.close_given_up());
        if let Err(error) = closed {
            self.sink.event(Event::Warning { message: format!("{error:#}") });
        }
    }

    /// What belongs here could not be laid down.
    fn leave(&mut self, cause: &str) -> Result<()> {
        let gave_up =
            Host::open(None).and_then(|host| host.lock(Wait::Telling(self.sink))?.leave_unconverged(cause));
        let gave_up = gave_up.unwrap_or_else(|error| GaveUp::Stays { why: format!("{error:#}") });
        self.left(cause, gave_up)
    }

    fn left(&mut self, cause: &str, gave_up: GaveUp) -> Result<()> {
        match gave_up {
            GaveUp::WentBack(done) => {
                logging::unhealthy(Some(&self.name), cause, Some(&done.to));
                let message = format!("{cause}: going back to {}", short_name(&done.to));
                self.sink.event(Event::Warning { message });
                reboot::ask_and_wait(self.sink)
            }
            GaveUp::Stays { why } => {
                logging::unhealthy(Some(&self.name), cause, None);
                let message = format!("{cause}; this deployment stays: {why}");
                self.sink.event(Event::Warning { message: message.clone() });
                self.note.degraded = Some(message);
                self.tell();
                Ok(())
            }
        }
    }

    /// Those who log in are told, too.
    fn tell(&self) {
        let Some(why) = &self.note.degraded else { return };
        if let Err(error) = health::tell_at_login(&format!("mcd: this system is degraded. {why}.\n")) {
            self.sink.event(Event::Warning { message: format!("{error:#}") });
        }
    }

    fn write(&self) {
        if let Err(error) = boot_note::write(&self.note) {
            self.sink.event(Event::Warning { message: format!("{error:#}") });
        }
    }
}

/// The boot ends. If systemd ends it in order, before the verdict, that is noted.
pub(super) fn ending() -> Result<Ended> {
    if !is_shutting_down() {
        return Ok(Ended::Done);
    }
    let host = Host::open(None)?;
    if host.lock(Wait::Telling(&crate::model::event::Silent))?.note_end_in_order()? {
        tracing::info!("This boot ends in order, before it was judged");
    }
    Ok(Ended::Done)
}
