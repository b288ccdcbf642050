//! How the content of a file changes, for people.

use anyhow::Result;

use super::config::EntryChange;

/// Files larger than this are compared by size and digest only: a diff of more helps nobody, and both
/// versions stand in memory.
pub const LARGEST_DIFF: u64 = 1 << 20;

/// Where the bytes behind the nodes of a change are read. Only asked for files of at most
/// [`LARGEST_DIFF`] bytes.
pub trait Versions {
    /// The bytes behind [`EntryChange::from`]; none if they are not known any more.
    ///
    /// # Errors
    ///
    /// They are known, and reading fails.
    fn before(&self, change: &EntryChange) -> Result<Option<Vec<u8>>>;

    /// The bytes behind [`EntryChange::to`].
    ///
    /// # Errors
    ///
    /// They are known, and reading fails.
    fn after(&self, change: &EntryChange) -> Result<Option<Vec<u8>>>;
}

/// How the content of one file changes.
#[derive(Clone, PartialEq, Eq)]
pub enum ContentChange {
    /// Only their owner may read it, and nobody asked to show it.
    Secret,
    /// At least one of them is no text.
    Binary,
    /// At least one of them is larger than [`LARGEST_DIFF`].
    Large,
    /// What was there before is not known any more.
    Unknown,
    /// A unified diff without file names.
    Text(String),
}

impl std::fmt::Debug for ContentChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Secret => "Secret",
            Self::Binary => "Binary",
            Self::Large => "Large",
            Self::Unknown => "Unknown",
            Self::Text(_) => "Text",
        })
    }
}

/// Compares the content of one file before and after; none if it does not change.
///
/// # Errors
///
/// Reading one of them fails.
pub fn compare(
    _change: &EntryChange,
    _versions: &dyn Versions,
    _show_secrets: bool,
) -> Result<Option<ContentChange>> {
    Ok(Some(ContentChange::Unknown))
}
