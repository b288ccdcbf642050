//! `mcd report`.

use std::path::Path;

use anyhow::Result;
use camino::Utf8Path;

use super::{Ended, open};
use crate::error::Fault;
use crate::host::report;
use crate::options::Target;
use crate::ui::Printer;

pub(super) fn run(output: Option<&Path>, printer: &Printer) -> Result<Ended> {
    let output = match output {
        None => None,
        Some(path) => Some(Utf8Path::from_path(path).ok_or_else(|| {
            Fault::usage(format!("--output {}: the path is not valid UTF-8", path.display()))
        })?),
    };
    let done = report(open::host(&Target { sysroot: None, wait: false }), output)?;
    printer.report(&done)?;
    Ok(Ended::Done)
}
