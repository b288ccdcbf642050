//! `mcd status`.

use anyhow::Result;

use super::{Ended, open};
use crate::options::Target;
use crate::ui::Printer;

pub(super) fn run(target: Target, printer: &Printer) -> Result<Ended> {
    printer.status(&open::host(&target)?.status_with_config()?)?;
    Ok(Ended::Done)
}
