//! `mcd history`.

use anyhow::Result;

use super::{Ended, open};
use crate::model::records::{HistoryEntry, HistoryOutcome};
use crate::options::HistoryOptions;
use crate::ui::{HistoryRow, Printer};

pub(super) fn run(options: HistoryOptions, printer: &Printer) -> Result<Ended> {
    let history = open::host(&options.target)?.history()?;
    let hidden = options.limit.map_or(0, |limit| history.entries.len().saturating_sub(limit));
    let rows: Vec<HistoryRow> = history.entries.into_iter().skip(hidden).map(row).collect();
    printer.history(&rows);
    if history.unreadable > 0 {
        printer.say(&format!("warning: {} lines of the history cannot be read", history.unreadable));
    }
    Ok(Ended::Done)
}

fn row(entry: HistoryEntry) -> HistoryRow {
    HistoryRow {
        id: entry.id,
        when: entry.when,
        outcome: outcome(&entry.outcome),
        from: entry.from,
        to: entry.to,
        who: entry.who,
        why: entry.why,
    }
}

fn outcome(outcome: &HistoryOutcome) -> String {
    match outcome {
        HistoryOutcome::Prepared => "prepared".to_owned(),
        HistoryOutcome::Committed => "committed".to_owned(),
        HistoryOutcome::Booted => "booted".to_owned(),
        HistoryOutcome::RolledBack => "rolled-back".to_owned(),
        HistoryOutcome::Cancelled => "cancelled".to_owned(),
        HistoryOutcome::Failed => "failed".to_owned(),
        HistoryOutcome::Other(other) => other.as_str().map_or_else(|| other.to_string(), str::to_owned),
    }
}
