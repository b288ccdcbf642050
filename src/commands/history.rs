//! `mcd history`.

use anyhow::Result;

use super::{Ended, open};
use crate::options::HistoryOptions;
use crate::ui::Printer;

pub(super) fn run(options: HistoryOptions, printer: &Printer) -> Result<Ended> {
    let history = open::host(&options.target)?.history()?;
    let hidden = options.limit.map_or(0, |limit| history.entries.len().saturating_sub(limit));
    printer.history(&history.entries[hidden..])?;
    if history.unreadable > 0 {
        printer.say(&format!("warning: {} lines of the history cannot be read", history.unreadable));
    }
    Ok(Ended::Done)
}
