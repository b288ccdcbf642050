//! The journal: what operators search for later. People at the terminal are the business of
//! [`crate::ui`].
//!
//! As a service, everything from level info on goes to journald with its fields; events that
//! operators match on carry a `MESSAGE_ID`. At a terminal nothing is logged unless `-v` or
//! `RUST_LOG` asks for it, then to stderr.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::{ExitKind, Fault};
use crate::host::converge::BootReport;
use crate::model::status::DeploymentName;

/// A new deployment was committed: the next boot starts it.
pub const MESSAGE_COMMITTED: &str = "b74f1dd08d3f4fd68104f261b968ba6e";
/// The next boot starts an older deployment again.
pub const MESSAGE_ROLLED_BACK: &str = "87a1e6dc00fc4a5b982ff6ba5c0f6907";
/// A request was refused: nothing changed, and asking again will not help.
pub const MESSAGE_REFUSED: &str = "75071df498564ab38557e0c77fee25aa";
/// Something failed half-way and could not be undone: a person is needed.
pub const MESSAGE_NOT_UNDONE: &str = "2f296fca52504c0b8824f9d6b3b2f65c";

/// A configuration was applied without a reboot.
pub const MESSAGE_APPLIED: &str = "4c0b9f0a6e3d4b7c8f27d3a95be1c604";

/// A boot laid down what belongs on its deployment.
pub const MESSAGE_CONVERGED: &str = "5b1f3f0c2a0e4d5f9d64a7f7be1f2c83";

/// A health verdict: the running deployment is good.
pub const MESSAGE_GOOD: &str = "5d5e39fb61d14db58e3a0ad1d9a2b6f3";

/// A health verdict: the running deployment failed; the fields say whether it was left.
pub const MESSAGE_UNHEALTHY: &str = "c6d2a7df31ac4f3a8b0b6f2d4a7f91e5";

/// A committed change was lost before it could be booted.
pub const MESSAGE_LOST: &str = "e0f3a9a47b104d1c9d7a52c6f8d3b417";

/// Starts logging. `verbosity` counts `-v`.
pub fn start(verbosity: u8) {
    let wanted = std::env::var("RUST_LOG").ok();
    let registry = tracing_subscriber::registry();
    if is_service()
        && let Ok(journal) = tracing_journald::layer()
    {
        let filter = filter(verbosity, wanted.as_deref(), LevelFilter::INFO);
        // Without a prefix MESSAGE_ID and our own fields keep their names.
        registry.with(journal.with_field_prefix(None).with_filter(filter)).init();
        return;
    }
    let filter = filter(verbosity, wanted.as_deref(), LevelFilter::OFF);
    let stderr =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).without_time().with_filter(filter);
    registry.with(stderr).init();
}

/// Tells operators what the next boot starts, after a change or (`rolled_back`) after going back.
pub fn committed(image: &str, deployment: &DeploymentName, rolled_back: bool) {
    let deployment = deployment.to_string();
    if rolled_back {
        tracing::info!(
            MESSAGE_ID = MESSAGE_ROLLED_BACK,
            image,
            deployment,
            "The next boot goes back to {image}"
        );
    } else {
        tracing::info!(MESSAGE_ID = MESSAGE_COMMITTED, image, deployment, "The next boot starts {image}");
    }
}

/// Tells operators that a deployment proved good.
pub fn good(deployment: &DeploymentName) {
    let deployment = deployment.to_string();
    tracing::info!(MESSAGE_ID = MESSAGE_GOOD, deployment, "Deployment {deployment} is good");
}

/// Tells operators that the running deployment failed, and where the next boot goes (`to`), if it is
/// left.
pub fn unhealthy(deployment: Option<&DeploymentName>, cause: &str, to: Option<&DeploymentName>) {
    let deployment = deployment.map(ToString::to_string).unwrap_or_default();
    let to = to.map(ToString::to_string).unwrap_or_default();
    tracing::error!(
        MESSAGE_ID = MESSAGE_UNHEALTHY,
        deployment,
        cause,
        to,
        "Deployment {deployment} failed: {cause}"
    );
}

/// Tells operators of a change that was lost.
pub fn lost(message: &str) {
    tracing::warn!(MESSAGE_ID = MESSAGE_LOST, "{message}");
}

/// Tells operators what was applied on the running system.
pub fn applied(config: &str, changed: usize, actions: &[String]) {
    let actions = actions.join(", ");
    tracing::info!(
        MESSAGE_ID = MESSAGE_APPLIED,
        config,
        changed,
        actions,
        "Applied {config} without a reboot"
    );
}

