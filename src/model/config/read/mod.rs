//! From files to one [`Config`]: text, documents, what each says, all joined.

mod contents;
mod disks;
pub(in crate::model) mod document;
mod draft;
mod field;
mod ignition;
mod machine_config;
mod mode;
mod passwd;
mod paths;
mod storage;
#[cfg(test)]
mod tests;
mod units;

use std::collections::BTreeSet;
use std::fmt;

pub use contents::{CONTENT_MAX, CONTENTS_MAX, gunzip};

use self::document::Value;
use self::draft::Draft;
use self::field::{Field, Object, Report};
use super::{Config, Remark};
use crate::error::Fault;

/// So many problems fit into the reason of an error; `mcd validate` lists all.
const NAMED_MAX: usize = 3;

/// One file of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Input {
    /// As people know it: its path as it was typed, or `standard input`.
    pub name: String,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// A request that is refused: everything that is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong, in the order of the files.
    pub problems: Vec<Remark>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Remark>,
}

/// Reads and merges MachineConfigs and Ignition configs. The order of the files does not matter.
///
/// # Errors
///
/// Everything that is wrong in any of them.
pub fn read(inputs: Vec<Input>) -> Result<Config, Invalid> {
    let mut report = Report::default();
    let mut drafts = Vec::new();
    let mut names = BTreeSet::new();
    for input in inputs {
        if !names.insert(input.name.clone()) {
            report.refuse(&input.name, "it is named twice; leave one");
            continue;
        }
        // The text goes when its documents are read: contents are not kept twice.
        file(&input, &mut drafts, &mut report);
    }
    if drafts.is_empty() && report.problems.is_empty() {
        report.refuse("input", "there is no config in it");
    }
    let mut config = draft::merge(drafts, &mut report);
    let (problems, warnings) = report.into_problems();
    if !problems.is_empty() {
        return Err(Invalid { problems, warnings });
    }
    config.warnings = warnings;
    Ok(config)
}

fn file(input: &Input, drafts: &mut Vec<Draft>, report: &mut Report) {
    let at = Field::file(&input.name);
    let Ok(text) = std::str::from_utf8(&input.bytes) else {
        report.refuse(at, "it is not text (UTF-8)");
        return;
    };
    let documents = match document::parse(text) {
        Ok(documents) => documents,
        Err(unreadable) => {
            let line = unreadable.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            report.refuse(at, format!("{line}{}", unreadable.reason));
            return;
        }
    };
    if documents.is_empty() {
        report.refuse(at, "it is empty");
    }
    let several = documents.len() > 1;
    for (index, value) in documents.into_iter().enumerate() {
        let at = if several { at.document(index + 1) } else { at };
        document(&value, &input.name, &at, drafts, report);
    }
}

/// One document: a config, or a list of them.
fn document(value: &Value<'_>, file: &str, at: &Field<'_>, drafts: &mut Vec<Draft>, report: &mut Report) {
    let Some(mut object) = Object::read(Some(value), at, report) else { return };
    let kind = object.text("kind", at, report);
    let mut draft = Draft::new(at);
    match kind {
        Some(machine_config::KIND) => machine_config::read(value, at, &mut draft, report),
        Some("List" | "MachineConfigList") => {
            let list_at = at.name("items");
            for (index, item) in object.list("items", at, report).iter().enumerate() {
                let at = list_at.index(index);
                match item {
                    Value::Map(map) if !map.iter().any(|(key, value)| key == "kind" && is_list(value)) => {
                        document(item, file, &at, drafts, report);
                    }
                    _ => report.refuse(at, "it must be a MachineConfig"),
                }
            }
            return;
        }
        Some(other) => {
            let shown: String = other.chars().take(64).collect();
            let message = format!(
                "{} is nothing that mcd applies; give MachineConfigs or Ignition configs",
                shown.escape_debug()
            );
            report.refuse(at.name("kind"), message);
            return;
        }
        None if object.has("ignition") => {
            file.rsplit('/').next().unwrap_or(file).clone_into(&mut draft.name);
            ignition::read(value, at, &mut draft, report);
        }
        None if object.has("variant") => {
            report.refuse(at, "it is a Butane config; make an Ignition config of it with `butane`");
            return;
        }
        None => {
            let message = "it is neither a MachineConfig (kind: MachineConfig) nor an Ignition config (ignition.version)";
            report.refuse(at, message);
            return;
        }
    }
    draft.origin = (file.to_owned(), drafts.len());
    drafts.push(draft);
}

/// A list in a list would recurse.
fn is_list(kind: &Value<'_>) -> bool {
    matches!(kind, Value::Text(kind) | Value::Plain(kind) if kind.ends_with("List"))
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", self.name, self.bytes.len())
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        let count = invalid.problems.len();
        let what = match count {
            1 => "the config is refused".to_owned(),
            _ => format!("the config is refused: {count} problems"),
        };
        let named: Vec<String> = invalid.problems.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let next = match count > NAMED_MAX {
            true => "see all with `mcd validate`, mend them, and ask again",
            false => "mend it, try it with `mcd validate`, and ask again",
        };
        Fault::refused(what).why(named.join("; ")).next(next)
    }
}
