//! The records of changes: what is under way (`intent.json`, `live.json`) and what was done
//! (`history.jsonl`), in `/var/lib/mcd`, and the refs that keep the commits that they name.
//!
//! All are replaced as a whole and durable before anything that they announce begins.

use anyhow::{Context, Result};
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use ostree::gio;

use super::durable;
use super::host_lock::HostLocked;
use super::now;
use super::sysroot::Host;
use crate::model::digest::Digest;
use crate::model::live::{LIVE, Live};
use crate::model::records::{
    DIRECTORY, HISTORY, History, HistoryEntry, HistoryOutcome, INTENT, Intent, describe_config,
};
use crate::model::repo_refs::OWN_PREFIX;

impl Host {
    /// The change that is under way.
    pub fn intent(&self) -> Result<Option<Intent>> {
        let Some(folder) = self.records()? else { return Ok(None) };
        let Some(content) = durable::read(&folder, INTENT)? else { return Ok(None) };
        Ok(Some(Intent::parse(&content)?))
    }

    /// The change that is under way, or none where its record is damaged. For those who are about to
    /// replace or remove it: a broken file must not be what keeps a person from going back.
    pub(super) fn readable_intent(&self) -> Option<Intent> {
        self.intent().unwrap_or_default()
    }

    /// The live apply that is under way.
    pub fn live(&self) -> Result<Option<Live>> {
        match self.records()? {
            Some(folder) => RecordsFolder(folder).live(),
            None => Ok(None),
        }
    }

    /// What was done.
    pub fn history(&self) -> Result<History> {
        let Some(folder) = self.records()? else { return Ok(History::default()) };
        read_history(&folder)
    }

    /// The folder of the records, if there is one.
    fn records(&self) -> Result<Option<Dir>> {
        let Some(var) = self.var()? else { return Ok(None) };
        match var.open_dir(DIRECTORY) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("Opening /var/{DIRECTORY}")),
        }
    }
}

/// The folder of the records, whoever's it is. Whoever writes holds the lock of its host.
#[derive(Debug)]
pub struct RecordsFolder(Dir);

impl RecordsFolder {
    /// That of a root without OSTree, made if it is missing.
    pub fn of_root(root: &Dir) -> Result<Self> {
        Ok(Self(durable::private_folder(root, &format!("var/{DIRECTORY}"))?))
    }

    /// The live apply that is under way.
    pub fn live(&self) -> Result<Option<Live>> {
        let Some(content) = durable::read(&self.0, LIVE)? else { return Ok(None) };
        Ok(Some(Live::parse(&content)?))
    }

    /// Replaces the record of the live apply that is under way.
    pub fn write_live(&self, live: &Live) -> Result<()> {
        durable::replace(&self.0, LIVE, &live.to_bytes())
    }

    /// No live apply is under way any more.
    pub fn clear_live(&self) -> Result<()> {
        durable::remove(&self.0, LIVE)
    }

    /// Adds to the history; beyond its length the oldest go.
    #[context("Adding to the history")]
    pub fn append_history(&self, entry: HistoryEntry) -> Result<()> {
        let mut history = read_history(&self.0)?;
        history.push(entry);
        durable::replace(&self.0, HISTORY, history.to_text().as_bytes())
    }
}

/// An id for a new change: when it was asked for, and something that makes it the only one.
pub fn new_id(place: &str) -> String {
    let now = jiff::Timestamp::now();
    let seed = format!("{} {} {place}", now.as_nanosecond(), std::process::id());
    let unique = Digest::of(seed.as_bytes());
    format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), &unique.hex()[..6])
}

