//! How the content of a file changes, for people. Bounded in every direction, and secrets stay out
//! unless somebody asks for them.

#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Result;
use camino::Utf8Path;
use similar::{ChangeTag, TextDiff};

use super::config::EntryChange;
use crate::model::manifest::{Node, Part};

/// Files larger than this are compared by digest only: a diff of more helps nobody, and both versions
/// stand in memory.
pub const LARGEST_DIFF: u64 = 1 << 20;
/// Lines of a diff that are shown for one file; the rest is counted. A terminal's scroll-back is not
/// much longer, and a config's own files are far shorter.
const MOST_LINES: usize = 500;
/// Characters of one line that are shown; minified JSON is one line.
const LONGEST_LINE: usize = 400;
/// Lines around a change, as diff(1) shows them.
const CONTEXT: usize = 3;
/// The search for the shortest diff of two megabytes without a line in common can take minutes; after
/// this, any right one will do.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the bytes behind the nodes of a change are read. Only asked for files of at most
/// [`LARGEST_DIFF`] bytes.
pub trait Versions {
    /// The bytes behind [`EntryChange::from`]; none if they are not known any more.
    ///
    /// # Errors
    ///
    /// They are known, and reading fails.
    fn before(&self, change: &EntryChange) -> Result<Option<Vec<u8>>>;

    /// The bytes behind [`EntryChange::to`]; none if they are not known any more.
    ///
    /// # Errors
    ///
    /// They are known, and reading fails.
    fn after(&self, change: &EntryChange) -> Result<Option<Vec<u8>>>;
}

/// How the content of one file changes.
#[derive(Clone, PartialEq, Eq)]
pub enum ContentChange {
    /// Not everybody may read it, and nobody asked to show it.
    Secret,
    /// At least one of them is no text.
    Binary,
    /// At least one of them is larger than [`LARGEST_DIFF`].
    Large,
    /// What was or will be there is not known any more.
    Unknown,
    /// A unified diff without the names of files.
    Text(Vec<Line>),
}

/// A line of a unified diff, without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// `@@ -1,3 +1,4 @@`.
    Hunk(String),
    /// A line that stays.
    Same(String),
    /// A line that goes.
    Removed(String),
    /// A line that comes.
    Added(String),
    /// The line before has no newline at its end.
    NoNewline,
    /// So many lines are left out.
    More(usize),
}

/// Contents are not for logs.
impl std::fmt::Debug for ContentChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(lines) => write!(f, "Text({} lines)", lines.len()),
            other => f.write_str(other.word()),
        }
    }
}

impl ContentChange {
    /// One word for a program.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Binary => "binary",
            Self::Large => "large",
            Self::Unknown => "unknown",
            Self::Text(_) => "text",
        }
    }
}

/// Compares the content of one file before and after; none if it does not change.
///
/// # Errors
///
/// Reading one of them fails.
pub fn compare(
    change: &EntryChange,
    versions: &dyn Versions,
    show_secrets: bool,
) -> Result<Option<ContentChange>> {
    let (from, to) = (Side::of(change.from.as_ref()), Side::of(change.to.as_ref()));
    if !change.is_visible() || from.digest == to.digest {
        return Ok(None);
    }
    if !show_secrets && is_secret(change) {
        return Ok(Some(ContentChange::Secret));
    }
    if from.size.max(to.size) > LARGEST_DIFF {
        return Ok(Some(ContentChange::Large));
    }
    let before = if from.digest.is_some() { versions.before(change)? } else { Some(Vec::new()) };
    let after = if to.digest.is_some() { versions.after(change)? } else { Some(Vec::new()) };
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(Some(ContentChange::Unknown));
    };
    let is_private = change.user().is_none() && (holds_private_key(&before) || holds_private_key(&after));
    if is_private && !show_secrets {
        return Ok(Some(ContentChange::Secret));
    }
    match (text(&before), text(&after)) {
        (Some(before), Some(after)) => Ok(Some(ContentChange::Text(diff(before, after)))),
        _ => Ok(Some(ContentChange::Binary)),
    }
}

/// What counts of a node here: all but files are as empty as nothing.
#[derive(Default)]
struct Side<'a> {
    digest: Option<&'a crate::model::digest::Digest>,
    size: u64,
}

impl<'a> Side<'a> {
    fn of(node: Option<&'a Node>) -> Self {
        match node {
            Some(Node::File { digest, size, .. }) => Self { digest: Some(digest), size: *size },
            _ => Self::default(),
        }
    }
}

/// Whether a change must not show contents: not everybody may read the file, before or after, or its
/// name says what it is. Authorised keys are public, although only their owner may read the file.
pub fn is_secret(change: &EntryChange) -> bool {
    const EVERYBODY_READS: u32 = 0o004;
    if matches!(change.part, Part::Keys(_)) {
        return false;
    }
    let is_closed =
        |node: &Option<Node>| matches!(node, Some(Node::File { mode, .. }) if mode & EVERYBODY_READS == 0);
    is_closed(&change.from)
        || is_closed(&change.to)
        || has_secret_name(&change.path)
        || has_secret_name(change.name())
}

/// Names of files that hold secrets even where the config forgot to close them.
fn has_secret_name(path: &Utf8Path) -> bool {
    const NAMES: [&str; 6] =
        ["config.json", ".dockerconfigjson", "auth.json", "kubeconfig", "shadow", "gshadow"];
    const ENDINGS: [&str; 4] = [".key", ".keytab", ".psk", ".nmconnection"];
    let name = path.file_name().unwrap_or_default();
    NAMES.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// PEM says itself what it holds.
fn holds_private_key(bytes: &[u8]) -> bool {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    bytes.windows(MARK.len()).any(|window| window == MARK)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn diff(before: &str, after: &str) -> Vec<Line> {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(before, after);
    let mut lines = Vec::new();
    let mut left_out = 0;
    let mut push = |line: Line| {
        if lines.len() < MOST_LINES { lines.push(line) } else { left_out += 1 }
    };
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        push(Line::Hunk(hunk.header().to_string()));
        for change in hunk.iter_changes() {
            let text = shown(change.value());
            push(match change.tag() {
                ChangeTag::Equal => Line::Same(text),
                ChangeTag::Delete => Line::Removed(text),
                ChangeTag::Insert => Line::Added(text),
            });
            if change.missing_newline() {
                push(Line::NoNewline);
            }
        }
    }
    if left_out > 0 {
        lines.push(Line::More(left_out));
    }
    lines
}

/// A line as it can be shown: without its newline, control characters as `^M`, and cut.
fn shown(line: &str) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let mut text = String::with_capacity(line.len().min(LONGEST_LINE));
    for (count, c) in line.chars().enumerate() {
        if count == LONGEST_LINE {
            text.push_str(&format!("… ({} bytes in this line)", line.len()));
            break;
        }
        match c {
            '\t' => text.push(c),
            '\0'..='\x1f' => text.extend(['^', char::from(c as u8 + b'@')]),
            c if c.is_control() => text.extend(c.escape_unicode()),
            c => text.push(c),
        }
    }
    text
}
