//! A hold: a person keeps a host from being drained or rebooted by itself.

use serde::{Deserialize, Serialize};

/// A hold on what drains or reboots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why.
    #[serde(default)]
    pub why: String,
    /// Seconds since the epoch; none: until a person lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

impl Hold {
    /// Reads `[UNTIL] WHY`, as the host's file and the Node's annotation have it; UNTIL is a time as RFC
    /// 3339 has it. A text that begins with no time holds until it is removed.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match first.parse::<jiff::Timestamp>() {
            Ok(until) => Self { why: rest.trim().to_owned(), until: Some(until.as_second()) },
            Err(_) => Self { why: text.to_owned(), until: None },
        }
    }

    /// Whether it still holds at `now`, in seconds since the epoch.
    pub fn lasts(&self, now: i64) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}
