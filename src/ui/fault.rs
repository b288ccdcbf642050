//! Errors, as three lines: what, why, what next.

use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::text::clean;
use crate::error::Fault;

/// The last JSON line of a verb that failed.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    event: &'static str,
    version: u32,
    exit_code: u8,
    what: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

impl<'a> From<&'a Fault> for Line<'a> {
    fn from(fault: &'a Fault) -> Self {
        Self {
            event: "error",
            version: super::EVENTS_VERSION,
            exit_code: fault.kind.code(),
            what: &fault.what,
            why: fault.why.as_deref(),
            next: fault.next.as_deref(),
        }
    }
}

/// The text for people. Each part is one line, so that a line-wise reader keeps them apart.
pub(super) fn render(fault: &Fault) -> String {
    let mut text = format!("{} {}\n", "error:".red().bold(), clean(&fault.what));
    if let Some(why) = &fault.why {
        text.push_str(&format!("  {} {}\n", "why:".bold(), clean(why)));
    }
    if let Some(next) = &fault.next {
        text.push_str(&format!("  {} {}\n", "next:".bold(), clean(next)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ExitKind, to_fault};

    fn plain(fault: &Fault) -> String {
        anstream::adapter::strip_str(&render(fault)).to_string()
    }

    #[test]
    fn a_fault_is_three_lines() {
        let fault = Fault::refused("not enough space for registry.example/os:2 on /sysroot")
            .why("about 2.1 GiB are needed (estimate), 1.0 GiB are free above min-free-space")
            .next("run `mcd cleanup`, or make the file system larger");
        insta::assert_snapshot!(plain(&fault));
        insta::assert_json_snapshot!(Line::from(&fault));
    }

    #[test]
    fn an_unexpected_error_shows_its_chain() {
        let error = anyhow::anyhow!("Permission denied (os error 13)")
            .context("opening /sysroot/ostree")
            .context("Reading the sysroot");
        insta::assert_snapshot!(plain(&to_fault(&error)));
    }

    #[test]
    fn a_reply_of_several_lines_stays_on_its_line() {
        let fault = Fault::new(ExitKind::Failed, "fetching").why("503\n<html>\x1b[31m");
        assert_eq!(plain(&fault), "error: fetching\n  why: 503 <html> [31m\n");
    }
}
