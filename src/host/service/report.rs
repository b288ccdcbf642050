//! What the host says of itself to the pod.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::hold::hold_of;
use super::spool::Spool;
use crate::host::{Host, child, drift, now};
use crate::model::boots::{BootEntry, BootRecord, BootState};
use crate::model::records::{Intent, IntentState};
use crate::model::status::{DeploymentStatus, HostStatus};
use crate::model::wire::{
    Change, ChangeState, HostReport, IntentReport, PlanSummary, RunningRequest, TakenOver, WIRE_VERSION,
    WentBackReport,
};

const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// It answers at once, or systemd hangs.
const SYSTEMCTL: Duration = Duration::from_secs(5);
const OS_RELEASE: &str = "etc/os-release";
/// What makes a Go daemon, and us, go on although the host differs.
const FORCE: &str = "run/machine-config-daemon-force";
/// What a Go daemon keeps on its host.
const GO_DAEMON: &str = "etc/machine-config-daemon";
/// Bytes of a file of the Go daemon: a MachineConfig as large as etcd takes one.
const GO_FILE_MAX: u64 = 4 << 20;

/// What the pod must know of this host.
///
/// # Errors
///
/// The host's deployments or records cannot be read.
#[context("Describing this host")]
pub fn report(host: &Host, spool: &Spool) -> Result<HostReport> {
    let root = host.running_root()?;
    let status = host.status_with_config()?;
    let boots = host.boots()?;
    let running = status.booted().or_else(|| status.next_boot());
    let mut report = HostReport {
        version: WIRE_VERSION,
        mcd: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: text(&root, BOOT_ID).unwrap_or_default(),
        os: os_id(&root),
        change: change(&boots, &status),
        went_back: went_back(&boots, &status),
        intent: host.intent()?.map(|intent| intent_report(&intent)),
        drift: drift::said(spool.folder()),
        hold: hold_of(&root, now())?,
        force: root.exists(FORCE),
        boot_seconds: host.is_booted().then(boot_seconds).flatten(),
        running: spool.open_requests()?.iter().map(RunningRequest::from).collect(),
        taken_over: taken_over(&root),
        ..HostReport::default()
    };
    if let Some(running) = running {
        report.os_version = running.version.clone().unwrap_or_default();
        report.booted_image = running.image.as_ref().map(ToString::to_string);
        report.booted_digest = running.digest.as_ref().map(ToString::to_string);
        report.applied_config = config_of(running);
    }
    Ok(report)
}

/// What systemd says of its own start, in whole seconds; none before everything is up.
fn boot_seconds() -> Option<u64> {
    let mut command = Command::new("systemctl");
    command.args(["show", "--property=FinishTimestampMonotonic", "--value"]);
    let said = child::run(&mut command, SYSTEMCTL, &|| false);
    let microseconds: u64 = said.output.trim().parse().ok()?;
    (said.passed && microseconds > 0).then_some(microseconds / 1_000_000)
}

/// The MachineConfigs of a deployment as one name: a node of a cluster has a single rendered one.
fn config_of(deployment: &DeploymentStatus) -> Option<String> {
    deployment.config.as_ref().and_then(|config| joined(&config.names))
}

fn joined(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(","))
}

/// The newest change that was booted or given up; what is only committed is the intent's business.
fn change(boots: &BootRecord, status: &HostStatus) -> Option<Change> {
    let entry = boots.entries.iter().rev().find(|entry| entry.state != BootState::Committed)?;
    let made = made_by(entry, status);
    let state = match &entry.state {
        BootState::Booted => ChangeState::Booted,
        BootState::Good => ChangeState::Good,
        BootState::Unproven => ChangeState::Unproven,
        BootState::Failed { .. } => ChangeState::Failed,
        BootState::RolledBack => ChangeState::RolledBack,
        BootState::Committed | BootState::Other(_) => ChangeState::Unknown,
    };
    Some(Change {
        id: entry.id.clone(),
        config: made.and_then(config_of),
        image: made.and_then(|made| made.image.as_ref()).map(ToString::to_string),
        state,
        cause: entry.why().map(str::to_owned),
    })
}

fn made_by<'a>(entry: &BootEntry, status: &'a HostStatus) -> Option<&'a DeploymentStatus> {
    let is_it = |one: &&DeploymentStatus| {
        one.id.as_ref() == Some(&entry.id) || entry.deployment.as_ref() == Some(&one.name)
    };
    status.deployments.iter().find(is_it)
}

fn text_of(value: &serde_json::Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn went_back(boots: &BootRecord, status: &HostStatus) -> Option<WentBackReport> {
    let told = boots.went_back.as_ref()?;
    let made = boots.entry(&told.from).and_then(|entry| made_by(entry, status));
    Some(WentBackReport {
        config: made.and_then(config_of),
        image: made.and_then(|made| made.image.as_ref()).map(ToString::to_string),
        cause: told.cause.clone(),
        by: text_of(&serde_json::to_value(&told.by).ok()?)?,
        when: told.when,
    })
}

fn intent_report(intent: &Intent) -> IntentReport {
    IntentReport {
        id: intent.id.clone(),
        config: intent.config.as_deref().and_then(joined),
        image: intent.asked.as_ref().map(ToString::to_string),
        committed: intent.state == IntentState::Committed,
        // Why it costs that is not kept; whoever needs it asks to prepare again, which is quick.
        plan: PlanSummary { drain: !intent.live, reboot: !intent.live, ..PlanSummary::default() },
    }
}

/// What a Go daemon left on the host with this root; none if nothing is there.
pub fn taken_over(root: &Dir) -> Option<TakenOver> {
    let folder = root.open_dir(GO_DAEMON).ok()?;
    let machine_config = text(&folder, "currentconfig");
    let parsed =
        machine_config.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let name = parsed.as_ref().and_then(|config| config.pointer("/metadata/name")).and_then(text_of);
    let annotations: Option<BTreeMap<String, String>> =
        text(&folder, "node-annotations.json").and_then(|text| serde_json::from_str(&text).ok());
    let found = TakenOver {
        current_config: name,
        machine_config,
        current_image: text(&folder, "currentimage"),
        node_annotations: annotations.unwrap_or_default(),
    };
    (found != TakenOver::default()).then_some(found)
}

fn os_id(root: &Dir) -> String {
    let text = text(root, OS_RELEASE).unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("ID="));
    id.unwrap_or_default().trim_matches('"').to_owned()
}

fn text(folder: &Dir, path: &str) -> Option<String> {
    if folder.metadata(path).ok()?.len() > GO_FILE_MAX {
        return None;
    }
    let bytes = folder.read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;

    use super::*;

    #[test]
    fn the_files_of_a_go_daemon_are_read() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        assert_eq!(taken_over(&root), None);
        root.create_dir_all(GO_DAEMON).unwrap();
        let folder = root.open_dir(GO_DAEMON).unwrap();
        folder.write("currentconfig", r#"{"metadata":{"name":"rendered-worker-1"}}"#).unwrap();
        folder.write("node-annotations.json", r#"{"a":"b"}"#).unwrap();
        folder.write("currentimage", "").unwrap();
        let found = taken_over(&root).unwrap();
        assert_eq!(found.current_config.as_deref(), Some("rendered-worker-1"));
        assert_eq!(found.current_image, None);
        assert_eq!(found.node_annotations["a"], "b");
    }
}
