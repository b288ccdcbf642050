//! Asking for a reboot: through logind, honouring its inhibitors.
//!
//! `systemctl reboot --force` is never used: it skips the service that finalises a staged deployment,
//! and the update would silently not be there.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use fn_error_context::context;
use serde::Deserialize;

use super::child;
use crate::error::Fault;
use crate::model::event::{Event, EventSink};

/// Exists while systemd is the init system, as `sd_booted(3)` tests it.
const SYSTEMD_STAMP: &str = "/run/systemd/system";
/// OSTree's own service: at its stop, in the shutdown, the staged deployment becomes the next boot.
const FINALISE: &str = "ostree-finalize-staged.service";
/// What it works on; dies with the power.
const STAGED: &str = "/run/ostree/staged-deployment";
/// How long its start may take: it does nothing by itself, but comes after other units of a boot. The job
/// stays queued when this is over.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The operation that a blocker of a reboot names.
const SHUTDOWN: &str = "shutdown";
/// More than every service may take to stop, one after the other, in its default time.
const GOING_DOWN: std::time::Duration = std::time::Duration::from_secs(1800);
/// The first hardware watchdog.
const WATCHDOG: &str = "/dev/watchdog0";
/// The mode of an inhibitor that refuses, as opposed to one that only delays.
const BLOCK: &str = "block";

/// Something that does not want the machine to go down now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inhibitor {
    /// Who it is, in its own words.
    pub who: String,
    /// Its reason.
    pub why: String,
    /// The process that holds it.
    pub pid: u32,
}

/// What `busctl --json=short call` prints: the call's out-arguments, here one array.
#[derive(Deserialize)]
struct Reply {
    data: Vec<Vec<Listed>>,
}

/// What, who, why, mode, user id, process id (org.freedesktop.login1(5)).
#[derive(Deserialize)]
struct Listed(String, String, String, String, serde::de::IgnoredAny, u32);

/// Asks logind for a reboot and returns: the machine goes down while the caller ends.
///
/// Blocked by an inhibitor, it is refused, naming who and why, unless `force` overrides them.
pub fn ask(force: bool, sink: &dyn EventSink) -> Result<()> {
    require_systemd()?;
    refuse_blocked(force, sink)?;
    finalise_at_shutdown()?;
    sink.event(Event::Note { message: "rebooting".to_owned() });
    systemctl_reboot(force)
}

/// Asks for a reboot whatever inhibits it, and does not return while the machine goes down: whoever waits
/// for the caller must not begin. systemd ends it.
pub fn ask_and_wait(sink: &dyn EventSink) -> Result<()> {
    ask(true, sink)?;
    std::thread::sleep(GOING_DOWN);
    anyhow::bail!("the machine does not go down");
}

/// Refuses where an inhibitor blocks a reboot; with `force` it is only told.
pub(super) fn refuse_blocked(force: bool, sink: &dyn EventSink) -> Result<()> {
    let blockers = blockers()?;
    if !blockers.is_empty() && !force {
        return Err(refusal(&blockers).into());
    }
    for blocker in &blockers {
        sink.event(Event::Warning { message: format!("overriding the inhibitor of {}", describe(blocker)) });
    }
    Ok(())
}

/// Makes sure that what is staged is finalised when the machine goes down.
///
/// OSTree leaves that to a path unit, which starts the service some time after the deployment was
/// staged: a shutdown before that would skip it, and the update would silently not be there.
///
/// It waits until the service runs, which may be after others of this boot that take the host lock:
/// never to be called by who holds that.
#[context("Starting {FINALISE}, which finalises the staged deployment at shutdown")]
pub fn finalise_at_shutdown() -> Result<()> {
    if !is_systemd() || rustix::fs::stat(STAGED).is_err() {
        return Ok(());
    }
    let ended = child::run(Command::new("systemctl").args(["start", FINALISE]), START_TIMEOUT, &|| false);
    anyhow::ensure!(ended.passed, "systemctl: {}", ended.said);
    Ok(())
}

