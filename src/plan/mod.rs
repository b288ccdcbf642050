//! Decisions without effects: what a request means on the host as it is.
//!
//! [`decide`] is called twice for a tag: once with what is known without a network, and again with
//! the digest that the registry gave. Planning again on a fresh observation and getting
//! [`Decision::NothingToDo`] is how `mcd` verifies that a change is complete.

pub mod apply;
#[cfg(feature = "ostree")]
pub mod backoff;
pub mod boot;
pub mod boot_count;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod config;
#[cfg(feature = "ostree")]
pub mod content;
#[cfg(feature = "ostree")]
pub mod disks;
#[cfg(feature = "ostree")]
pub mod disruption;
#[cfg(feature = "ostree")]
pub mod doctor;
#[cfg(feature = "cluster")]
pub mod drain;
#[cfg(feature = "ostree")]
pub mod drift;
#[cfg(feature = "ostree")]
pub mod firstboot;
pub mod health;
#[cfg(feature = "cluster")]
pub mod pool;
pub mod preflight;
pub mod reboot;
#[cfg(feature = "ostree")]
pub mod registries;
#[cfg(test)]
mod tests;
pub mod unattended;

use std::fmt;

use serde::Serialize;

use crate::model::digest::Digest;
use crate::model::image_ref::{OsImage, Verification};
use crate::model::kargs::{InvalidKarg, KargEdit, KernelArguments};
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus};

/// What somebody wants. Absent parts are left as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The image, if the request names one.
    pub image: Option<OsImage>,
    /// What its tag was resolved to, once that is known.
    pub resolved: Option<Digest>,
    /// Changes of the kernel arguments of what the next boot starts.
    pub kargs: Vec<KargEdit>,
}

/// What to do about a [`Desired`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The next boot starts just that.
    NothingToDo,
    /// The tag must be resolved before anything can be said.
    Resolve,
    /// What runs now is wanted, and something else would boot next: drop that.
    ReturnToBooted {
        /// What runs now.
        booted: DeploymentName,
        /// What would have booted.
        dropped: DeploymentName,
    },
    /// A new deployment.
    Deploy(Deploy),
}

/// A new deployment to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deploy {
    /// The image, or none to keep the commit of the next boot and change only arguments.
    pub image: Option<OsImage>,
    /// Its digest, as far as it is known.
    pub digest: Option<Digest>,
    /// All kernel arguments of the new deployment.
    pub kernel_arguments: KernelArguments,
    /// What it is compared with and merges `/etc` from.
    pub base: DeploymentName,
}

/// Compares a request with what the next boot would start.
///
/// # Errors
///
/// [`InvalidKarg`] names a kernel argument edit that makes no sense. A host without any deployment
/// has no arguments to edit; the caller refuses it before.
pub fn decide(desired: &Desired, host: &HostStatus) -> Result<Option<Decision>, InvalidKarg> {
    let Some(next) = host.next_boot() else {
        return Ok(None);
    };
    let wanted = match &desired.image {
        Some(image) => match image.image.digest.as_ref().or(desired.resolved.as_ref()) {
            Some(digest) => Some((image, digest)),
            None => return Ok(Some(Decision::Resolve)),
        },
        None => None,
    };
    if is_as_wanted(next, wanted, desired)? {
        return Ok(Some(Decision::NothingToDo));
    }
    if let Some(booted) = host.booted()
        && desired.image.is_some()
        && is_as_wanted(booted, wanted, desired)?
    {
        return Ok(Some(Decision::ReturnToBooted {
            booted: booted.name.clone(),
            dropped: next.name.clone(),
        }));
    }
    Ok(Some(Decision::Deploy(Deploy {
        image: desired.image.clone(),
        digest: wanted.map(|(_, digest)| digest.clone()),
        kernel_arguments: KernelArguments::parse(&next.kernel_arguments).apply(&desired.kargs)?,
        base: next.name.clone(),
    })))
}

/// Whether a deployment has the image and the arguments. The digest that was asked for and the one
/// that it was resolved to both count.
fn is_as_wanted(
    deployment: &DeploymentStatus,
    wanted: Option<(&OsImage, &Digest)>,
    desired: &Desired,
) -> Result<bool, InvalidKarg> {
    if let Some((image, _)) = wanted
        && has_image(deployment, image, desired.resolved.as_ref()) != Some(true)
    {
        return Ok(false);
    }
    let present = KernelArguments::parse(&deployment.kernel_arguments);
    Ok(present.apply(&desired.kargs)? == present)
}

/// Whether a deployment has an image; none where its tag must be resolved first. The digest that was
/// asked for and the one that it was resolved to both count.
pub fn has_image(deployment: &DeploymentStatus, image: &OsImage, resolved: Option<&Digest>) -> Option<bool> {
    let wanted = [image.image.digest.as_ref(), resolved];
    if wanted.iter().all(Option::is_none) {
        return None;
    }
    let own = [deployment.digest.as_ref(), deployment.asked_digest.as_ref()];
    let is_it = own.into_iter().flatten().any(|own| wanted.contains(&Some(own)));
    Some(is_it && !needs_new_proof(deployment, image))
}

