//! The record in the boot file, and what may be dropped from it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Fault;
use crate::model::digest::Digest;
use crate::model::status::DeploymentName;

/// Most entries that are kept: the changes that a person may still ask about.
pub const ENTRIES_MAX: usize = 16;
/// Most requests that are remembered.
pub const REQUESTS_MAX: usize = 16;
/// Characters of a cause that are kept.
pub const CAUSE_LENGTH_MAX: usize = 300;
/// Characters of a cause where space is short.
const CAUSE_LENGTH_SHORT: usize = 60;

/// What the boots since a switch showed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootRecord {
    /// The UUID of the file system that holds `/boot`, for the initramfs to find it.
    pub boot_uuid: Option<String>,
    /// The deployment that carries a pin of ours.
    pub kept: Option<DeploymentName>,
    /// The changes, oldest first.
    pub entries: Vec<BootEntry>,
    /// Requests of the old host API that were carried out or rolled back, oldest first.
    pub requests: Vec<RequestRecord>,
    /// The last automatic rollback, until the next change is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub went_back: Option<WentBack>,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootEntry {
    /// Its id, as the deployment's origin has it.
    pub id: String,
    /// The deployment that it made, once that is known.
    #[serde(default)]
    pub deployment: Option<DeploymentName>,
    /// How far it came.
    pub state: BootState,
    /// Boots of it that began since the switch.
    #[serde(default)]
    pub boots: u32,
    /// Those of them that count against it: without a verdict, and not excused by `in_order`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Boots in a row that somebody ended in order before the verdict, and that are excused for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_order: u32,
    /// The boot that began last was ended in order, before the verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_in_order: bool,
    /// When the state was last changed, in seconds since the epoch by the clock of then.
    #[serde(default)]
    pub when: i64,
    /// Required health checks that failed on the system that the change was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_before: Vec<String>,
    /// Why it is unproven, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Identity of its kernel arguments: the same commit with others is another change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// An automatic rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentBack {
    /// The entry that was left.
    pub from: String,
    /// Its deployment.
    #[serde(default)]
    pub deployment: Option<DeploymentName>,
    /// What the next boot started instead.
    #[serde(default)]
    pub to: Option<DeploymentName>,
    /// Why, for people.
    pub cause: String,
    /// Who found it.
    pub by: WentBackBy,
    /// When, in seconds since the epoch.
    #[serde(default)]
    pub when: i64,
}

/// What found that a deployment must be left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WentBackBy {
    /// The boot hook: too many boots without a verdict.
    BootCount,
    /// What belongs on it could not be laid down.
    Converge,
    /// A health check.
    Health,
    /// What a newer version wrote.
    #[serde(untagged)]
    Other(String),
}

/// How far a change came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootState {
    /// The switch was asked for.
    Committed,
    /// It was booted, and is not judged yet.
    Booted,
    /// It passed its checks.
    Good,
    /// It was given up by boot count, without a verdict: only a person asks again.
    Unproven,
    /// It failed.
    Failed {
        /// Why, for people.
        cause: String,
    },
    /// It worked, and a person went back.
    RolledBack,
    /// What a newer version wrote; never taken for one of the others.
    #[serde(untagged)]
    Other(Value),
}

/// A request of the old host API that must not run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Its identity.
    pub digest: Digest,
    /// What became of it.
    pub outcome: RequestOutcome,
    /// When, in seconds since the epoch.
    #[serde(default)]
    pub when: i64,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestOutcome {
    /// The deployment that it asked for was switched to.
    CarriedOut,
    /// That was undone.
    RolledBack,
    /// What a newer version wrote.
    #[serde(untagged)]
    Other(Value),
}

impl BootEntry {
    /// A change in this state, not booted yet.
    pub fn new(
        id: impl Into<String>,
        deployment: Option<DeploymentName>,
        state: BootState,
        when: i64,
    ) -> Self {
        Self {
            id: id.into(),
            deployment,
            state,
            boots: 0,
            tries: 0,
            in_order: 0,
            ended_in_order: false,
            when,
            failing_before: Vec::new(),
            cause: None,
            arguments: None,
            extra: Map::new(),
        }
    }

    /// A change that was left: unproven, where boots were only counted, else failed.
    pub fn given_up(back: &WentBack, when: i64) -> Self {
        let cause = back.cause.clone();
        let entry = |state| Self::new(&back.from, back.deployment.clone(), state, when);
        match back.by {
            WentBackBy::BootCount => Self { cause: Some(cause), ..entry(BootState::Unproven) },
            _ => entry(BootState::Failed { cause }),
        }
    }

    /// Why it failed, or was given up.
    pub fn why(&self) -> Option<&str> {
        match &self.state {
            BootState::Failed { cause } => Some(cause),
            _ => self.cause.as_deref(),
        }
    }
}

impl BootState {
    /// Whether nothing more is to be found out about it.
    pub fn is_verdict(&self) -> bool {
        !matches!(self, Self::Committed | Self::Booted)
    }
}

