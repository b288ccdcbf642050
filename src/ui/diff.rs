//! What an apply would change, as `mcd diff` shows it.
//!
//! Each change has a head line, its details indented, what it needs and why, and, not indented, a
//! unified diff of its content: the page as a whole is one that patch tools read. Contents of secrets
//! are hidden unless asked for, and never stand in JSON.

mod json;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use camino::Utf8PathBuf;
use owo_colors::OwoColorize as _;

use super::text::{clean, count, size};
use crate::model::manifest::{Node, Part};
use crate::model::policy::Action;
use crate::plan::config::{ArgumentsChange, ChangeKind, Changes, EntryChange, ImageChange, PasswordState};
use crate::plan::content::{self, ContentChange, Line, Versions};
use crate::plan::disruption::{AS_WANTED, Subject, Verdict};

pub(super) use json::Document;

/// Columns of a page.
const WIDTH: usize = 80;

/// What `mcd diff` shows.
#[derive(Debug)]
pub struct DiffView<'a> {
    /// What changes.
    pub changes: &'a Changes,
    /// What that asks for.
    pub verdict: &'a Verdict,
    /// How the contents of files change, by path (links followed).
    pub contents: BTreeMap<Utf8PathBuf, ContentChange>,
    /// What else a reader must know: that the image is not there yet, for example.
    pub notices: Vec<String>,
}

impl<'a> DiffView<'a> {
    /// Reads the contents that are shown.
    ///
    /// # Errors
    ///
    /// One of them cannot be read.
    pub fn new(
        changes: &'a Changes,
        verdict: &'a Verdict,
        versions: &dyn Versions,
        show_secrets: bool,
    ) -> anyhow::Result<Self> {
        let mut contents = BTreeMap::new();
        for change in changes.entries() {
            if let Some(content) = content::compare(change, versions, show_secrets)? {
                contents.insert(change.path.clone(), content);
            }
        }
        Ok(Self { changes, verdict, contents, notices: Vec::new() })
    }
}

/// The whole page.
pub(super) fn render(view: &DiffView<'_>) -> String {
    let mut page = Page { view, text: String::new() };
    if view.changes.is_empty() {
        page.text.push_str("Nothing differs.\n");
    } else {
        page.changes();
        page.summary();
    }
    for notice in &view.notices {
        let _ = writeln!(page.text, "{} {}", "Notice:".yellow().bold(), clean(notice));
    }
    page.text
}

struct Page<'a> {
    view: &'a DiffView<'a>,
    text: String,
}

