//! The form of `mcd diff --json`: what changes and what that needs, without any content. It grows by
//! addition.

use serde::Serialize;

use super::DiffView;
use crate::model::manifest::Node;
use crate::model::policy::{Action, Origin};
use crate::plan::config::{ChangeKind, EntryChange, PasswordState};
use crate::plan::content::{ContentChange, Line, is_secret};
use crate::plan::disruption::{Reason, Subject};

/// The version of the document. Raised only when a field changes its meaning.
const VERSION: u32 = 1;

/// The whole document.
#[derive(Debug, Serialize)]
pub(in crate::ui) struct Document<'a> {
    version: u32,
    differs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<Image<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_arguments: Option<Arguments<'a>>,
    files: Vec<File<'a>>,
    units: Vec<Unit<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<User<'a>>,
    actions: &'a [Action],
    reboot: bool,
    drain: bool,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notices: &'a [String],
}

#[derive(Debug, Serialize)]
struct Image<'a> {
    before: Option<&'a str>,
    after: &'a str,
    #[serde(flatten)]
    needs: Needs<'a>,
}

#[derive(Debug, Serialize)]
struct Arguments<'a> {
    before: &'a [String],
    after: &'a [String],
    #[serde(flatten)]
    needs: Needs<'a>,
}

#[derive(Debug, Serialize)]
struct File<'a> {
    #[serde(flatten)]
    entry: Entry<'a>,
    #[serde(flatten)]
    needs: Needs<'a>,
}

#[derive(Debug, Serialize)]
struct Unit<'a> {
    name: &'a str,
    entries: Vec<Entry<'a>>,
    #[serde(flatten)]
    needs: Needs<'a>,
}

#[derive(Debug, Serialize)]
struct User<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<PasswordState>,
    keys: Vec<Entry<'a>>,
    #[serde(flatten)]
    needs: Needs<'a>,
}

/// What a change needs; all absent where it follows from another one.
#[derive(Debug, Default, Serialize)]
struct Needs<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<&'a [Action]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a Origin>,
}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<&'a str>,
    change: &'static str,
    changes: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Thing<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Thing<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
}

/// What is at a path. The digest of a secret is left out: a short secret can be guessed from it.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Thing<'a> {
    File {
        size: u64,
        mode: String,
        uid: u32,
        gid: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    Directory {
        mode: String,
        uid: u32,
        gid: u32,
    },
    Link {
        target: &'a str,
        uid: u32,
        gid: u32,
    },
    Absent,
}

/// How the content changes: what kind of content it is, and for text how many lines differ.
#[derive(Debug, Serialize)]
struct Content {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_added: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_removed: Option<usize>,
}

impl<'a> From<&'a DiffView<'a>> for Document<'a> {
    fn from(view: &'a DiffView<'a>) -> Self {
        let (changes, verdict) = (view.changes, view.verdict);
        let needs = |subject: &Subject| verdict.reason(subject).map(Needs::from).unwrap_or_default();
        let entries = |all: &'a [EntryChange]| all.iter().map(|one| entry(one, view)).collect::<Vec<_>>();
        let files = changes.files.iter().map(|one| File {
            entry: entry(one, view),
            needs: needs(&Subject::File(one.name().to_string())),
        });
        let derived =
            changes.derived.iter().map(|one| File { entry: entry(one, view), needs: Needs::default() });
        let units = changes.units.iter().map(|(name, parts)| Unit {
            name,
            entries: entries(parts),
            needs: needs(&Subject::Unit(name.clone())),
        });
        let user = verdict.reasons.iter().find_map(|reason| match &reason.subject {
            Subject::Keys(name) => Some(User {
                name,
                password: changes.password.as_ref().map(|password| password.to),
                keys: entries(&changes.keys),
                needs: Needs::from(reason),
            }),
            _ => None,
        });
        Self {
            version: VERSION,
            differs: !changes.is_empty(),
            image: changes.image.as_ref().map(|image| Image {
                before: image.before.as_deref(),
                after: &image.after,
                needs: needs(&Subject::Image),
            }),
            kernel_arguments: changes.kernel_arguments.as_ref().map(|arguments| Arguments {
                before: &arguments.before,
                after: &arguments.after,
                needs: needs(&Subject::KernelArguments),
            }),
            files: files.chain(derived).collect(),
            units: units.collect(),
            user,
            actions: &verdict.actions,
            reboot: verdict.needs_reboot(),
            drain: verdict.needs_drain(),
            notices: &view.notices,
        }
    }
}

impl<'a> From<&'a Reason> for Needs<'a> {
    fn from(reason: &'a Reason) -> Self {
        Self { actions: Some(&reason.actions), why: Some(&reason.why), policy: reason.origin.as_ref() }
    }
}

fn entry<'a>(change: &'a EntryChange, view: &DiffView<'_>) -> Entry<'a> {
    let content = view.contents.get(&change.path);
    let is_closed = is_secret(change) || matches!(content, Some(ContentChange::Secret));
    let aspects = change.aspects();
    let changes = [
        ("kind", aspects.kind),
        ("content", aspects.content),
        ("mode", aspects.mode),
        ("owner", aspects.owner),
        ("target", aspects.target),
    ];
    Entry {
        path: change.path.as_str(),
        asked: change.asked.as_ref().map(|path| path.as_str()),
        change: match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Changed(_) => "changed",
            ChangeKind::Adopted => "adopted",
            ChangeKind::Released => "released",
        },
        changes: changes.iter().filter(|(_, holds)| *holds).map(|(name, _)| *name).collect(),
        from: change.from.as_ref().map(|node| thing(node, is_closed)),
        to: change.to.as_ref().map(|node| thing(node, is_closed)),
        content: content.map(counted),
    }
}

fn thing(node: &Node, is_closed: bool) -> Thing<'_> {
    match node {
        Node::File { digest, size, mode, uid, gid, .. } => Thing::File {
            size: *size,
            mode: format!("{mode:04o}"),
            uid: *uid,
            gid: *gid,
            digest: (!is_closed).then(|| digest.to_string()),
        },
        Node::Directory { mode, uid, gid, .. } => {
            Thing::Directory { mode: format!("{mode:04o}"), uid: *uid, gid: *gid }
        }
        Node::Symlink { target, uid, gid, .. } => Thing::Link { target, uid: *uid, gid: *gid },
        Node::Absent => Thing::Absent,
    }
}

fn counted(content: &ContentChange) -> Content {
    let ContentChange::Text(lines) = content else {
        return Content { kind: content.word(), lines_added: None, lines_removed: None };
    };
    // A diff that was cut is not counted to its end: no number is better than a wrong one.
    let is_whole = !lines.iter().any(|line| matches!(line, Line::More(_)));
    let number =
        |wanted: fn(&Line) -> bool| is_whole.then(|| lines.iter().filter(|line| wanted(line)).count());
    Content {
        kind: content.word(),
        lines_added: number(|line| matches!(line, Line::Added(_))),
        lines_removed: number(|line| matches!(line, Line::Removed(_))),
    }
}
