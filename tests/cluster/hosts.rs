//! What a host says of itself, and what becomes of its Node.

use std::time::Duration;

use mcd_test_support::kube::Node;
use serde_json::{Value, json};

use crate::world::{Host, Options, annotation, key, machine_config, plane};

fn says(host: &Host<'_>, field: &str, value: &Value) {
    host.edit(|host| host["report"][field] = value.clone());
}

fn reason(node: &Value) -> &str {
    annotation(node, "reason")
}

#[test]
fn drift_is_said_and_its_repair_is_heard() {
    let host = Host::done("drifts");
    says(&host, "drift", &json!({ "differs": ["/etc/x: 7 other bytes, not 7 bytes"], "since": 5 }));
    let reason = host.until_state("Degraded");
    assert!(reason.starts_with("drift: ") && reason.contains("/etc/x: 7 other bytes"), "{reason}");
    assert_ne!(host.node.get().unwrap()["spec"]["unschedulable"], true);
    says(&host, "drift", &Value::Null);
    host.until_done("rendered-a");
}

#[test]
fn drift_is_repaired_where_that_is_wanted() {
    let host = Host::done_with("heals", Options { self_heal: true, ..Options::default() });
    let before = host.asked("verify");
    says(&host, "drift", &json!({ "differs": ["/etc/x: nothing, not a file"], "since": 5 }));
    host.until_host(&|host| host["report"]["drift"].is_null());
    host.until_done("rendered-a");
    assert!(host.asked("verify") > before);
}

#[test]
fn drift_stops_no_update() {
    let host = Host::done("drifts-on");
    says(&host, "drift", &json!({ "differs": ["/etc/x: mode"], "since": 5 }));
    host.until_state("Degraded");
    machine_config(host.plane, "rendered-drifts-on", "reboot");
    host.wish("rendered-drifts-on");
    host.until(&|_| host.asked("reboot") == 1);
}

#[test]
fn a_hold_on_the_host_lets_prepare_and_neither_drains_nor_reboots() {
    let host = Host::done("held");
    says(&host, "hold", &json!({ "why": "disk swap" }));
    machine_config(host.plane, "rendered-held", "reboot");
    host.wish("rendered-held");
    let reason = host.until_state("Working");
    assert!(reason.starts_with("hold: ") && reason.contains("disk swap"), "{reason}");
    assert_eq!((host.asked("prepare"), host.asked("commit")), (1, 0));
    assert_eq!(annotation(&host.node.get().unwrap(), "desiredDrain"), "");
    says(&host, "hold", &Value::Null);
    host.until_done("rendered-held");
    assert_eq!(host.asked("prepare"), 1);
}

#[test]
fn a_hold_of_the_node_ends_by_itself() {
    let host = Host::done("held-for-a-time");
    let until = jiff::Timestamp::now() + Duration::from_secs(4);
    host.node.annotate(&key("mcd-hold"), &format!("{until} demo")).unwrap();
    machine_config(host.plane, "rendered-held-for-a-time", "reboot");
    host.wish("rendered-held-for-a-time");
    let reason = host.until_state("Working");
    assert!(reason.contains("demo"), "{reason}");
    host.until_done("rendered-held-for-a-time");
    assert!(jiff::Timestamp::now() >= until);
}

#[test]
fn the_force_file_tries_once_more_what_went_back() {
    let host = Host::done("forced");
    machine_config(host.plane, "rendered-forced", "unhealthy");
    host.wish("rendered-forced");
    let why = host.until_state("Degraded");
    assert!(why.starts_with("change-failed: "), "{why}");
    assert_eq!(host.asked("reboot"), 1);
    says(&host, "force", &json!(true));
    host.until(&|node| host.asked("reboot") == 2 && reason(node).starts_with("change-failed: "));
    for verb in ["prepare --force", "commit --force"] {
        assert_eq!(host.asked(verb), 1, "{:#}", host.host()["log"]);
    }
    // Used up: it is not driven for ever.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(host.asked("reboot"), 2);
}

