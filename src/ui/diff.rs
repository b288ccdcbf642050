//! What an apply would change, as `mcd diff` shows it.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;

use crate::plan::config::Changes;
use crate::plan::content::ContentChange;
use crate::plan::disruption::Verdict;

/// What `mcd diff` shows.
#[derive(Debug)]
pub struct DiffView<'a> {
    /// What changes.
    pub changes: &'a Changes,
    /// What that asks for.
    pub verdict: &'a Verdict,
    /// How the contents of files change, by path (links followed).
    pub contents: BTreeMap<Utf8PathBuf, ContentChange>,
}
