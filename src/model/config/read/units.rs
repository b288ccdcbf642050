//! `systemd.units` of an Ignition config.

use super::contents::unit_text;
use super::document::Value;
use super::draft::{Draft, UnitDraft};
use super::field::{Field, Object, Report};

/// systemd's limit for names of units.
const NAME_MAX: usize = 255;

/// The types of units that have files.
const TYPES: [&str; 9] =
    ["service", "socket", "mount", "automount", "swap", "target", "path", "timer", "slice"];

/// Reads `systemd`.
pub(super) fn read(
    value: Option<&Value<'_>>,
    major: u64,
    at: &Field<'_>,
    into: &mut Draft,
    report: &mut Report,
) {
    let Some(mut systemd) = Object::read(value, at, report) else { return };
    let list_at = at.name("units");
    for (index, value) in systemd.list("units", at, report).iter().enumerate() {
        let at = list_at.index(index);
        let Some(mut object) = Object::read(Some(value), &at, report) else { continue };
        let name = object.text("name", &at, report);
        let unit = report.about(name, |report| unit(object, name, major, &at, report));
        let (Some(name), Some(unit)) = (name, unit) else { continue };
        into.insert_unit(name, unit, major == 2, &at, report);
    }
    systemd.end(at, report);
}

fn unit(
    mut object: Object<'_, '_>,
    name: Option<&str>,
    major: u64,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<UnitDraft> {
    let wrong = match name {
        None => Some("every unit has a name".to_owned()),
        Some(name) => wrong_name(name),
    };
    if let Some(reason) = &wrong {
        report.refuse(at.name("name"), reason.as_str());
    }
    let mut unit = UnitDraft { field: at.to_string(), ..UnitDraft::default() };
    unit.enabled = object.boolean("enabled", at, report);
    if major == 2 && object.boolean("enable", at, report) == Some(true) {
        // The older spelling, which cannot say no.
        unit.enabled = unit.enabled.or(Some(true));
    }
    unit.mask = object.boolean("mask", at, report);
    unit.contents = object
        .text("contents", at, report)
        .filter(|text| !text.is_empty())
        .and_then(|text| unit_text(text, &at.name("contents"), report));
    let list_at = at.name("dropins");
    for (index, value) in object.list("dropins", at, report).iter().enumerate() {
        let at = list_at.index(index);
        let Some(mut dropin) = Object::read(Some(value), &at, report) else { continue };
        let name = dropin.text("name", &at, report);
        let contents = dropin
            .text("contents", &at, report)
            .and_then(|text| unit_text(text, &at.name("contents"), report));
        dropin.end(&at, report);
        match name.map(wrong_dropin) {
            None => report.refuse(at.name("name"), "every drop-in has a name"),
            Some(Some(reason)) => report.refuse(at.name("name"), reason),
            Some(None) => {
                let name = name.unwrap_or_default().to_owned();
                if unit.dropins.insert(name.clone(), contents).is_some() && major > 2 {
                    report
                        .refuse(at.name("name"), format!("{name} is there already; give each drop-in once"));
                }
            }
        }
    }
    object.end(at, report);
    wrong.is_none().then_some(unit)
}

/// Why this is no name of a unit.
fn wrong_name(name: &str) -> Option<String> {
    let Some((stem, kind)) = name.rsplit_once('.') else {
        return Some(format!("the name of a unit ends in its type, as in {}.service", shown(name)));
    };
    if name.len() > NAME_MAX {
        return Some(format!("the name of a unit has at most {NAME_MAX} letters"));
    }
    if !TYPES.contains(&kind) {
        return Some(format!("there is no such type of unit; known are {}", TYPES.join(", ")));
    }
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_' | '.' | '\\' | '@');
    if !stem.chars().all(is_letter) {
        return Some("the name of a unit has only letters, digits and : - _ . \\ @".to_owned());
    }
    if stem.is_empty() || stem.starts_with(['@', '.']) {
        return Some("the name of a unit begins with a letter or digit".to_owned());
    }
    None
}

fn wrong_dropin(name: &str) -> Option<String> {
    if !name.ends_with(".conf") || name.len() <= ".conf".len() || name.starts_with('.') {
        return Some(format!("the name of a drop-in ends in .conf, as in {}.conf", shown(name)));
    }
    if name.len() > NAME_MAX || name.chars().any(|c| c == '/' || c.is_control()) {
        return Some("it is no name of a file".to_owned());
    }
    None
}

/// A name to make an example of.
fn shown(name: &str) -> String {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    if name.is_empty() { "name".to_owned() } else { name }
}
