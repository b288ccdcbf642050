//! What the verbs of a first boot, and of its doctor, mean.

use std::path::PathBuf;

use super::{FetchOptions, Invocation, Reboot, Request, fetch, image, reboot};
use crate::cli::firstboot::{DoctorArgs, FirstbootArgs, OldFirstbootArgs};
use crate::error::Fault;
use crate::model::image_ref::OsImage;

/// `firstboot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstbootOptions {
    /// A MachineConfig, in place of the files that a first boot looks for.
    pub file: Option<PathBuf>,
    /// Try again until the machine is what is asked for.
    pub retries: bool,
    /// Reboot when something changed.
    pub reboot: Reboot,
    /// Run again what was carried out or rolled back; override inhibitors.
    pub force: bool,
    /// Fetching.
    pub fetch: FetchOptions,
    /// What is accepted and has no effect, to be said.
    pub remarks: Vec<&'static str>,
}

pub(super) fn firstboot(args: FirstbootArgs) -> Result<FirstbootOptions, Fault> {
    Ok(FirstbootOptions {
        file: args.machineconfig_file,
        retries: !args.once,
        reboot: reboot(args.reboot)?,
        force: args.force,
        fetch: fetch(args.fetch, false)?,
        remarks: Vec::new(),
    })
}

/// The Go daemon's verb always tried again, and rebooted fully.
pub(super) fn old(args: OldFirstbootArgs) -> Invocation {
    let remark = "--persist-nics has no effect: names of network interfaces are left to the OS";
    let options = FirstbootOptions {
        file: args.machineconfig_file,
        retries: true,
        reboot: Reboot::Full,
        force: false,
        fetch: FetchOptions::default(),
        remarks: if args.persist_nics { vec![remark] } else { Vec::new() },
    };
    Invocation { verbosity: 0, json: false, request: Request::Firstboot(options) }
}

/// `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorOptions {
    /// The image; absent means the one that runs.
    pub image: Option<OsImage>,
    /// Fetching.
    pub fetch: FetchOptions,
}

pub(super) fn doctor(args: DoctorArgs) -> Result<DoctorOptions, Fault> {
    Ok(DoctorOptions {
        image: args.image.as_deref().map(image).transpose()?,
        fetch: fetch(args.fetch, false)?,
    })
}