/// Whether systemd feeds a hardware watchdog, so that a hang ends by itself.
pub fn is_watched() -> bool {
    const SHOW: [&str; 3] = ["show", "--value", "--property=RuntimeWatchdogUSec"];
    let said = Command::new("systemctl").args(SHOW).output();
    let is_set = said
        .is_ok_and(|output| !["", "0", "infinity"].contains(&String::from_utf8_lossy(&output.stdout).trim()));
    is_set && rustix::fs::stat(WATCHDOG).is_ok()
}

/// Who blocks a reboot now. Asked before a change too: a reboot that cannot be had is better known
/// before the download than after it.
#[context("Asking logind who blocks a reboot")]
pub fn blockers() -> Result<Vec<Inhibitor>> {
    const LIST: [&str; 6] = [
        "--json=short",
        "call",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "ListInhibitors",
    ];
    let output = Command::new("busctl").args(LIST).output().context("Starting busctl")?;
    if !output.status.success() {
        // Without logind there are no inhibitors: nothing can hold one.
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        tracing::warn!(%message, "logind does not answer; no inhibitor can be honoured");
        return Ok(Vec::new());
    }
    parse_blockers(&output.stdout)
}

fn parse_blockers(reply: &[u8]) -> Result<Vec<Inhibitor>> {
    let reply: Reply = serde_json::from_slice(reply).context("Reading busctl's answer")?;
    let blocks = |what: &str, mode: &str| mode == BLOCK && what.split(':').any(|one| one == SHUTDOWN);
    let all = reply.data.into_iter().flatten();
    Ok(all
        .filter(|Listed(what, _, _, mode, ..)| blocks(what, mode))
        .map(|Listed(_, who, why, _, _, pid)| Inhibitor { who, why, pid })
        .collect())
}

#[context("Asking for a reboot")]
fn systemctl_reboot(force: bool) -> Result<()> {
    let mut command = Command::new("systemctl");
    command.arg("reboot");
    if force {
        command.arg("--ignore-inhibitors");
    }
    let output = command.output().context("Starting systemctl")?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Fault::failed("the reboot was refused")
        .why(format!("systemctl reboot: {message}"))
        .next("reboot by hand (systemctl reboot): everything else is done")
        .into())
}

/// Whether systemd is the init system.
pub fn is_systemd() -> bool {
    rustix::fs::stat(SYSTEMD_STAMP).is_ok()
}

fn require_systemd() -> Result<(), Fault> {
    if is_systemd() {
        return Ok(());
    }
    Err(Fault::failed("cannot ask for a reboot")
        .why("systemd is not the running init system")
        .next("reboot the machine by hand: everything else is done"))
}

fn refusal(blockers: &[Inhibitor]) -> Fault {
    let who: Vec<String> = blockers.iter().map(describe).collect();
    Fault::refused("the reboot is blocked")
        .why(who.join("; "))
        .next("reboot later (systemctl reboot), or override it with --force: everything else is done")
}

fn describe(blocker: &Inhibitor) -> String {
    format!("{} (process {}): {}", blocker.who, blocker.pid, blocker.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As busctl spells `a(ssssuu)`: a blocking `systemd-inhibit` and two that only delay.
    const TWO: &str = r#"{"type":"a(ssssuu)","data":[[["shutdown:sleep","backup","saving the database","block",0,812],["sleep","NetworkManager","needs to turn off networks","delay",0,430],["shutdown","unattended-upgrades","stop ongoing upgrades","delay",0,455]]]}"#;

    #[test]
    fn only_a_block_on_shutdown_blocks() {
        let found = parse_blockers(TWO.as_bytes()).unwrap();
        assert_eq!(found, [Inhibitor { who: "backup".into(), why: "saving the database".into(), pid: 812 }]);
        assert_eq!(parse_blockers(br#"{"type":"a(ssssuu)","data":[[]]}"#).unwrap(), []);
        assert!(parse_blockers(b"nonsense").is_err());
    }

    #[test]
    fn a_refusal_names_who_and_why() {
        let fault = refusal(&parse_blockers(TWO.as_bytes()).unwrap());
        assert_eq!(fault.to_string(), "the reboot is blocked: backup (process 812): saving the database");
        assert!(fault.next.unwrap().contains("--force"));
    }
}
