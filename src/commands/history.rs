//! `mcd history`.

use anyhow::Result;

use super::Ended;
use crate::options::HistoryOptions;
use crate::ui::Printer;

// WIRE: read the records, keep the last `limit`, printer.history(&entries)
pub(super) fn run(_options: HistoryOptions, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("history"))
}
