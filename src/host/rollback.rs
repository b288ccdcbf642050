//! Going back: the boot order is changed, in one atomic switch, and nothing else.
//!
//! Each deployment has its own `/etc`, so what was changed there since comes not along: the paths that
//! hurt most when they turn old again are listed before.

use std::collections::VecDeque;

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::host_lock::HostLocked;
use super::now;
use super::status::name_of;
use super::sysroot::Host;
use crate::error::Fault;
use crate::model::boot_order::rollback_target;
use crate::model::boots::WentBack;
use crate::model::records::{HistoryEntry, HistoryOutcome};
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus};

/// A rollback that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct RollBack<'a> {
    /// Where to; `None` for what [`rollback_target`] says.
    pub to: Option<&'a DeploymentName>,
    /// Who asked.
    pub who: &'a str,
    /// Why, for the history.
    pub why: Option<&'a str>,
}

/// What a rollback did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolledBack {
    /// What the next boot would have started.
    pub from: DeploymentName,
    /// What it starts now.
    pub to: DeploymentName,
    /// Whether `from` was staged, and is gone.
    pub dropped_staged: bool,
    /// Whether it takes a reboot for `to` to run.
    pub needs_reboot: bool,
    /// Why the history does not tell of it.
    pub unrecorded: Option<String>,
}

impl RolledBack {
    /// Whether anything had to be done.
    pub fn is_change(&self) -> bool {
        self.from != self.to
    }
}

/// Where files stand whose older versions lock a machine out: certificates, kubeconfigs, host keys,
/// pull secrets. Every file below a folder that is named here counts.
const PRECIOUS_FOLDERS: [&str; 9] = [
    "kubernetes/pki",
    "kubernetes/static-pod-resources",
    "pki/ca-trust/source",
    "pki/tls",
    "ssl/private",
    "docker/certs.d",
    "containers/certs.d",
    "ostree",
    "crio/certs.d",
];
/// Elsewhere in `/etc`, a file counts by how its name begins or ends.
const PRECIOUS_STARTS: [&str; 2] = ["ssh_host_", "kubeconfig"];
const PRECIOUS_ENDS: [&str; 10] = [
    ".pem",
    ".crt",
    ".key",
    ".kubeconfig",
    "-kubeconfig",
    ".keytab",
    ".p12",
    "auth.json",
    ".dockercfg",
    ".dockerconfigjson",
];

impl HostLocked<'_> {
    /// Makes an older deployment the next boot. The intent is cleared, and what is gone back from is
    /// marked, so that neither a boot nor a request file does it again.
    pub fn roll_back(&self, asked: &RollBack<'_>) -> Result<RolledBack> {
        self.go_back(asked, None)
    }

    /// The same; `given_up` where nobody asked for it.
    pub(super) fn go_back(&self, asked: &RollBack<'_>, given_up: Option<&WentBack>) -> Result<RolledBack> {
        let status = self.status()?;
        let target = target(&status, asked.to)?;
        let from = status.next_boot().ok_or_else(|| nothing_to_go_back_to(self.host()))?;
        let mut done = RolledBack {
            from: from.name.clone(),
            to: target.name.clone(),
            dropped_staged: from.staged,
            needs_reboot: !target.booted && self.host().is_booted(),
            unrecorded: None,
        };
        if from.index == target.index {
            return Ok(done);
        }
        // Before the switch: a power cut after it must not find an intent that would stage it again.
        let request = self.host().readable_intent().and_then(|intent| intent.request_digest);
        self.note_rolled_back(&undone(&status, target), request.as_ref(), given_up)?;
        self.clear_intent()?;
        self.put_first(target)?;
        let id = from.id.clone().unwrap_or_else(|| from.name.to_string());
        let told = self.append_history(HistoryEntry {
            who: asked.who.to_owned(),
            from: Some(from.name.to_string()),
            why: asked.why.map(str::to_owned),
            ..HistoryEntry::new(id, target.name.to_string(), HistoryOutcome::RolledBack, now())
        });
        // It is switched: a full /var does not turn that into a failure.
        done.unrecorded = told.err().map(|error| format!("{error:#}"));
        Ok(done)
    }

    #[context("Going back to {}", target.name)]
    fn put_first(&self, target: &DeploymentStatus) -> Result<()> {
        let all = self.sysroot().deployments();
        let is_target =
            |one: &ostree::Deployment| name_of(one) == target.name && one.osname() == target.stateroot;
        let (first, others): (Vec<_>, Vec<_>) =
            all.into_iter().filter(|one| !one.is_staged()).partition(is_target);
        self.write_order(&[first, others].concat())
    }
}

