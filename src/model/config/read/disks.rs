//! Sections of `storage` that Ignition carries out at the installation: kept as they are.

use std::collections::BTreeMap;

use serde_json::Map;

use super::document::Value;
use super::field::{Field, Object, Report, is_empty};
use crate::model::config::{DiskSection, Disks};

/// Reads one section.
pub(super) fn read(
    storage: &mut Object<'_, '_>,
    name: &'static str,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<DiskSection> {
    let at_list = at.name(name);
    let mut items = Vec::new();
    for (index, item) in storage.list(name, at, report).iter().enumerate() {
        let at = at_list.index(index);
        match item {
            Value::Map(_) if !is_empty(item) => items.push(plain(item, &at, report)),
            Value::Map(_) => report.refuse(at, "it says nothing"),
            _ => report.refuse(at, "it must be an object"),
        }
    }
    (!items.is_empty()).then(|| DiskSection { field: at_list.to_string(), items })
}

/// Adds what another document says. Two that say different things of a section are not joined: which
/// partition of one is which of the other is for whoever wrote them.
pub(super) fn merge(all: &mut Disks, other: Disks, report: &mut Report) {
    for (name, section) in other {
        match all.get(&name) {
            Some(known) if known.digest() != section.digest() => {
                let message = format!("{} says something else of them; put both into one", known.field);
                report.refuse(&section.field, message);
            }
            _ => drop(all.insert(name, section)),
        }
    }
}

/// The value with its keys in order, without what says nothing: `wipeTable: false` is the default.
fn plain(value: &Value<'_>, at: &Field<'_>, report: &mut Report) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(it) => (*it).into(),
        Value::Number(digits) => number(digits).unwrap_or_else(|| digits.as_str().into()),
        Value::Plain(word) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => true.into(),
            _ => number(word).unwrap_or_else(|| (&**word).into()),
        },
        Value::Text(text) => (&**text).into(),
        Value::List(list) => {
            let items = list.iter().enumerate().map(|(index, item)| plain(item, &at.index(index), report));
            items.collect()
        }
        Value::Map(map) => {
            let mut sorted = BTreeMap::new();
            for (key, value) in map {
                if sorted.insert(&**key, value).is_some() {
                    report.refuse(at.name(key), "it is written twice; leave one");
                }
            }
            let said = sorted.into_iter().filter(|(_, value)| !is_empty(value));
            let fields = said.map(|(key, value)| (key.to_owned(), plain(value, &at.name(key), report)));
            serde_json::Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

fn number(digits: &str) -> Option<serde_json::Value> {
    digits.parse::<i64>().ok().map(Into::into)
}
