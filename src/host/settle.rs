//! After a boot: what became of the change that was under way.
//!
//! Whether the deployment is good is the health service's verdict; where that does not run, the first
//! boot proves it.

use anyhow::Result;
use fn_error_context::context;

use super::health;
use super::host_lock::HostLocked;
use super::records::entry;
use super::status::lost;
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
        let good = self.good(booted)?;
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

    /// Whether the running deployment became good with this boot. Where `mcd-health.service` judges, it
    /// has judged, or will; elsewhere the boot itself is the proof.
    fn good(&self, booted: &DeploymentStatus) -> Result<Option<DeploymentName>> {
        match health::last_told(self.host()) {
            Some(found) if found.verdict.is_some() => Ok(found.newly_good.then(|| booted.name.clone())),
            _ if health::is_to_judge() => Ok(None),
            _ => self.confirm(),
        }
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
