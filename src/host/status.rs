//! What the host looks like. Reads only, takes no lock, and asks nobody: it answers in milliseconds.

use anyhow::Result;
use fn_error_context::context;
use ostree::{ObjectType, glib};

use super::boot_file::entry_of;
use super::host_lock::HostLocked;
use super::now;
use super::service::hold_of;
use super::sysroot::Host;
use crate::model::boot_order::rollback_target;
use crate::model::boots::{BootRecord, BootState};
use crate::model::digest::Digest;
use crate::model::kargs::KernelArguments;
use crate::model::origin::Origin;
use crate::model::records::Intent;
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus, PreparedStatus, STATUS_VERSION};
use crate::plan::short_name;

/// Commit metadata: the version of the OS.
const VERSION: &str = "version";
/// Commit metadata of other tools too: the digest of the manifest that was imported.
const MANIFEST_DIGEST: &str = "ostree.manifest-digest";
/// Commit metadata of a derived commit of ours: the image commit below it.
pub(super) const IMAGE_COMMIT: &str = "mcd.image-commit";
/// Groups of an origin that say that rpm-ostree made more of the image: packages and overrides.
const LAYERED: [(&str, &str); 4] = [
    ("packages", "requested"),
    ("packages", "requested-local"),
    ("overrides", "remove"),
    ("overrides", "replace-local"),
];
/// Where newer versions of libostree say why the last shutdown could not finalise.
const FINALIZE_FAILURE: &str = "boot/ostree/finalize-failure.stamp";

impl Host {
    /// The deployments, what is prepared, and what somebody should know.
    pub fn status(&self) -> Result<HostStatus> {
        self.status_of(&self.load()?)
    }

    /// The same with what is managed on each deployment: manifests of thousands of entries are read for
    /// that, which only a person needs.
    pub fn status_with_config(&self) -> Result<HostStatus> {
        let mut status = self.status()?;
        for deployment in &mut status.deployments {
            match self.configured(deployment) {
                Ok(configured) => {
                    status.notices.extend(configured.notice(deployment));
                    deployment.config = configured.status(deployment);
                }
                Err(error) => status.notices.push(format!("{error:#}")),
            }
        }
        if self.live().is_ok_and(|live| live.is_some()) {
            status.notices.push(
                "a live apply was cut, or is under way; the next change or `mcd verify --repair` ends it"
                    .to_owned(),
            );
        }
        Ok(status)
    }

    /// What a new deployment would push out of the boot order.
    pub fn removed_by_a_new_deployment(&self) -> Result<Vec<DeploymentName>> {
        let after = crate::model::boot_order::after_deploy(&self.status()?.deployments);
        Ok(after.dropped)
    }

    #[context("Reading the status of {}", self.path())]
    fn status_of(&self, sysroot: &ostree::Sysroot) -> Result<HostStatus> {
        let repo = self.repo()?;
        let boots = self.boots()?;
        let booted = sysroot.booted_deployment();
        let mut notices = Vec::new();
        let mut deployments = Vec::new();
        for (index, one) in sysroot.deployments().iter().enumerate() {
            let is_booted = booted.as_ref().is_some_and(|booted| booted.equal(one));
            let mut status = deployment_status(&repo, one, index, is_booted, &boots)?;
            (status.state, status.cause) = state_of(&boots, &status);
            notices.extend(notice_of(one, &status, &boots));
            deployments.push(status);
        }
        if let Some(target) = rollback_target(&deployments).map(|target| target.index) {
            deployments[target].rollback = true;
        }
        let intent = match self.intent() {
            Ok(intent) => intent,
            // The deployments are there to be seen all the same.
            Err(error) => {
                notices.push(format!("{error:#}; `mcd cancel` drops that record"));
                None
            }
        };
        notices.extend(intent.as_ref().and_then(|intent| lost(intent, &deployments)));
        notices.extend(self.finalize_failure());
        notices.extend(self.degraded(&deployments, &boots));
        let hold = match self.is_booted().then(|| hold_of(&self.running_root()?, now())).transpose() {
            Ok(hold) => hold.flatten(),
            Err(error) => {
                notices.push(format!("whether a person holds this host is not known: {error:#}"));
                None
            }
        };
        Ok(HostStatus {
            version: STATUS_VERSION,
            sysroot: self.path().to_owned(),
            prepared: intent.and_then(|intent| prepared(intent, &deployments)),
            deployments,
            went_back: boots.went_back,
            health: super::health::last_told(self),
            hold,
            notices,
        })
    }

