//! The API server stopped in each phase of an update: the host's work goes on, and is published when it is back.

use std::time::Duration;

use mcd_test_support::kube::ControlPlane;
use serde_json::Value;

use crate::world::{Host, Options, annotation, apply_manifests, machine_config};

/// Milliseconds that the host takes for each thing.
const PACE: u64 = 2000;
/// The server stays away for longer than any of them.
const AWAY: Duration = Duration::from_secs(4);

type Phase = (&'static str, &'static dyn Fn(&Host<'_>), &'static dyn Fn(&Value) -> bool);

fn begins(host: &Host<'_>, verb: &str, before: usize) {
    host.until_host(&|now| now["log"].as_array().unwrap().iter().filter(|one| *one == verb).count() > before);
}

fn drained(host: &Host<'_>) {
    host.until(&|node| {
        annotation(node, "desiredDrain") == annotation(node, "lastAppliedDrain")
            && annotation(node, "lastAppliedDrain").starts_with("drain-")
    });
}

/// Each with how far the host is on its own while the server is away.
const PHASES: [Phase; 5] = [
    ("prepare", &|host| begins(host, "prepare", 0), &|now| now["report"]["intent"].is_object()),
    (
        "drain",
        &|host| host.until_node(&|node| annotation(node, "desiredDrain").starts_with("drain-")),
        &|now| now["report"]["intent"].is_object(),
    ),
    (
        "reboot",
        &|host| {
            let before = host.asked("reboot");
            drained(host);
            begins(host, "reboot", before);
        },
        &|now| now["report"]["intent"].is_null() && now["report"]["change"]["config"] == "rendered-reboot",
    ),
    (
        "verdict",
        &|host| {
            drained(host);
            host.until_host(&|now| {
                now["report"]["change"]["state"] == "booted"
                    && now["report"]["change"]["config"] == "rendered-verdict"
            });
        },
        &|now| now["report"]["change"]["state"] == "good",
    ),
    (
        "uncordon",
        &|host| {
            drained(host);
            host.until_node(&|node| annotation(node, "desiredDrain").starts_with("uncordon-"));
        },
        &|now| now["report"]["change"]["state"] == "good",
    ),
];

#[test]
fn outages_of_the_api_server_stop_no_host() {
    let plane = ControlPlane::start().unwrap();
    apply_manifests(&plane);
    let host = Host::done_on(&plane, "outage", Options { pace: PACE, ..Options::default() });
    for (name, phase, goes_on) in PHASES {
        let config = format!("rendered-{name}");
        machine_config(&plane, &config, "reboot");
        host.wish(&config);
        phase(&host);
        plane.stop_api_server();
        std::thread::sleep(AWAY);
        assert!(goes_on(&host.host()), "{name}: {:#}\n{}", host.host(), host.log());
        plane.start_api_server().unwrap();
        host.until_done(&config);
        let node = host.node.get().unwrap();
        assert_ne!(node["spec"]["unschedulable"], true, "{name}");
        assert_eq!(annotation(&node, "reason"), "", "{name}");
    }
    // Nothing was done twice for it.
    for verb in ["commit", "reboot"] {
        assert_eq!(host.asked(verb), PHASES.len(), "{verb}: {:#}", host.host()["log"]);
    }
}