impl HostLocked<'_> {
    /// An id for a new change.
    pub fn new_id(&self) -> String {
        new_id(self.host().path().as_str())
    }

    /// Records a change as prepared: its commit is kept, and it is the one that is under way. What
    /// was under way before is superseded. The history is the caller's: a change that is committed
    /// at once is one entry, not two.
    #[context("Recording the prepared change {}", intent.id)]
    pub fn prepare(&self, intent: &Intent) -> Result<()> {
        let before = self.host().readable_intent();
        // The ref first: a record must never name a commit that nothing keeps.
        self.set_keep_ref(&intent.id, &intent.commit)?;
        self.write_intent(intent)?;
        if let Some(old) = before.filter(|old| old.id != intent.id) {
            let why = format!("superseded by {}", intent.id);
            self.append_history(entry(&old, HistoryOutcome::Cancelled, Some(why)))?;
            self.drop_keep_ref(&old.id)?;
        }
        Ok(())
    }

    /// Replaces the record of the change that is under way.
    pub fn write_intent(&self, intent: &Intent) -> Result<()> {
        durable::replace(&self.make_records()?, INTENT, &intent.to_bytes())
    }

    /// Nothing is under way any more. The commit is not kept for it any longer. A damaged record goes,
    /// too; what it kept is left to the cleanup.
    #[context("Clearing the intent")]
    pub fn clear_intent(&self) -> Result<Option<Intent>> {
        let intent = self.host().readable_intent();
        if let Some(folder) = self.host().records()? {
            durable::remove(&folder, INTENT)?;
        }
        if let Some(intent) = &intent {
            self.drop_keep_ref(&intent.id)?;
        }
        Ok(intent)
    }

    /// Replaces the record of the live apply that is under way.
    pub fn write_live(&self, live: &Live) -> Result<()> {
        RecordsFolder(self.make_records()?).write_live(live)
    }

    /// No live apply is under way any more.
    pub fn clear_live(&self) -> Result<()> {
        match self.host().records()? {
            Some(folder) => RecordsFolder(folder).clear_live(),
            None => Ok(()),
        }
    }

    /// Adds to the history; beyond its length the oldest go.
    pub fn append_history(&self, entry: HistoryEntry) -> Result<()> {
        RecordsFolder(self.make_records()?).append_history(entry)
    }

    /// Keeps `commit` in the repo for as long as a record names it by `id`.
    #[context("Keeping commit {commit}")]
    pub fn set_keep_ref(&self, id: &str, commit: &str) -> Result<()> {
        Ok(self.host().repo()?.set_ref_immediate(
            None,
            &keep_ref(id),
            Some(commit),
            gio::Cancellable::NONE,
        )?)
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

    /// Keeps a derived commit and the image commit that it was made from, for as long as any record
    /// or deployment names it: a cleanup gives up the others.
    #[context("Keeping the derived commit {commit}")]
    pub fn keep_derived(&self, commit: &str, image_commit: &str) -> Result<()> {
        let repo = self.host().repo()?;
        for (prefix, commit) in [(BASE, image_commit), (DERIVED, commit)] {
            let name = format!("{OWN_PREFIX}{prefix}{commit}");
            repo.set_ref_immediate(None, &name, Some(commit), gio::Cancellable::NONE)?;
        }
        Ok(())
    }

    /// Removes what a killed run left of a record that it was writing. Whoever writes one holds the
    /// host lock, so what is there now is nobody's.
    #[context("Removing unfinished records")]
    pub(super) fn remove_unfinished_records(&self) -> Result<()> {
        let Some(folder) = self.host().records()? else { return Ok(()) };
        for entry in folder.entries()? {
            let name = entry?.file_name();
            if name.to_str().is_some_and(durable::is_unfinished) {
                durable::remove(&folder, &name.to_string_lossy())?;
            }
        }
        Ok(())
    }

    fn make_records(&self) -> Result<Dir> {
        let var = self.host().var()?.context("The sysroot has no deployment, and so no /var")?;
        durable::private_folder(&var, DIRECTORY)
    }
}

/// The ref that keeps the commit of the change `id`.
fn keep_ref(id: &str) -> String {
    format!("{OWN_PREFIX}{KEEP}{id}")
}

/// After our prefix, before the id of the change.
const KEEP: &str = "keep/";

/// After our prefix, before a derived commit, which is its own name.
const DERIVED: &str = "derived/";
/// After our prefix, before an image commit that derived ones are made from.
const BASE: &str = "image/";

/// The derived commit that a ref keeps.
pub(super) fn commit_of_derived_ref(name: &str) -> Option<&str> {
    name.strip_prefix(OWN_PREFIX)?.strip_prefix(DERIVED)
}

/// The image commit that a ref keeps for derived ones.
pub(super) fn commit_of_base_ref(name: &str) -> Option<&str> {
    name.strip_prefix(OWN_PREFIX)?.strip_prefix(BASE)
}

/// The id of the change that a ref keeps a commit for.
pub(super) fn id_of_keep_ref(name: &str) -> Option<&str> {
    name.strip_prefix(OWN_PREFIX)?.strip_prefix(KEEP)
}

/// What became of a change, now.
pub fn entry(intent: &Intent, outcome: HistoryOutcome, why: Option<String>) -> HistoryEntry {
    HistoryEntry {
        who: intent.who.clone(),
        from: intent.base.as_ref().map(ToString::to_string),
        why,
        ..HistoryEntry::new(intent.id.clone(), describe(intent), outcome, now())
    }
}

/// What became of a live apply, now.
pub fn entry_of_live(live: &Live, outcome: HistoryOutcome, why: Option<String>) -> HistoryEntry {
    HistoryEntry {
        who: live.who.clone(),
        from: Some(describe_config(&live.back.manifest.names)),
        why,
        ..HistoryEntry::new(live.id.clone(), describe_config(&live.to.manifest.names), outcome, now())
    }
}

/// What a change leads to, for people.
fn describe(intent: &Intent) -> String {
    let image = match (&intent.asked, &intent.digest) {
        (Some(image), Some(digest)) => Some(format!("{image} ({})", digest.short())),
        (Some(image), None) => Some(image.to_string()),
        (None, _) => None,
    };
    let config = intent.config.as_ref().map(|names| describe_config(names));
    match (image, config) {
        (Some(image), Some(config)) => format!("{image}, {config}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => format!("kernel arguments {}", intent.kernel_arguments),
    }
}

fn read_history(folder: &Dir) -> Result<History> {
    let content = durable::read(folder, HISTORY)?.unwrap_or_default();
    Ok(History::parse(&String::from_utf8_lossy(&content)))
}