    /// Why this boot went on although something is wrong with it.
    fn degraded(&self, deployments: &[DeploymentStatus], boots: &BootRecord) -> Option<String> {
        let booted = deployments.iter().find(|one| one.booted)?;
        let note = super::boot_note::read(&booted.name);
        // Too many boots without a verdict are over when there is one.
        let is_good = entry_of(boots, booted).is_some_and(|entry| entry.state == BootState::Good);
        let why = note.degraded.filter(|_| note.unconverged || !is_good)?;
        Some(format!("this system is degraded: {why}"))
    }

    fn finalize_failure(&self) -> Option<String> {
        let text = self.root().read_to_string(FINALIZE_FAILURE).ok()?;
        Some(format!("the last shutdown could not finalise the staged deployment: {}", text.trim()))
    }
}

impl HostLocked<'_> {
    /// As [`Host::status`], of the deployments that the lock protects.
    pub fn status(&self) -> Result<HostStatus> {
        self.host().status_of(&self.sysroot())
    }
}

/// A deployment's name.
pub(super) fn name_of(deployment: &ostree::Deployment) -> DeploymentName {
    let serial = u32::try_from(deployment.deployserial()).unwrap_or(0);
    DeploymentName { checksum: deployment.csum().to_string(), serial }
}

fn deployment_status(
    repo: &ostree::Repo,
    deployment: &ostree::Deployment,
    index: usize,
    booted: bool,
    boots: &BootRecord,
) -> Result<DeploymentStatus> {
    let name = name_of(deployment);
    let commit = Commit::load(repo, &name.checksum)?;
    let file = deployment.origin();
    let origin =
        Origin::from_keys(|group, key| file.as_ref()?.string(group, key).ok().map(|value| value.to_string()));
    let kept = boots.kept.as_ref() == Some(&name) && deployment.is_pinned();
    // Other tools copy our keys into the origin of what they deploy: the commit knows better.
    let digest = commit.digest.clone().or_else(|| origin.digest.clone());
    let asked_digest = origin.asked_digest.filter(|_| digest == origin.digest);
    Ok(DeploymentStatus {
        index,
        stateroot: deployment.osname().to_string(),
        booted,
        staged: deployment.is_staged(),
        rollback: false,
        pinned: deployment.is_pinned() && !kept,
        kept,
        image: origin.image,
        image_commit: commit.image_commit(&name),
        digest,
        asked_digest,
        version: commit.version,
        timestamp: commit.timestamp,
        kernel_arguments: kernel_arguments(deployment).to_string(),
        id: origin.id,
        other_origin: origin.other,
        state: None,
        cause: None,
        config: None,
        name,
    })
}

/// The arguments in the deployment's boot entry, without OSTree's own.
pub(super) fn kernel_arguments(deployment: &ostree::Deployment) -> KernelArguments {
    let options = deployment.bootconfig().and_then(|entry| entry.get("options"));
    KernelArguments::parse(options.as_deref().unwrap_or_default()).without("ostree")
}

/// The digest of the image that a commit is of or derived from.
pub(super) fn digest_of_commit(repo: &ostree::Repo, commit: &str) -> Result<Option<String>> {
    Ok(Commit::load(repo, commit)?.digest.map(|digest| digest.to_string()))
}

