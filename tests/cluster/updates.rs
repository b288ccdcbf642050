//! Updates as the operator's controllers drive them.

use mcd_test_support::kube::table;

use crate::world::{Host, key, machine_config, plane};

/// Requests of an update, by the server's own log; those of the Go daemon were 36 and 90.
const WITHOUT_REBOOT_MAX: usize = 12;
const WITH_REBOOT_MAX: usize = 25;
/// Memory of a daemon, without the pages of the program's file, in KiB.
const MEMORY_MAX: u64 = 20 * 1024;

#[test]
fn a_change_that_needs_a_reboot_is_prepared_drained_and_done() {
    let host = Host::done("reboots");
    machine_config(host.plane, "rendered-reboots", "reboot");
    let audit = host.plane.audit().unwrap();
    host.wish("rendered-reboots");
    let drains = host.until_done("rendered-reboots");
    assert_eq!(drains, ["drain-rendered-reboots", "uncordon-rendered-reboots"]);
    let node = host.node.get().unwrap();
    assert_ne!(node["spec"]["unschedulable"], true);
    assert_eq!(host.node.annotation(&key("post-config-action")).unwrap(), "");
    let requests = audit.of_node(host.node.name()).unwrap();
    assert!(requests.len() <= WITH_REBOOT_MAX, "{}: {}", requests.len(), table(&requests));
}

#[test]
fn a_change_that_needs_no_reboot_drains_nobody() {
    let mut host = Host::done("live");
    machine_config(host.plane, "rendered-live", "live");
    let audit = host.plane.audit().unwrap();
    host.wish("rendered-live");
    assert_eq!(host.until_done("rendered-live"), Vec::<String>::new());
    let requests = audit.of_node(host.node.name()).unwrap();
    assert!(requests.len() <= WITHOUT_REBOOT_MAX, "{}: {}", requests.len(), table(&requests));
    let pid = host.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kibibytes: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < MEMORY_MAX, "{kibibytes} KiB");
}

#[test]
fn a_bad_config_is_named_and_a_good_one_leads_out() {
    let host = Host::done("bad");
    machine_config(host.plane, "rendered-bad", "refused");
    machine_config(host.plane, "rendered-better", "live");
    host.wish("rendered-bad");
    let reason = host.until_state("Unreconcilable");
    assert!(reason.contains("rendered-bad"), "{reason}");
    host.wish("rendered-absent");
    let reason = host.until_state("Degraded");
    assert!(reason.contains("rendered-absent"), "{reason}");
    host.wish("rendered-better");
    assert_eq!(host.until_done("rendered-better"), Vec::<String>::new());
}

#[test]
fn a_change_that_went_back_is_not_driven_again() {
    let host = Host::done("sick");
    machine_config(host.plane, "rendered-sick", "unhealthy");
    machine_config(host.plane, "rendered-cured", "reboot");
    host.wish("rendered-sick");
    let reason = host.until_state("Degraded");
    assert!(!reason.is_empty());
    let audit = host.plane.audit().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let writes: Vec<_> =
        audit.of_node("sick").unwrap().into_iter().filter(|one| one.resource == "nodes").collect();
    assert!(!writes.iter().any(|one| one.verb == "patch"), "{writes:#?}");
    assert_ne!(
        host.node.get().unwrap()["spec"]["unschedulable"],
        true,
        "workloads run on the last good system"
    );
    host.wish("rendered-cured");
    host.until_done("rendered-cured");
}

#[test]
fn the_newest_of_two_wishes_wins() {
    let host = Host::done("quick");
    machine_config(host.plane, "rendered-quick-1", "reboot");
    machine_config(host.plane, "rendered-quick-2", "reboot");
    host.wish("rendered-quick-1");
    host.wish("rendered-quick-2");
    host.until_done("rendered-quick-2");
    assert_ne!(host.node.get().unwrap()["spec"]["unschedulable"], true);
}

#[test]
fn a_persons_cordon_stays() {
    let host = Host::done("cordoned");
    machine_config(host.plane, "rendered-cordoned", "reboot");
    host.node.patch(&serde_json::json!({ "spec": { "unschedulable": true } })).unwrap();
    host.wish("rendered-cordoned");
    host.until_done("rendered-cordoned");
    assert_eq!(host.node.get().unwrap()["spec"]["unschedulable"], true);
}

#[test]
fn a_killed_daemon_goes_on_where_it_was() {
    let mut host = Host::done("killed");
    machine_config(host.plane, "rendered-killed", "live");
    host.kill();
    host.wish("rendered-killed");
    host.start("rendered-a");
    host.until_done("rendered-killed");
}

#[test]
fn the_manifests_make_a_pod_on_every_node() {
    let plane = plane();
    let node = mcd_test_support::kube::Node::create(plane, "scheduled").unwrap();
    let selector = format!("--field-selector=spec.nodeName={}", node.name());
    let start = std::time::Instant::now();
    loop {
        let pods = plane.kubectl(&["get", "pods", "--namespace=mcd", &selector, "--output=name"]).unwrap();
        if pods.contains("pod/mcd-daemon-") {
            break;
        }
        assert!(start.elapsed().as_secs() < 60, "no pod of the DaemonSet on the node");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
