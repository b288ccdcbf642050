//! The boot file, `/ostree/mcd-boots` on the physical root: what the boot hook, the health checks and
//! the request files must know of each change.

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

use super::boot_slots;
use super::deploy::DeployRequest;
use super::host_lock::HostLocked;
use super::now;
use super::sysroot::Host;
use crate::model::boots::{
    BootEntry, BootFile, BootRecord, BootState, RequestOutcome, RequestRecord, WentBack,
};
use crate::model::digest::Digest;
use crate::model::kargs::KernelArguments;
use crate::model::status::{DeploymentName, DeploymentStatus};

/// Links by UUID to all file systems' devices, kept by udev.
const BY_UUID: &str = "/dev/disk/by-uuid";

impl Host {
    /// What the boot file says; nothing where there is none.
    pub fn boots(&self) -> Result<BootRecord> {
        Ok(self.boot_file()?.record)
    }

    pub(super) fn boot_file(&self) -> Result<BootFile> {
        boot_slots::read(self.root())
    }

    /// Why a change must not be made again by itself: its commit, with these kernel arguments, failed
    /// on this host when it ran last.
    pub fn failed_before(&self, commit: &str, arguments: &KernelArguments) -> Result<Option<String>> {
        let boots = self.boots()?;
        let arguments = arguments_id(arguments);
        let is_it = |entry: &&BootEntry| {
            entry.deployment.as_ref().is_some_and(|name| name.checksum == commit)
                && entry.arguments.as_ref().is_none_or(|own| *own == arguments)
                && entry.state != BootState::Committed
        };
        Ok(match boots.entries.iter().rev().find(is_it).map(|entry| &entry.state) {
            Some(BootState::Failed { cause }) => Some(cause.clone()),
            _ => None,
        })
    }

    /// Whether a request was carried out or rolled back before.
    pub fn known_request(&self, digest: &Digest) -> Result<Option<RequestOutcome>> {
        Ok(self.boots()?.request(digest).map(|request| request.outcome.clone()))
    }
}

impl HostLocked<'_> {
    pub(super) fn boots(&self) -> Result<BootRecord> {
        self.host().boots()
    }

    /// Changes the boot file. Durable when this returns.
    pub(super) fn edit_boots(&self, edit: impl FnOnce(&mut BootRecord)) -> Result<()> {
        let root = self.host().root();
        boot_slots::edit(root, |record| {
            edit(record);
            if let Some(uuid) = boot_uuid(root) {
                record.boot_uuid = Some(uuid);
            }
        })
    }

    /// A change is about to be deployed; once it is, under this name.
    pub(super) fn note_change(
        &self,
        request: &DeployRequest,
        deployment: Option<&DeploymentName>,
    ) -> Result<()> {
        let mut entry = BootEntry::new(&request.id, deployment.cloned(), BootState::Committed, now());
        entry.failing_before.clone_from(&request.failing_before);
        entry.arguments = Some(arguments_id(&request.kernel_arguments));
        self.edit_boots(|boots| boots.note(entry))
    }

    /// What is gone back from, the request that asked for it, and why nobody was asked.
    pub(super) fn note_rolled_back(
        &self,
        undone: &[&DeploymentStatus],
        request: Option<&Digest>,
        given_up: Option<&WentBack>,
    ) -> Result<()> {
        self.edit_boots(|boots| {
            // The boot hook says why before it has this done, by whichever version of `mcd` there is.
            let given_up = given_up.or(boots.went_back.as_ref()).cloned();
            for deployment in undone {
                let name = Some(deployment.name.clone());
                boots.note(match &given_up {
                    Some(back) if back.from == entry_id(deployment) => BootEntry::given_up(back, now()),
                    _ => BootEntry::new(entry_id(deployment), name, BootState::RolledBack, now()),
                });
            }
            boots.went_back = given_up;
            if let Some(digest) = request {
                boots.note_request(RequestRecord::new(digest.clone(), RequestOutcome::RolledBack, now()));
            }
        })
    }

    /// A request was carried out: met again in an older `/etc`, it is not run again.
    pub(super) fn note_carried_out(&self, request: &Digest) -> Result<()> {
        let record = RequestRecord::new(request.clone(), RequestOutcome::CarriedOut, now());
        self.edit_boots(|boots| boots.note_request(record))
    }
}

/// Tells kernel arguments apart, in few bytes.
fn arguments_id(arguments: &KernelArguments) -> String {
    Digest::of(arguments.without("ostree").to_string().as_bytes()).hex()[..16].to_owned()
}

/// The name of a deployment's entry: our id, or its own name if others made it.
pub(super) fn entry_id(deployment: &DeploymentStatus) -> String {
    deployment.id.clone().unwrap_or_else(|| deployment.name.to_string())
}

/// The entry of a deployment. An origin that another tool copied still has our id, so the name counts.
pub(super) fn entry_of<'a>(boots: &'a BootRecord, deployment: &DeploymentStatus) -> Option<&'a BootEntry> {
    let own = boots.entry(&entry_id(deployment));
    own.filter(|entry| entry.deployment.as_ref().is_none_or(|name| *name == deployment.name))
}

/// The UUID of the file system of `/boot`, by which the boot hook finds it. Where udev knows none
/// (a test sysroot, a file system without a device of its own), nothing.
fn boot_uuid(root: &Dir) -> Option<String> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    let boot = rustix::fs::fstat(root.open_dir("boot").ok()?).ok()?;
    let links =
        rustix::fs::openat(CWD, BY_UUID, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .ok()?;
    let entries = rustix::fs::Dir::read_from(&links).ok()?;
    entries.flatten().find_map(|entry| {
        let device = rustix::fs::statat(&links, entry.file_name(), AtFlags::empty()).ok()?;
        let is_block =
            rustix::fs::FileType::from_raw_mode(device.st_mode) == rustix::fs::FileType::BlockDevice;
        (is_block && device.st_rdev == boot.st_dev).then(|| entry.file_name().to_string_lossy().into_owned())
    })
}
