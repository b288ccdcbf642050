//! The hook of the initramfs: what is done about a deployment before it becomes the root.
//!
//! `ostree-prepare-root` has mounted it, with the physical root at `sysroot` below it. The boot is
//! counted in the boot file there. One that ends without a verdict too often, or whose configuration
//! cannot be laid down, is left for the last good deployment: that one's own `mcd` (which has libostree)
//! is run below it by `chroot`, as `mcd rollback --sysroot /sysroot --to COMMIT.SERIAL`. No version may
//! change that call: the one that makes it and the one that answers are years apart.

mod chroot;
mod writable;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::converge::{Deployment, Root, all_deployments, deployment_of};
use super::{boot_note, boot_slots};
use crate::model::boot_note::BootNote;
use crate::model::boots::{BootEntry, BootRecord, WentBack, WentBackBy};
use crate::model::status::DeploymentName;
use crate::plan::boot_count::{Count, GoingBack, OnDisk, count, good_to_go_back_to};

pub use chroot::reboot;
pub use writable::Writable;

/// Is there in an initramfs, and nowhere else (os-release(5)).
const INITRD_RELEASE: &str = "/etc/initrd-release";

/// A deployment that is about to start.
#[derive(Debug)]
pub struct Starting {
    /// Where it is mounted.
    at: PathBuf,
    physical: Dir,
    deployment: OnDisk,
    all: Vec<Deployment>,
    writable: Option<Writable>,
}

/// What counting a boot found.
#[derive(Debug)]
pub enum Counted {
    /// It boots.
    Boots,
    /// It must be left.
    GoBack(GoingBack),
    /// It ought to be left for this reason, and boots: nothing else proved good.
    Stays(String),
}

impl Starting {
    /// The deployment at `root`, which is open at the path `at`; none where no physical root is mounted
    /// below it.
    #[context("Finding the deployment that starts at {}", at.display())]
    pub fn find(at: &Path, root: &Root) -> Result<Option<Self>> {
        let Ok(physical) = root.dir().open_dir("sysroot") else { return Ok(None) };
        if !physical.is_dir("ostree/deploy") {
            return Ok(None);
        }
        let Some(deployment) = deployment_of(root)? else { return Ok(None) };
        let all = all_deployments(&physical)?;
        let deployment = on_disk(&deployment);
        Ok(Some(Self { at: at.to_owned(), physical, deployment, all, writable: None }))
    }

    /// Its name.
    pub fn name(&self) -> &DeploymentName {
        &self.deployment.name
    }

    /// Whether the physical root may be gone back on: in an initramfs. Elsewhere (before a reboot of user
    /// space) nothing has been left behind yet, and whoever asked is told instead.
    pub fn is_in_initramfs() -> bool {
        rustix::fs::stat(INITRD_RELEASE).is_ok()
    }

    /// Makes the physical root, and with it the deployment, writable until this value goes.
    pub fn make_writable(&mut self) -> Result<()> {
        if self.writable.is_none() {
            self.writable = Some(Writable::make(&self.at.join("sysroot"))?);
        }
        Ok(())
    }

    /// Counts the boot that begins. Durable when this returns.
    #[context("Counting this boot")]
    pub fn count(&mut self, now: i64) -> Result<Counted> {
        let boots = self.boots()?;
        let (entry, counted) = match count(&boots, &self.deployment, &self.on_disk(), now) {
            Count::No => return Ok(Counted::Boots),
            Count::GoBack(back) => return Ok(Counted::GoBack(back)),
            Count::Boot(entry) => (entry, Counted::Boots),
            Count::Stays { entry, cause } => (entry, Counted::Stays(cause)),
        };
        tracing::info!(
            "Boot {} of this change begins, {} of them without a verdict",
            entry.boots,
            entry.tries
        );
        self.make_writable()?;
        boot_slots::edit(&self.physical, |boots| boots.note(entry))?;
        Ok(counted)
    }

    /// Where a deployment that cannot be laid down is left for; none where it stays.
    pub fn way_back(&self) -> Result<Option<DeploymentName>> {
        let boots = self.boots()?;
        if !self.deployment.may_be_left(&boots) {
            return Ok(None);
        }
        Ok(good_to_go_back_to(&boots, &self.deployment, &self.on_disk()).map(|good| good.name.clone()))
    }

    /// Makes `back.to` what the next boot starts; the reboot is the caller's. Why stands in the boot file
    /// before the switch, and the mark after it: a power cut in between leaves a deployment that is left
    /// again at its next boot.
    #[context("Going back to {}", back.to)]
    pub fn go_back(&mut self, back: &GoingBack, by: WentBackBy, now: i64) -> Result<()> {
        self.make_writable()?;
        let before = self.boots()?.went_back;
        let went_back = WentBack {
            from: self.deployment.entry_id(),
            deployment: Some(self.deployment.name.clone()),
            to: Some(back.to.clone()),
            cause: back.cause.clone(),
            by,
            when: now,
        };
        boot_slots::edit(&self.physical, |boots| boots.went_back = Some(went_back.clone()))?;
        if let Err(error) = self.switch(&back.to) {
            // It boots on: then nothing was left.
            boot_slots::edit(&self.physical, |boots| boots.went_back = before)?;
            return Err(error);
        }
        boot_slots::edit(&self.physical, |boots| {
            boots.note(BootEntry::given_up(&went_back, now));
            boots.went_back = Some(went_back);
        })
    }

    /// What happened to it so far in this boot.
    pub fn note(&self) -> BootNote {
        boot_note::read(self.name())
    }

    fn switch(&self, to: &DeploymentName) -> Result<()> {
        let boot_uuid = self.boots()?.boot_uuid;
        let good = self.all.iter().find(|one| one.name() == *to).context("It is not on disk")?;
        // A first migration comes from a system without `mcd`: then the one that fails has it.
        let own = self.all.iter().find(|one| one.name() == self.deployment.name);
        let mut why = Vec::new();
        for program_of in [Some(good), own].into_iter().flatten() {
            match chroot::roll_back(&self.at, program_of, boot_uuid.as_deref(), to) {
                Ok(()) => return Ok(()),
                Err(error) => why.push(format!("with the mcd of {}: {error:#}", program_of.name())),
            }
        }
        anyhow::bail!("{}", why.join("; "))
    }

    fn boots(&self) -> Result<BootRecord> {
        let file = boot_slots::read(&self.physical)?;
        if let Some(warning) = &file.warning {
            tracing::warn!("{warning}");
        }
        Ok(file.record)
    }

    fn on_disk(&self) -> Vec<OnDisk> {
        self.all.iter().map(on_disk).collect()
    }
}

fn on_disk(deployment: &Deployment) -> OnDisk {
    OnDisk { name: deployment.name(), id: deployment.origin.id.clone() }
}
