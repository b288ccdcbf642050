//! The history of changes, as text.

use owo_colors::OwoColorize as _;

use super::text::{clean, time};
use crate::model::records::{HistoryEntry, HistoryOutcome};

/// The whole page.
pub(super) fn render(entries: &[HistoryEntry]) -> String {
    if entries.is_empty() {
        return "No change was recorded\n".to_owned();
    }
    entries.iter().map(render_entry).collect()
}

fn render_entry(entry: &HistoryEntry) -> String {
    let mut text =
        format!("{}  {}  {}\n", time(entry.when), outcome(&entry.outcome).bold(), clean(&entry.to));
    if let Some(from) = &entry.from {
        text.push_str(&format!("    from  {}\n", clean(from)));
    }
    text.push_str(&format!("    by    {}\n", clean(&entry.who)));
    if let Some(why) = &entry.why {
        text.push_str(&format!("    why   {}\n", clean(why)));
    }
    text
}

/// One or two words.
fn outcome(outcome: &HistoryOutcome) -> String {
    match outcome {
        HistoryOutcome::Prepared => "prepared".to_owned(),
        HistoryOutcome::Committed => "committed".to_owned(),
        HistoryOutcome::Applied => "applied".to_owned(),
        HistoryOutcome::Booted => "booted".to_owned(),
        HistoryOutcome::RolledBack => "rolled back".to_owned(),
        HistoryOutcome::Cancelled => "cancelled".to_owned(),
        HistoryOutcome::Failed => "failed".to_owned(),
        HistoryOutcome::Other(word) => clean(word.as_str().unwrap_or("unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_changes() {
        let first = HistoryEntry {
            version: 1,
            id: "0f5b2c".to_owned(),
            when: 1_796_079_000,
            outcome: HistoryOutcome::Committed,
            from: None,
            to: "ostree-unverified-registry:registry.example/os:12".to_owned(),
            who: "root: mcd pivot".to_owned(),
            why: None,
            extra: serde_json::Map::new(),
        };
        let second = HistoryEntry {
            outcome: HistoryOutcome::RolledBack,
            from: Some("ostree-unverified-registry:registry.example/os:13".to_owned()),
            why: Some("asked by a person".to_owned()),
            ..first.clone()
        };
        let page = render(&[first, second]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&page).to_string());
        assert_eq!(render(&[]), "No change was recorded\n");
    }
}
