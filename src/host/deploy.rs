//! Making a commit the next boot.
//!
//! On the running host it is *staged*: OSTree's own service finalises it at the shutdown, so that late
//! edits of `/etc` are merged. Elsewhere it is deployed and switched at once. Kernel arguments go in
//! with it, whole: the deployments that are there are never edited in place.
//!
//! Nothing is pruned here: what the switch drops from the boot order stays on disk until a cleanup.

use anyhow::Result;
use fn_error_context::context;
use ostree::{gio, glib};

use super::host_lock::HostLocked;
use super::status::name_of;
use super::unexplained;
use crate::error::Fault;
use crate::model::boot_order::{self, AfterDeploy};
use crate::model::digest::Digest;
use crate::model::image_ref::OsImage;
use crate::model::kargs::KernelArguments;
use crate::model::origin::{
    GROUP_MCD, GROUP_ORIGIN, GROUP_TRANSIENT, KEY_ASKED_DIGEST, KEY_ID, KEY_IMAGE, KEY_MANIFEST_DIGEST,
};
use crate::model::records::Intent;
use crate::model::status::DeploymentName;

/// What to deploy.
#[derive(Debug, Clone)]
pub struct DeployRequest {
    /// The commit: an image commit or one derived from it.
    pub commit: String,
    /// The image, for the origin. None keeps the origin of `base`: its source is no image.
    pub image: Option<OsImage>,
    /// What the change was compared with, where it is still there.
    pub base: Option<DeploymentName>,
    /// The manifest that was imported.
    pub digest: Option<Digest>,
    /// The digest that was asked for, if it was another: that of an index.
    pub asked_digest: Option<Digest>,
    /// Our id of the change.
    pub id: String,
    /// All kernel arguments of the new deployment, without `ostree=`.
    pub kernel_arguments: KernelArguments,
    /// Required health checks that fail on the running system. Then a host that never judged a
    /// deployment has no good one yet, and they are not held against the new one.
    pub failing_before: Vec<String>,
}

