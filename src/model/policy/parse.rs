//! The reader of policy files: a YAML document, walked by hand so that every mistake is found and
//! named by its field. A name that is misspelt is a mistake too: a policy that is dropped in silence
//! reboots a fleet.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Map, Value};

use super::{Action, InvalidPolicy};
use crate::model::config::Remark;
use crate::model::config::read::document;

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) files: BTreeMap<Utf8PathBuf, Vec<Action>>,
    pub(super) units: BTreeMap<String, Vec<Action>>,
    pub(super) sshkey: Option<Vec<Action>>,
}

/// The kinds of unit that systemd has; a service name must end with one.
const SUFFIXES: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];

/// Reads a policy file.
pub(super) fn parse(name: &str, yaml: &[u8]) -> Result<Said, InvalidPolicy> {
    let mut reader = Reader { name, problems: Vec::new() };
    let mut said = Said::default();
    match document(yaml) {
        Ok(document) => reader.document(&document, &mut said),
        Err(message) => reader.problem("", message),
    }
    if reader.problems.is_empty() { Ok(said) } else { Err(InvalidPolicy { problems: reader.problems }) }
}

/// The only document of a file.
fn document(yaml: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(yaml).map_err(|_| "is no text (UTF-8)".to_owned())?;
    let documents = document::parse(text).map_err(|unreadable| {
        let line = unreadable.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("is no valid YAML: {line}{}", unreadable.reason)
    })?;
    match <[_; 1]>::try_from(documents) {
        Ok([document]) => plain(document),
        Err(documents) if documents.is_empty() => Err("is empty".to_owned()),
        Err(_) => Err("holds several documents: put each into a file of its own".to_owned()),
    }
}

/// A tree in which every word is text: all that policies are made of.
fn plain(node: document::Value<'_>) -> Result<Value, String> {
    Ok(match node {
        document::Value::Null => Value::Null,
        document::Value::Bool(it) => Value::Bool(it),
        document::Value::Number(it) => Value::String(it),
        document::Value::Plain(it) | document::Value::Text(it) => Value::String(it.into_owned()),
        document::Value::List(items) => Value::Array(items.into_iter().map(plain).collect::<Result<_, _>>()?),
        document::Value::Map(fields) => {
            let mut map = Map::new();
            for (key, value) in fields {
                let key = key.into_owned();
                if map.contains_key(&key) {
                    return Err(format!("has the field {key} twice in one place"));
                }
                map.insert(key, plain(value)?);
            }
            Value::Object(map)
        }
    })
}

struct Reader<'a> {
    name: &'a str,
    problems: Vec<Remark>,
}

