//! The history of changes, as text.

use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::text::{clean, time};

/// One change, as it is shown: a view of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryRow {
    /// Its id.
    pub id: String,
    /// Seconds since the epoch.
    pub when: i64,
    /// How it ended: prepared, committed, rolled-back, …
    pub outcome: String,
    /// From which image.
    pub from: Option<String>,
    /// To which image.
    pub to: String,
    /// Who asked.
    pub who: String,
    /// Why, where that needs saying.
    pub why: Option<String>,
}

/// The whole page.
pub(super) fn render(rows: &[HistoryRow]) -> String {
    if rows.is_empty() {
        return "No change was recorded\n".to_owned();
    }
    rows.iter().map(render_row).collect()
}

fn render_row(row: &HistoryRow) -> String {
    let mut text = format!("{}  {}  {}\n", time(row.when), clean(&row.outcome).bold(), clean(&row.to));
    if let Some(from) = &row.from {
        text.push_str(&format!("    from  {}\n", clean(from)));
    }
    text.push_str(&format!("    by    {}\n", clean(&row.who)));
    if let Some(why) = &row.why {
        text.push_str(&format!("    why   {}\n", clean(why)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_changes() {
        let first = HistoryRow {
            id: "0f5b2c".to_owned(),
            when: 1_796_079_000,
            outcome: "committed".to_owned(),
            from: None,
            to: "ostree-unverified-registry:registry.example/os:12".to_owned(),
            who: "root: mcd pivot".to_owned(),
            why: None,
        };
        let second = HistoryRow {
            outcome: "rolled-back".to_owned(),
            from: Some("ostree-unverified-registry:registry.example/os:13".to_owned()),
            why: Some("asked by a person".to_owned()),
            ..first.clone()
        };
        let page = render(&[first, second]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&page).to_string());
        assert_eq!(render(&[]), "No change was recorded\n");
    }
}