impl From<&Intent> for DeployRequest {
    fn from(intent: &Intent) -> Self {
        Self {
            commit: intent.commit.clone(),
            image: intent.asked.clone().or_else(|| intent.kept_image.clone()),
            base: intent.base.clone(),
            digest: intent.digest.clone(),
            asked_digest: intent.asked_digest.clone(),
            id: intent.id.clone(),
            kernel_arguments: KernelArguments::parse(&intent.kernel_arguments),
            failing_before: Vec::new(),
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// The new deployment.
    pub name: DeploymentName,
    /// Whether it waits for the shutdown. Else the next boot starts it already.
    pub staged: bool,
    /// What the others become with the switch.
    pub others: AfterDeploy,
}

impl HostLocked<'_> {
    /// Deploys. The caller has made the intent *committed* before.
    pub fn deploy(&self, request: &DeployRequest) -> Result<Deployed> {
        if merge_deployment(&self.sysroot()).is_none() {
            return Err(no_deployment(self).into());
        }
        // Finalising keeps only the running, merge source and pinned deployments: the last good one
        // must be pinned before, and the boot file must know the change before it can be booted.
        self.keep_last_good(request.failing_before.is_empty())?;
        self.note_change(request, None)?;
        let others = boot_order::after_deploy(&self.status()?.deployments);
        // Read after the pins were set: a deployment belongs to the sysroot that it was read with.
        let source = merge_deployment(&self.sysroot()).ok_or_else(|| no_deployment(self))?;
        let base = self.sysroot().deployments().into_iter().find(|one| Some(name_of(one)) == request.base);
        let origin = origin_file(request, base.as_ref().unwrap_or(&source));
        let deployed = if self.host().is_booted() {
            self.stage(request, &source, &origin)
        } else {
            self.deploy_and_switch(request, &source, &origin, &others)
        };
        let name = match deployed {
            Ok(new) => {
                self.reload()?;
                name_of(&new)
            }
            Err(error) => self.made_all_the_same(&request.id, error)?,
        };
        if let Err(error) = self.note_change(request, Some(&name)) {
            // It is deployed: its origin and its entry in the boot file carry the id.
            tracing::warn!("{error:#}");
        }
        Ok(Deployed { name, staged: self.host().is_booted(), others })
    }

    #[context("Staging {}", request.commit)]
    fn stage(
        &self,
        request: &DeployRequest,
        source: &ostree::Deployment,
        origin: &glib::KeyFile,
    ) -> Result<ostree::Deployment> {
        let arguments = request.kernel_arguments.without("ostree");
        let arguments: Vec<&str> = arguments.arguments().iter().map(String::as_str).collect();
        let options = options(&arguments);
        let stateroot = source.osname();
        let staged = self.sysroot().stage_tree_with_options(
            Some(&stateroot),
            &request.commit,
            Some(origin),
            Some(source),
            &options,
            gio::Cancellable::NONE,
        )?;
        // Whoever reboots next, in whatever way, must not be faster than OSTree's path unit.
        self.note_staged();
        Ok(staged)
    }

    #[context("Deploying {}", request.commit)]
    fn deploy_and_switch(
        &self,
        request: &DeployRequest,
        source: &ostree::Deployment,
        origin: &glib::KeyFile,
        others: &AfterDeploy,
    ) -> Result<ostree::Deployment> {
        let arguments = request.kernel_arguments.without("ostree");
        let arguments: Vec<&str> = arguments.arguments().iter().map(String::as_str).collect();
        let options = options(&arguments);
        let stateroot = source.osname();
        let new = self.sysroot().deploy_tree_with_options(
            Some(&stateroot),
            &request.commit,
            Some(origin),
            Some(source),
            Some(&options),
            gio::Cancellable::NONE,
        )?;
        let kept = self.sysroot().deployments().into_iter().filter(|old| others.keep.contains(&name_of(old)));
        let order: Vec<ostree::Deployment> = std::iter::once(Clone::clone(&new)).chain(kept).collect();
        self.write_order(&order)?;
        Ok(new)
    }

    /// Makes `order` the boot order: one atomic switch. A staged deployment stays only if it is first.
    #[context("Switching the boot order")]
    pub(super) fn write_order(&self, order: &[ostree::Deployment]) -> Result<()> {
        unexplained::write_deployments(&self.sysroot(), order)?;
        self.reload()
    }

    /// libostree does more after the switch (refs of its deployments, a flush), and that can fail. What
    /// the next boot starts decides whether the change happened; the rest is done again at the next
    /// change or cleanup.
    fn made_all_the_same(&self, id: &str, error: anyhow::Error) -> Result<DeploymentName> {
        let switched = self.reload().and_then(|()| {
            let status = self.status()?;
            Ok(status.next_boot().filter(|next| next.id.as_deref() == Some(id)).map(|next| next.name.clone()))
        });
        if let Ok(Some(name)) = switched {
            tracing::warn!("the next boot starts {name}, but what follows the switch failed: {error:#}");
            return Ok(name);
        }
        self.remove_leftovers();
        Err(error)
    }

    /// Removes what a deploy that failed left: a folder that no boot entry names.
    fn remove_leftovers(&self) {
        let cleaned = self.reload().and_then(|()| unexplained::prepare_cleanup(&self.sysroot()));
        if let Err(error) = cleaned {
            // The failure that led here is the one to report; the next cleanup tries again.
            tracing::warn!(%error, "cannot remove what the failed deployment left");
        }
    }

    /// Drops the staged deployment. Says whether there was one.
    #[context("Dropping the staged deployment")]
    pub fn drop_staged(&self) -> Result<bool> {
        if self.sysroot().staged_deployment().is_none() {
            return Ok(false);
        }
        let order: Vec<_> = self.sysroot().deployments().into_iter().filter(|old| !old.is_staged()).collect();
        self.write_order(&order)?;
        Ok(true)
    }
}

/// The deployment whose `/etc` is merged into a new one: as libostree chooses it.
pub(super) fn merge_deployment(sysroot: &ostree::Sysroot) -> Option<ostree::Deployment> {
    sysroot.booted_deployment().or_else(|| sysroot.deployments().into_iter().find(|old| !old.is_staged()))
}

fn options<'a>(arguments: &'a [&'a str]) -> ostree::SysrootDeployTreeOpts<'a> {
    ostree::SysrootDeployTreeOpts { override_kernel_argv: Some(arguments), ..Default::default() }
}

/// An origin that other tools read as theirs, with a group of ours.
fn origin_file(request: &DeployRequest, base: &ostree::Deployment) -> glib::KeyFile {
    let file = glib::KeyFile::new();
    match (&request.image, base.origin()) {
        (Some(image), _) => file.set_string(GROUP_ORIGIN, KEY_IMAGE, &image.to_string()),
        (None, Some(old)) => copy_origin(&old, &file),
        (None, None) => {}
    }
    file.set_string(GROUP_MCD, KEY_ID, &request.id);
    for (key, digest) in [(KEY_MANIFEST_DIGEST, &request.digest), (KEY_ASKED_DIGEST, &request.asked_digest)] {
        if let Some(digest) = digest {
            file.set_string(GROUP_MCD, key, digest.as_str());
        }
    }
    file
}

/// Copies everything but libostree's own state, such as a pin.
fn copy_origin(old: &glib::KeyFile, new: &glib::KeyFile) {
    for group in old.groups().iter().filter(|group| group.as_str() != GROUP_TRANSIENT) {
        for key in old.keys(group).iter().flat_map(|keys| keys.iter()) {
            if let Ok(value) = old.value(group, key) {
                new.set_value(group, key, &value);
            }
        }
    }
}

fn no_deployment(locked: &HostLocked<'_>) -> Fault {
    let path = locked.host().path();
    Fault::failed(format!("the sysroot {path} has no deployment"))
        .why("a change starts from a deployment: its stateroot, its /etc and its kernel arguments")
        .next(format!(
            "make a first one: ostree admin os-init and ostree admin deploy, with --sysroot={path}"
        ))
}
