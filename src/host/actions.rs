//! Telling the running services that their configuration changed.
//!
//! One `systemctl` call each. A unit that is not there, or does not run, needs no reload: it reads its
//! configuration when it starts. A restart starts it in any case, for that is how units that run once
//! are asked to run again.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::error::Fault;
use crate::model::event::{Event, EventSink};
use crate::model::live::LiveAction;

/// Exists while systemd is the init system, as `sd_booted(3)` tests it.
const SYSTEMD_STAMP: &str = "/run/systemd/system";
/// How long one call may take. Units have time-outs of their own (90 s, 15 min for a few that load
/// much); beyond this, systemd itself hangs.
const LONGEST: Duration = Duration::from_secs(20 * 60);
/// How often a call that runs is looked at.
const POLL: Duration = Duration::from_millis(20);
/// The unit that reads certificates into the trust store; images without it have the program.
const CA_TRUST_UNIT: &str = "coreos-update-ca-trust.service";
const CA_TRUST_PROGRAM: &str = "update-ca-trust";

/// Runs one action on the running system.
pub fn run(action: &LiveAction, sink: &dyn EventSink) -> Result<()> {
    if rustix::fs::stat(SYSTEMD_STAMP).is_err() {
        let message = format!("systemd does not run here: no need to {action}");
        sink.event(Event::Note { message });
        return Ok(());
    }
    if let Some(why) = needless(action)? {
        sink.event(Event::Note { message: format!("no need to {action}: {why}") });
        return Ok(());
    }
    sink.event(Event::Step { what: action.to_string() });
    match action {
        LiveAction::DaemonReload => systemctl(&["daemon-reload"]),
        LiveAction::Reload(unit) => systemctl(&["reload", "--", unit]),
        LiveAction::Restart(unit) if unit == CA_TRUST_UNIT && !state_of(unit)?.is_found => {
            finish(Command::new(CA_TRUST_PROGRAM), CA_TRUST_PROGRAM).map_err(|why| failed(action, &why))
        }
        LiveAction::Restart(unit) => systemctl(&["restart", "--", unit]),
    }
    .map_err(|error| match error.downcast::<Fault>() {
        Ok(fault) => fault.into(),
        Err(error) => failed(action, &error),
    })
}

/// Why an action has nothing to act on, if so.
fn needless(action: &LiveAction) -> Result<Option<&'static str>> {
    Ok(match action {
        LiveAction::DaemonReload => None,
        LiveAction::Reload(unit) => match state_of(unit)? {
            UnitState { is_found: false, .. } => Some("there is no such unit"),
            UnitState { is_active: false, .. } => Some("it does not run"),
            UnitState { .. } => None,
        },
        LiveAction::Restart(unit) => {
            (unit != CA_TRUST_UNIT && !state_of(unit)?.is_found).then_some("there is no such unit")
        }
    })
}

struct UnitState {
    is_found: bool,
    is_active: bool,
}

fn state_of(unit: &str) -> Result<UnitState> {
    let output = Command::new("systemctl")
        .args(["show", "--property=LoadState,ActiveState", "--", unit])
        .stdin(Stdio::null())
        .output()
        .context("Starting systemctl")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    Ok(UnitState {
        is_found: value("LoadState").is_some_and(|state| state != "not-found"),
        is_active: value("ActiveState")
            .is_some_and(|state| matches!(state, "active" | "reloading" | "activating")),
    })
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("systemctl");
    command.arg("--no-ask-password").args(arguments);
    finish(command, "systemctl")
}

/// Runs a command to its end, or ends it.
fn finish(mut command: Command, name: &str) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("Starting {name}"))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("{name} did not end within {} minutes", LONGEST.as_secs() / 60);
        }
        std::thread::sleep(POLL);
    };
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut text)?;
    }
    let text: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    anyhow::bail!("{name} ended with {status}: {}", text.join("; "))
}

fn failed(action: &LiveAction, why: &anyhow::Error) -> anyhow::Error {
    let unit = match action {
        LiveAction::DaemonReload => None,
        LiveAction::Reload(unit) | LiveAction::Restart(unit) => Some(unit),
    };
    let fault = Fault::failed(format!("'systemctl {action}' failed")).why(format!("{why:#}"));
    match unit {
        Some(unit) => fault.next(format!("see `journalctl -u {unit}` for what the unit said")),
        None => fault.next("see `journalctl -b` for what systemd said"),
    }
    .into()
}
