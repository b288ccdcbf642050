//! Text to a tree: YAML as Kubernetes tools read it, or JSON, borrowing from the text what it can.
//!
//! What an unquoted YAML word means is decided by whoever knows which type the field wants: `0644` is
//! a number for a mode and text for a name. So no schema of YAML's must be guessed here.
//!
//! Both parsers are bounded: nesting, and how much aliases may multiply.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Nesting beyond any real config (a file's owner is ten deep), far below what a stack can bear.
const DEPTH_MAX: usize = 64;
/// Nodes of one text, with those that aliases repeat: 10,000 files are some 110,000.
const NODES_MAX: usize = 2_000_000;
/// Bytes of text that aliases may repeat.
const REPEATED_MAX: usize = 64 << 20;

/// A node of a document.
#[derive(Clone, PartialEq)]
pub(in crate::model) enum Value<'a> {
    /// Nothing, in all spellings.
    Null,
    /// A Boolean of JSON.
    Bool(bool),
    /// A number of JSON.
    Number(String),
    /// An unquoted word of YAML.
    Plain(Cow<'a, str>),
    /// Text in quotes or as a block.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<Value<'a>>),
    /// An object, repetitions of keys and all.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
}

/// Why a text is no document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct Unreadable {
    /// From 1; none if it is not a matter of one line.
    pub(in crate::model) line: Option<usize>,
    /// What is wrong.
    pub(in crate::model) reason: String,
}

/// All documents of a text that are not empty.
pub(in crate::model) fn parse(text: &str) -> Result<Vec<Value<'_>>, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        let error = match json(text) {
            Ok(value) => return Ok(vec![value]),
            Err(error) => error,
        };
        // YAML's flow style begins alike.
        return yaml(text).map_err(|_| Unreadable {
            line: Some(error.line()).filter(|line| *line > 0),
            reason: format!("no JSON: {}", json_reason(&error)),
        });
    }
    yaml(text)
}

fn json(text: &str) -> serde_json::Result<Value<'_>> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Json { left: &Cell::new(NODES_MAX) }.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// The category is enough: the words of serde may repeat what they stumbled over.
fn json_reason(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Data => {
            "a key is not text, or it has more fields than a config may have"
        }
        _ => "a syntax error",
    }
}

/// serde_json bounds the nesting itself.
#[derive(Clone, Copy)]
struct Json<'c> {
    /// Nodes that may still come.
    left: &'c Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value<'de>, D::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| D::Error::custom("too many fields"))?;
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(it))
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value<'de>, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value<'de>, E> {
        Ok(Value::Number(it.to_string()))
    }

    fn visit_borrowed_str<E>(self, it: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(it)))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(it.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value<'de>, A::Error> {
        let mut map = Vec::new();
        // Keys are read as values are: serde's own text would always be a copy.
        while let Some(key) = entries.next_key_seed(self)? {
            let Value::Text(key) = key else { return Err(A::Error::custom("a key is not text")) };
            map.push((key, entries.next_value_seed(self)?));
        }
        Ok(Value::Map(map))
    }
}

fn yaml(text: &str) -> Result<Vec<Value<'_>>, Unreadable> {
    let options = granit_parser::options! {
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| Unreadable {
            line: Some(error.marker().line()),
            reason: format!("no YAML: {}", error.info()),
        })?;
        builder
            .take(event)
            .map_err(|reason| Unreadable { line: Some(span.start.line()), reason: reason.to_owned() })?;
    }
    Ok(builder.documents)
}

/// Events to trees, without recursion.
#[derive(Default)]
struct Builder<'a> {
    documents: Vec<Value<'a>>,
    open: Vec<Open<'a>>,
    anchors: HashMap<usize, Value<'a>>,
    nodes: usize,
    repeated: usize,
}

/// A list or object whose end has not come.
struct Open<'a> {
    value: Value<'a>,
    anchor: usize,
    /// The key whose value is next.
    key: Option<Cow<'a, str>>,
}

impl<'a> Builder<'a> {
    fn take(&mut self, event: Event<'a>) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(text, style, tag.as_deref())?;
                self.add(value, anchor)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                known_tag(tag.as_deref(), "seq")?;
                self.enter(Value::List(Vec::new()), anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                known_tag(tag.as_deref(), "map")?;
                self.enter(Value::Map(Vec::new()), anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.add(open.value, open.anchor)?;
                }
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or("an alias stands inside of what it repeats")?;
                let (nodes, bytes) = size(value);
                self.nodes += nodes;
                self.repeated += bytes;
                if self.nodes > NODES_MAX || self.repeated > REPEATED_MAX {
                    return Err("aliases multiply the text beyond what a config may have");
                }
                let value = value.clone();
                self.add(value, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, value: Value<'a>, anchor: usize) -> Result<(), &'static str> {
        if self.open.len() >= DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        self.open.push(Open { value, anchor, key: None });
        Ok(())
    }

    fn add(&mut self, value: Value<'a>, anchor: usize) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err("it has more fields than a config may have");
        }
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let Some(open) = self.open.last_mut() else {
            if value != Value::Null {
                self.documents.push(value);
            }
            return Ok(());
        };
        match (&mut open.value, open.key.take()) {
            (Value::List(list), _) => list.push(value),
            (Value::Map(map), Some(key)) => map.push((key, value)),
            (Value::Map(_), None) => match value {
                Value::Plain(key) | Value::Text(key) => open.key = Some(key),
                Value::Null => open.key = Some(Cow::Borrowed("null")),
                _ => return Err("a key is not text"),
            },
            _ => {}
        }
        Ok(())
    }
}

fn scalar<'a>(text: Cow<'a, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value<'a>, &'static str> {
    if let Some(tag) = tag {
        return match (tag.core_suffix(), tag.original_parts()) {
            (Some("str"), _) | (_, ("!", "") | ("", "!")) => Ok(Value::Text(text)),
            (Some("int" | "bool" | "float"), _) => Ok(Value::Plain(text)),
            (Some("null"), _) => Ok(Value::Null),
            _ => Err("a tag (!…) that has no meaning in a config"),
        };
    }
    Ok(match style {
        ScalarStyle::Plain if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") => Value::Null,
        ScalarStyle::Plain => Value::Plain(text),
        _ => Value::Text(text),
    })
}

fn known_tag(tag: Option<&Tag>, own: &str) -> Result<(), &'static str> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(own) => Err("a tag (!…) that has no meaning in a config"),
        _ => Ok(()),
    }
}

/// Nodes and bytes of a tree. Its depth is bounded.
fn size(value: &Value<'_>) -> (usize, usize) {
    let add = |(nodes, bytes): (usize, usize), (more, longer): (usize, usize)| (nodes + more, bytes + longer);
    match value {
        Value::Null | Value::Bool(_) => (1, 0),
        Value::Number(text) => (1, text.len()),
        Value::Plain(text) | Value::Text(text) => (1, text.len()),
        Value::List(list) => list.iter().map(size).fold((1, 0), add),
        Value::Map(map) => map.iter().map(|(key, value)| add((0, key.len()), size(value))).fold((1, 0), add),
    }
}
