//! After a boot: what became of the change that was under way.
//!
//! Until health checks exist, the first boot of a deployment proves it good.

use anyhow::Result;
use fn_error_context::context;

use super::boot_file::{entry_id, entry_of};
use super::host_lock::HostLocked;
use super::now;
use super::records::entry;
use super::status::lost;
use crate::model::boots::{BootEntry, BootState};
use crate::model::records::{HistoryEntry, HistoryOutcome, Intent};
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus};

/// What settling found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// This deployment proved good with this boot. Then it is time to prune.
    pub good: Option<DeploymentName>,
    /// The change that this boot fulfilled.
    pub fulfilled: Option<Intent>,
    /// The change that was committed and is nowhere, and what to do.
    pub lost: Option<String>,
}

impl HostLocked<'_> {
    /// Judges the running deployment and closes the change that it fulfils. Doing it again in the
    /// same boot changes nothing.
    #[context("Settling the change after the boot")]
    pub fn after_boot(&self) -> Result<Settled> {
        let status = self.status()?;
        let Some(booted) = status.booted() else { return Ok(Settled::default()) };
        let good = self.judge(booted)?;
        let intent = self.host().intent()?;
        let fulfilled = match intent {
            Some(intent) if booted.id.as_ref() == Some(&intent.id) => Some(self.close(intent, booted)?),
            _ => None,
        };
        let lost = if fulfilled.is_some() { None } else { self.lost(&status)? };
        Ok(Settled { good, fulfilled, lost })
    }

    /// Closes a change of a host that does not run whose switch happened, and whose records a kill or a
    /// full `/var` cut short. On a running host the next boot does that.
    #[context("Closing the change that was switched to")]
    pub(super) fn close_switched(&self) -> Result<()> {
        let Some(intent) = self.host().readable_intent() else { return Ok(()) };
        let status = self.status()?;
        let is_switched =
            status.deployments.iter().any(|one| one.id.as_ref() == Some(&intent.id) && !one.staged);
        if self.host().is_booted() || !intent.is_committed() || !is_switched {
            return Ok(());
        }
        let is_told = |told: &HistoryEntry| told.id == intent.id && told.outcome == HistoryOutcome::Committed;
        if !self.host().history()?.entries.iter().any(is_told) {
            self.append_history(entry(&intent, HistoryOutcome::Committed, None))?;
        }
        self.clear_intent()?;
        Ok(())
    }

    /// Marks a deployment of ours good and moves our pin to it. What others made is not judged: the
    /// last good one stays pinned beside it.
    fn judge(&self, booted: &DeploymentStatus) -> Result<Option<DeploymentName>> {
        let boots = self.boots()?;
        let known = entry_of(&boots, booted);
        if known.is_none() && booted.id.is_none() {
            return Ok(None);
        }
        if known.is_some_and(|entry| entry.state == BootState::Good) {
            // Gone back to: it was good before, and is the last good one again.
            let is_last = boots.kept.as_ref() == Some(&booted.name) || booted.pinned;
            self.keep(booted)?;
            return Ok((!is_last).then(|| booted.name.clone()));
        }
        let times = known.map_or(0, |entry| entry.boots);
        let name = Some(booted.name.clone());
        let mut judged = BootEntry::new(entry_id(booted), name, BootState::Good, now());
        judged.boots = times.saturating_add(1);
        self.edit_boots(|boots| boots.note(judged))?;
        self.keep(booted)?;
        Ok(Some(booted.name.clone()))
    }

    fn close(&self, intent: Intent, booted: &DeploymentStatus) -> Result<Intent> {
        if let Some(request) = &intent.request_digest {
            self.note_carried_out(request)?;
        }
        let mut entry = entry(&intent, HistoryOutcome::Booted, None);
        entry.to = booted.name.to_string();
        self.append_history(entry)?;
        self.clear_intent()?;
        Ok(intent)
    }

    fn lost(&self, status: &HostStatus) -> Result<Option<String>> {
        Ok(self.host().intent()?.and_then(|intent| lost(&intent, &status.deployments)))
    }
}
