//! The verdict on the running deployment: it is good, or it is left for the last good one.

use anyhow::Result;
use fn_error_context::context;

use super::boot_file::{entry_id, entry_of};
use super::host_lock::HostLocked;
use super::now;
use super::rollback::{RollBack, RolledBack};
use super::sysroot::Host;
use crate::model::boots::{BootEntry, BootRecord, BootState, WentBack, WentBackBy};
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus};
use crate::plan::boot_count::{self, OnDisk};
use crate::plan::health::{Begin, begin};

/// What giving up did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GaveUp {
    /// The next boot starts the last good deployment.
    WentBack(RolledBack),
    /// Nothing changed.
    Stays {
        /// Why, for people.
        why: String,
    },
}

impl HostLocked<'_> {
    /// The running deployment is good: it is marked so and carries our pin. Tells its name if that is
    /// new. What others made is not judged: the last good one stays pinned beside it.
    #[context("Marking the running deployment good")]
    pub fn confirm(&self) -> Result<Option<DeploymentName>> {
        let status = self.status()?;
        let Some(booted) = status.booted() else { return Ok(None) };
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
        judged.boots = times.max(1);
        self.edit_boots(|boots| {
            boots.note(judged);
            boots.went_back = None;
        })?;
        self.keep(booted)?;
        Ok(Some(booted.name.clone()))
    }

    /// The running deployment must be left, because of `cause`. It is marked (unproven, where boots
    /// were only counted, else failed), and the next boot starts the last good one; the reboot is the
    /// caller's. Without one that was good, only the mark is made.
    #[context("Giving the running deployment up")]
    pub fn give_up(&self, cause: &str, by: WentBackBy) -> Result<GaveUp> {
        let status = self.status()?;
        let Some(booted) = status.booted() else {
            return Ok(GaveUp::Stays { why: "no deployment of this sysroot runs".to_owned() });
        };
        let boots = self.boots()?;
        let target = good_to_go_back_to(&boots, booted, &status);
        let went_back = WentBack {
            from: entry_id(booted),
            deployment: Some(booted.name.clone()),
            to: target.map(|target| target.name.clone()),
            cause: cause.to_owned(),
            by,
            when: now(),
        };
        let Some(target) = target else {
            self.edit_boots(|boots| boots.note(BootEntry::given_up(&went_back, now())))?;
            return Ok(GaveUp::Stays { why: "no other deployment of this host proved good".to_owned() });
        };
        let asked = RollBack { to: Some(&target.name), who: "mcd, automatically", why: Some(cause) };
        self.go_back(&asked, Some(&went_back)).map(GaveUp::WentBack)
    }
}

/// The deployment that an automatic rollback from `booted` goes to.
fn good_to_go_back_to<'a>(
    boots: &BootRecord,
    booted: &DeploymentStatus,
    status: &'a HostStatus,
) -> Option<&'a DeploymentStatus> {
    let all = on_disk(status);
    let good = boot_count::good_to_go_back_to(boots, &on_disk_of(booted), &all)?;
    status.deployments.iter().find(|one| one.name == good.name)
}

/// The deployments that are finalised, for decisions.
pub(super) fn on_disk(status: &HostStatus) -> Vec<OnDisk> {
    status.deployments.iter().filter(|one| !one.staged).map(on_disk_of).collect()
}

/// One of them.
pub(super) fn on_disk_of(deployment: &DeploymentStatus) -> OnDisk {
    OnDisk { name: deployment.name.clone(), id: deployment.id.clone() }
}

/// What the verdict on the running deployment begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judging {
    /// What is done about it.
    pub begin: Begin,
    /// The required checks that failed before the change too.
    pub failing_before: Vec<String>,
}

impl Host {
    /// What is known of the running deployment.
    pub fn judging(&self) -> Result<Judging> {
        let status = self.status()?;
        let boots = self.boots()?;
        let Some(booted) = status.booted() else {
            return Ok(Judging { begin: Begin::NotOurs, failing_before: Vec::new() });
        };
        let entry = entry_of(&boots, booted);
        let was_left = boots.went_back.as_ref().is_some_and(|back| back.from == entry_id(booted));
        Ok(Judging {
            begin: begin(entry.map(|entry| &entry.state), booted.id.is_some(), was_left),
            failing_before: entry.map(|entry| entry.failing_before.clone()).unwrap_or_default(),
        })
    }
}
