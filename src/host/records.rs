//! The records of changes: what is under way (`intent.json`) and what was done (`history.jsonl`), in
//! `/var/lib/mcd`, and the refs that keep the commits that they name.
//!
//! Both are replaced as a whole and durable before anything that they announce begins.

use anyhow::{Context, Result};
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use ostree::gio;

use super::durable;
use super::host_lock::HostLocked;
use super::sysroot::Host;
use crate::model::records::{HistoryEntry, Intent, Outcome};
use crate::model::repo_refs::OWN_PREFIX;

const FOLDER: &str = "lib/mcd";
const INTENT: &str = "intent.json";
const HISTORY: &str = "history.jsonl";
/// Entries of the history that are kept: years of updates, some 100 KiB.
const HISTORY_LENGTH: usize = 200;

/// What made a history entry, apart from when.
#[derive(Debug, Clone)]
pub struct Happened<'a> {
    /// The change's id.
    pub id: &'a str,
    /// Who asked.
    pub who: &'a str,
    /// What the next boot started before.
    pub from: Option<String>,
    /// What it was to start after.
    pub to: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, if there is more to say.
    pub why: Option<String>,
}

impl Host {
    /// The change that is under way.
    pub fn intent(&self) -> Result<Option<Intent>> {
        let Some(folder) = self.records()? else { return Ok(None) };
        let Some(content) = durable::read(&folder, INTENT)? else { return Ok(None) };
        Intent::parse(&content).with_context(|| format!("Reading /var/{FOLDER}/{INTENT}")).map(Some)
    }

    /// What was done, oldest first. A line that cannot be read is left out.
    pub fn history(&self) -> Result<Vec<HistoryEntry>> {
        let Some(folder) = self.records()? else { return Ok(Vec::new()) };
        let content = durable::read(&folder, HISTORY)?.unwrap_or_default();
        Ok(lines(&content).filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// The folder of the records, if there is one.
    fn records(&self) -> Result<Option<Dir>> {
        let Some(var) = self.var()? else { return Ok(None) };
        match var.open_dir(FOLDER) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("Opening /var/{FOLDER}")),
        }
    }
}

impl HostLocked<'_> {
    /// An id for a new change: when it was asked for, and something that makes it the only one.
    pub fn new_id(&self) -> String {
        let nanoseconds = jiff::Timestamp::now().subsec_nanosecond();
        let seed = format!("{nanoseconds} {} {}", std::process::id(), self.host().path());
        let unique = &crate::model::digest::Digest::of(seed.as_bytes()).hex()[..6];
        format!("{}-{unique}", jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S"))
    }

    /// Records a change as prepared: its commit is kept, and it is the one that is under way. What
    /// was under way before is superseded.
    #[context("Recording the prepared change {}", intent.id)]
    pub fn prepare(&self, intent: &Intent) -> Result<()> {
        let before = self.host().intent()?;
        // The ref first: a record must never name a commit that nothing keeps.
        self.set_keep_ref(&intent.id, &intent.commit)?;
        self.write_intent(intent)?;
        self.append_history(&HistoryEntry::of(intent, Outcome::Prepared, None))?;
        if let Some(old) = before.filter(|old| old.id != intent.id) {
            let why = format!("superseded by {}", intent.id);
            self.append_history(&HistoryEntry::of(&old, Outcome::Cancelled, Some(why)))?;
            self.drop_keep_ref(&old.id)?;
        }
        Ok(())
    }

    /// Replaces the record of the change that is under way.
    pub fn write_intent(&self, intent: &Intent) -> Result<()> {
        durable::replace(&self.make_records()?, INTENT, &intent.to_bytes())
    }

    /// Nothing is under way any more. The commit is not kept for it any longer.
    #[context("Clearing the intent")]
    pub fn clear_intent(&self) -> Result<Option<Intent>> {
        let intent = self.host().intent()?;
        if let Some(folder) = self.host().records()? {
            durable::remove(&folder, INTENT)?;
        }
        if let Some(intent) = &intent {
            self.drop_keep_ref(&intent.id)?;
        }
        Ok(intent)
    }

    /// Adds to the history; beyond its length the oldest go.
    #[context("Adding to the history")]
    pub fn append_history(&self, entry: &HistoryEntry) -> Result<()> {
        let folder = self.make_records()?;
        let content = durable::read(&folder, HISTORY)?.unwrap_or_default();
        let new = serde_json::to_vec(entry)?;
        let mut all: Vec<&[u8]> = lines(&content).collect();
        all.push(&new);
        let kept = &all[all.len().saturating_sub(HISTORY_LENGTH)..];
        let mut content = kept.join(&b'\n');
        content.push(b'\n');
        durable::replace(&folder, HISTORY, &content)
    }

    /// Keeps `commit` in the repo for as long as a record names it by `id`.
    #[context("Keeping commit {commit}")]
    pub fn set_keep_ref(&self, id: &str, commit: &str) -> Result<()> {
        Ok(self.host().repo()?.set_ref_immediate(None, &keep_ref(id), Some(commit), gio::Cancellable::NONE)?)
    }

    /// Gives up the commit that is kept by `id`. Not being kept is fine.
    #[context("Giving up what {id} keeps")]
    pub fn drop_keep_ref(&self, id: &str) -> Result<()> {
        let repo = self.host().repo()?;
        let name = keep_ref(id);
        if repo.resolve_rev(&name, true)?.is_some() {
            repo.set_ref_immediate(None, &name, None, gio::Cancellable::NONE)?;
        }
        Ok(())
    }

    fn make_records(&self) -> Result<Dir> {
        let var = self.host().var()?.context("The sysroot has no deployment, and so no /var")?;
        durable::private_folder(&var, FOLDER)
    }
}

/// The ref that keeps the commit of the change `id`.
fn keep_ref(id: &str) -> String {
    format!("{OWN_PREFIX}{KEEP}{id}")
}

/// After our prefix, before the id of the change.
const KEEP: &str = "keep/";

/// The id of the change that a ref keeps a commit for.
pub(super) fn id_of_keep_ref(name: &str) -> Option<&str> {
    name.strip_prefix(OWN_PREFIX)?.strip_prefix(KEEP)
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}
