//! A host's status, as text.

use owo_colors::OwoColorize as _;

use super::health;
use super::text::{clean, time};
use crate::model::hold::Hold;
use crate::model::status::{ConfigStatus, DeploymentStatus, HostStatus, PreparedStatus};

/// Width of the names of fields: the longest is "Image commit".
const NAMES: usize = 13;

/// The whole page.
pub(super) fn render(host: &HostStatus) -> String {
    let mut page = String::new();
    if host.deployments.is_empty() {
        page.push_str(&format!("No deployment in {}\n", host.sysroot));
    }
    for deployment in &host.deployments {
        page.push_str(&render_deployment(deployment));
        page.push('\n');
    }
    if let Some(prepared) = &host.prepared {
        page.push_str(&render_prepared(prepared));
        page.push('\n');
    }
    if let Some(back) = &host.went_back {
        page.push_str(&format!("{} {}\n", "Went back:".red().bold(), health::went_back(back)));
    }
    if let Some(found) = &host.health {
        page.push_str(&format!("{} {}\n", "Health:".bold(), health::summary(found)));
    }
    if let Some(hold) = &host.hold {
        page.push_str(&format!("{} {}\n", "Held:".yellow().bold(), render_hold(hold)));
    }
    for notice in &host.notices {
        page.push_str(&format!("{} {}\n", "Notice:".yellow().bold(), clean(notice)));
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn render_deployment(deployment: &DeploymentStatus) -> String {
    let dot = if deployment.booted { "●" } else { " " };
    let title = match (&deployment.image, &deployment.other_origin) {
        (Some(image), _) => image.to_string(),
        (None, Some(origin)) => format!("{} (no image)", clean(origin)),
        (None, None) => "(unknown origin)".to_owned(),
    };
    let mut text = format!("{dot} {} {}\n", deployment.index, clean(&title).bold());
    let mut field = |name: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("    {name:NAMES$} {value}\n"));
        }
    };
    field("State", states(deployment).join(", "));
    field("Version", deployment.version.as_deref().map(clean).unwrap_or_default());
    field("When", time(i64::try_from(deployment.timestamp).unwrap_or(i64::MAX)));
    field("Digest", deployment.digest.as_ref().map(ToString::to_string).unwrap_or_default());
    field("Asked", deployment.asked_digest.as_ref().map(ToString::to_string).unwrap_or_default());
    field("Commit", deployment.name.to_string());
    let image_commit = deployment.image_commit.as_ref().filter(|commit| **commit != deployment.name.checksum);
    field("Image commit", image_commit.cloned().unwrap_or_default());
    if let Some(config) = &deployment.config {
        field("Config", render_config(config));
    }
    field("Stateroot", clean(&deployment.stateroot));
    field("Arguments", clean(&deployment.kernel_arguments));
    text
}

fn render_config(config: &ConfigStatus) -> String {
    let names = if config.names.is_empty() { "none".to_owned() } else { clean(&config.names.join(", ")) };
    let paths = if config.entries == 1 { "1 path".to_owned() } else { format!("{} paths", config.entries) };
    let lacks = match config.missing.len() {
        0 => String::new(),
        count => format!(", of which {count} below /usr are missing"),
    };
    let total = config.entries + config.missing.len();
    let paths = if config.missing.is_empty() { paths } else { format!("{total} paths{lacks}") };
    format!("{names} ({paths})")
}

fn states(deployment: &DeploymentStatus) -> Vec<String> {
    let mut states = Vec::new();
    if deployment.booted {
        states.push("booted".green().to_string());
    }
    if deployment.staged {
        states.push("staged (finalised at shutdown)".to_owned());
    }
    if deployment.index == 0 {
        states.push("next boot".to_owned());
    }
    if deployment.rollback {
        states.push("rollback".to_owned());
    }
    if deployment.pinned {
        states.push("pinned".to_owned());
    }
    if let Some(state) = deployment.state.as_deref().filter(|state| *state != "committed") {
        let cause = deployment.cause.as_ref().map(|cause| format!(" ({})", clean(cause)));
        states.push(format!("{}{}", clean(state), cause.unwrap_or_default()));
    }
    if deployment.kept {
        states.push("kept (last good)".to_owned());
    }
    states
}

fn render_hold(hold: &Hold) -> String {
    let why = if hold.why.is_empty() { "no reason given" } else { hold.why.as_str() };
    let end = hold.until.map_or_else(|| "`mcd release`".to_owned(), time);
    format!("nothing drains or reboots this host by itself until {end}: {}", clean(why))
}

fn render_prepared(prepared: &PreparedStatus) -> String {
    let head = if prepared.committed { "Committed, waits for the shutdown" } else { "Prepared" };
    let what = match &prepared.image {
        Some(image) => clean(&image.to_string()),
        None => match &prepared.config {
            Some(names) => clean(&crate::model::records::describe_config(names)),
            None => "other kernel arguments".to_owned(),
        },
    };
    let mut text = format!("{head}: {}\n", what.bold());
    let mut field = |name: &str, value: &str| text.push_str(&format!("    {name:NAMES$} {value}\n"));
    if let Some(digest) = &prepared.digest {
        field("Digest", digest.as_str());
    }
    field("Arguments", &clean(&prepared.kernel_arguments));
    field("Id", &clean(&prepared.id));
    if !prepared.committed {
        field("Next", &format!("mcd pivot --resume={}, or mcd cancel", clean(&prepared.id)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn plain(host: &HostStatus) -> String {
        anstream::adapter::strip_str(&render(host)).to_string()
    }

    #[test]
    fn staged_over_booted() {
        insta::assert_snapshot!(plain(&samples::staged_over_booted()));
    }

    #[test]
    fn prepared_with_notices() {
        insta::assert_snapshot!(plain(&samples::prepared_with_notices()));
    }

    #[test]
    fn nothing_deployed() {
        insta::assert_snapshot!(plain(&samples::nothing_deployed()));
    }

    #[test]
    fn as_json() {
        insta::assert_json_snapshot!(samples::staged_over_booted());
        insta::assert_json_snapshot!(samples::prepared_with_notices());
    }

    #[test]
    fn an_origin_cannot_steer_the_terminal() {
        let mut host = samples::nothing_deployed();
        let mut one = samples::staged_over_booted().deployments[1].clone();
        one.image = None;
        one.other_origin = Some("custom\x1b]0;owned\x07".to_owned());
        host.deployments.push(one);
        let page = render(&host);
        assert!(!page.contains("\x1b]0") && !page.contains('\x07'), "{page:?}");
    }
}