impl Page<'_> {
    fn changes(&mut self) {
        let changes = self.view.changes;
        if let Some(image) = &changes.image {
            self.image(image);
        }
        if let Some(arguments) = &changes.kernel_arguments {
            self.arguments(arguments);
        }
        for change in &changes.files {
            let subject = Subject::File(change.name().to_string());
            let head = format!("{} {}", noun(change), clean(change.name().as_str()));
            self.head(&format!("{}: {}", head.bold(), what(change)));
            self.needs(&subject);
            self.content(change);
        }
        for (name, parts) in &changes.units {
            self.head(&format!("unit {}", clean(name)).bold().to_string());
            parts.iter().for_each(|part| self.part(part));
            self.needs(&Subject::Unit(name.clone()));
            parts.iter().for_each(|part| self.content(part));
        }
        self.keys();
        for change in &changes.derived {
            let head = format!("{} {}", noun(change), clean(change.name().as_str()));
            self.head(&format!("{}: {}", head.bold(), what(change)));
            self.detail("follows from the units above");
            self.content(change);
        }
    }

    fn image(&mut self, image: &ImageChange) {
        self.head(&"image".bold().to_string());
        if let Some(before) = &image.before {
            self.detail(&format!("from {}", clean(before)));
        }
        self.detail(&format!("to   {}", clean(&image.after)));
        self.needs(&Subject::Image);
    }

    fn arguments(&mut self, arguments: &ArgumentsChange) {
        self.head(&"kernel arguments".bold().to_string());
        let (removed, added) = arguments.removed_and_added();
        if arguments.before == arguments.after {
            self.detail("the same are asked for, and the next boot does not have them so");
        } else if removed.is_empty() && added.is_empty() {
            self.detail(&format!("order: {}", clean(&arguments.after.join(" "))));
        }
        removed.iter().for_each(|argument| self.detail(&format!("-{}", clean(argument)).red().to_string()));
        added.iter().for_each(|argument| self.detail(&format!("+{}", clean(argument)).green().to_string()));
        self.needs(&Subject::KernelArguments);
    }

    fn keys(&mut self) {
        let changes = self.view.changes;
        let user = changes.password.as_ref().map(|password| password.user.clone());
        let Some(user) = user.or_else(|| changes.keys.iter().find_map(EntryChange::user)) else { return };
        self.head(&format!("user {}", clean(&user)).bold().to_string());
        if let Some(password) = &changes.password {
            self.detail(match password.to {
                PasswordState::Set => "password: another one",
                PasswordState::Locked => "password: locked",
                PasswordState::Released => "password: no longer managed",
            });
        }
        changes.keys.iter().for_each(|change| self.part(change));
        self.needs(&Subject::Keys(user));
        changes.keys.iter().for_each(|change| self.content(change));
    }

    fn head(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let _ = writeln!(self.text, "{line}");
    }

    fn detail(&mut self, line: &str) {
        let _ = writeln!(self.text, "    {line}");
    }

    /// One path of a unit or user.
    fn part(&mut self, change: &EntryChange) {
        let path = clean(change.name().as_str());
        let line = match (&change.part, &change.to) {
            (Part::Enablement(_), Some(Node::Symlink { .. })) if change.kind == ChangeKind::Added => {
                format!("enabled by {path}")
            }
            (Part::Enablement(_), None) if change.is_visible() => format!("no longer enabled by {path}"),
            _ => format!("{path}: {}", what(change)),
        };
        self.detail(&line);
    }

    fn needs(&mut self, subject: &Subject) {
        let Some(reason) = self.view.verdict.reason(subject) else { return };
        if reason.why == AS_WANTED {
            // The head line says so already.
            return;
        }
        let needed: Vec<String> = reason
            .actions
            .iter()
            .filter(|action| **action != Action::None)
            .map(|action| clean(&action.to_string()))
            .collect();
        let needed = if needed.is_empty() { "nothing".to_owned() } else { needed.join(", ") };
        let why = clean(&reason.why);
        let line = format!("needs {needed} ({why})");
        if line.chars().count() + 4 <= WIDTH {
            self.detail(&line);
        } else {
            self.detail(&format!("needs {needed}"));
            self.detail(&format!("  ({why})"));
        }
    }

    fn content(&mut self, change: &EntryChange) {
        match self.view.contents.get(&change.path) {
            None => {}
            Some(ContentChange::Secret) => {
                self.detail("content is hidden; --show-secrets shows it");
            }
            Some(ContentChange::Binary) => self.detail("content is no text"),
            Some(ContentChange::Large) => self.detail("content is too large to be shown"),
            Some(ContentChange::Unknown) => self.detail("content is not known any more"),
            Some(ContentChange::Text(lines)) => self.lines(change, lines),
        }
    }

    fn lines(&mut self, change: &EntryChange, lines: &[Line]) {
        let name = clean(change.name().as_str());
        let is_file = |node: &Option<Node>| matches!(node, Some(Node::File { .. }));
        // As git writes them, so that `patch -p1 -d ROOT` finds the files.
        let side = |is_there, side| if is_there { format!("{side}{name}") } else { "/dev/null".to_owned() };
        let before = format!("--- {}", side(is_file(&change.from), 'a'));
        let after = format!("+++ {}", side(is_file(&change.to), 'b'));
        let _ = writeln!(self.text, "{}\n{}", before.bold(), after.bold());
        for line in lines {
            let shown = match line {
                Line::Hunk(text) => text.cyan().to_string(),
                Line::Same(text) => format!(" {text}"),
                Line::Removed(text) => format!("-{text}").red().to_string(),
                Line::Added(text) => format!("+{text}").green().to_string(),
                Line::NoNewline => "\\ No newline at end of file".to_owned(),
                Line::More(number) => format!("({} not shown)", count(*number as u64, "more line")),
            };
            let _ = writeln!(self.text, "{shown}");
        }
    }

    /// How much changes, and what all of it needs, each once and in order.
    fn summary(&mut self) {
        let changes = self.view.changes;
        let mut parts = Vec::new();
        if changes.image.is_some() {
            parts.push("image".to_owned());
        }
        for (number, noun) in
            [(changes.files.len() + changes.derived.len(), "file"), (changes.units.len(), "unit")]
        {
            if number > 0 {
                parts.push(count(number as u64, noun));
            }
        }
        if changes.kernel_arguments.is_some() {
            parts.push("kernel arguments".to_owned());
        }
        if changes.password.is_some() || !changes.keys.is_empty() {
            parts.push("keys".to_owned());
        }
        let _ = writeln!(self.text, "\n{} {}", "Changes:".bold(), parts.join(", "));
        let verdict = self.view.verdict;
        if verdict.actions.is_empty() {
            let _ = writeln!(self.text, "{} none, nothing is restarted", "Actions:".bold());
        }
        for (index, action) in verdict.actions.iter().enumerate() {
            let label = if index == 0 { "Actions:".bold().to_string() } else { " ".repeat(8) };
            let _ = writeln!(self.text, "{label} {}. {}", index + 1, clean(&action.to_string()));
        }
    }
}

