//! Kernel arguments: an ordered list, as the boot loader's entry holds it.
//!
//! Order, duplicates and quotes survive (`hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6` means
//! something only in this order). Arguments are compared as the kernel reads them: `-` and `_` are
//! the same in a key, and `foo="a b"` is `"foo=a b"` (kernel documentation, "The kernel's
//! command-line parameters"). `nosmt` and `nosmt=force` are two different arguments of one key.
//!
//! `ostree=` belongs to OSTree, which adds it to every entry: no edit may touch it.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use linux_kernel_cmdline::utf8::{Cmdline, Parameter};
use serde::{Deserialize, Serialize};

use crate::error::Fault;

/// The argument that OSTree itself keeps.
const OSTREE_KEY: &str = "ostree";

/// An ordered list of kernel arguments. Equality is literal; see [`Self::is_equivalent`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct KernelArguments {
    arguments: Vec<String>,
}

/// One change to a list of arguments. The text may hold several arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KargEdit {
    /// Adds at the end. All additions of a request are one list; the longest leading part of it that
    /// is there already, in this order, is not repeated: asking twice is asking once, and
    /// `hugepagesz=2M hugepages=4` after `hugepagesz=1G hugepages=4` is still added whole.
    Append(String),
    /// Adds at the end what is not there yet.
    AppendIfMissing(String),
    /// `KEY` removes every argument of that key, `KEY=VALUE` every one that is equal.
    Delete(String),
    /// Removes every argument that is equal: `nosmt` leaves `nosmt=force`.
    DeleteExact(String),
    /// `KEY=VALUE`: in the place of the first argument of that key; others of that key go.
    /// `KEY=OLD=NEW`: in the place of each `KEY=OLD`.
    Replace(String),
}

