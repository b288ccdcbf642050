//! The only place that prints. stdout is data for programs, stderr is for people.
//!
//! With `--json` stdout carries JSON: one document for verbs that show something, one line per
//! event for verbs that do something. Those lines start with `{"event":"begin","version":1,…}` and
//! end with an `end` or `error` line. People get their words on stderr all the same.
//!
//! Colours follow the terminal and `NO_COLOR` (anstream strips them elsewhere). Text that came from
//! outside (image titles, registry replies, origins) loses its control characters on the way: it
//! must not steer the reader's terminal.

#[cfg(feature = "ostree")]
mod bars;
mod boot;
#[cfg(feature = "ostree")]
pub mod diff;
#[cfg(feature = "ostree")]
mod doctor;
mod fault;
mod health;
mod history;
mod progress;
#[cfg(test)]
pub(crate) mod samples;
mod status;
mod tally;
mod text;
#[cfg(feature = "ostree")]
mod validate;
#[cfg(feature = "ostree")]
mod verified;

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;

use serde::Serialize;

#[cfg(feature = "ostree")]
pub(crate) use self::health::{render as health_text, went_back as went_back_text};
pub use self::progress::Progress;
pub use self::text::{clean, size, time};
#[cfg(feature = "ostree")]
pub(crate) use self::verified::render as render_verified;

use crate::error::Fault;
use crate::host::converge::BootReport;
#[cfg(feature = "ostree")]
use crate::model::config::{Config, Invalid};
#[cfg(feature = "ostree")]
use crate::model::health::HealthStatus;
use crate::model::records::HistoryEntry;
use crate::model::status::HostStatus;

/// Version of the JSON lines. Grows by addition; raised only when a field changes its meaning.
pub const EVENTS_VERSION: u32 = 1;

/// Prints.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    json: bool,
    terminal: bool,
}

impl Printer {
    /// A printer on this process's stdout and stderr.
    pub fn new(json: bool) -> Self {
        Self { json, terminal: io::stderr().is_terminal() }
    }

    /// Whether stdout is for a program.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Data on stdout: `text` as it is, or with `--json` the value. It is all that the verb is for, so
    /// a full disk behind stdout fails it: an empty document must not pass for an answer.
    fn show(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Fault> {
        let text = if self.json { line_of(value) } else { text() };
        write_data(&text).map_err(|error| {
            Fault::failed("the answer cannot be written to stdout")
                .why(error.to_string())
                .next("make room where stdout leads to, and ask again")
        })
    }

    /// The host, as `mcd status` shows it.
    pub fn status(&self, host: &HostStatus) -> Result<(), Fault> {
        self.show(host, || status::render(host))
    }

    /// What a verification found.
    #[cfg(feature = "ostree")]
    pub fn verified(&self, found: &crate::pipeline::config::Verified) -> Result<(), Fault> {
        self.show(found, || verified::render(found))
    }

    /// What the health checks found.
    #[cfg(feature = "ostree")]
    pub fn health(&self, found: &HealthStatus) -> Result<(), Fault> {
        self.show(found, || health::render(found))
    }

    /// What is at fault on the way to a registry.
    #[cfg(feature = "ostree")]
    pub(crate) fn doctor(&self, found: &crate::commands::doctor::Examination) -> Result<(), Fault> {
        self.show(found, || doctor::render(found))
    }

    /// Where the support bundle is, and what is not in it.
    #[cfg(feature = "ostree")]
    pub fn report(&self, done: &crate::host::Report) -> Result<(), Fault> {
        for missing in &done.missing {
            people(&format!("not in it: {}\n", clean(missing)));
        }
        self.show(done, || format!("{}\n", done.path))
    }

    /// What a boot found and did.
    pub fn boot(&self, report: &BootReport) -> Result<(), Fault> {
        self.show(report, || boot::render(report))
    }

    /// The history, oldest first.
    pub fn history(&self, entries: &[HistoryEntry]) -> Result<(), Fault> {
        self.show(&entries, || history::render(entries))
    }

    /// What `mcd validate` found: warnings are for people, the rest is the answer.
    #[cfg(feature = "ostree")]
    pub fn validated(&self, found: &Result<Config, Invalid>) -> Result<(), Fault> {
        people(&validate::warnings(found));
        self.show(&validate::Answer::from(found), || validate::render(found))
    }

    /// What an apply would change, as `mcd diff` shows it.
    #[cfg(feature = "ostree")]
    pub fn diff(&self, view: &diff::DiffView<'_>) -> Result<(), Fault> {
        self.show(&diff::Document::from(view), || diff::render(view))
    }

    /// A line of plain data on stdout, whatever the mode.
    pub fn line(&self, text: &str) {
        data(&format!("{text}\n"));
    }

    /// A line for people, on stderr.
    pub fn say(&self, text: &str) {
        people(&format!("{text}\n"));
    }

    /// An error: what, why, what next; and a line for the program that follows.
    pub fn fault(&self, fault: &Fault) {
        if self.json {
            json_line(&fault::Line::from(fault));
        }
        people(&fault::render(fault));
    }

    /// What clap has to say: help and version are data, mistakes are for people.
    pub fn clap(&self, error: &clap::Error) {
        let text = error.render().ansi().to_string();
        if error.use_stderr() { people(&text) } else { data(&text) }
    }

    /// Where a verb's events go: bars on a terminal, lines elsewhere, JSON lines with `--json`.
    pub fn progress(&self, verb: &'static str) -> Arc<Progress> {
        Arc::new(if self.json {
            Progress::json(verb)
        } else if self.terminal {
            Progress::terminal()
        } else {
            Progress::lines()
        })
    }
}

/// Writes to stdout. A reader that went away (`mcd status | head -1`) has what it wanted.
fn write_data(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes to stdout what a change has to tell. A full disk behind it is said on stderr, and changes
/// nothing about what was done to the host.
fn data(text: &str) {
    if let Err(error) = write_data(text) {
        people(&format!("warning: writing to stdout: {error}\n"));
    }
}

/// Writes to stderr. There is nobody to tell if that fails.
fn people(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
}

/// One line of JSON on stdout.
fn json_line(value: &impl Serialize) {
    data(&line_of(value));
}

fn line_of(value: &impl Serialize) -> String {
    let line = serde_json::to_string(value).expect("our own types have text keys and no failing serializer");
    format!("{line}\n")
}