/// Whether the request asks for a proof that this deployment's origin does not claim: the same
/// bytes must then pass the check before the origin may say so.
fn needs_new_proof(deployment: &DeploymentStatus, image: &OsImage) -> bool {
    let asked = &image.verification;
    *asked != Verification::PolicyOnly
        && deployment.image.as_ref().map(|own| &own.verification) != Some(asked)
}

/// What will be done, for people (`Display`) and for `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// Estimates and measurements against limits.
    pub checks: Vec<preflight::Check>,
}

/// One step of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// Fetch what the repo does not have.
    Pull {
        /// The image.
        image: OsImage,
        /// Its manifest.
        digest: Digest,
        /// Compressed bytes to fetch.
        fetch_bytes: u64,
        /// Layers to fetch.
        fetch_layers: usize,
        /// Compressed bytes that are there already.
        reuse_bytes: u64,
        /// Layers that are there already.
        reuse_layers: usize,
    },
    /// Make a deployment.
    Deploy {
        /// The image, absent when only arguments change.
        image: Option<OsImage>,
        /// All kernel arguments it gets.
        kernel_arguments: String,
        /// Arguments that are new.
        arguments_added: Vec<String>,
        /// Arguments that go.
        arguments_removed: Vec<String>,
        /// Finalised at shutdown, or switched at once.
        staged: bool,
        /// Older deployments that go with the switch.
        removes: Vec<DeploymentName>,
    },
    /// Make files, units and keys what the configuration says.
    Configure {
        /// The MachineConfigs.
        names: Vec<String>,
        /// Paths that change.
        changes: usize,
        /// On the running root, now; else in a commit that the next boot starts.
        live: bool,
    },
    /// A service is told.
    Act {
        /// The call of systemd: `reload crio.service`.
        action: String,
    },
    /// Drop what would have booted and stay with what runs.
    ReturnToBooted {
        /// What runs now.
        booted: DeploymentName,
        /// What goes.
        dropped: DeploymentName,
    },
    /// The change takes effect with a reboot.
    Reboot {
        /// Whether `mcd` asks for it.
        asked: bool,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pull { image, digest, fetch_layers: 0, reuse_bytes, reuse_layers, .. } => write!(
                f,
                "pull {image} ({}): all {reuse_layers} layers are here already, {}",
                digest.short(),
                Bytes(*reuse_bytes)
            ),
            Self::Pull { image, digest, fetch_bytes, fetch_layers, reuse_bytes, reuse_layers } => write!(
                f,
                "pull {image} ({}): fetch {fetch_layers} layers, {}; reuse {reuse_layers} layers, {}",
                digest.short(),
                Bytes(*fetch_bytes),
                Bytes(*reuse_bytes)
            ),
            Self::Deploy { image, arguments_added, arguments_removed, staged, removes, .. } => {
                f.write_str(if *staged { "stage" } else { "deploy" })?;
                match image {
                    Some(image) => write!(f, " {image}")?,
                    None => f.write_str(" the same image with other kernel arguments")?,
                }
                for argument in arguments_removed {
                    write!(f, "; kernel argument -{argument}")?;
                }
                for argument in arguments_added {
                    write!(f, "; kernel argument +{argument}")?;
                }
                for name in removes {
                    write!(f, "; the older deployment {} goes", short_name(name))?;
                }
                Ok(())
            }
            Self::Configure { names, changes, live } => {
                let names = if names.is_empty() { "no configuration".to_owned() } else { names.join(", ") };
                let (verb, place) = if *live {
                    ("lay down", "on the running system")
                } else {
                    ("add", "to the image, in a commit of its own")
                };
                write!(f, "{verb} {names} {place}: {changes} paths change")
            }
            Self::Act { action } => f.write_str(action),
            Self::ReturnToBooted { booted, dropped } => {
                write!(f, "drop {} and stay with {}, which runs now", short_name(dropped), short_name(booted))
            }
            Self::Reboot { asked: true } => f.write_str("reboot"),
            Self::Reboot { asked: false } => {
                f.write_str("takes effect with the next reboot, which is left to you")
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{}. {step}", number + 1)?;
        }
        for check in &self.checks {
            writeln!(f, "check: {check}")?;
        }
        Ok(())
    }
}

/// A deployment's name as people read it: 12 digits of the commit and the serial.
pub fn short_name(name: &DeploymentName) -> String {
    format!("{}.{}", name.checksum.get(..12).unwrap_or(&name.checksum), name.serial)
}

/// A number of bytes for people, in the unit that leaves one to four digits before the point: `0 B`,
/// `1.5 MiB`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would be shown as 1024.0: that is one of the next unit.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}
