//! What `mcd validate` shows.

use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::text::{clean, count};
use crate::model::config::{Config, Invalid, Remark};

/// Version of the JSON document. Grows by addition.
const ANSWER_VERSION: u32 = 1;

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    version: u32,
    valid: bool,
    names: Vec<String>,
    files: usize,
    units: usize,
    problems: Vec<Line>,
    warnings: Vec<Line>,
}

/// A field and what is to say of it.
#[derive(Debug, Serialize)]
struct Line {
    field: String,
    message: String,
}

impl From<&Result<Config, Invalid>> for Answer {
    fn from(found: &Result<Config, Invalid>) -> Self {
        let (files, units) = found.as_ref().map_or((0, 0), sizes);
        Self {
            version: ANSWER_VERSION,
            valid: found.is_ok(),
            names: found.as_ref().map_or_else(|_| Vec::new(), |config| config.names.clone()),
            files,
            units,
            problems: found.as_ref().err().map(|invalid| lines(&invalid.problems)).unwrap_or_default(),
            warnings: lines(warned(found)),
        }
    }
}

fn lines(remarks: &[Remark]) -> Vec<Line> {
    let line = |remark: &Remark| Line { field: remark.field.clone(), message: remark.message.clone() };
    remarks.iter().map(line).collect()
}

fn warned(found: &Result<Config, Invalid>) -> &[Remark] {
    match found {
        Ok(config) => &config.warnings,
        Err(invalid) => &invalid.warnings,
    }
}

/// Entries and units.
fn sizes(config: &Config) -> (usize, usize) {
    config.managed.as_ref().map_or((0, 0), |managed| (managed.entries.len(), managed.units.len()))
}

/// The warnings, for stderr.
pub(super) fn warnings(found: &Result<Config, Invalid>) -> String {
    let one = |remark: &Remark| paragraph(&"warning:".yellow().bold().to_string(), remark);
    warned(found).iter().map(one).collect()
}

/// The answer: every problem, or what the config holds.
pub(super) fn render(found: &Result<Config, Invalid>) -> String {
    match found {
        Ok(config) => {
            let (files, units) = sizes(config);
            let names: Vec<String> = config.names.iter().map(|name| clean(name)).collect();
            format!(
                "valid: {} ({}, {})\n",
                names.join(", "),
                count(files as u64, "file"),
                count(units as u64, "unit")
            )
        }
        Err(invalid) => {
            let one = |remark: &Remark| paragraph(&"error:".red().bold().to_string(), remark);
            let mut text: String = invalid.problems.iter().map(one).collect();
            text.push_str(&format!("{}\n", count(invalid.problems.len() as u64, "problem")));
            text
        }
    }
}

/// The field on one line, what is to say of it on the next.
fn paragraph(label: &str, remark: &Remark) -> String {
    format!("{label} {}\n  {}\n", clean(&remark.field), clean(&remark.message))
}
