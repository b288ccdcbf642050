//! From any state, with a host that obeys, the node ends Done or in trouble that it names, and never
//! goes round in circles.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::annotations::{self, State};
use super::super::*;
use super::world::World;
use crate::model::wire::{Drift, Failed, Hold, PlanSummary, WentBackReport};

const NAMES: [&str; 9] = [
    "reboot-a",
    "reboot-b",
    "live-a",
    "livedrain-a",
    "refused-a",
    "broken-a",
    "unhealthy-a",
    "absent-a",
    "bad-a",
];
/// More than the longest honest way: a change that goes back, after one that was cancelled.
const LIMIT: usize = 60;

fn name() -> impl Strategy<Value = String> {
    select(&NAMES[..]).prop_map(str::to_owned)
}

fn maybe(strategy: impl Strategy<Value = String>) -> impl Strategy<Value = Option<String>> {
    proptest::option::of(strategy)
}

fn order() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        name().prop_map(|name| format!("drain-{name}")),
        name().prop_map(|name| format!("uncordon-{name}")),
    ]
}

fn annotated() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let state = select(&["", "Done", "Working", "Degraded", "Unreconcilable", "Nonsense"][..]);
    let cordon = select(&["", "daemon", "person"][..]);
    let action = select(&["", "Rebooting"][..]);
    let topology = select(&["", "SingleReplica"][..]);
    (maybe(name()), name(), state, order(), order(), cordon, action, topology).prop_map(
        |(current, desired, state, asked, applied, cordon, action, topology)| {
            vec![
                (annotations::CURRENT_CONFIG, current.unwrap_or_default()),
                (annotations::DESIRED_CONFIG, desired),
                (annotations::STATE, state.to_owned()),
                (annotations::DESIRED_DRAIN, asked),
                (annotations::LAST_APPLIED_DRAIN, applied),
                (annotations::CORDON, cordon.to_owned()),
                (annotations::POST_CONFIG_ACTION, action.to_owned()),
                (annotations::TOPOLOGY, topology.to_owned()),
            ]
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let state = select(
        &[
            ChangeState::Booted,
            ChangeState::Good,
            ChangeState::Unproven,
            ChangeState::Failed,
            ChangeState::RolledBack,
            ChangeState::Unknown,
        ][..],
    );
    (maybe(name()), state).prop_map(|(config, state)| Change { config, state, ..Change::default() })
}

fn intent() -> impl Strategy<Value = IntentReport> {
    (name(), any::<bool>(), any::<bool>()).prop_map(|(name, committed, drain)| IntentReport {
        id: format!("change-{name}"),
        config: Some(name),
        image: None,
        committed,
        plan: PlanSummary { drain, reboot: true, ..PlanSummary::default() },
    })
}

fn world() -> impl Strategy<Value = World> {
    let host = (
        maybe(name()),
        proptest::option::of(change()),
        proptest::option::of(intent()),
        proptest::option::of(name()),
        any::<bool>(),
        any::<bool>(),
    );
    let rest = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (annotated(), host, rest).prop_map(|(annotated, host, rest)| {
        let mut world = World::done();
        let (applied, change, intent, went_back, force, drift) = host;
        let report = world.host();
        report.applied_config = applied;
        report.change = change;
        report.intent = intent;
        report.went_back = went_back.map(|name| WentBackReport {
            config: Some(name),
            cause: "it failed".to_owned(),
            by: "health".to_owned(),
            ..WentBackReport::default()
        });
        report.force = force;
        report.drift = drift.then(|| Drift { differs: vec!["/etc/x: content".to_owned()], since: 1 });
        let (unschedulable, itself, heals, synced) = rest;
        let node = world.view.node.as_mut().unwrap();
        node.unschedulable = unschedulable;
        world.view.settings.drain = if itself { DrainBy::Itself } else { DrainBy::Controller };
        world.view.settings.self_heal = heals;
        if !synced {
            world.view.controller_config = ControllerConfigView::Found { version: "7".to_owned() };
        }
        for (name, value) in annotated {
            world.annotate(name, &value);
        }
        world
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn it_ends(mut world in world()) {
        let wait = world.settle(LIMIT);
        check_end(&world, &wait)?;
    }

    /// Somebody changes their mind at any moment.
    #[test]
    fn it_ends_after_a_change_of_mind(mut world in world(), after in 0_usize..20, then in name()) {
        for _ in 0..after {
            if world.step().is_some() {
                break;
            }
        }
        world.desire(&then);
        let wait = world.settle(LIMIT);
        check_end(&world, &wait)?;
    }

    /// The pod is killed at any moment: it comes to the same end without its memory.
    #[test]
    fn it_ends_after_a_kill(mut world in world(), after in 0_usize..20) {
        for _ in 0..after {
            if world.step().is_some() {
                break;
            }
        }
        world.view.memory = Memory::default();
        world.view.config = ConfigView::NotFetched;
        world.view.drain = SelfDrain::Idle;
        let wait = world.settle(LIMIT);
        check_end(&world, &wait)?;
    }

    /// A good config is always a way out, whatever came before.
    #[test]
    fn a_good_config_leads_out(mut world in world()) {
        world.settle(LIMIT);
        // Another one than all that the records may call failed.
        world.desire("reboot-good");
        world.host().drift = None;
        world.settle(LIMIT);
        prop_assert_eq!(world.node().annotations.state, Some(State::Done), "{}", world.log.join("\n"));
        prop_assert_eq!(&world.node().annotations.current_config, "reboot-good");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// However often somebody changes their mind, and whenever the pod is killed: a cordon is as it was
    /// found.
    #[test]
    fn a_cordon_is_left_as_it_was_found(
        is_cordoned in any::<bool>(),
        minds in proptest::collection::vec((name(), 0_usize..20, any::<bool>()), 0..5),
    ) {
        let mut world = World::done();
        world.view.node.as_mut().unwrap().unschedulable = is_cordoned;
        for (name, steps, is_killed) in minds {
            world.desire(&name);
            for _ in 0..steps {
                if world.step().is_some() {
                    break;
                }
            }
            if is_killed {
                world.view.memory = Memory::default();
                world.view.config = ConfigView::NotFetched;
            }
        }
        world.desire("reboot-good");
        world.settle(LIMIT);
        prop_assert_eq!(world.node().annotations.state, Some(State::Done), "{}", world.log.join("\n"));
        prop_assert_eq!(world.node().unschedulable, is_cordoned, "{}", world.log.join("\n"));
    }
}

fn check_end(world: &World, wait: &Wait) -> Result<(), TestCaseError> {
    let now = &world.node().annotations;
    let log = world.log.join("\n");
    let state = now.state;
    prop_assert!(
        matches!(state, Some(State::Done | State::Degraded | State::Unreconcilable)),
        "{state:?} {wait:?}\n{log}"
    );
    prop_assert!(!now.drain_is_pending(), "desiredDrain is left unequal\n{log}");
    if state == Some(State::Done) {
        prop_assert_eq!(&now.current_config, &now.desired_config);
        prop_assert_eq!(&now.reason, "");
        prop_assert_eq!(&now.post_config_action, "");
        prop_assert_eq!(world.view.host.as_ref().unwrap().applied_config.as_ref(), Some(&now.desired_config));
    } else {
        prop_assert!(!now.reason.is_empty(), "no reason\n{log}");
        prop_assert!(ReasonKind::ALL.iter().any(|kind| now.reason.starts_with(kind.id())));
    }
    Ok(())
}

#[test]
fn a_hold_keeps_a_prepared_update() {
    let mut world = World::done();
    world.host().hold = Some(Hold { why: "audit".to_owned(), until: Some(1_000_500) });
    world.desire("reboot-b");
    let wait = world.settle(LIMIT);
    assert_eq!(wait, Wait { waits: Waits::Hold, until: Some(1_000_500) });
    assert!(
        world
            .node()
            .annotations
            .reason
            .starts_with("hold: drains and reboots are held until 1970-01-12T13:55:00Z: audit")
    );
    assert_eq!(world.node().annotations.desired_drain, "uncordon-reboot-a");
    world.view.now = 1_000_500;
    assert_eq!(world.settle(LIMIT).waits, Waits::Change);
    assert_eq!(world.node().annotations.current_config, "reboot-b");
}

#[test]
fn a_failure_is_forgotten_with_its_target() {
    let mut world = World::done();
    world.desire("broken-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Retry);
    let failed = world.view.memory.failed.clone().unwrap();
    assert_eq!(
        failed.failed,
        Failed { code: 1, what: "image: no such host".to_owned(), ..Failed::default() }
    );
    world.log.clear();
    world.desire("live-a");
    assert_eq!(world.settle(LIMIT).waits, Waits::Change);
    assert_eq!(world.log[0], "publish reason= state=Working");
}