#[test]
fn an_image_that_is_gone_is_named_and_fetched_once_it_is_back() {
    let host = Host::done("gone");
    machine_config(host.plane, "rendered-gone", "broken");
    host.wish("rendered-gone");
    let why = host.until_state("Degraded");
    assert!(why.starts_with("prepare-failed: ") && why.contains("registry.test/os"), "{why}");
    let node = host.node.get().unwrap();
    assert_ne!(node["spec"]["unschedulable"], true, "nothing was drained for it");
    assert_eq!(annotation(&node, "desiredDrain"), "");
    host.edit(|host| host["mended"] = true.into());
    host.until_done("rendered-gone");
}

#[test]
fn a_node_that_is_deleted_and_made_again_is_done_again() {
    let host = Host::done("again");
    host.node.delete().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let _again = Node::create(host.plane, "again").unwrap();
    host.until_done("rendered-a");
    assert_eq!((host.asked("prepare"), host.asked("reboot")), (0, 0));
}

#[test]
fn what_a_go_daemon_left_is_taken_over_without_a_drain() {
    let plane = plane();
    machine_config(plane, "rendered-go", "live");
    let mut host = Host::new(plane, "go", json!({}), Options::default());
    let left = json!({ key("currentConfig"): "rendered-go", key("desiredConfig"): "rendered-go" });
    let report = json!({ "version": 1, "mcd": "0.1.0", "boot_id": "boot-0", "os": "simulated",
        "taken_over": { "current_config": "rendered-go", "node_annotations": left } });
    host.make(&json!({ "report": report }));
    host.start("");
    assert_eq!(host.until_done("rendered-go"), Vec::<String>::new());
    assert_eq!((host.asked("reboot"), host.asked("commit")), (0, 0));
}

#[test]
fn a_host_without_mcd_is_said_to_be_one() {
    let host = Host::done("bare");
    says(&host, "mcd", &json!(""));
    let why = host.until_state("Degraded");
    assert!(why.starts_with("host-without-mcd: "), "{why}");
    says(&host, "mcd", &json!("0.1.0"));
    host.until_done("rendered-a");
}

/// A host of the first protocol with nothing but what it must say.
#[test]
fn a_host_that_says_little_is_updated() {
    let plane = plane();
    machine_config(plane, "rendered-older", "reboot");
    let annotations = json!({ key("currentConfig"): "rendered-a", key("desiredConfig"): "rendered-a", key("state"): "Done" });
    let mut host = Host::new(plane, "older", annotations, Options::default());
    host.make(&json!({ "report": { "version": 1, "mcd": "0.1.0", "boot_id": "boot-0", "applied_config": "rendered-a" } }));
    host.start("rendered-a");
    host.wish("rendered-older");
    host.until_done("rendered-older");
}

/// The daemon before this one had a clock that was ahead of this one's by a day.
#[test]
fn a_clock_that_was_ahead_makes_nothing_negative() {
    let host = Host::done("skewed");
    machine_config(host.plane, "rendered-skewed", "reboot");
    host.wish("rendered-skewed");
    host.until_node(&|node| annotation(node, "desiredDrain") == "drain-rendered-skewed");
    let ahead = jiff::Timestamp::now().as_second() + 86_400;
    host.node.annotate(&key("mcd-drain-since"), &ahead.to_string()).unwrap();
    host.until_done("rendered-skewed");
    let page = host.metrics();
    for line in [
        "mcd_update_unavailable_seconds 0.0",
        "mcd_boot_seconds 20.0",
        "mcd_kubelet_state 0",
        "mcd_updates_total 1",
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is not in\n{page}");
    }
    host.node.set_ready(false).unwrap();
    let begun = std::time::Instant::now();
    while host.metrics().lines().any(|line| line == "mcd_kubelet_state 0") {
        assert!(begun.elapsed() < Duration::from_secs(30), "a kubelet that is not ready is not told");
        std::thread::sleep(Duration::from_millis(100));
    }
}
