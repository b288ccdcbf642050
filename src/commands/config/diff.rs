//! `mcd diff`.

use anyhow::Result;

use crate::commands::Ended;
use crate::error::Fault;
use crate::options::config::DiffOptions;
use crate::ui::Printer;

/// Shows what an apply would change.
pub(super) fn run(_options: &DiffOptions, _printer: &Printer) -> Result<Ended> {
    Err(Fault::refused("this verb is being built").into())
}
