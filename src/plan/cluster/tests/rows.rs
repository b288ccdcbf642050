use super::super::annotations::{self, State};
use super::super::reason::Reason;
use super::super::*;
use super::world::World;
use crate::model::wire::{Drift, Failed, RunningRequest, TakenOver, WentBackReport};

const LIMIT: usize = 40;

fn log(world: &World) -> Vec<&str> {
    world.log.iter().map(String::as_str).collect()
}

#[test]
fn an_update_with_a_reboot() {
    let mut world = World::done();
    world.desire("reboot-b");
    assert_eq!(world.settle(LIMIT).waits, Waits::Change);
    assert_eq!(
        log(&world),
        [
            "publish state=Working",
            "fetch reboot-b",
            "host Prepare",
            "publish desiredDrain=drain-reboot-b mcd-cordon=daemon mcd-drain-since=1000000",
            "wait Drain",
            "host Commit",
            "host Reboot",
            "wait Reboot",
            "publish post-config-action=",
            "wait Verdict",
            "host Verify",
            "publish desiredDrain=uncordon-reboot-b",
            "wait Uncordon",
            "publish currentConfig=reboot-b -mcd-cordon -mcd-drain-since state=Done",
            "wait Change",
        ]
    );
    assert!(!world.node().unschedulable);
}

