//! `mcd validate`.

use anyhow::Result;

use crate::commands::Ended;
use crate::host::config_files;
use crate::model::config::{self, Config, Remark};
use crate::options::config::ConfigFile;
use crate::ui::Printer;

pub(super) fn run(files: &[ConfigFile], printer: &Printer) -> Result<Ended> {
    let mut found = config::read(config_files::read(files)?);
    if let Ok(config) = &mut found {
        warn_of_disks(config);
    }
    printer.validated(&found)?;
    Ok(if found.is_ok() { Ended::Done } else { Ended::Refused })
}

/// Whether they may stand depends on what the host was told before.
fn warn_of_disks(config: &mut Config) {
    let sections = config.managed.iter().flat_map(|managed| managed.disks.values());
    let message = "disks are laid out when a machine is installed: mcd takes this from the first config of a host, and refuses another one later";
    let remarks: Vec<Remark> = sections
        .map(|section| Remark { field: section.field.clone(), message: message.to_owned() })
        .collect();
    config.warnings.extend(remarks);
}