/// The image commit that a derived commit was made from; none where it is none, or gone.
pub(super) fn image_of_derived(repo: &ostree::Repo, commit: &str) -> Result<Option<String>> {
    Ok(Commit::load(repo, commit)?.derived_from)
}

/// What a commit's metadata says.
#[derive(Default)]
struct Commit {
    version: Option<String>,
    timestamp: u64,
    digest: Option<Digest>,
    derived_from: Option<String>,
}

impl Commit {
    /// A commit that is gone from the repo still has a deployment: that is worth showing, too.
    fn load(repo: &ostree::Repo, checksum: &str) -> Result<Self> {
        let Some(variant) = repo.load_variant_if_exists(ObjectType::Commit, checksum)? else {
            return Ok(Self::default());
        };
        let metadata = glib::VariantDict::new(Some(&variant.child_value(0)));
        let text = |key: &str| metadata.lookup::<String>(key).ok().flatten();
        Ok(Self {
            version: text(VERSION),
            timestamp: ostree::commit_get_timestamp(&variant),
            digest: text(MANIFEST_DIGEST).and_then(|digest| digest.parse().ok()),
            derived_from: text(IMAGE_COMMIT),
        })
    }

    fn image_commit(&self, name: &DeploymentName) -> Option<String> {
        self.derived_from.clone().or_else(|| self.digest.as_ref().map(|_| name.checksum.clone()))
    }
}

/// The change that waits. One that the next boot starts already, without a shutdown, waits no more.
fn prepared(intent: Intent, deployments: &[DeploymentStatus]) -> Option<PreparedStatus> {
    let is_switched = deployments.iter().any(|one| one.id.as_ref() == Some(&intent.id) && !one.staged);
    (!is_switched).then(|| PreparedStatus {
        committed: intent.is_committed(),
        id: intent.id,
        image: intent.asked,
        digest: intent.digest,
        kernel_arguments: intent.kernel_arguments,
        config: intent.config,
    })
}

/// How far a deployment's change came, and why no further.
fn state_of(boots: &BootRecord, status: &DeploymentStatus) -> (Option<String>, Option<String>) {
    let Some(entry) = entry_of(boots, status) else { return (None, None) };
    let state = match &entry.state {
        BootState::Committed => "committed",
        BootState::Booted => "booted",
        BootState::Good => "good",
        BootState::Unproven => "unproven",
        BootState::Failed { .. } => "failed",
        BootState::RolledBack => "rolled-back",
        BootState::Other(_) => return (None, None),
    };
    (Some(state.to_owned()), entry.why().map(str::to_owned))
}

fn notice_of(deployment: &ostree::Deployment, status: &DeploymentStatus, boots: &BootRecord) -> Vec<String> {
    let name = short_name(&status.name);
    let mut notices = Vec::new();
    match entry_of(boots, status).map(|entry| &entry.state) {
        Some(BootState::Failed { cause }) => notices.push(format!("deployment {name} failed: {cause}")),
        Some(BootState::Unproven) => {
            notices.push(format!("deployment {name} was gone back from before it proved good"))
        }
        Some(BootState::RolledBack) => notices.push(format!("deployment {name} was rolled back")),
        _ => {}
    }
    let layered = deployment.origin().is_some_and(|origin| {
        LAYERED.iter().any(|(group, key)| origin.string_list(group, key).is_ok_and(|list| !list.is_empty()))
    });
    if layered {
        notices
            .push(format!("deployment {name} has packages of rpm-ostree's; a new image comes without them"));
    }
    notices
}

/// A committed change whose deployment is nowhere: the power failed before the shutdown finalised it,
/// or finalising failed.
pub(super) fn lost(intent: &Intent, deployments: &[DeploymentStatus]) -> Option<String> {
    (intent.is_committed() && !intent.is_among(deployments)).then(|| {
        let id = &intent.id;
        format!(
            "change {id} was committed and its deployment is lost; `mcd pivot --resume={id}` stages it again"
        )
    })
}
