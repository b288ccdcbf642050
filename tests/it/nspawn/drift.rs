//! What differs on a host that runs, told by the unit that follows it.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Host, mcd, show, wait_for};

const DRIFT: &str = "/run/mcd/drift.json";

#[test]
fn root_nspawn_drift_is_told_by_the_unit_and_repaired() {
    let host = Host::new();
    let machine = host.boot();
    let config = serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "99-a"},
        "spec": {"config": {
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [
                {"path": "/etc/managed", "mode": 420, "contents": {"source": "data:,managed"}},
                {"path": "/etc/deep/managed/file", "mode": 384, "contents": {"source": "data:,hush"}},
            ]},
        }},
    });
    machine.shell(&format!("echo '{config}' > /root/config.json")).unwrap();
    mcd(&machine, &["apply", "/root/config.json", "--reboot=full"]);
    let machine = machine.next_boot().unwrap();
    wait_for(&machine, "systemctl is-active mcd-drift.service");
    let told = machine.shell(&format!("cat {DRIFT} 2>/dev/null || true")).unwrap();
    assert_eq!(told, "");

    // The unit may just have begun: until its first look is over an edit is found by that one.
    machine.shell("echo edited > /etc/managed; rm -r /etc/deep").unwrap();
    wait_for(&machine, &format!("grep -q /etc/managed {DRIFT} && grep -q /etc/deep/managed/file {DRIFT}"));
    let told: Value = serde_json::from_str(&machine.shell(&format!("cat {DRIFT}")).unwrap()).unwrap();
    assert!(told["since"].as_i64().unwrap() > 0);
    let report = machine.shell("mcd serve-request --status").unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["drift"], told, "{report:#}");

    mcd(&machine, &["verify", "--repair"]);
    wait_for(&machine, &format!("test ! -e {DRIFT}"));
    let journal = machine.shell("journalctl -b --no-pager -u mcd-drift.service").unwrap();
    for words in ["the host differs", "/etc/managed", "nothing differs any more"] {
        assert!(journal.contains(words), "{journal}");
    }
    assert!(!journal.contains("hush"), "{journal}");

    // Told within a second, on a machine with nothing else to do; six times that is what a test may ask.
    let begun = Instant::now();
    machine.shell("chmod 600 /etc/managed").unwrap();
    wait_for(&machine, &format!("grep -q '0600, not 0644' {DRIFT}"));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());

    let pid = show(&machine, "mcd-drift.service", "MainPID");
    let anonymous = machine.shell(&format!("awk '/RssAnon/ {{print $2}}' /proc/{pid}/status")).unwrap();
    assert!(anonymous.trim().parse::<u64>().unwrap() < 8 * 1024, "{anonymous} KiB");
    machine.shell("systemctl stop mcd-drift.service").unwrap();
    assert_eq!(show(&machine, "mcd-drift.service", "Result"), "success");
}
