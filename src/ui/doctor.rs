//! What the registry doctor found, as text.

use owo_colors::OwoColorize as _;

use super::text::clean;
use crate::commands::doctor::Examination;
use crate::plan::doctor::{Part, Tried};

/// The whole page.
pub(crate) fn render(found: &Examination) -> String {
    let mut page: String = found.tried.iter().map(line).collect();
    match &found.fault {
        None => page.push_str(&format!("{} can be read\n", found.image)),
        Some(fault) => {
            page.push_str(&format!("{} cannot be read\n", found.image));
            page.push_str(&format!("  {} {}\n", "at fault:".bold(), fault.part.red().bold()));
            page.push_str(&format!("  {} {}\n", "why:".bold(), clean(&fault.why)));
            page.push_str(&format!("  {} {}\n", "next:".bold(), fault.next));
        }
    }
    page
}

fn line(tried: &Tried) -> String {
    let what = match tried.part {
        Part::Link | Part::Clock => clean(&tried.target).to_string(),
        Part::Dns => format!("name of {}", clean(&tried.target)),
        part => format!("{part} {}", clean(&tried.target)),
    };
    let what = if tried.mirror { format!("{what} (mirror)") } else { what };
    match &tried.why {
        None => format!("{} {what}\n", "ok    ".green()),
        Some(why) => format!("{} {what}: {}\n", "failed".red(), clean(why)),
    }
}
