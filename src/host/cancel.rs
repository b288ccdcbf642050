//! Dropping a change that has not been booted: what is prepared, what is staged.

use anyhow::Result;

use super::host_lock::HostLocked;
use super::now;
use super::records::entry;
use super::rollback::RollBack;
use crate::error::Fault;
use crate::model::records::{HistoryEntry, HistoryOutcome, Intent};
use crate::model::status::{DeploymentName, HostStatus};
use crate::plan::short_name;

/// What was dropped; nothing where nothing was under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// The change that was prepared or committed.
    pub intent: Option<Intent>,
    /// The deployment that was staged.
    pub staged: Option<DeploymentName>,
    /// A record of a change was there that nobody can read.
    pub damaged: bool,
    /// Why the history does not tell of it.
    pub unrecorded: Option<String>,
}

impl HostLocked<'_> {
    /// Drops what is prepared or staged, whoever staged it.
    pub fn cancel(&self, who: &str) -> Result<Cancelled> {
        let status = self.status()?;
        let damaged = self.host().intent().is_err();
        refuse_switched(self.host().readable_intent().as_ref(), &status)?;
        let staged = status.deployments.iter().find(|one| one.staged);
        // The record first: what is staged dies with the power, and must not come back then.
        let intent = self.clear_intent()?;
        self.drop_staged()?;
        let next = status.deployments.iter().find(|one| !one.staged).map(|one| one.name.to_string());
        let told = match (&intent, staged) {
            (Some(intent), _) => {
                Some(HistoryEntry { who: who.to_owned(), ..entry(intent, HistoryOutcome::Cancelled, None) })
            }
            (None, Some(staged)) => Some(HistoryEntry {
                who: who.to_owned(),
                from: Some(staged.name.to_string()),
                ..HistoryEntry::new(
                    staged.name.to_string(),
                    next.unwrap_or_default(),
                    HistoryOutcome::Cancelled,
                    now(),
                )
            }),
            (None, None) => None,
        };
        // It is dropped: a full /var does not turn that into a failure.
        let told = told.map_or(Ok(()), |entry| self.append_history(entry));
        Ok(Cancelled {
            intent,
            staged: staged.map(|one| one.name.clone()),
            damaged,
            unrecorded: told.err().map(|error| format!("{error:#}")),
        })
    }

    /// Makes what runs the next boot again, dropping what would have booted.
    pub fn return_to_booted(&self, who: &str) -> Result<()> {
        let status = self.status()?;
        let Some(booted) = status.booted() else { return Ok(()) };
        let why = Some("the running deployment was asked for");
        self.roll_back(&RollBack { to: Some(&booted.name), who, why }).map(drop)
    }
}

/// A change that is the next boot already, and not staged, is history: it is gone back from.
fn refuse_switched(intent: Option<&Intent>, status: &HostStatus) -> Result<(), Fault> {
    let Some(intent) = intent else { return Ok(()) };
    let made = status.deployments.iter().find(|one| one.id.as_ref() == Some(&intent.id) && !one.staged);
    let Some(made) = made else { return Ok(()) };
    Err(Fault::refused(format!("change {} cannot be cancelled", intent.id))
        .why(format!("the next boot starts its deployment {} already", short_name(&made.name)))
        .next("go back with `mcd rollback`"))
}
