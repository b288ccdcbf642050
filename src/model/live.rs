//! `/var/lib/mcd/live.json`: the live apply that is under way.
//!
//! It is durable before the running root is touched, and gone when nothing is left to do. Whoever finds
//! one continues it in the direction that it names: *forward* until an action fails, then *back*. Both
//! are converges from whatever is there, so that a cut at any point is continued by doing the whole
//! stage again.
//!
//! ```text
//!   converging ──► acting ──► staging ──► (gone: done)
//!        │           │           │
//!        └───────────┴───────────┴──► undoing ──► (gone: as before)
//! ```
//!
//! * *converging*: `/etc` and `/var` become what `to` says; its last write is the records.
//! * *acting*: the records name `to`; reloads and restarts run. After a reboot they are not owed.
//! * *staging*: what the next boot starts is made again on the new content.
//! * *undoing*: the same backwards.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::applied::Applied;
use super::records::{Intent, from_json, to_json};
use super::status::DeploymentName;
use crate::error::Fault;

/// The record's file in [`super::records::DIRECTORY`].
pub const LIVE: &str = "live.json";
/// The version that is written. Raised only when a field changes its meaning.
pub const LIVE_VERSION: u32 = 1;

/// A live apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// [`LIVE_VERSION`] of its writer.
    #[serde(default)]
    pub version: u32,
    /// Names the change, in the history.
    pub id: String,
    /// How far it is.
    pub state: LiveState,
    /// The deployment whose root it changes; none without OSTree. Found on another one, it is over.
    #[serde(default)]
    pub deployment: Option<DeploymentName>,
    /// What was laid down before.
    pub back: Applied,
    /// What is laid down.
    pub to: Applied,
    /// What follows, in order.
    #[serde(default)]
    pub actions: Vec<LiveAction>,
    /// What becomes of a next boot that is another deployment, or of a prepared change.
    #[serde(default)]
    pub next: Option<NextBoot>,
    /// Who asked, for people.
    #[serde(default)]
    pub who: String,
    /// When, in seconds since the epoch.
    #[serde(default)]
    pub when: i64,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How far a live apply is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveState {
    /// Files are laid down.
    Converging,
    /// Files and records are there; actions run.
    Acting,
    /// The next boot is made again.
    Staging,
    /// It failed, and what was there before comes back.
    Undoing,
    /// What a newer version wrote; undone by an older one.
    #[serde(untagged)]
    Other(Value),
}

/// A call of systemd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", content = "unit", rename_all = "kebab-case")]
pub enum LiveAction {
    /// systemd reads its units again.
    DaemonReload,
    /// A unit reads its configuration again.
    Reload(String),
    /// A unit is started anew.
    Restart(String),
}

/// What a live apply does about a next boot that is not the running deployment, or about a change that
/// is prepared: it must not bring the old content back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextBoot {
    /// Staged or prepared before.
    pub before: Intent,
    /// The same on the new content; none where nothing is left of it but what now runs.
    #[serde(default)]
    pub after: Option<Intent>,
    /// Whether it was staged; else only prepared.
    #[serde(default)]
    pub staged: bool,
}

impl Live {
    /// Reads the record's bytes.
    ///
    /// # Errors
    ///
    /// They are no such record; the field is named.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        from_json(bytes).map_err(|why| {
            Fault::failed("the record of a live apply cannot be read (/var/lib/mcd/live.json)")
                .why(why)
                .next("see what differs with `mcd verify`, then remove the file")
        })
    }

    /// The bytes to be written, with an end of line.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }

    /// Whether it goes on to the new state; else what was there before comes back.
    pub fn is_forward(&self) -> bool {
        matches!(self.state, LiveState::Converging | LiveState::Acting | LiveState::Staging)
    }

    /// Whether actions are owed when it is continued on the system that it was begun on.
    pub fn owes_actions(&self) -> bool {
        self.state != LiveState::Staging
    }
}

impl std::fmt::Display for LiveAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DaemonReload => f.write_str("daemon-reload"),
            Self::Reload(unit) => write!(f, "reload {unit}"),
            Self::Restart(unit) => write!(f, "restart {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(state: LiveState) -> Live {
        Live {
            version: LIVE_VERSION,
            id: "20261201-1".to_owned(),
            state,
            deployment: Some(DeploymentName { checksum: "a".repeat(64), serial: 0 }),
            back: Applied::default(),
            to: Applied { commit: Some("b".repeat(64)), ..Applied::default() },
            actions: vec![
                LiveAction::DaemonReload,
                LiveAction::Reload("crio.service".to_owned()),
                LiveAction::Restart("kubelet.service".to_owned()),
            ],
            next: None,
            who: "mcd apply".to_owned(),
            when: 1_796_079_000,
            extra: Map::new(),
        }
    }

    #[test]
    fn is_read_as_it_was_written() {
        for state in [LiveState::Converging, LiveState::Acting, LiveState::Staging, LiveState::Undoing] {
            let written = live(state);
            assert_eq!(Live::parse(&written.to_bytes()).unwrap(), written);
        }
    }

    #[test]
    fn what_a_newer_version_wrote_is_kept_and_undone() {
        let mut json: Value = serde_json::from_slice(&live(LiveState::Acting).to_bytes()).unwrap();
        json["state"] = "pondering".into();
        json["more"] = 7.into();
        let read = Live::parse(json.to_string().as_bytes()).unwrap();
        assert!(!read.is_forward() && read.owes_actions());
        assert_eq!(serde_json::from_slice::<Value>(&read.to_bytes()).unwrap()["more"], 7);
    }

    #[test]
    fn nonsense_is_refused_with_its_field() {
        let fault = Live::parse(br#"{"id": "x", "state": "acting", "back": 1}"#).unwrap_err();
        assert!(fault.why.unwrap().contains("back"));
        assert!(Live::parse(b"").is_err() && Live::parse(b"{}}").is_err());
    }
}
