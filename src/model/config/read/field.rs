//! Where something stands in the input, what is wrong with it, and reading it as a type.

use std::collections::BTreeSet;
use std::fmt;

use super::document::Value;
use crate::model::config::Remark;

/// So many problems are listed; a file that is no config at all must not fill a terminal.
const LISTED_MAX: usize = 1000;

/// A name is shown up to here.
const SHOWN_MAX: usize = 200;

/// A place in the input, as a chain up to the file.
#[derive(Clone, Copy)]
pub(super) struct Field<'p> {
    above: Option<&'p Field<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    File(&'p str),
    Document(usize),
    Name(&'p str),
    Index(usize),
}

impl<'p> Field<'p> {
    /// A whole file.
    pub(super) fn file(name: &'p str) -> Self {
        Self { above: None, step: Step::File(name) }
    }

    /// One of several documents of a file, from 1.
    pub(super) fn document(&'p self, number: usize) -> Field<'p> {
        Field { above: Some(self), step: Step::Document(number) }
    }

    /// A field of an object.
    pub(super) fn name(&'p self, name: &'p str) -> Field<'p> {
        Field { above: Some(self), step: Step::Name(name) }
    }

    /// An item of a list, from 0.
    pub(super) fn index(&'p self, index: usize) -> Field<'p> {
        Field { above: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        let begins = self.above.is_some_and(|above| matches!(above.step, Step::File(_) | Step::Document(_)));
        match self.step {
            Step::File(name) => f.write_str(name),
            Step::Document(number) => write!(f, ": document {number}"),
            Step::Name(name) if begins => write!(f, ": {name}"),
            Step::Name(name) => write!(f, ".{name}"),
            Step::Index(index) if begins => write!(f, ": [{index}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// What was found wrong so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) problems: Vec<Remark>,
    pub(super) warnings: Vec<Remark>,
    /// Bytes of contents that were unpacked.
    pub(super) unpacked: u64,
    /// Problems that are not listed.
    unlisted: usize,
}

impl Report {
    /// The field is refused.
    pub(super) fn refuse(&mut self, at: impl fmt::Display, message: impl Into<String>) {
        if self.problems.len() >= LISTED_MAX {
            self.unlisted += 1;
            return;
        }
        self.problems.push(Remark { field: at.to_string(), message: message.into() });
    }

    /// The field is taken, and probably not meant so.
    pub(super) fn warn(&mut self, at: impl fmt::Display, message: impl Into<String>) {
        if self.warnings.len() < LISTED_MAX {
            self.warnings.push(Remark { field: at.to_string(), message: message.into() });
        }
    }

    /// Says whose what is said by `read` is: nobody likes to count the items of a list.
    pub(super) fn about<T>(&mut self, whose: Option<&str>, read: impl FnOnce(&mut Self) -> T) -> T {
        let (problems, warnings) = (self.problems.len(), self.warnings.len());
        let result = read(self);
        if let Some(whose) = whose.filter(|whose| !whose.is_empty()) {
            let whose: String = whose.chars().take(SHOWN_MAX).collect();
            for remark in self.problems[problems..].iter_mut().chain(&mut self.warnings[warnings..]) {
                remark.message = format!("{}: {}", whose.escape_debug(), remark.message);
            }
        }
        result
    }

    /// All problems, with a last one for those that are not listed.
    pub(super) fn into_problems(mut self) -> (Vec<Remark>, Vec<Remark>) {
        if self.unlisted > 0 {
            let message = format!("{} more problems are not listed", self.unlisted);
            self.problems.push(Remark { field: "…".to_owned(), message });
        }
        (self.problems, self.warnings)
    }
}

/// An object that is read field by field.
pub(super) struct Object<'v, 'a> {
    map: &'v [(std::borrow::Cow<'a, str>, Value<'a>)],
    known: BTreeSet<&'static str>,
}

impl<'v, 'a> Object<'v, 'a> {
    /// The object at a field; none where there is nothing, or something else, which is refused.
    pub(super) fn read(value: Option<&'v Value<'a>>, at: &Field<'_>, report: &mut Report) -> Option<Self> {
        match value {
            None | Some(Value::Null) => None,
            Some(Value::Map(map)) => Some(Self { map, known: BTreeSet::new() }),
            Some(other) => {
                report.refuse(at, format!("it must be an object, not {}", kind(other)));
                None
            }
        }
    }

    /// Whether a field is written, with a value or without.
    pub(super) fn has(&self, name: &str) -> bool {
        self.map.iter().any(|(key, _)| key == name)
    }

    /// The value of a field; none if it is absent or null.
    pub(super) fn take(
        &mut self,
        name: &'static str,
        at: &Field<'_>,
        report: &mut Report,
    ) -> Option<&'v Value<'a>> {
        self.known.insert(name);
        let mut found = self.map.iter().filter(|(key, _)| key == name);
        let value = found.next().map(|(_, value)| value);
        if found.next().is_some() {
            report.refuse(at.name(name), "it is written twice; leave one");
        }
        value.filter(|value| **value != Value::Null)
    }

    /// Text.
    pub(super) fn text(
        &mut self,
        name: &'static str,
        at: &Field<'_>,
        report: &mut Report,
    ) -> Option<&'v str> {
        let value = self.take(name, at, report)?;
        text(value, &at.name(name), report)
    }

    /// A Boolean.
    pub(super) fn boolean(
        &mut self,
        name: &'static str,
        at: &Field<'_>,
        report: &mut Report,
    ) -> Option<bool> {
        match self.take(name, at, report)? {
            Value::Bool(it) => Some(*it),
            Value::Plain(word) if is_word(word, ["true", "yes", "on"]) => Some(true),
            Value::Plain(word) if is_word(word, ["false", "no", "off"]) => Some(false),
            other => {
                report.refuse(at.name(name), format!("it must be true or false, not {}", kind(other)));
                None
            }
        }
    }

    /// A list; empty where there is none.
    pub(super) fn list(
        &mut self,
        name: &'static str,
        at: &Field<'_>,
        report: &mut Report,
    ) -> &'v [Value<'a>] {
        match self.take(name, at, report) {
            None => &[],
            Some(Value::List(list)) => list,
            Some(other) => {
                report.refuse(at.name(name), format!("it must be a list, not {}", kind(other)));
                &[]
            }
        }
    }

    /// An object.
    pub(super) fn object(
        &mut self,
        name: &'static str,
        at: &Field<'_>,
        report: &mut Report,
    ) -> Option<Object<'v, 'a>> {
        let value = self.take(name, at, report);
        Object::read(value, &at.name(name), report)
    }

    /// Refuses a field unless it is absent or empty.
    pub(super) fn refuse(&mut self, name: &'static str, why: &str, at: &Field<'_>, report: &mut Report) {
        if self.take(name, at, report).is_some_and(|value| !is_empty(value)) {
            report.refuse(at.name(name), why);
        }
    }

    /// The names of fields that nobody asked for.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &'v str> {
        let known = self.known.clone();
        self.map.iter().map(|(key, _)| &**key).filter(move |key| !known.contains(key))
    }

    /// Refuses the fields that nobody asked for: a name with a mistake in it must not be lost.
    pub(super) fn end(self, at: &Field<'_>, report: &mut Report) {
        for key in self.unknown() {
            let shown: String = key.chars().take(64).collect();
            if report.problems.len() >= LISTED_MAX {
                report.unlisted += 1;
                continue;
            }
            let near = self.known.iter().find(|known| is_near(known, key));
            let hint = near.map(|near| format!("; is {near} meant?")).unwrap_or_default();
            report.refuse(at.name(&shown), format!("there is no such field{hint}"));
        }
    }
}

/// The text of a value.
pub(super) fn text<'v>(value: &'v Value<'_>, at: &Field<'_>, report: &mut Report) -> Option<&'v str> {
    match value {
        Value::Text(text) | Value::Plain(text) => Some(text),
        other => {
            report.refuse(at, format!("it must be text, not {}", kind(other)));
            None
        }
    }
}

