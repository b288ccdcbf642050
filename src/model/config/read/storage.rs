//! `storage` of an Ignition config: files, directories and links. What is said of disks is kept for
//! comparison.

use camino::Utf8PathBuf;

use super::document::Value;
use super::draft::Draft;
use super::field::{Field, Object, Report, number};
use super::{contents, disks, mode, paths};
use crate::model::config::{Id, Owner, Request, RequestKind, SECTIONS};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

/// Reads `storage`.
pub(super) fn read(
    value: Option<&Value<'_>>,
    major: u64,
    at: &Field<'_>,
    into: &mut Draft,
    report: &mut Report,
) {
    let Some(mut storage) = Object::read(value, at, report) else { return };
    // Encryption came with 3.2; where it does not belong it is a field like any other unknown one.
    for name in SECTIONS.into_iter().filter(|name| major > 2 || *name != "luks") {
        if let Some(section) = disks::read(&mut storage, name, at, report) {
            into.disks.insert(name.to_owned(), section);
        }
    }
    for (name, kind) in [("files", Kind::File), ("directories", Kind::Directory), ("links", Kind::Link)] {
        let list_at = at.name(name);
        for (index, value) in storage.list(name, at, report).iter().enumerate() {
            let at = list_at.index(index);
            let Some(mut node) = Object::read(Some(value), &at, report) else { continue };
            let path = node.text("path", &at, report);
            let read = |report: &mut Report| entry(node, path, kind, major, &at, report);
            let Some((path, request)) = report.about(path, read) else { continue };
            into.insert(path, request, major == 2 && kind == Kind::File, &at, report);
        }
    }
    storage.end(at, report);
}

/// One entry, all but its place in the config.
fn entry(
    mut node: Object<'_, '_>,
    path: Option<&str>,
    kind: Kind,
    major: u64,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<(Utf8PathBuf, Request)> {
    let path = match path {
        Some(text) => paths::entry(text),
        None if node.has("path") => Err("a path is missing".to_owned()),
        None => Err("every entry has a path".to_owned()),
    };
    let path = path.map_err(|reason| report.refuse(at.name("path"), reason)).ok();
    if major == 2 {
        let system = node.text("filesystem", at, report);
        if !matches!(system, None | Some("" | "root")) {
            report.refuse(
                at.name("filesystem"),
                "only root can be written to: give the path as the running system sees it",
            );
        }
    }
    let owner =
        Owner { user: owner(&mut node, "user", at, report), group: owner(&mut node, "group", at, report) };
    let overwrite = node.boolean("overwrite", at, report);
    let kind = match kind {
        Kind::File => file(&mut node, major, overwrite, at, report),
        Kind::Directory => Some(RequestKind::Directory { mode: mode_of(&mut node, at, report) }),
        Kind::Link => link(&mut node, at, report),
    };
    node.end(at, report);
    Some((path?, Request { field: at.to_string(), kind: kind?, owner, overwrite }))
}

fn mode_of(node: &mut Object<'_, '_>, at: &Field<'_>, report: &mut Report) -> Option<u32> {
    let value = node.take("mode", at, report)?;
    mode::read(value, &at.name("mode"), report)
}

/// In 2.x `append: true` appends the contents, in 3.x `append` is a list of contents.
fn file(
    node: &mut Object<'_, '_>,
    major: u64,
    overwrite: Option<bool>,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<RequestKind> {
    let value = node.take("contents", at, report);
    let contents = contents::resource(value, &at.name("contents"), report);
    let mode = mode_of(node, at, report);
    if major == 2 {
        return Some(match node.boolean("append", at, report) {
            Some(true) => RequestKind::File { contents: None, append: contents.into_iter().collect(), mode },
            _ => RequestKind::File { contents, append: Vec::new(), mode },
        });
    }
    let list_at = at.name("append");
    let mut append = Vec::new();
    for (index, value) in node.list("append", at, report).iter().enumerate() {
        let at = list_at.index(index);
        let problems = report.problems.len();
        match contents::resource(Some(value), &at, report) {
            Some(contents) => append.push(contents),
            None if report.problems.len() == problems => {
                report.refuse(at.name("source"), "what is to be appended is missing");
            }
            None => {}
        }
    }
    if overwrite == Some(true) && contents.is_none() && value.is_none() {
        report.warn(
            at.name("overwrite"),
            "without contents it overwrites with nothing: the file will be empty",
        );
    }
    Some(RequestKind::File { contents, append, mode })
}

fn link(node: &mut Object<'_, '_>, at: &Field<'_>, report: &mut Report) -> Option<RequestKind> {
    let hard = node.boolean("hard", at, report).unwrap_or(false);
    let target = node.text("target", at, report).filter(|target| !target.is_empty());
    let Some(target) = target else {
        report.refuse(at.name("target"), "a link has a target");
        return None;
    };
    let wrong = match hard {
        true => paths::clean(target).err(),
        false if target.chars().any(char::is_control) => {
            Some("a path holds no control characters".to_owned())
        }
        false if target.len() >= 4096 => Some("it is longer than a link can be".to_owned()),
        false => None,
    };
    match wrong {
        Some(reason) => {
            report.refuse(at.name("target"), reason);
            None
        }
        None => Some(RequestKind::Link { target: target.to_owned(), hard }),
    }
}

/// `user` or `group`, by number or by name.
fn owner(node: &mut Object<'_, '_>, name: &'static str, at: &Field<'_>, report: &mut Report) -> Option<Id> {
    let mut object = node.object(name, at, report)?;
    let at = at.name(name);
    let id = object.take("id", &at, report).and_then(|value| {
        let (id, _) = number(value, &at.name("id"), report)?;
        // The last number means "leave it as it is" to chown.
        let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        if id.is_none() {
            report.refuse(at.name("id"), "it is no number of a user or group");
        }
        id
    });
    let given = object.text("name", &at, report).filter(|name| !name.is_empty());
    object.end(&at, report);
    match (id, given) {
        (Some(_), Some(_)) => {
            report.refuse(at, "give id or name, not both");
            None
        }
        (Some(id), None) => Some(Id::Number(id)),
        (None, Some(name)) if is_name(name) => Some(Id::Name(name.to_owned())),
        (None, Some(_)) => {
            report.refuse(at.name("name"), "it is no name of a user or group");
            None
        }
        (None, None) => None,
    }
}

/// What passwd(5) can hold as a name; whether the target has it is not known here.
fn is_name(name: &str) -> bool {
    name.len() <= 256
        && !name.starts_with('-')
        && !name.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, ':' | ',' | '/'))
}