/// Why an edit was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKarg {
    /// The argument as it was given.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl KernelArguments {
    /// Splits at white space outside of double quotes. A quote that is never closed runs to the end,
    /// as the kernel reads it.
    pub fn parse(text: &str) -> Self {
        Self { arguments: Cmdline::from(text).iter_str().map(str::to_owned).collect() }
    }

    /// The arguments in order, quotes included.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Whether an equal argument is there: `nosmt` is not found in `nosmt=force`.
    pub fn contains(&self, argument: &str) -> bool {
        self.arguments.iter().any(|own| is_same(own, argument))
    }

    /// Whether both mean the same to the kernel: equal arguments in the same order.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.arguments.len() == other.arguments.len()
            && self.arguments.iter().zip(&other.arguments).all(|(own, other)| is_same(own, other))
    }

    /// The list without any argument of this key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let kept = self.arguments.iter().filter(|argument| !has_key(argument, key));
        Self { arguments: kept.cloned().collect() }
    }

    /// The list after these edits: deletions first, then replacements, then additions, each kind
    /// in the order given. Doing the same edits again changes nothing, but for what is replaced and
    /// added in one.
    ///
    /// # Errors
    ///
    /// An edit that is empty, touches `ostree=`, holds a control character or a quote that is never
    /// closed, or replaces something in a way that has two readings; it is named.
    pub fn apply(&self, edits: &[KargEdit]) -> Result<Self, InvalidKarg> {
        let mut result = self.clone();
        for edit in edits {
            for argument in checked(edit)? {
                match edit {
                    KargEdit::Delete(_) => result.delete(&argument),
                    KargEdit::DeleteExact(_) => result.arguments.retain(|own| !is_same(own, &argument)),
                    _ => {}
                }
            }
        }
        for edit in edits {
            if let KargEdit::Replace(_) = edit {
                checked(edit)?.into_iter().try_for_each(|argument| result.replace(argument))?;
            }
        }
        let mut added = Vec::new();
        for edit in edits {
            if let KargEdit::Append(_) = edit {
                added.extend(checked(edit)?);
            }
        }
        let present = result.leading_part_there(&added);
        for argument in added.drain(present..) {
            result.push(argument)?;
        }
        for edit in edits {
            if let KargEdit::AppendIfMissing(_) = edit {
                for argument in checked(edit)? {
                    if !result.contains(&argument) {
                        result.push(argument)?;
                    }
                }
            }
        }
        Ok(result)
    }

    /// The list with the managed arguments `new` in place of the managed ones `old`.
    ///
    /// Each of `old` is taken out once, if it is there, and all of `new` are put at the end, in order
    /// and with their repetitions: which of two pairs like `hugepagesz=1G hugepages=4` comes first
    /// counts, and so does every repeated `console=`. Where all of `new` stand in the list in their
    /// order, whoever put them there, only what is left of `old` goes; and flags at the head of `new`
    /// that are there already are not repeated. So a first boot doubles nothing, and asking twice is
    /// asking once.
    ///
    /// # Errors
    ///
    /// An argument that [`apply`](Self::apply) refuses.
    pub fn replace_managed(&self, old: &[String], new: &[String]) -> Result<Self, InvalidKarg> {
        let mut wanted = Self::default();
        for argument in new {
            wanted.arguments.extend(checked(&KargEdit::Append(argument.clone()))?);
        }
        let mut kept = Self { arguments: old.to_vec() };
        let stale = wanted.missing_from(&kept);
        kept.take_out(&stale);
        let wanted = wanted.arguments;
        let mut result = self.clone();
        result.take_out(&stale);
        if result.leading_part_there(&wanted) == wanted.len() {
            return Ok(result);
        }
        result.take_out(&kept.arguments);
        let flags = wanted.iter().take_while(|argument| !bare(argument).contains('=')).count();
        let present = result.leading_part_there(&wanted[..flags]);
        for argument in &wanted[present..] {
            result.push(argument.clone())?;
        }
        Ok(result)
    }

    /// Takes each of these out once, the last of several that are equal: what is managed was put at
    /// the end.
    fn take_out(&mut self, arguments: &[String]) {
        for argument in arguments.iter().rev().filter(|argument| !has_key(argument, OSTREE_KEY)) {
            if let Some(index) = self.arguments.iter().rposition(|own| is_same(own, argument)) {
                self.arguments.remove(index);
            }
        }
    }

    /// How many of `wanted`, from its start, are here in that order, others between them or not.
    fn leading_part_there(&self, wanted: &[String]) -> usize {
        let mut own = self.arguments.iter();
        wanted.iter().take_while(|argument| own.any(|own| is_same(own, argument))).count()
    }

    /// The arguments of `other` that are not here, as often as they are missing: for showing what a
    /// change adds, or, asked the other way round, removes.
    pub fn missing_from(&self, other: &Self) -> Vec<String> {
        let mut own: Vec<&String> = self.arguments.iter().collect();
        let mut missing = Vec::new();
        for argument in &other.arguments {
            match own.iter().position(|own| is_same(own, argument)) {
                Some(index) => drop(own.swap_remove(index)),
                None => missing.push(argument.clone()),
            }
        }
        missing
    }

    fn delete(&mut self, argument: &str) {
        match argument.contains('=') {
            true => self.arguments.retain(|own| !is_same(own, argument)),
            false => self.arguments.retain(|own| !has_key(own, bare(argument))),
        }
    }

    /// Three readings are possible for `KEY=A=B`: replace `KEY=A` by `KEY=B`, have done so before, or
    /// set `KEY` to the value `A=B` (`root=UUID=…`, `rootflags=subvol=…`). It is guessed only where
    /// the present arguments, or a name that is a device's tag, leave one.
    fn replace(&mut self, argument: String) -> Result<(), InvalidKarg> {
        let Some((key, old, new)) = three_parts(&argument) else {
            return self.set(argument);
        };
        if old.bytes().all(|b| b.is_ascii_uppercase()) {
            return self.set(argument);
        }
        let (present, wanted) = (format!("{key}={old}"), format!("{key}={new}"));
        if self.contains(&present) {
            for own in self.arguments.iter_mut().filter(|own| is_same(own, &present)) {
                own.clone_from(&wanted);
            }
            return Ok(());
        }
        if self.contains(&wanted) {
            return Ok(());
        }
        let nests = |own: &&String| has_key(own, key) && three_parts(own).is_some();
        if self.arguments.iter().any(|own| nests(&own)) {
            return self.set(argument);
        }
        let reason = format!(
            "'{present}' is not there to be replaced; for '{argument}' as a whole, delete '{key}' and append it"
        );
        Err(InvalidKarg { text: argument, reason })
    }

    /// Puts it where the first of its key is, or at the end; others of that key go.
    fn set(&mut self, argument: String) -> Result<(), InvalidKarg> {
        let key = Parameter::parse(&argument).map(|it| it.key().to_string()).unwrap_or_default();
        let Some(first) = self.arguments.iter().position(|own| has_key(own, &key)) else {
            return self.push(argument);
        };
        let mut index = 0;
        self.arguments.retain(|own| {
            index += 1;
            index - 1 == first || !has_key(own, &key)
        });
        if !is_same(&self.arguments[first], &argument) {
            self.arguments[first] = argument;
        }
        Ok(())
    }

    fn push(&mut self, argument: String) -> Result<(), InvalidKarg> {
        if let Some(last) = self.arguments.last().filter(|last| has_open_quote(last)) {
            let reason = format!(
                "it would become part of '{last}', whose quote is never closed; delete or replace that"
            );
            return Err(InvalidKarg { text: argument, reason });
        }
        self.arguments.push(argument);
        Ok(())
    }
}

