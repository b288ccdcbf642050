//! What a host is: what its next boot would start, what runs, and what is managed on both.

use anyhow::Result;

use crate::error::Fault;
use crate::host::{Configured, Host, HostLocked, ToldBy, now};
use crate::model::kargs::KernelArguments;
use crate::model::records::{Intent, IntentState, RECORD_VERSION};
use crate::model::status::{DeploymentStatus, HostStatus};
use crate::pipeline::change::no_deployment;
use crate::plan::apply::means_the_same;

/// A deployment with what is managed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Side {
    pub(in crate::pipeline) status: DeploymentStatus,
    pub(in crate::pipeline) configured: Configured,
    pub(in crate::pipeline) kernel_arguments: KernelArguments,
}

/// A host as a change starts from it. Two of them are equal where nothing happened in between that the
/// change depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Observed {
    pub(in crate::pipeline) next: Side,
    /// None where nothing of the sysroot runs.
    pub(in crate::pipeline) running: Option<Side>,
    /// What is prepared or committed.
    pub(in crate::pipeline) intent: Option<Intent>,
}

impl Side {
    pub(in crate::pipeline) fn read(host: &Host, status: &DeploymentStatus) -> Result<Self> {
        let configured = host.configured(status)?;
        if configured.told_by == ToldBy::Unknown {
            return Err(unknown(status).into());
        }
        Ok(Self {
            kernel_arguments: KernelArguments::parse(&status.kernel_arguments),
            status: status.clone(),
            configured,
        })
    }

    /// A prepared change to `commit` that keeps this deployment's image and kernel arguments.
    pub(in crate::pipeline) fn intent(&self, id: String, commit: String, who: &str) -> Intent {
        Intent {
            version: RECORD_VERSION,
            id,
            state: IntentState::Prepared,
            asked: None,
            digest: self.status.digest.clone(),
            asked_digest: self.status.asked_digest.clone(),
            image_commit: self.configured.image_commit.clone(),
            commit,
            kernel_arguments: self.kernel_arguments.to_string(),
            base: Some(self.status.name.clone()),
            request_digest: None,
            reboot: false,
            kept_image: self.status.image.clone(),
            config: None,
            live: false,
            restaged: 0,
            who: who.to_owned(),
            when: now(),
            extra: serde_json::Map::new(),
        }
    }
}

impl Observed {
    /// Looks, without a lock: what is decided on it is checked again under the lock.
    pub(in crate::pipeline) fn look(host: &Host) -> Result<Self> {
        Self::of(host, &host.status()?)
    }

    /// Looks again under the lock, and refuses to go on where anything is another now.
    pub(in crate::pipeline) fn confirm(&self, locked: &HostLocked<'_>) -> Result<()> {
        let now = Self::of(locked.host(), &locked.status()?)?;
        if now == *self {
            return Ok(());
        }
        Err(changed_meanwhile().into())
    }

    fn of(host: &Host, status: &HostStatus) -> Result<Self> {
        let next = status.next_boot().ok_or_else(|| no_deployment(status))?;
        let running = status.booted().map(|booted| Side::read(host, booted)).transpose()?;
        Ok(Self {
            next: match &running {
                Some(running) if running.status == *next => running.clone(),
                _ => Side::read(host, next)?,
            },
            running,
            intent: host.intent()?,
        })
    }

    /// Whether the next boot starts what runs.
    pub(in crate::pipeline) fn next_runs(&self) -> bool {
        self.next.status.booted
    }

    /// Whether the next boot would have the configuration that runs.
    pub(in crate::pipeline) fn has_same_config(&self) -> bool {
        let next = &self.next.configured.carried;
        self.running.as_ref().is_none_or(|running| means_the_same(&running.configured.carried, next))
    }

    /// What waits for somebody to commit it, or was committed and lost with the power.
    pub(in crate::pipeline) fn waiting(&self) -> Option<&Intent> {
        let is_next = |intent: &&Intent| self.next.status.id.as_ref() == Some(&intent.id);
        self.intent.as_ref().filter(|intent| !intent.live && !is_next(intent))
    }
}

/// The fault of a host that is another than the one that was looked at.
pub(in crate::pipeline) fn changed_meanwhile() -> Fault {
    Fault::failed("the host changed while the change was made ready")
        .why("another run of mcd, or another tool, changed a deployment or its configuration")
        .next("run the same command again: nothing is fetched twice")
}

fn unknown(status: &DeploymentStatus) -> Fault {
    let name = crate::plan::short_name(&status.name);
    Fault::refused(format!("it cannot be known what is managed on deployment {name}"))
        .why("its record /etc/mcd/applied.json is damaged, and nothing else tells")
        .next("if nothing of it is to be kept, remove that file and run the same command again")
}