/// What a change is about.
fn noun(change: &EntryChange) -> &'static str {
    match change.to.as_ref().or(change.from.as_ref()) {
        Some(Node::Directory { .. }) => "directory",
        Some(Node::Symlink { .. }) => "link",
        _ => "file",
    }
}

/// How it changes, in a few words.
fn what(change: &EntryChange) -> String {
    match (change.kind, &change.from, &change.to) {
        (ChangeKind::Adopted, _, _) => "is as wanted already, becomes managed".to_owned(),
        (ChangeKind::Released, _, _) => "stays as the image has it, no longer managed".to_owned(),
        (_, _, None) => "goes".to_owned(),
        (_, None, Some(to)) => format!("new, {}", described(to)),
        (kind, Some(from), Some(to)) => {
            let turned = turned(from, to, change);
            match kind {
                ChangeKind::Removed => format!("back to the image's own: {turned}"),
                ChangeKind::Added => format!("replaces what is there: {turned}"),
                _ => turned,
            }
        }
    }
}

/// What something is: only what is not the rule.
fn described(node: &Node) -> String {
    let owned = |uid: &u32, gid: &u32| match (uid, gid) {
        (0, 0) => String::new(),
        (uid, gid) => format!(", owner {uid}:{gid}"),
    };
    match node {
        Node::File { size: bytes, mode, uid, gid, .. } => {
            format!("mode {mode:04o}{}, {}", owned(uid, gid), size(*bytes))
        }
        Node::Directory { mode, uid, gid, .. } => format!("mode {mode:04o}{}", owned(uid, gid)),
        Node::Symlink { target, .. } if target == "/dev/null" => "to /dev/null (masked)".to_owned(),
        Node::Symlink { target, uid, gid, .. } => format!("to {}{}", clean(target), owned(uid, gid)),
        Node::Absent => "nothing".to_owned(),
    }
}

/// What of something changes, with both values.
fn turned(from: &Node, to: &Node, change: &EntryChange) -> String {
    let aspects = change.aspects();
    let mut parts = Vec::new();
    if aspects.kind {
        parts.push(format!("{}, then {}", kind_of(from), kind_of(to)));
        parts.push(described(to));
    }
    if aspects.content {
        parts.push("content".to_owned());
    }
    if let (true, Some((before, _, _)), Some((after, _, _))) = (aspects.mode, rights(from), rights(to)) {
        parts.push(format!("mode {before:04o} -> {after:04o}"));
    }
    if let (true, Some((_, uid, gid)), Some((_, new_uid, new_gid))) =
        (aspects.owner, rights(from), rights(to))
    {
        parts.push(format!("owner {uid}:{gid} -> {new_uid}:{new_gid}"));
    }
    if let (true, Node::Symlink { target, .. }, Node::Symlink { target: new, .. }) =
        (aspects.target, from, to)
    {
        parts.push(format!("{} -> {}", clean(target), clean(new)));
    }
    parts.join(", ")
}

fn kind_of(node: &Node) -> &'static str {
    match node {
        Node::File { .. } => "a file",
        Node::Directory { .. } => "a directory",
        Node::Symlink { .. } => "a link",
        Node::Absent => "nothing",
    }
}

/// Mode, user and group; a link has no mode of its own.
fn rights(node: &Node) -> Option<(u32, u32, u32)> {
    match node {
        Node::File { mode, uid, gid, .. } | Node::Directory { mode, uid, gid, .. } => {
            Some((*mode, *uid, *gid))
        }
        Node::Symlink { uid, gid, .. } => Some((0o777, *uid, *gid)),
        Node::Absent => None,
    }
}