#[test]
fn an_update_without_a_reboot() {
    let mut world = World::done();
    world.desire("live-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Change);
    assert_eq!(
        log(&world),
        [
            "publish state=Working",
            "fetch live-a",
            "host Prepare",
            "host ApplyLive",
            "host Verify",
            "publish currentConfig=live-a state=Done",
            "wait Change",
        ]
    );
}

#[test]
fn only_the_plan_says_whether_to_drain() {
    let mut world = World::done();
    world.desire("livedrain-a");
    world.settle(LIMIT);
    assert!(world.log.contains(
        &"publish desiredDrain=drain-livedrain-a mcd-cordon=daemon mcd-drain-since=1000000".to_owned()
    ));
    assert!(!world.log.contains(&"host Reboot".to_owned()));
    assert_eq!(world.node().annotations.desired_drain, "uncordon-livedrain-a");
}

#[test]
fn a_single_node_is_not_drained() {
    let mut world = World::done();
    world.annotate(annotations::TOPOLOGY, "SingleReplica");
    world.desire("reboot-b");
    world.settle(LIMIT);
    assert!(!world.log.iter().any(|line| line.contains("rain")), "{:?}", world.log);
    assert_eq!(world.node().annotations.state, Some(State::Done));
}

#[test]
fn a_persons_cordon_stays() {
    let mut world = World::done();
    world.view.node.as_mut().unwrap().unschedulable = true;
    world.desire("reboot-b");
    world.settle(LIMIT);
    assert!(world.node().unschedulable);
    let now = &world.node().annotations;
    assert_eq!((now.state, now.cordon.as_str()), (Some(State::Done), "person"));
    assert_eq!(now.desired_drain, now.last_applied_drain);
    // The next update still knows, and lets it be.
    world.desire("reboot-c");
    world.settle(LIMIT);
    assert!(world.node().unschedulable);
    // The person makes it schedulable: from then on it is ours again.
    world.view.node.as_mut().unwrap().unschedulable = false;
    world.desire("reboot-d");
    world.settle(LIMIT);
    assert!(!world.node().unschedulable);
    assert_eq!(world.node().annotations.cordon, "");
}

#[test]
fn a_change_that_went_back_is_not_driven_again() {
    let mut world = World::done();
    world.desire("unhealthy-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Person);
    let now = world.node().annotations.clone();
    assert_eq!(now.state, Some(State::Degraded));
    assert_eq!(
        now.reason,
        "change-failed: unhealthy-a failed after its boot (kubelet.service is not active); set another desiredConfig, or create /run/machine-config-daemon-force to try it again"
    );
    assert_eq!(now.current_config, "reboot-a");
    assert!(!world.node().unschedulable, "the last good system takes workloads");
    world.log.clear();
    assert_eq!(world.settle(LIMIT).waits, Waits::Person);
    assert_eq!(log(&world), ["wait Person"]);
    // The force file: once more.
    world.host().force = true;
    world.settle(LIMIT);
    assert_eq!(world.log.iter().filter(|line| *line == "host Prepare (forced)").count(), 1);
    assert_eq!(world.log.iter().filter(|line| *line == "host Reboot").count(), 1);
    assert_eq!(world.node().annotations.state, Some(State::Degraded));
    // Another config leads out, and so does the old one.
    world.desire("reboot-a");
    world.settle(LIMIT);
    assert_eq!(world.node().annotations.state, Some(State::Done));
}

#[test]
fn an_unproven_change_says_so() {
    let mut world = World::done();
    world.desire("reboot-b");
    world.host().went_back = Some(WentBackReport {
        config: Some("reboot-b".to_owned()),
        cause: "three boots without a verdict".to_owned(),
        by: "boot-count".to_owned(),
        ..WentBackReport::default()
    });
    assert_eq!(world.settle(LIMIT).waits, Waits::Person);
    assert!(world.node().annotations.reason.starts_with("change-unproven: reboot-b did not come up"));
}

#[test]
fn the_newest_wish_wins() {
    let mut world = World::done();
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("host Prepare") {
        world.step();
    }
    world.desire("reboot-c");
    world.settle(LIMIT);
    assert_eq!(world.node().annotations.current_config, "reboot-c");
    assert!(!world.log.iter().any(|line| line.contains("drain-reboot-b")));
    assert_eq!(world.log.iter().filter(|line| *line == "host Reboot").count(), 1);
}

#[test]
fn a_wish_taken_back_before_the_drain_costs_nothing() {
    let mut world = World::done();
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("host Prepare") {
        world.step();
    }
    world.desire("reboot-a");
    world.log.clear();
    world.settle(LIMIT);
    assert_eq!(log(&world), ["host Cancel", "host Verify", "publish state=Done", "wait Change"]);
}

#[test]
fn a_wish_taken_back_during_the_drain_takes_the_drain_back() {
    let mut world = World::done();
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("wait Drain") {
        world.step();
    }
    world.desire("reboot-a");
    world.settle(LIMIT);
    assert!(!world.node().unschedulable);
    assert_eq!(world.node().annotations.state, Some(State::Done));
    assert_eq!(world.node().annotations.desired_drain, "uncordon-reboot-a");
}

#[test]
fn what_is_refused_is_unreconcilable() {
    let mut world = World::done();
    world.desire("refused-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Retry);
    let now = &world.node().annotations;
    assert_eq!(now.state, Some(State::Unreconcilable));
    assert_eq!(now.reason, "config-refused: refused-a: file /etc/x: reserved");
    assert!(!world.log.iter().any(|line| line.contains("drain")));
}

#[test]
fn what_does_not_exist_is_named() {
    let mut world = World::done();
    world.desire("absent-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Retry);
    assert_eq!(
        world.node().annotations.reason,
        "config-absent: MachineConfig absent-a does not exist; create it, or set desiredConfig to one that does"
    );
    // It comes to be looked for again, and a retry writes nothing.
    let writes = world.writes;
    world.view.now += 10;
    assert_eq!(world.settle(LIMIT).waits, Waits::Retry);
    assert_eq!(world.log.iter().filter(|line| line.starts_with("fetch")).count(), 2);
    assert_eq!(world.writes, writes);
}

#[test]
fn a_failed_commit_keeps_the_drain_for_three_tries_only() {
    let mut world = World::done();
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("wait Drain") {
        world.step();
    }
    let target = target(world.node());
    let commit = Step::Commit { target: target.clone(), change: "change-reboot-b".to_owned(), force: false };
    let failed = Failed { code: 1, what: "/boot is full".to_owned(), ..Failed::default() };
    for attempt in 1..=3 {
        assert_eq!(next(&world.view), Action::Host(commit.clone()), "try {attempt}");
        let now = world.view.now;
        world.view.memory.see_end(&commit, &target, "boot-0", &Err(failed.clone()), now);
        let wait = world.settle(LIMIT);
        assert_eq!(wait.waits, if attempt < 3 { Waits::Retry } else { Waits::Person });
        world.view.now += 600;
    }
    assert!(!world.node().unschedulable);
    assert_eq!(world.node().annotations.reason, "commit-failed: reboot-b: /boot is full");
}

#[test]
fn what_was_not_undone_keeps_the_drain() {
    let mut world = World::done();
    world.desire("livedrain-a");
    while world.log.last().map(String::as_str) != Some("wait Drain") {
        world.step();
    }
    let target = target(world.node());
    let step = Step::ApplyLive { target: target.clone(), force: false };
    let failed = Failed { code: 4, what: "half".to_owned(), ..Failed::default() };
    world.view.memory.see_end(&step, &target, "boot-0", &Err(failed), 0);
    assert_eq!(world.settle(LIMIT).waits, Waits::Person);
    assert!(world.node().unschedulable);
    assert_eq!(world.node().annotations.reason, "not-undone: livedrain-a: half");
}

#[test]
fn drift_is_said_and_goes() {
    let mut world = World::done();
    world.settle(LIMIT);
    world.host().drift = Some(Drift { differs: vec!["/etc/x: content".to_owned()], since: 1 });
    assert_eq!(world.settle(LIMIT).waits, Waits::Person);
    assert!(
        world.node().annotations.reason.starts_with("drift: the host differs from reboot-a: /etc/x: content")
    );
    world.host().drift = None;
    world.settle(LIMIT);
    assert_eq!(world.node().annotations.state, Some(State::Done));
}

#[test]
fn drift_is_healed_if_asked_for() {
    let mut world = World::done();
    world.view.settings.self_heal = true;
    world.settle(LIMIT);
    world.host().drift = Some(Drift { differs: vec!["/etc/x: content".to_owned()], since: 1 });
    world.settle(LIMIT);
    assert_eq!(world.node().annotations.state, Some(State::Done));
    assert_eq!(world.writes, 0);
}

#[test]
fn drift_stops_no_update() {
    let mut world = World::done();
    world.host().drift = Some(Drift { differs: vec!["/etc/x: content".to_owned()], since: 1 });
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("host Reboot") {
        world.step();
    }
}

#[test]
fn what_the_go_daemon_left_is_taken_over() {
    let mut world = World::done();
    for name in [annotations::CURRENT_CONFIG, annotations::DESIRED_CONFIG, annotations::STATE] {
        world.annotate(name, "");
    }
    world.host().taken_over = Some(TakenOver {
        current_config: Some("reboot-a".to_owned()),
        node_annotations: [
            (annotations::CURRENT_CONFIG.to_owned(), "reboot-a".to_owned()),
            (annotations::DESIRED_CONFIG.to_owned(), "reboot-a".to_owned()),
        ]
        .into(),
        ..TakenOver::default()
    });
    world.settle(LIMIT);
    assert_eq!(world.log[0], "publish currentConfig=reboot-a desiredConfig=reboot-a");
    assert_eq!(world.node().annotations.state, Some(State::Done));
    assert!(!world.log.iter().any(|line| line.contains("rain")));
}

#[test]
fn a_node_that_nobody_wants_anything_of_waits() {
    let mut world = World::done();
    world.annotate(annotations::CURRENT_CONFIG, "");
    world.annotate(annotations::DESIRED_CONFIG, "");
    world.host().applied_config = None;
    assert_eq!(next(&world.view), wait(Waits::Desire));
    world.view.node = None;
    assert_eq!(next(&world.view), wait(Waits::Node));
}

#[test]
fn what_runs_on_the_host_is_followed() {
    let mut world = World::done();
    world.host().running = vec![RunningRequest { id: "prepare-1".to_owned(), ..RunningRequest::default() }];
    assert_eq!(next(&world.view), Action::Attach("prepare-1".to_owned()));
}

#[test]
fn certificates_go_first_and_stop_no_update() {
    let mut world = World::done();
    world.view.controller_config = ControllerConfigView::Found { version: "7".to_owned() };
    let step = Step::ControllerConfig { version: "7".to_owned() };
    assert_eq!(next(&world.view), Action::Host(step.clone()));
    let failed = Failed { code: 1, what: "no room".to_owned(), ..Failed::default() };
    let (now, of) = (world.view.now, target(world.node()));
    world.view.memory.see_end(&step, &of, "boot-0", &Err(failed), now);
    world.desire("live-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Retry);
    assert_eq!(world.host().applied_config.as_deref(), Some("live-a"));
    assert!(world.node().annotations.reason.starts_with("controller-config-failed: "));
    world.view.now += 10;
    world.settle(LIMIT);
    let now = &world.node().annotations;
    assert_eq!((now.state, now.last_synced.as_str()), (Some(State::Done), "7"));
}

#[test]
fn a_reboot_that_does_not_come_is_named() {
    let mut world = World::done();
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("host Reboot") {
        world.step();
    }
    world.view.now += 601;
    let Action::Publish(publish) = next(&world.view) else { panic!() };
    assert_eq!(publish.reason.unwrap().kind, ReasonKind::RebootFailed);
}

#[test]
fn an_image_of_its_own() {
    let mut world = World::done();
    world.annotate(annotations::DESIRED_IMAGE, "registry.test/os@sha256:1");
    world.settle(LIMIT);
    assert_eq!(world.node().annotations.current_image, "registry.test/os@sha256:1");
    // And back to the one that the MachineConfig names.
    world.annotate(annotations::DESIRED_IMAGE, "");
    world.settle(LIMIT);
    assert_eq!(world.node().annotations.current_image, "");
    assert_eq!(world.log.iter().filter(|line| *line == "host Reboot").count(), 2);
}

#[test]
fn self_drain_carries_its_orders_out() {
    let mut world = World::done();
    world.view.settings.drain = DrainBy::Itself;
    world.desire("reboot-b");
    world.settle(LIMIT);
    let orders: Vec<&String> = world.log.iter().filter(|line| line.starts_with("drain ")).collect();
    assert_eq!(orders, ["drain drain-reboot-b", "drain uncordon-reboot-b"]);
    assert_eq!(world.node().annotations.state, Some(State::Done));
}

#[test]
fn a_blocked_drain_names_what_blocks() {
    let mut world = World::done();
    world.view.settings.drain = DrainBy::Itself;
    world.desire("reboot-b");
    while !world.log.last().is_some_and(|line| line.starts_with("publish desiredDrain")) {
        world.step();
    }
    let why = "pod web/a: PodDisruptionBudget web/one allows no disruption".to_owned();
    world.view.drain = SelfDrain::Blocked { order: "drain-reboot-b".to_owned(), why };
    world.step();
    assert_eq!(
        world.node().annotations.reason,
        "drain-blocked: the node cannot be drained for reboot-b: pod web/a: PodDisruptionBudget web/one allows no disruption"
    );
}

#[test]
fn a_reason_is_one_short_line_without_credentials() {
    let text = format!("get https://me:secret@registry.test/v2/\nno{}", "x".repeat(3000));
    let line = Reason::new(ReasonKind::PrepareFailed, text).annotation();
    assert!(line.starts_with("prepare-failed: get https://<hidden>@registry.test/v2/ no"));
    assert_eq!(line.chars().count(), annotations::REASON_MAX);
}

/// The runbook has a heading for every reason, and no other.
#[test]
fn the_runbook_knows_every_reason() {
    let text = include_str!("../../../../docs/runbook.md");
    let mut headings: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    let mut ids: Vec<&str> = ReasonKind::ALL.iter().map(|kind| kind.id()).collect();
    headings.sort_unstable();
    ids.sort_unstable();
    assert_eq!(headings, ids);
}

#[test]
fn a_clock_that_is_set_makes_no_retry_late() {
    for step in [-86_400, 86_400] {
        let mut world = World::done();
        world.desire("absent-a");
        assert_eq!(world.settle(LIMIT).waits, Waits::Retry);
        let ConfigView::Absent { at, .. } = world.view.config else { panic!("{:?}", world.view.config) };
        world.view.memory.reboot_asked = Some(("boot".to_owned(), at));
        world.view.memory.drain_asked = Some(("drain-a".to_owned(), at));
        world.view.shift(step);
        let ConfigView::Absent { at: shifted, .. } = world.view.config else {
            panic!("{:?}", world.view.config)
        };
        assert_eq!(shifted, at + step);
        assert_eq!(world.view.memory.reboot_asked, Some(("boot".to_owned(), at + step)));
        assert_eq!(world.view.memory.drain_asked, Some(("drain-a".to_owned(), at + step)));
    }
}
