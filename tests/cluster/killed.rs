//! The daemon's pod killed in each phase of an update: nothing is lost, nothing is done twice.

use serde_json::Value;

use crate::world::{Host, Options, annotation, machine_config};

/// Milliseconds that the host takes for each thing: long enough to be killed in.
const PACE: u64 = 1500;

/// Kills the daemon once `phase` is reached, and lets another one go on.
fn killed(name: &str, phase: &dyn Fn(&Host<'_>)) {
    let mut host = Host::done_with(name, Options { pace: PACE, ..Options::default() });
    let config = format!("rendered-{name}");
    machine_config(host.plane, &config, "reboot");
    host.wish(&config);
    phase(&host);
    host.kill();
    // Its successor is started by somebody who takes a moment.
    std::thread::sleep(std::time::Duration::from_millis(300));
    host.start("rendered-a");
    host.until_done(&config);
    for verb in ["prepare", "commit", "reboot"] {
        // The first prepare was that of a host which was Done already, if any.
        assert_eq!(host.asked(verb), 1, "{verb}: {:#}\n{}", host.host()["log"], host.log());
    }
    assert_eq!(host.host()["boots"], 1);
    let node = host.node.get().unwrap();
    assert_ne!(node["spec"]["unschedulable"], true);
    assert_eq!(annotation(&node, "reason"), "");
}

fn asks(host: &Host<'_>, order: &str) {
    host.until_node(&|node| annotation(node, "desiredDrain").starts_with(order));
}

fn drained(host: &Host<'_>) {
    host.until(&|node| annotation(node, "lastAppliedDrain").starts_with("drain-"));
}

fn has_begun(verb: &'static str) -> impl Fn(&Value) -> bool {
    move |host| host["log"].as_array().unwrap().iter().any(|one| one == verb)
}

#[test]
fn killed_while_the_host_prepares() {
    killed("killed-prepare", &|host| host.until_host(&has_begun("prepare")));
}

#[test]
fn killed_while_the_node_is_drained() {
    killed("killed-drain", &|host| asks(host, "drain-"));
}

#[test]
fn killed_while_the_host_reboots() {
    killed("killed-reboot", &|host| {
        drained(host);
        host.until_host(&has_begun("reboot"));
    });
}

#[test]
fn killed_while_the_host_is_judged() {
    killed("killed-judge", &|host| {
        drained(host);
        host.until_host(&|host| host["report"]["change"]["state"] == "booted");
    });
}

#[test]
fn killed_while_the_node_is_let_back() {
    killed("killed-uncordon", &|host| {
        drained(host);
        asks(host, "uncordon-");
    });
}
