//! `mcd boot`.

mod before;
#[cfg(feature = "ostree")]
mod running;

use std::path::Path;

use anyhow::Result;

use crate::commands::Ended;
use crate::host::converge::{BootStage, Root, boot, deployment_name, lock};
use crate::host::{boot_note, now};
use crate::logging;
use crate::model::boot_note::BootNote;
use crate::options::config::BootPart;
use crate::ui::Printer;

/// Carries out a part of a boot.
pub(super) fn run(part: BootPart, printer: &Printer) -> Result<Ended> {
    match part {
        BootPart::Before(root) => before::run(&root, printer),
        BootPart::Running => {
            let root = Root::open(Path::new("/"))?;
            let ended = lay_down(&root, printer)?;
            converged(&root)?;
            Ok(ended)
        }
        #[cfg(feature = "ostree")]
        BootPart::Early => running::early(printer),
        #[cfg(feature = "ostree")]
        BootPart::Ending => running::ending(),
        #[cfg(not(feature = "ostree"))]
        BootPart::Early | BootPart::Ending => {
            Err(crate::error::Fault::refused("this mcd has no part in the running system")
                .why("it was built without the feature `ostree`, for the initramfs")
                .next("use the mcd of the running system")
                .into())
        }
    }
}

/// What could not be laid down early in this boot is there now.
fn converged(root: &Root) -> Result<()> {
    let Some(name) = deployment_name(root)? else { return Ok(()) };
    let note = boot_note::read(&name);
    if !note.unconverged {
        return Ok(());
    }
    boot_note::write(&BootNote { unconverged: false, degraded: None, ..note })
}

/// Lays down what belongs on the running root.
fn lay_down(root: &Root, printer: &Printer) -> Result<Ended> {
    let _lock = lock(root, true)?;
    let report = boot(root, BootStage::Running, now())?;
    logging::boot(&report);
    printer.boot(&report)?;
    Ok(Ended::Done)
}
