//! `mcd validate`.

use anyhow::Result;

use crate::commands::Ended;
use crate::host::config_files;
use crate::model::config;
use crate::options::config::ConfigFile;
use crate::ui::Printer;

pub(super) fn run(files: &[ConfigFile], printer: &Printer) -> Result<Ended> {
    let found = config::read(config_files::read(files)?);
    printer.validated(&found)?;
    Ok(if found.is_ok() { Ended::Done } else { Ended::Refused })
}