/// Tells operators what a boot laid down, and what they should know of it.
pub fn boot(report: &BootReport) {
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    for difference in &report.differences {
        let (path, what) = (difference.path.as_str(), difference.what);
        tracing::warn!(path, "{path} is not as the configuration says: {what:?}");
    }
    for original in &report.set_aside {
        tracing::warn!(
            path = original.path.as_str(),
            "{} had a local edit, which was set aside",
            original.path
        );
    }
    if !report.changed.is_empty() {
        let changed = report.changed.len();
        tracing::info!(
            MESSAGE_ID = MESSAGE_CONVERGED,
            changed,
            deployment = report.deployment.as_deref().unwrap_or_default(),
            "The configuration of this deployment was laid down, {changed} paths changed"
        );
    }
}

/// Tells operators of a failure that they must act on. The person at the terminal is told elsewhere,
/// and the journal gets a service's stderr anyway: this adds what can be searched for.
pub fn fault(fault: &Fault) {
    let why = fault.why.as_deref().unwrap_or_default();
    match fault.kind {
        ExitKind::NotUndone => tracing::error!(MESSAGE_ID = MESSAGE_NOT_UNDONE, why, "{}", fault.what),
        ExitKind::Refused => tracing::warn!(MESSAGE_ID = MESSAGE_REFUSED, why, "{}", fault.what),
        _ => tracing::info!(why, "{}", fault.what),
    }
}

/// systemd names the socket behind a service's stderr in `JOURNAL_STREAM`. Comparing it with what
/// stderr is tells a service from a shell that a service started and redirected.
fn is_service() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

/// `RUST_LOG` wins, then `-v`, then what the place suggests. Other crates speak up only when asked
/// by name or with `-vvv`.
fn filter(verbosity: u8, wanted: Option<&str>, usual: LevelFilter) -> Targets {
    if let Some(targets) = wanted.and_then(|text| text.parse().ok()) {
        return targets;
    }
    let own = match verbosity {
        0 => usual,
        1 => LevelFilter::INFO.max(usual),
        _ => LevelFilter::TRACE,
    };
    let others = if verbosity > 2 { LevelFilter::DEBUG } else { LevelFilter::WARN.min(own) };
    let mut targets = Targets::new().with_default(others).with_target("mcd", own);
    if verbosity <= 2 {
        // Each failed call is an error to it; the daemon says what it means, once.
        targets = targets.with_target("kube_client::client::builder", LevelFilter::OFF);
    }
    targets
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn message_ids_are_ids_and_differ() {
        let mut ids = vec![
            MESSAGE_CONVERGED,
            MESSAGE_COMMITTED,
            MESSAGE_ROLLED_BACK,
            MESSAGE_REFUSED,
            MESSAGE_NOT_UNDONE,
            MESSAGE_APPLIED,
            MESSAGE_GOOD,
            MESSAGE_UNHEALTHY,
            MESSAGE_LOST,
        ];
        for id in &ids {
            assert_eq!(id.len(), 32, "{id}");
            assert!(id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 9);
    }

    #[test]
    fn who_is_heard() {
        for (verbosity, wanted, usual, target, level, heard) in [
            (0, None, LevelFilter::OFF, "mcd::host", Level::ERROR, false),
            (0, None, LevelFilter::INFO, "mcd::host", Level::INFO, true),
            (0, None, LevelFilter::INFO, "mcd::host", Level::DEBUG, false),
            (0, None, LevelFilter::INFO, "hyper", Level::INFO, false),
            (1, None, LevelFilter::OFF, "mcd", Level::INFO, true),
            (1, None, LevelFilter::OFF, "mcd", Level::DEBUG, false),
            (2, None, LevelFilter::OFF, "mcd", Level::TRACE, true),
            (2, None, LevelFilter::OFF, "tokio", Level::DEBUG, false),
            (3, None, LevelFilter::OFF, "tokio", Level::DEBUG, true),
            (0, Some("mcd=debug"), LevelFilter::OFF, "mcd", Level::DEBUG, true),
            (3, Some("mcd=error"), LevelFilter::OFF, "mcd", Level::INFO, false),
        ] {
            let targets = filter(verbosity, wanted, usual);
            assert_eq!(
                targets.would_enable(target, &level),
                heard,
                "-v × {verbosity}, {wanted:?}, {target} {level}"
            );
        }
    }
}