/// A list of texts, each with its index.
pub(super) fn texts<'v>(list: &'v [Value<'_>], at: &Field<'_>, report: &mut Report) -> Vec<(usize, &'v str)> {
    let one = |(index, value)| text(value, &at.index(index), report).map(|text| (index, text));
    list.iter().enumerate().filter_map(one).collect()
}

/// A whole number, and whether it was written in octal.
pub(super) fn number(value: &Value<'_>, at: &Field<'_>, report: &mut Report) -> Option<(i64, bool)> {
    let (digits, is_yaml) = match value {
        Value::Number(digits) => (digits.as_str(), false),
        Value::Plain(word) => (&**word, true),
        Value::Text(_) => {
            report.refuse(at, "it must be a number, not text: take the quotes away");
            return None;
        }
        other => {
            report.refuse(at, format!("it must be a number, not {}", kind(other)));
            return None;
        }
    };
    let radix = |prefix: &str, radix| {
        let digits = digits.strip_prefix(prefix).filter(|digits| !digits.starts_with(['+', '-']))?;
        i64::from_str_radix(digits, radix).ok()
    };
    let octal = (is_yaml && digits.len() > 1 && digits.starts_with('0'))
        .then(|| radix("0o", 8).or_else(|| radix("0", 8)));
    let number = match octal {
        Some(Some(number)) => Some((number, true)),
        Some(None) => radix("0x", 16).map(|number| (number, false)),
        None => digits.parse().ok().map(|number| (number, false)),
    };
    if number.is_none() {
        report.refuse(at, "it must be a whole number");
    }
    number
}

/// What a value is, for people.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::Plain(_) | Value::Text(_) => "text",
        Value::List(_) => "a list",
        Value::Map(_) => "an object",
    }
}

/// Whether a value says nothing, however deep.
pub(super) fn is_empty(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(it) => !it,
        Value::Plain(word) => is_word(word, ["false", "no", "off"]),
        Value::Text(text) => text.is_empty(),
        Value::Number(_) => false,
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.iter().all(|(_, value)| is_empty(value)),
    }
}

fn is_word(word: &str, words: [&str; 3]) -> bool {
    words.iter().any(|one| one.eq_ignore_ascii_case(word))
}

/// The same but for case and separators, or one letter more, less or else.
fn is_near(known: &str, key: &str) -> bool {
    let bare = |text: &str| {
        let bare = text.chars().filter(char::is_ascii_alphanumeric).take(64);
        bare.map(|c| c.to_ascii_lowercase()).collect::<Vec<char>>()
    };
    let (one, other) = (bare(known), bare(key));
    let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let (rest, other_rest) = (&one[same..], &other[same..]);
    let tail = |list: &[char], from: usize| list.get(from..).map(<[char]>::to_vec).unwrap_or_default();
    one.len().abs_diff(other.len()) <= 1
        && (tail(rest, 1) == tail(other_rest, 1)
            || tail(rest, 1) == other_rest
            || rest == tail(other_rest, 1))
}