impl Reader<'_> {
    fn problem(&mut self, field: &str, message: impl Into<String>) {
        let separator = if field.is_empty() { "" } else { ": " };
        self.problems
            .push(Remark { field: format!("{}{separator}{field}", self.name), message: message.into() });
    }

    /// Finds the policy in the document: what the operator merged, what the administrator of a
    /// cluster wrote, or only the policy itself.
    fn document(&mut self, document: &Value, said: &mut Said) {
        let Some(top) = document.as_object() else {
            return self.problem("", "must be a MachineConfiguration, or have files, units and sshkey");
        };
        if let Some(kind) = top.get("kind")
            && kind != "MachineConfiguration"
        {
            return self.problem("kind", "must be MachineConfiguration");
        }
        let is_object = ["kind", "apiVersion", "spec", "status"].iter().any(|key| top.contains_key(*key));
        if !is_object {
            return self.policies("", top, said);
        }
        for (pointer, field) in [
            (
                "/status/nodeDisruptionPolicyStatus/clusterPolicies",
                "status.nodeDisruptionPolicyStatus.clusterPolicies",
            ),
            ("/spec/nodeDisruptionPolicy", "spec.nodeDisruptionPolicy"),
        ] {
            match document.pointer(pointer) {
                None | Some(Value::Null) => {}
                Some(Value::Object(policies)) => return self.policies(field, policies, said),
                Some(_) => return self.problem(field, "must have files, units and sshkey"),
            }
        }
        self.problem("", "has neither spec.nodeDisruptionPolicy nor status.nodeDisruptionPolicyStatus");
    }

    fn policies(&mut self, field: &str, policies: &Map<String, Value>, said: &mut Said) {
        let at = |key: &str| if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") };
        self.only(field, policies, &["files", "units", "sshkey"]);
        for (field, item) in self.items(&at("files"), policies.get("files")) {
            let Some((path, actions)) = self.named(&field, item, "path") else { continue };
            if let Some(problem) = wrong_path(path) {
                self.problem(&format!("{field}.path"), problem);
            } else if let Some(actions) = actions
                && said.files.insert(path.into(), actions).is_some()
            {
                self.problem(&format!("{field}.path"), format!("{path} stands here twice: keep one"));
            }
        }
        for (field, item) in self.items(&at("units"), policies.get("units")) {
            let Some((unit, actions)) = self.named(&field, item, "name") else { continue };
            if !is_unit_name(unit) {
                self.problem(&format!("{field}.name"), "must be the full name of a unit, such as x.service");
            } else if let Some(actions) = actions
                && said.units.insert(unit.to_owned(), actions).is_some()
            {
                self.problem(&format!("{field}.name"), format!("{unit} stands here twice: keep one"));
            }
        }
        match policies.get("sshkey") {
            None | Some(Value::Null) => {}
            Some(Value::Object(item)) => {
                let field = at("sshkey");
                self.only(&field, item, &["actions"]);
                said.sshkey = self.actions(&format!("{field}.actions"), item.get("actions"));
            }
            Some(_) => self.problem(&at("sshkey"), "must have actions"),
        }
    }

    /// A path or unit with its actions. The actions are read even where the name is wrong, so that
    /// every mistake is found at once.
    fn named<'v>(
        &mut self,
        field: &str,
        item: &'v Value,
        key: &str,
    ) -> Option<(&'v str, Option<Vec<Action>>)> {
        let Some(item) = item.as_object() else {
            self.problem(field, format!("must have {key} and actions"));
            return None;
        };
        self.only(field, item, &[key, "actions"]);
        let actions = self.actions(&format!("{field}.actions"), item.get("actions"));
        match item.get(key) {
            Some(Value::String(name)) => Some((name, actions)),
            _ => {
                self.problem(&format!("{field}.{key}"), "is missing, or no text");
                None
            }
        }
    }

    fn actions(&mut self, field: &str, actions: Option<&Value>) -> Option<Vec<Action>> {
        let items = self.items(field, actions);
        let count = items.len();
        if count == 0 {
            if !matches!(actions, Some(value) if !value.is_null() && !value.is_array()) {
                self.problem(field, "must name at least one action; None is one");
            }
            return None;
        }
        let read: Vec<Action> =
            items.into_iter().filter_map(|(field, item)| self.action(&field, item)).collect();
        if read.len() < count {
            return None;
        }
        if let Some(alone) = read.iter().find(|action| matches!(action, Action::None | Action::Reboot))
            && count > 1
        {
            self.problem(field, format!("{alone:?} cannot stand beside other actions"));
            return None;
        }
        Some(read)
    }

    fn action(&mut self, field: &str, item: &Value) -> Option<Action> {
        let Some(item) = item.as_object() else {
            self.problem(field, "must have a type");
            return None;
        };
        let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
        let with_unit = match kind {
            "Reload" => Some("reload"),
            "Restart" => Some("restart"),
            _ => None,
        };
        self.only(field, item, &["type", with_unit.unwrap_or("type")]);
        match kind {
            "None" => Some(Action::None),
            "DaemonReload" => Some(Action::DaemonReload),
            "Special" => Some(Action::Special),
            "Drain" => Some(Action::Drain),
            "Reboot" => Some(Action::Reboot),
            "Reload" => self.service(&format!("{field}.reload"), item.get("reload")).map(Action::Reload),
            "Restart" => self.service(&format!("{field}.restart"), item.get("restart")).map(Action::Restart),
            _ => {
                let message = "must be one of None, Drain, Reload, Restart, DaemonReload, Reboot and Special";
                self.problem(&format!("{field}.type"), message);
                None
            }
        }
    }

    fn service(&mut self, field: &str, value: Option<&Value>) -> Option<String> {
        let item = value.and_then(Value::as_object);
        if let Some(item) = item {
            self.only(field, item, &["serviceName"]);
        }
        match item.and_then(|item| item.get("serviceName")).and_then(Value::as_str) {
            Some(name) if is_unit_name(name) => Some(name.to_owned()),
            _ => {
                let message = "must be the full name of a unit, such as x.service";
                self.problem(&format!("{field}.serviceName"), message);
                None
            }
        }
    }

    /// The items of a list with their fields; a list that is absent has none.
    fn items<'v>(&mut self, field: &str, list: Option<&'v Value>) -> Vec<(String, &'v Value)> {
        match list {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().enumerate().map(|(index, item)| (format!("{field}[{index}]"), item)).collect()
            }
            Some(_) => {
                self.problem(field, "must be a list");
                Vec::new()
            }
        }
    }

    fn only(&mut self, field: &str, item: &Map<String, Value>, known: &[&str]) {
        let unknown: Vec<&String> = item.keys().filter(|key| !known.contains(&key.as_str())).collect();
        for key in unknown {
            let field = if field.is_empty() { key.clone() } else { format!("{field}.{key}") };
            self.problem(&field, "is not known here");
        }
    }
}

/// What is wrong with a path; policies are matched part by part, so it must be clean.
fn wrong_path(path: &str) -> Option<String> {
    if !path.starts_with('/') || path.contains(char::is_control) {
        return Some("must be an absolute path".to_owned());
    }
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if path == "/" || path[1..].split('/').all(is_plain) {
        return None;
    }
    let clean: Utf8PathBuf = Utf8Path::new(path).components().collect();
    let hint = if path.contains("..") { String::new() } else { format!(": write {clean}") };
    Some(format!("must be a clean path, without //, ., .. and a slash at its end{hint}"))
}

fn is_unit_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let Some((stem, suffix)) = name.rsplit_once('.') else { return false };
    !stem.is_empty() && name.len() < 256 && name.chars().all(is_allowed) && SUFFIXES.contains(&suffix)
}
