//! Pins: deployments that no change drops.
//!
//! libostree's pin is one bit in the origin. The last good deployment must stay until the next one is
//! good, so it is pinned too; that this pin is ours stands in the boot file. A person's pin is left
//! alone, and pinning what we keep makes the pin theirs.

use anyhow::{Context, Result};
use fn_error_context::context;

use super::boot_file::entry_id;
use super::host_lock::HostLocked;
use super::now;
use super::status::name_of;
use crate::error::Fault;
use crate::model::boot_order::merge_source;
use crate::model::boots::{BootEntry, BootRecord, BootState};
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus};
use crate::plan::short_name;

/// What pinning or unpinning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// It is pinned now.
    Yes,
    /// It is not pinned any more; the next change may drop it.
    No,
    /// It is a person's pin no more, but stays as the last good deployment.
    StillKept,
    /// It was as asked.
    Unchanged,
}

impl HostLocked<'_> {
    /// Pins a deployment for a person, or takes a person's pin away.
    pub fn set_pinned(&self, name: &DeploymentName, pinned: bool) -> Result<Pinned> {
        let status = self.status()?;
        let deployment = find(&status, name)?;
        match (pinned, deployment.pinned) {
            (true, true) | (false, false) => Ok(Pinned::Unchanged),
            (true, false) => self.pin(deployment),
            (false, true) => self.unpin(deployment, &status),
        }
    }

    fn pin(&self, deployment: &DeploymentStatus) -> Result<Pinned> {
        if deployment.staged {
            return Err(Fault::refused(format!("deployment {} is staged", short_name(&deployment.name)))
                .why("a deployment can be pinned only when it has been finalised")
                .next("pin it after the reboot")
                .into());
        }
        if deployment.kept {
            self.edit_boots(|boots| boots.kept = None)?;
        } else {
            self.set_pin_bit(&deployment.name, true)?;
        }
        Ok(Pinned::Yes)
    }

    fn unpin(&self, deployment: &DeploymentStatus, status: &HostStatus) -> Result<Pinned> {
        let name = &deployment.name;
        if last_good(&self.boots()?, status).is_some_and(|good| good.name == *name) {
            self.edit_boots(|boots| boots.kept = Some(name.clone()))?;
            return Ok(Pinned::StillKept);
        }
        self.set_pin_bit(name, false)?;
        Ok(Pinned::No)
    }

    /// Pins the last good deployment before a change, unless it is pinned. On a host that never judged
    /// one, the one that the change is made from counts as good if its checks passed just now.
    pub(super) fn keep_last_good(&self, is_healthy: bool) -> Result<()> {
        let status = self.status()?;
        let boots = self.boots()?;
        if let Some(good) = last_good(&boots, &status) {
            return self.keep(&good.clone());
        }
        let Some(source) = merge_source(&status.deployments).filter(|_| is_healthy) else { return Ok(()) };
        let entry = BootEntry::new(entry_id(source), Some(source.name.clone()), BootState::Good, now());
        self.edit_boots(|boots| boots.note(entry))?;
        self.keep(source)
    }

    /// Moves our pin to `good`.
    #[context("Keeping deployment {}", good.name)]
    pub(super) fn keep(&self, good: &DeploymentStatus) -> Result<()> {
        let before = self.boots()?.kept;
        // The bit first: with the mark alone, a power cut would leave nothing that protects it.
        let mark = if good.pinned { None } else { Some(good.name.clone()) };
        if !good.pinned && !good.kept {
            self.set_pin_bit(&good.name, true)?;
        }
        if before != mark {
            self.edit_boots(|boots| boots.kept.clone_from(&mark))?;
        }
        match before {
            Some(old) if old != good.name => self.set_pin_bit(&old, false),
            _ => Ok(()),
        }
    }

    /// Sets libostree's bit. A deployment that is gone needs none.
    #[context("Changing the pin of deployment {name}")]
    fn set_pin_bit(&self, name: &DeploymentName, pinned: bool) -> Result<()> {
        let deployments = self.sysroot().deployments();
        let Some(deployment) = deployments.iter().find(|one| name_of(one) == *name && !one.is_staged())
        else {
            return Ok(());
        };
        self.sysroot().deployment_set_pinned(deployment, pinned).context("Writing its origin")?;
        self.reload()
    }
}

/// The last deployment that was found good, if it is still there.
pub(super) fn last_good<'a>(boots: &BootRecord, status: &'a HostStatus) -> Option<&'a DeploymentStatus> {
    let present =
        |name: &DeploymentName| status.deployments.iter().find(|one| one.name == *name && !one.staged);
    if let Some(kept) = boots.kept.as_ref().and_then(present) {
        return Some(kept);
    }
    let good = boots.entries.iter().filter(|entry| entry.state == BootState::Good);
    let newest_first = {
        let mut good: Vec<&BootEntry> = good.collect();
        good.sort_by_key(|entry| std::cmp::Reverse(entry.when));
        good
    };
    newest_first.into_iter().find_map(|entry| entry.deployment.as_ref().and_then(present))
}

fn find<'a>(status: &'a HostStatus, name: &DeploymentName) -> Result<&'a DeploymentStatus, Fault> {
    status.deployments.iter().find(|one| one.name == *name).ok_or_else(|| {
        Fault::refused(format!("there is no deployment {name}")).next("see `mcd status` for what there is")
    })
}
