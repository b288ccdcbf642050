//! `mcd validate`.

use anyhow::Result;

use crate::commands::Ended;
use crate::error::Fault;
use crate::options::config::ConfigFile;
use crate::ui::Printer;

pub(super) fn run(_files: &[ConfigFile], _printer: &Printer) -> Result<Ended> {
    Err(Fault::refused("this verb is being built").into())
}
