//! A hold as an annotation: `[UNTIL] WHY`, UNTIL being a time as RFC 3339 has it.

use crate::model::wire::Hold;

/// Reads the annotation; none if it is empty. A text that begins with no time holds until it is
/// removed.
pub fn parse(text: &str) -> Option<Hold> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some(match first.parse::<jiff::Timestamp>() {
        Ok(until) => Hold { why: rest.trim().to_owned(), until: Some(until.as_second()) },
        Err(_) => Hold { why: text.to_owned(), until: None },
    })
}
