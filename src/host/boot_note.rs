//! Reading and writing what happened so far in this boot, in `/run`.

use anyhow::Result;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use crate::model::boot_note::{BOOT_NOTE, BootNote};
use crate::model::status::DeploymentName;

const RUN: &str = "/run";

/// What happened so far to this deployment in this boot. Nothing, where that cannot be read.
pub fn read(deployment: &DeploymentName) -> BootNote {
    let read = || Dir::open_ambient_dir(RUN, ambient_authority()).ok()?.read(BOOT_NOTE).ok();
    let note = read().map(|bytes| BootNote::parse(&bytes)).unwrap_or_default();
    // A reboot of user space keeps `/run`, with the note of the deployment before.
    if note.deployment.as_ref() == Some(deployment) { note } else { BootNote::of(deployment.clone()) }
}

/// Replaces the note. Not durable: it is to die with the boot.
#[context("Writing {RUN}/{BOOT_NOTE}")]
pub fn write(note: &BootNote) -> Result<()> {
    let run = Dir::open_ambient_dir(RUN, ambient_authority())?;
    let (folder, _) = BOOT_NOTE.rsplit_once('/').unwrap_or_default();
    run.create_dir_all(folder)?;
    let temporary = format!("{BOOT_NOTE}.new");
    run.write(&temporary, note.to_bytes())?;
    Ok(run.rename(&temporary, &run, BOOT_NOTE)?)
}
