//! What the running system's part of a boot does to the boot file: it counts where no hook of the
//! initramfs did, leaves a deployment whose configuration cannot be laid down, and notes a boot that is
//! ended in order.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use fn_error_context::context;

use super::child;
use super::confirm::{GaveUp, on_disk, on_disk_of};
use super::host_lock::HostLocked;
use super::now;
use super::records::entry;
use crate::model::boots::{BootEntry, BootState, RequestOutcome, RequestRecord, WentBackBy};
use crate::model::records::{HistoryOutcome, Intent};
use crate::plan::boot_count::{Count, count, end_in_order};

/// How long systemd may take to say what it is doing.
const TIMEOUT: Duration = Duration::from_secs(20);
/// What it says while it shuts down.
const STOPPING: &str = "stopping";

impl HostLocked<'_> {
    /// Counts this boot of the running deployment. Tells what was done, if it ought to be left.
    #[context("Counting this boot")]
    pub fn count_boot(&self) -> Result<Option<(String, GaveUp)>> {
        let status = self.status()?;
        let Some(booted) = status.booted() else { return Ok(None) };
        match count(&self.boots()?, &on_disk_of(booted), &on_disk(&status), now()) {
            Count::No => Ok(None),
            Count::Boot(entry) => self.edit_boots(|boots| boots.note(entry)).map(|()| None),
            Count::GoBack(back) => {
                let gave_up = self.give_up(&back.cause, WentBackBy::BootCount)?;
                Ok(Some((back.cause, gave_up)))
            }
            Count::Stays { entry, cause } => {
                self.edit_boots(|boots| boots.note(entry))?;
                let why = "no other deployment of this host proved good".to_owned();
                Ok(Some((cause, GaveUp::Stays { why })))
            }
        }
    }

    /// What belongs on the running deployment could not be laid down. It is left, if that may be.
    #[context("Leaving a deployment whose configuration cannot be laid down")]
    pub fn leave_unconverged(&self, cause: &str) -> Result<GaveUp> {
        let status = self.status()?;
        let may_be_left = status
            .booted()
            .is_some_and(|booted| self.boots().is_ok_and(|boots| on_disk_of(booted).may_be_left(&boots)));
        if !may_be_left {
            return Ok(GaveUp::Stays { why: "it was judged before, or others made it".to_owned() });
        }
        self.give_up(cause, WentBackBy::Converge)
    }

    /// The hook of the initramfs goes back where a `/var` of its own is not mounted: the record there of a
    /// change that is given up is closed now, before a request file could ask for that change again. Tells
    /// whether there was one.
    #[context("Closing the change that was gone back from")]
    pub fn close_given_up(&self) -> Result<bool> {
        let Some(intent) = self.host().readable_intent().filter(Intent::is_committed) else {
            return Ok(false);
        };
        let boots = self.boots()?;
        let is_given_up = |entry: &&BootEntry| entry.state.is_verdict() && entry.state != BootState::Good;
        let Some(given_up) = boots.entry(&intent.id).filter(is_given_up) else { return Ok(false) };
        if let Some(request) = &intent.request_digest {
            let record = RequestRecord::new(request.clone(), RequestOutcome::RolledBack, now());
            self.edit_boots(|boots| boots.note_request(record))?;
        }
        self.append_history(entry(&intent, HistoryOutcome::RolledBack, given_up.why().map(str::to_owned)))?;
        self.clear_intent()?;
        Ok(true)
    }

    /// Notes that the boot of the running deployment is ended in order, before the verdict. Tells
    /// whether there was something to note.
    #[context("Noting that this boot is ended in order")]
    pub fn note_end_in_order(&self) -> Result<bool> {
        let status = self.status()?;
        let Some(booted) = status.booted() else { return Ok(false) };
        let Some(entry) = end_in_order(&self.boots()?, &on_disk_of(booted)) else { return Ok(false) };
        self.edit_boots(|boots| boots.note(entry))?;
        Ok(true)
    }
}

/// Whether the system goes down: a unit of ours may also be stopped by a person.
pub fn is_shutting_down() -> bool {
    let mut command = Command::new("systemctl");
    // It fails in any state but one.
    child::run(command.arg("is-system-running"), TIMEOUT, &|| false).output.trim() == STOPPING
}
