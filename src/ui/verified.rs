//! What a verification found, as text.

use super::text::clean;
use crate::host::converge::{Difference, What};
use crate::model::manifest::{Part, Scope};
use crate::pipeline::config::{HostDifference, HostPart, Repaired, Verified};

/// The whole page.
pub(crate) fn render(found: &Verified) -> String {
    if !found.managed {
        return "nothing is managed here\n".to_owned();
    }
    let names = clean(&crate::model::records::describe_config(&found.names));
    let mut page = String::new();
    if let Some(repaired) = &found.repaired {
        page.push_str(&render_repaired(repaired));
    }
    if found.differences.is_empty() && found.host.is_empty() {
        let but = if found.pending.is_empty() { "" } else { ", but for what the first boot does" };
        page.push_str(&format!("{names}: everything is as it was told to be{but}\n"));
        page.push_str(&render_pending(&found.pending));
        return page;
    }
    let count = found.differences.len() + found.host.len();
    let things = if count == 1 { "1 difference" } else { &format!("{count} differences") };
    page.push_str(&format!("{names}: {things}\n"));
    for difference in &found.differences {
        page.push_str(&render_difference(difference));
    }
    for difference in &found.host {
        page.push_str(&render_host(difference));
    }
    page.push_str(&render_pending(&found.pending));
    if !found.is_fine() {
        page.push_str(&format!("{}\n", mend(found)));
    }
    page
}

/// What is no fault: one line for each path.
fn render_pending(pending: &[Difference]) -> String {
    let mut lines: Vec<String> = pending
        .iter()
        .map(|one| {
            let path = one.asked.as_ref().unwrap_or(&one.path);
            format!("  {}: will be laid down at the first boot\n", clean(path.as_str()))
        })
        .collect();
    lines.dedup();
    lines.concat()
}

fn render_repaired(repaired: &Repaired) -> String {
    let mut text = String::new();
    for change in &repaired.converged.changed {
        text.push_str(&format!("put right: {}\n", clean(change.path.as_str())));
    }
    for aside in &repaired.converged.set_aside {
        let path = clean(aside.path.as_str());
        match &aside.copy {
            Some(copy) => text.push_str(&format!("what was at {path} is kept as {}\n", clean(copy.as_str()))),
            None => text.push_str(&format!("what was at {path} stands in the record\n")),
        }
    }
    if repaired.deployed {
        text.push_str("a deployment with what was missing is made; it takes a reboot\n");
    }
    text
}

fn render_difference(difference: &Difference) -> String {
    let path = difference.asked.as_ref().unwrap_or(&difference.path);
    let what = match (&difference.part, difference.what) {
        (Some(Part::Enablement(unit)), _) => format!("enablement of {}", clean(unit)),
        (_, What::Missing) => "missing".to_owned(),
        (_, What::Unexpected) => "unexpected".to_owned(),
        (_, What::Kind) => "kind".to_owned(),
        (_, What::Content) => "content".to_owned(),
        (_, What::Target) => "link target".to_owned(),
        (_, What::Mode) => "mode".to_owned(),
        (_, What::Owner) => "owner".to_owned(),
        (_, What::Label) => "label".to_owned(),
        (_, What::Password) => "password".to_owned(),
        (_, What::Unreadable) => "unreadable".to_owned(),
    };
    format!(
        "  {}: {what}\n    expected  {}\n    found     {}\n",
        clean(path.as_str()),
        clean(&difference.expected),
        clean(&difference.found)
    )
}

fn render_host(difference: &HostDifference) -> String {
    let what = match difference.what {
        HostPart::Image => "image",
        HostPart::KernelArgument => "kernel argument",
        HostPart::RunningKernelArgument => "kernel argument of the running kernel",
        HostPart::LiveApply => "live apply",
    };
    format!(
        "  {what}\n    expected  {}\n    found     {}\n",
        clean(&difference.expected),
        clean(&difference.found)
    )
}

/// The command that mends what is left.
fn mend(found: &Verified) -> &'static str {
    let is_usr = |difference: &Difference| Scope::of(&difference.path) == Some(Scope::Usr);
    if found.repaired.is_none() {
        return "put it right with `mcd verify --repair`";
    }
    if found.host.iter().any(|one| one.what == HostPart::Image) {
        return "move to the image with `mcd pivot`, or take the one that is there with `mcd apply`";
    }
    if found.differences.iter().any(is_usr) {
        return "below /usr the commit itself is damaged: see `ostree fsck`, then apply the configuration again";
    }
    if found.host.iter().any(|one| one.what == HostPart::RunningKernelArgument) {
        return "the boot entry has it: reboot, and see what the boot loader does to it";
    }
    "see what keeps changing it"
}
