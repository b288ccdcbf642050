//! What a boot found and did, for people.

use std::fmt::Write as _;

use super::text::clean;
use crate::host::converge::{BootReport, How};
use crate::plan::boot::Belongs;

/// So many paths are shown of a list; a machine reads `--json`.
const SHOWN: usize = 20;

/// The report as text.
pub(super) fn render(report: &BootReport) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        let _ = writeln!(text, "{}", clean(&words));
    };
    if let Some(deployment) = &report.deployment {
        line(format!("deployment {deployment}"));
    }
    line(belongs(report.belongs).to_owned());
    if report.stranger {
        line(
            "another tool made this deployment: the configuration is here, but for what it has below /usr"
                .to_owned(),
        );
    }
    list(&mut line, &report.missing_below_usr, |path| format!("missing  {path}"));
    list(&mut line, &report.changed, |change| format!("{}  {}", how(change.how), change.path));
    list(&mut line, &report.set_aside, |original| match &original.copy {
        Some(copy) => format!("set aside  {}: its local edit is in {copy}", original.path),
        None => format!("set aside  {}: the record has it", original.path),
    });
    list(&mut line, &report.differences, |difference| {
        format!(
            "differs  {}: expected {}, found {}; `mcd verify --repair` puts it back",
            difference.path, difference.expected, difference.found
        )
    });
    list(&mut line, &report.warnings, |warning| format!("warning: {warning}"));
    if report.changed.is_empty() && report.differences.is_empty() {
        line("nothing to do".to_owned());
    }
    text
}

fn list<T>(line: &mut impl FnMut(String), items: &[T], show: impl Fn(&T) -> String) {
    for item in items.iter().take(SHOWN) {
        line(show(item));
    }
    if items.len() > SHOWN {
        line(format!("… and {} more", items.len() - SHOWN));
    }
}

fn belongs(what: Belongs) -> &'static str {
    match what {
        Belongs::Record => "the record of /etc says what belongs here",
        Belongs::VarRecord => "the record of /var says what belongs here; that of /etc is damaged",
        Belongs::Commit => "the deployment's own manifest says what belongs here",
        Belongs::Stranger => "the record of /etc says what belongs here, on another tool's deployment",
        Belongs::Nothing => "nothing of ours belongs here",
        Belongs::Unknown => "what belongs here cannot be known: nothing was touched",
    }
}

fn how(how: How) -> &'static str {
    match how {
        How::Created => "created",
        How::Replaced => "replaced",
        How::Removed => "removed",
        How::DefaultReturned => "default back",
        How::OriginalReturned => "original back",
        How::Mended => "mended",
        How::Password => "password set",
    }
}