impl KargEdit {
    /// The text that was given.
    pub fn text(&self) -> &str {
        match self {
            Self::Append(text)
            | Self::AppendIfMissing(text)
            | Self::Delete(text)
            | Self::DeleteExact(text)
            | Self::Replace(text) => text,
        }
    }

    /// Checks what can be checked without the arguments that it will change.
    ///
    /// # Errors
    ///
    /// As [`KernelArguments::apply`].
    pub fn check(&self) -> Result<(), InvalidKarg> {
        checked(self).map(|_| ())
    }
}

/// The arguments in an edit's text.
fn checked(edit: &KargEdit) -> Result<Vec<String>, InvalidKarg> {
    let text = edit.text();
    let refuse = |reason: &str| {
        let text = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        Err(InvalidKarg { text, reason: reason.to_owned() })
    };
    if text.trim().is_empty() {
        return refuse("it is empty");
    }
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return refuse("it holds a line end or another control character");
    }
    if has_open_quote(text) {
        return refuse("a double quote is never closed");
    }
    let arguments = KernelArguments::parse(text).arguments;
    if arguments.iter().any(|argument| has_key(argument, OSTREE_KEY)) {
        return refuse("'ostree=' is set by OSTree for each deployment and cannot be changed");
    }
    if arguments.iter().any(|argument| bare(argument).is_empty() || bare(argument).starts_with('=')) {
        return refuse("an argument has no key");
    }
    Ok(arguments)
}

/// An argument without the quotes around the whole of it.
fn bare(argument: &str) -> &str {
    let argument = argument.strip_prefix('"').unwrap_or(argument);
    argument.strip_suffix('"').unwrap_or(argument)
}

/// `KEY=A=B`; nothing where a quote protects the value.
fn three_parts(argument: &str) -> Option<(&str, &str, &str)> {
    if argument.contains('"') {
        return None;
    }
    let (key, value) = argument.split_once('=')?;
    let (old, new) = value.split_once('=')?;
    (!old.is_empty()).then_some((key, old, new))
}

fn has_open_quote(text: &str) -> bool {
    text.matches('"').count() % 2 == 1
}

fn has_key(argument: &str, key: &str) -> bool {
    let wanted = linux_kernel_cmdline::utf8::ParameterKey::from(key);
    Parameter::parse(argument).is_some_and(|parameter| parameter.key() == wanted)
}

fn is_same(one: &str, other: &str) -> bool {
    match (Parameter::parse(one), Parameter::parse(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

impl fmt::Display for KernelArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.arguments.join(" "))
    }
}

impl From<String> for KernelArguments {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl From<KernelArguments> for String {
    fn from(arguments: KernelArguments) -> Self {
        arguments.to_string()
    }
}

impl FromStr for KernelArguments {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::parse(text))
    }
}

impl fmt::Display for InvalidKarg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel argument '{}': {}", self.text, self.reason)
    }
}

impl std::error::Error for InvalidKarg {}

impl From<InvalidKarg> for Fault {
    fn from(invalid: InvalidKarg) -> Self {
        Fault::usage(format!("kernel argument '{}' is refused", invalid.text)).why(invalid.reason)
    }
}