/// The deployments that a rollback to `target` goes back from: what would run next, and what runs, if
/// that is not the target.
fn undone<'a>(status: &'a HostStatus, target: &DeploymentStatus) -> Vec<&'a DeploymentStatus> {
    let undone = |one: &&DeploymentStatus| one.index != target.index && (one.index == 0 || one.booted);
    status.deployments.iter().filter(undone).collect()
}

fn target<'a>(status: &'a HostStatus, to: Option<&DeploymentName>) -> Result<&'a DeploymentStatus, Fault> {
    let Some(name) = to else {
        return rollback_target(&status.deployments).ok_or_else(|| {
            Fault::refused("there is no deployment to roll back to")
                .why(match status.deployments.len() {
                    0 => "the sysroot has no deployment",
                    _ => "no deployment is older than the one that runs",
                })
                .next("see mcd status for what there is")
        });
    };
    let found = status.deployments.iter().find(|one| one.name == *name).ok_or_else(|| {
        Fault::refused(format!("there is no deployment {name}")).next("see mcd status for what there is")
    })?;
    if found.staged {
        return Err(Fault::refused(format!("deployment {name} is staged"))
            .why("it is what the next boot starts already")
            .next("drop it with mcd cancel, or name another one"));
    }
    Ok(found)
}

fn nothing_to_go_back_to(host: &Host) -> Fault {
    Fault::refused(format!("the sysroot {} has no deployment", host.path())).next("see mcd status")
}

impl Host {
    /// What turns old again when `target` is booted: certificates, kubeconfigs, host keys and pull
    /// secrets in the present `/etc` that differ there or are missing. Paths only, never content.
    #[context("Comparing /etc with that of {target}")]
    pub fn rollback_losses(&self, target: &DeploymentName) -> Result<Vec<Utf8PathBuf>> {
        let sysroot = self.load()?;
        let Some(present) = super::deploy::merge_deployment(&sysroot) else { return Ok(Vec::new()) };
        let deployments = sysroot.deployments();
        let Some(target) = deployments.iter().find(|one| name_of(one) == *target && !one.is_staged()) else {
            return Ok(Vec::new());
        };
        let etc = |one: &ostree::Deployment| {
            self.root().open_dir(format!("{}/etc", sysroot.deployment_dirpath(one)))
        };
        losses(&etc(&present)?, &etc(target)?)
    }
}

fn losses(present: &Dir, target: &Dir) -> Result<Vec<Utf8PathBuf>> {
    let mut lost = Vec::new();
    let mut folders = VecDeque::from([Utf8PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        let dir =
            if folder.as_str().is_empty() { present.try_clone()? } else { present.open_dir(&folder)? };
        for entry in dir.entries()?.flatten() {
            let Some(path) = entry.file_name().to_str().map(|name| folder.join(name)) else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push_back(path);
            } else if is_precious(&path) && differs(present, target, &path) {
                lost.push(Utf8Path::new("/etc").join(path));
            }
        }
    }
    lost.sort();
    Ok(lost)
}

fn is_precious(path: &Utf8Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    PRECIOUS_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || PRECIOUS_STARTS.iter().any(|start| name.starts_with(start))
        || PRECIOUS_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether the target has another file there, or none. What cannot be read counts as different: a
/// warning too many does no harm.
fn differs(present: &Dir, target: &Dir, path: &Utf8Path) -> bool {
    let content = |dir: &Dir| {
        if dir.symlink_metadata(path).ok()?.is_symlink() {
            return dir.read_link_contents(path).ok().map(|link| link.into_os_string().into_encoded_bytes());
        }
        dir.read(path).ok()
    };
    let (here, there) = (content(present), content(target));
    here.is_none() || here != there
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;

    use super::*;

    #[test]
    fn only_precious_files_that_differ_are_lost() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        for (path, here, there) in [
            ("ssh/ssh_host_rsa_key", "new", Some("old")),
            ("ssh/sshd_config", "new", Some("old")),
            ("kubernetes/kubeconfig", "same", Some("same")),
            ("kubernetes/kubelet-ca.crt", "ca", None),
            ("pki/ca-trust/source/anchors/corp", "ca", None),
            ("motd", "new", None),
        ] {
            for (side, content) in [("here", Some(here)), ("there", there)] {
                let path = Utf8PathBuf::from(side).join(path);
                root.create_dir_all(path.parent().unwrap()).unwrap();
                if let Some(content) = content {
                    root.write(&path, content).unwrap();
                }
            }
        }
        let lost = losses(&root.open_dir("here").unwrap(), &root.open_dir("there").unwrap()).unwrap();
        assert_eq!(
            lost,
            [
                "/etc/kubernetes/kubelet-ca.crt",
                "/etc/pki/ca-trust/source/anchors/corp",
                "/etc/ssh/ssh_host_rsa_key"
            ]
        );
    }
}
