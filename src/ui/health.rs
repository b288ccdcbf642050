//! What health checks found, as text.

#[cfg(feature = "ostree")]
use owo_colors::OwoColorize as _;

use super::text::{clean, time};
use crate::model::boots::WentBack;
#[cfg(feature = "ostree")]
use crate::model::health::{Check, Weight};
use crate::model::health::{HealthStatus, Verdict};
use crate::plan::short_name;

/// The whole page.
#[cfg(feature = "ostree")]
pub(crate) fn render(found: &HealthStatus) -> String {
    let mut page = String::new();
    for check in &found.checks {
        page.push_str(&line(check));
    }
    for warning in &found.warnings {
        page.push_str(&format!("{} {}\n", "Warning:".yellow().bold(), clean(warning)));
    }
    page.push_str(&format!("{}\n", summary(found)));
    page
}

/// The outcome in a line.
pub(crate) fn summary(found: &HealthStatus) -> String {
    let state = if found.is_healthy() { "healthy" } else { "unhealthy" };
    match found.verdict {
        None => state.to_owned(),
        Some(Verdict::Judging) => format!("{state}; the deployment is being judged"),
        Some(Verdict::Good) => format!("{state}; the deployment is good"),
        Some(Verdict::GivenUp) => {
            format!("{state}; the deployment is given up, the next boot starts the last good one")
        }
        Some(Verdict::Degraded) => {
            format!("{state}; the deployment is degraded, and nothing is there to go back to")
        }
        Some(Verdict::NotJudged) => format!("{state}; the deployment is not judged: mcd did not make it"),
    }
}

/// An automatic rollback in a line.
pub(crate) fn went_back(back: &WentBack) -> String {
    let name = |name: &Option<_>| name.as_ref().map_or_else(|| "unknown".to_owned(), short_name);
    format!(
        "from deployment {} to {} on {}: {}",
        name(&back.deployment),
        name(&back.to),
        time(back.when),
        clean(&back.cause)
    )
}

#[cfg(feature = "ostree")]
fn line(check: &Check) -> String {
    let result = match (check.passed, check.weight) {
        (true, _) => "ok    ".green().to_string(),
        (false, Weight::Required) => "FAILED".red().bold().to_string(),
        (false, Weight::Wanted) => "failed".yellow().to_string(),
    };
    let weight = if check.weight == Weight::Required { "required" } else { "wanted" };
    let seconds = check.millis as f64 / 1000.0;
    let mut text = format!("{result} {weight:8} {} ({seconds:.1} s)", clean(&check.name));
    if let Some(why) = &check.why {
        text.push_str(&format!(": {}", clean(why)));
    }
    if check.failed_before {
        text.push_str("; it failed before the change too, and is not held against it");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::boots::WentBackBy;
    use crate::model::health::HEALTH_VERSION;

    #[test]
    fn a_page_names_what_failed_and_why() {
        let check = |name: &str, weight, passed, why: Option<&str>| Check {
            name: name.to_owned(),
            weight,
            passed,
            millis: 1234,
            why: why.map(str::to_owned),
            failed_before: false,
        };
        let found = HealthStatus {
            version: HEALTH_VERSION,
            deployment: None,
            verdict: Some(Verdict::Degraded),
            checks: vec![
                check("boot", Weight::Required, true, None),
                check("app", Weight::Required, false, Some("exit status: 1: no \x1b[2Janswer")),
                check("registry", Weight::Wanted, false, None),
            ],
            deadline: None,
            newly_good: false,
            warnings: vec!["/etc/mcd/mcd.toml: health.colour is unknown".to_owned()],
        };
        let page = anstream::adapter::strip_str(&render(&found)).to_string();
        insta::assert_snapshot!(page, @r"
        ok     required boot (1.2 s)
        FAILED required app (1.2 s): exit status: 1: no  [2Janswer
        failed wanted   registry (1.2 s)
        Warning: /etc/mcd/mcd.toml: health.colour is unknown
        unhealthy; the deployment is degraded, and nothing is there to go back to
        ");
    }

    #[test]
    fn a_rollback_says_from_where_and_why() {
        let back = WentBack {
            from: "x".into(),
            deployment: None,
            to: None,
            cause: "health check failed: app".into(),
            by: WentBackBy::Health,
            when: 0,
        };
        let text = went_back(&back);
        assert!(text.starts_with("from deployment unknown") && text.ends_with("failed: app"), "{text}");
    }
}