impl RequestRecord {
    /// A request and what became of it.
    pub fn new(digest: Digest, outcome: RequestOutcome, when: i64) -> Self {
        Self { digest, outcome, when, extra: Map::new() }
    }
}

impl BootRecord {
    /// The change with this id.
    pub fn entry(&self, id: &str) -> Option<&BootEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// The newest change that made this deployment.
    pub fn entry_of(&self, deployment: &DeploymentName) -> Option<&BootEntry> {
        self.entries.iter().rev().find(|entry| entry.deployment.as_ref() == Some(deployment))
    }

    /// The newest change that is good.
    pub fn last_good(&self) -> Option<&BootEntry> {
        self.entries.iter().rev().find(|entry| entry.state == BootState::Good)
    }

    /// Notes a change: in the place of the one with its id, or as the newest. What a newer version
    /// had added to that one stays, and what identifies the change. An entry that says nothing of boots
    /// leaves their number as it is; the count against it stays until there is a verdict.
    pub fn note(&mut self, mut entry: BootEntry) {
        match self.entries.iter_mut().find(|own| own.id == entry.id) {
            Some(own) => {
                for (key, value) in std::mem::take(&mut own.extra) {
                    entry.extra.entry(key).or_insert(value);
                }
                entry.arguments = entry.arguments.or(own.arguments.take());
                if entry.boots == 0 {
                    entry.boots = own.boots;
                    if !own.state.is_verdict() && !entry.state.is_verdict() {
                        (entry.tries, entry.in_order) = (own.tries, own.in_order);
                        entry.ended_in_order = own.ended_in_order;
                    }
                }
                if entry.failing_before.is_empty() && !entry.state.is_verdict() {
                    entry.failing_before = std::mem::take(&mut own.failing_before);
                }
                *own = entry;
            }
            None => self.entries.push(entry),
        }
        self.trim();
    }

    /// What became of a request.
    pub fn request(&self, digest: &Digest) -> Option<&RequestRecord> {
        self.requests.iter().find(|request| request.digest == *digest)
    }

    /// Notes what became of a request, as the newest.
    pub fn note_request(&mut self, request: RequestRecord) {
        self.requests.retain(|own| own.digest != request.digest);
        self.requests.push(request);
        self.trim();
    }

    /// Brings the record within its bounds: the oldest entries go, but never the last good one, the
    /// kept one or the newest; causes are shortened.
    pub fn trim(&mut self) {
        self.shorten_causes(CAUSE_LENGTH_MAX);
        while self.entries.len() > ENTRIES_MAX && self.drop_oldest() {}
        let surplus = self.requests.len().saturating_sub(REQUESTS_MAX);
        self.requests.drain(..surplus);
    }

    /// The payload in at most `limit` bytes, dropping more than [`Self::trim`] does if it must:
    /// a full file must never be the reason why a boot is not counted.
    pub(super) fn fit(&self, limit: usize) -> Result<Vec<u8>, Fault> {
        let mut record = self.clone();
        record.trim();
        let mut shortened = false;
        loop {
            let payload = serde_json::to_vec(&record)
                .map_err(|error| Fault::failed("the boot record cannot be written").why(error.to_string()))?;
            if payload.len() <= limit {
                return Ok(payload);
            }
            if !shortened {
                shortened = true;
                record.shorten_causes(CAUSE_LENGTH_SHORT);
            } else if !record.drop_oldest() && !record.drop_oldest_request() {
                let why = format!("it is {} bytes long, and a slot holds {limit}", payload.len());
                return Err(Fault::failed("the boot record cannot be written").why(why));
            }
        }
    }

    fn shorten_causes(&mut self, length: usize) {
        for entry in &mut self.entries {
            let failed = match &mut entry.state {
                BootState::Failed { cause } => Some(cause),
                _ => None,
            };
            for cause in failed.into_iter().chain(&mut entry.cause) {
                shorten(cause, length);
            }
        }
        if let Some(went_back) = &mut self.went_back {
            shorten(&mut went_back.cause, length);
        }
    }

    /// Whether there was one to drop.
    fn drop_oldest(&mut self) -> bool {
        let good = self.entries.iter().rposition(|entry| entry.state == BootState::Good);
        let newest = self.entries.len().saturating_sub(1);
        let kept = |entry: &BootEntry| self.kept.is_some() && entry.deployment == self.kept;
        let entries = self.entries.iter().enumerate();
        let mut droppable =
            entries.filter(|(index, entry)| Some(*index) != good && *index != newest && !kept(entry));
        match droppable.next().map(|(index, _)| index) {
            Some(index) => {
                self.entries.remove(index);
                true
            }
            None => false,
        }
    }

    fn drop_oldest_request(&mut self) -> bool {
        let has_more = self.requests.len() > 1;
        if has_more {
            self.requests.remove(0);
        }
        has_more
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn shorten(text: &mut String, length: usize) {
    if let Some((end, _)) = text.char_indices().nth(length) {
        text.truncate(end);
    }
}
