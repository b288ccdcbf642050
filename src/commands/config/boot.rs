//! `mcd boot`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::commands::Ended;
use crate::host::converge::{BootStage, Root, boot, lock};
use crate::host::now;
use crate::logging;
use crate::ui::Printer;

/// Lays down what belongs on the root at this path, which is about to start, or on the running one.
pub(super) fn run(root: Option<PathBuf>, printer: &Printer) -> Result<Ended> {
    let stage = if root.is_some() { BootStage::Before } else { BootStage::Running };
    let root = Root::open(root.as_deref().unwrap_or(Path::new("/")))?;
    let _lock = lock(&root, true)?;
    let report = boot(&root, stage, now())?;
    logging::boot(&report);
    printer.boot(&report)?;
    Ok(Ended::Done)
}
