//! Records below `/var/lib/mcd`: the intent, which is under way, and the history, which is over.
//!
//! * `intent.json`: one [`Intent`], written durably before the first change that it announces.
//! * `history.jsonl`: one [`HistoryEntry`] in each line, oldest first, the last [`HISTORY_MAX`].
//!
//! Both grow by addition: a field or value that this version does not know is kept when it writes
//! the record again, and a newer version's record is read for what it says in the old fields.
//! Nothing here reads or writes a file.

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Fault;

use super::digest::Digest;
use super::image_ref::OsImage;
use super::status::{DeploymentName, DeploymentStatus};

/// The folder of the records, seen from `/var`.
pub const DIRECTORY: &str = "lib/mcd";
/// The intent's file in [`DIRECTORY`].
pub const INTENT: &str = "intent.json";
/// The history's file in [`DIRECTORY`].
pub const HISTORY: &str = "history.jsonl";
/// The version that is written. Raised only when a field changes its meaning.
pub const RECORD_VERSION: u32 = 1;
/// Changes that the history keeps.
pub const HISTORY_MAX: usize = 200;
/// Characters that are kept of a text in the history: an error chain, a command line.
const TEXT_LENGTH_MAX: usize = 2000;

/// A change that is prepared, or committed and not yet fulfilled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// [`RECORD_VERSION`] of its writer.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Names the change, in the origin of the deployment and in all records.
    pub id: String,
    /// How far it is.
    pub state: IntentState,
    /// The image as it was asked for; none where only kernel arguments change.
    #[serde(default)]
    pub asked: Option<OsImage>,
    /// The manifest that was imported; none where the origin names no image.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// The digest that was asked for, where it is another: that of an index.
    #[serde(default)]
    pub asked_digest: Option<Digest>,
    /// The image's own commit, 64 hex digits.
    pub image_commit: String,
    /// The commit to be deployed, 64 hex digits: the image's own, or one derived from it.
    pub commit: String,
    /// The arguments to boot with, without `ostree=`.
    pub kernel_arguments: String,
    /// What the next boot starts without it, as of when it was prepared, or staged; if that is another
    /// now, the intent was overtaken.
    #[serde(default)]
    pub base: Option<DeploymentName>,
    /// The request of the old host API that asked for it.
    #[serde(default)]
    pub request_digest: Option<Digest>,
    /// Whether a reboot was asked for with it.
    #[serde(default)]
    pub reboot: bool,
    /// The image that stays, where the request names none: what the origin will say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_image: Option<OsImage>,
    /// The MachineConfigs that were asked for; none where configuration is only carried over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Vec<String>>,
    /// It was prepared to be made on the running system, without a reboot.
    #[serde(default, skip_serializing_if = "is_false")]
    pub live: bool,
    /// How often a boot has staged it again by itself, because it was lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restaged: u32,
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

/// How far an intent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntentState {
    /// The commits are there and held by refs; no boot acts on it.
    Prepared,
    /// The switch was asked for; a boot that finds it undone does it again.
    Committed,
    /// What a newer version wrote; never acted on.
    #[serde(untagged)]
    Other(Value),
}

/// One change, as it ended or went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// [`RECORD_VERSION`] of its writer.
    #[serde(default = "first_version")]
    pub version: u32,
    /// The change.
    pub id: String,
    /// Who asked, for people.
    #[serde(default)]
    pub who: String,
    /// What ran, or would have been booted, before.
    #[serde(default)]
    pub from: Option<String>,
    /// What was wanted.
    pub to: String,
    /// When, in seconds since the epoch.
    #[serde(default)]
    pub when: i64,
    /// What became of it.
    pub outcome: HistoryOutcome,
    /// Why, where that is not plain from the outcome.
    #[serde(default)]
    pub why: Option<String>,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryOutcome {
    /// It waits to be committed.
    Prepared,
    /// It waits for the next boot.
    Committed,
    /// It was made on the running system, without a reboot.
    Applied,
    /// It was booted.
    Booted,
    /// It was left for another deployment.
    RolledBack,
    /// It was dropped before it was booted.
    Cancelled,
    /// It failed.
    Failed,
    /// What a newer version wrote.
    #[serde(untagged)]
    Other(Value),
}

/// The history, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// At most [`HISTORY_MAX`] entries.
    pub entries: Vec<HistoryEntry>,
    /// Lines that could not be read: cut by a power loss, or damaged. They go when the history is
    /// written again.
    pub unreadable: usize,
}

fn first_version() -> u32 {
    1
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A configuration, for people.
pub fn describe_config(names: &[String]) -> String {
    if names.is_empty() { "no configuration".to_owned() } else { format!("config {}", names.join(", ")) }
}

/// Reads a record that is one JSON document; what is wrong is told with the field.
pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let record = serde_path_to_error::deserialize(&mut *json).map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(record)
}

/// A record's bytes: JSON for people too, with an end of line.
pub(super) fn to_json(record: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(record).expect("texts and numbers always make JSON");
    bytes.push(b'\n');
    bytes
}

impl Intent {
    /// Reads the record's bytes.
    ///
    /// # Errors
    ///
    /// They are no intent; the field is named.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        from_json(bytes).map_err(|why| {
            Fault::failed(format!("the intent cannot be read (/var/{DIRECTORY}/{INTENT})"))
                .why(why)
                .next("if no change should be under way, drop it: mcd cancel")
        })
    }

    /// The bytes to be written: JSON for people too, with an end of line.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }

    /// Whether the switch was asked for: only then may a boot act on it.
    pub fn is_committed(&self) -> bool {
        self.state == IntentState::Committed
    }

    /// Whether one of these deployments, staged or not, is what it made.
    pub fn is_among(&self, deployments: &[DeploymentStatus]) -> bool {
        deployments.iter().any(|one| one.id.as_ref() == Some(&self.id))
    }

    /// Whether it brings what this digest asks for.
    pub fn has_digest(&self, digest: &Digest) -> bool {
        [&self.digest, &self.asked_digest].into_iter().flatten().any(|own| own == digest)
    }
}

impl HistoryEntry {
    /// An entry without a cause.
    pub fn new(id: impl Into<String>, to: impl Into<String>, outcome: HistoryOutcome, when: i64) -> Self {
        Self {
            version: RECORD_VERSION,
            id: id.into(),
            who: String::new(),
            from: None,
            to: to.into(),
            when,
            outcome,
            why: None,
            extra: Map::new(),
        }
    }
}

impl History {
    /// Reads the file's text. A line that cannot be read is counted and left out.
    pub fn parse(text: &str) -> Self {
        let mut history = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(entry) => history.entries.push(entry),
                Err(_) => history.unreadable += 1,
            }
        }
        history.drop_surplus();
        history
    }

    /// Adds the newest entry; long texts are cut, the oldest entries go.
    pub fn push(&mut self, mut entry: HistoryEntry) {
        let texts = [Some(&mut entry.who), entry.from.as_mut(), Some(&mut entry.to), entry.why.as_mut()];
        for text in texts.into_iter().flatten() {
            if let Some((end, _)) = text.char_indices().nth(TEXT_LENGTH_MAX) {
                text.truncate(end);
            }
        }
        self.entries.push(entry);
        self.drop_surplus();
    }

    /// The file's text: one line of JSON for each entry.
    pub fn to_text(&self) -> String {
        let line = |entry| serde_json::to_string(entry).expect("texts and numbers always make JSON") + "\n";
        self.entries.iter().map(line).collect()
    }

    fn drop_surplus(&mut self) {
        let surplus = self.entries.len().saturating_sub(HISTORY_MAX);
        self.entries.drain(..surplus);
    }
}
