//! The second gate and the switch: from an intent to the next boot.

use std::time::Duration;

use anyhow::Result;
use fn_error_context::context;

use super::change::Outcome;
use super::{Session, acquire};
use crate::error::Fault;
use crate::host::health::Checks;
use crate::host::{DeployRequest, HostLocked, history_entry, reboot};
use crate::model::event::Event;
use crate::model::kargs::KernelArguments;
use crate::model::records::{HistoryOutcome, Intent, IntentState, describe_config};
use crate::plan::preflight;
use crate::plan::unattended::waits_for_a_person;

/// The second gate: exact numbers, and everything else that would make the deployment fail later.
#[context("Checking whether the host can take the deployment")]
pub(super) fn check_before_commit(session: &Session, commit: &str) -> Result<()> {
    let host = &session.host;
    host.refuse_unbootable(commit)?;
    let checks =
        preflight::before_commit(host.kernel_pair(commit)?, host.tree_size(commit)?, host.observe_space()?);
    acquire::refuse_failed("the deployment", &checks)?;
    host.refuse_etc_conflicts(commit)
}

/// How long a health check may take before a change: somebody waits, and the lock is held.
const CHECKS_BEFORE: Duration = Duration::from_secs(10);

/// Refuses a change that failed on this host. The same image with a corrected configuration is another
/// change.
pub(super) fn refuse_failed_before(session: &Session, commit: &str, arguments: &str) -> Result<()> {
    if session.force {
        return Ok(());
    }
    match session.host.failed_before(commit, &KernelArguments::parse(arguments))? {
        None => Ok(()),
        Some(cause) => Err(Fault::refused("just this change failed on this host before")
            .why(cause)
            .next("ask for what corrects it, or try the same again with --force; `mcd history` shows when it ran")
            .into()),
    }
}

/// Says what would keep the next boot from being left by itself.
fn warn_unattended(session: &Session, intent: &Intent) {
    if !session.host.is_booted() || !reboot::is_systemd() {
        return;
    }
    let arguments = KernelArguments::parse(&intent.kernel_arguments);
    for warning in waits_for_a_person(&arguments, reboot::is_watched()) {
        session.sink.event(Event::Warning { message: warning.to_owned() });
    }
}

/// The required health checks that fail before the change, which are not held against it.
fn failing_before(session: &Session) -> Vec<String> {
    if !session.host.is_booted() {
        return Vec::new();
    }
    let failing = match Checks::of(&session.host) {
        Ok(checks) => checks.failing(CHECKS_BEFORE),
        Err(error) => {
            session
                .sink
                .event(Event::Warning { message: format!("the health checks cannot be run: {error:#}") });
            return Vec::new();
        }
    };
    if !failing.is_empty() {
        let names = failing.join(", ");
        let message = format!("failing now, and so not held against the change: health check {names}");
        session.sink.event(Event::Warning { message });
    }
    failing
}

/// The switch. The intent is durable as committed before it, so that an interrupted switch is known.
pub(super) fn commit(session: &Session, locked: &HostLocked<'_>, mut intent: Intent) -> Result<Outcome> {
    session.stop_if_asked()?;
    intent.state = IntentState::Committed;
    if let Some(running) = locked.status()?.booted() {
        // What is staged replaces what was staged before: should both be lost with the power, it is
        // what runs now that the next boot starts.
        intent.base = Some(running.name.clone());
    }
    locked.write_intent(&intent)?;
    warn_unattended(session, &intent);
    session.sink.event(Event::Step { what: "switching the next boot".to_owned() });
    let request = DeployRequest { failing_before: failing_before(session), ..DeployRequest::from(&intent) };
    match locked.deploy(&request) {
        Ok(deployed) => {
            note_switched(session, locked, &intent, deployed.staged);
            let image = match (&intent.asked, &intent.config) {
                (Some(image), _) => image.to_string(),
                (None, Some(names)) => describe_config(names),
                (None, None) => "other kernel arguments".to_owned(),
            };
            Ok(Outcome::Committed { image, name: deployed.name, staged: deployed.staged })
        }
        Err(error) => {
            intent.state = IntentState::Prepared;
            let told = Some(format!("{error:#}"));
            let noted = locked
                .write_intent(&intent)
                .and_then(|()| locked.append_history(history_entry(&intent, HistoryOutcome::Failed, told)));
            // What a person must hear of is why the switch failed, not the records after it.
            if let Err(error) = noted {
                let message = format!("the failure cannot be recorded: {error:#}");
                session.sink.event(Event::Warning { message });
            }
            Err(with_next(error))
        }
    }
}

/// What libostree says when it cannot deploy names a file or an object, but not what to do.
fn with_next(error: anyhow::Error) -> anyhow::Error {
    if error.chain().any(|cause| cause.is::<Fault>()) {
        return error;
    }
    Fault::failed("the deployment cannot be made; the next boot is as it was")
        .why(format!("{error:#}"))
        .next(
            "if an object is missing or corrupt, `ostree fsck --delete` drops what is damaged; \
             then run the same command again: it fetches that anew",
        )
        .into()
}

/// The records after the switch. What fails here (a full `/var`) is said, but does not turn a change
/// that happened into one that failed: the deployment carries its id itself.
fn note_switched(session: &Session, locked: &HostLocked<'_>, intent: &Intent, is_staged: bool) {
    let mut noted = locked.append_history(history_entry(intent, HistoryOutcome::Committed, None));
    if noted.is_ok() && !is_staged {
        // Switched: there is nothing left that a power cut could undo.
        noted = locked.clear_intent().map(drop);
    }
    if let Err(error) = noted {
        let message = format!("the change is switched, but its records cannot be written: {error:#}");
        session.sink.event(Event::Warning { message });
    }
}
