//! From any state of the nodes, with any pool: bounds hold at every step, and it comes to an end.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::super::*;
use super::world::World;
use crate::model::pool::{CANARY, HALT_AFTER};
use crate::plan::cluster::annotations::State;

/// A node as somebody left it.
#[derive(Debug, Clone)]
struct Left {
    zone: &'static str,
    created: &'static str,
    is_ready: bool,
    unschedulable: bool,
    /// What it was told and has: nothing, the old one, the new one.
    told: usize,
    has: usize,
    state: Option<State>,
}

fn left() -> impl Strategy<Value = Left> {
    let states =
        [None, Some(State::Done), Some(State::Working), Some(State::Degraded), Some(State::Unreconcilable)];
    (
        select(&["a", "b", "c"][..]),
        select(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"][..]),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.2),
        0..3_usize,
        0..3_usize,
        select(states.to_vec()),
    )
        .prop_map(|(zone, created, is_ready, unschedulable, told, has, state)| Left {
            zone,
            created,
            is_ready,
            unschedulable,
            told,
            has,
            state,
        })
}

/// A cluster in the middle of something; gives the name of the new config, too.
fn world(nodes: &[Left], max: usize, canary: usize, halt: usize) -> (World, String) {
    let annotations = json!({ CANARY: canary.to_string(), HALT_AFTER: halt.to_string() });
    let mut world = World::done(0, json!({ "maxUnavailable": max }), annotations);
    let old = world.target();
    world.set("a=2");
    let new = render(&world.pools["worker"], &world.sources).unwrap().name;
    for (index, left) in nodes.iter().enumerate() {
        let name = format!("n{index:02}");
        world.add(&name, left.zone, left.created);
        let node = world.nodes.get_mut(&name).unwrap();
        let names = [String::new(), old.clone(), new.clone()];
        node.is_ready = left.is_ready;
        node.unschedulable = left.unschedulable;
        node.annotations.desired_config = names[left.told].clone();
        node.annotations.current_config = names[left.has].clone();
        node.annotations.state = left.state;
    }
    (world, new)
}

fn unavailable(world: &World) -> usize {
    world.nodes.values().filter(|node| !node.is_available()).count()
}

/// One turn of the controller, with everything that must hold of it.
fn turn(world: &mut World, target: &str) -> Vec<String> {
    let spec = world.pools["worker"].spec.clone().unwrap();
    let before = world.nodes.clone();
    let (away, most) = (unavailable(world), spec.max_unavailable.of(before.len()));
    let updated = before.values().filter(|node| node.has(target)).count();
    let told_before = before.values().filter(|node| node.is_told(target)).count();
    let failures = before.values().filter(|node| node.is_told(target) && node.has_failed()).count();
    let told = world.turn();
    assert!(unavailable(world) <= away.max(most), "{away} were away, {most} may be: {told:?}");
    // One that has it already, and was told something else meanwhile, is a canary at once.
    let knows = |name: &String| before[name].annotations.current_config == target;
    if updated < spec.canary && !told.iter().any(knows) {
        assert!(
            told_before + told.len() <= spec.canary.max(told_before),
            "before the canary is Done: {told:?}"
        );
    }
    if failures >= spec.halt_after {
        assert!(told.is_empty(), "halted: {told:?}");
    }
    let place = |name: &String| {
        let node = &before[name];
        (node.zone.clone(), node.created.clone(), name.clone())
    };
    let taken: Vec<_> = told.iter().filter(|name| before[*name].is_available()).map(place).collect();
    assert!(taken.is_sorted(), "zone, then age: {taken:?}");
    let left = before
        .iter()
        .filter(|(name, node)| node.is_available() && !node.is_told(target) && !told.contains(*name));
    for (name, _) in left {
        assert!(taken.last().is_none_or(|last| *last < place(name)), "{name} was passed over");
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_more_than_allowed_are_away_and_all_arrive(
        nodes in prop::collection::vec(left(), 1..12),
        max in 1..5_usize,
        canary in 0..4_usize,
        halt in 1..4_usize,
        picks in prop::collection::vec(0..100_usize, 60),
    ) {
        let (mut world, target) = world(&nodes, max, canary, halt);
        // One node at a time makes a step: it goes away, comes back, is Done.
        for pick in picks {
            turn(&mut world, &target);
            let index = pick % world.nodes.len();
            let node = world.nodes.values_mut().nth(index).unwrap();
            step(node);
        }
        // Then everything goes well.
        for _ in 0..20 {
            turn(&mut world, &target);
            for node in world.nodes.values_mut() {
                // Those that a person cordoned count, and may hold the others up for ever.
                node.unschedulable = false;
                while !(node.is_settled() && node.is_ready) {
                    step(node);
                }
                // Its daemon says so at last.
                node.annotations.state = Some(State::Done);
            }
        }
        prop_assert!(world.nodes.values().all(|node| node.has(&target)), "{:#?}", world.nodes);
        world.turn();
        prop_assert_eq!(world.decide(), []);
        prop_assert_eq!(world.condition("Updated").0, true);
    }

    #[test]
    fn a_config_that_always_fails_reaches_few(
        count in 1..20_usize,
        max in 1..8_usize,
        canary in 0..4_usize,
        halt in 1..4_usize,
    ) {
        let annotations = json!({ CANARY: canary.to_string(), HALT_AFTER: halt.to_string() });
        let mut world = World::done(count, json!({ "maxUnavailable": max }), annotations);
        world.set("bad=1");
        let mut reached = 0;
        for _ in 0..50 {
            let told = world.turn();
            reached += told.len();
            for name in told {
                world.end(&name, State::Degraded, "change-failed: no");
            }
        }
        // Those of the wave in which the last allowed failure happened.
        let most = if canary > 0 { canary } else { (halt - 1) + max };
        prop_assert!(reached <= most.min(count), "{reached} of {count}");
        prop_assert!(unavailable(&world) <= max.max(1));
    }
}

/// One step of a node that obeys: away, back with what it was told, and Done.
fn step(node: &mut Node) {
    let now = &mut node.annotations;
    if !node.is_ready {
        node.is_ready = true;
    } else if now.desired_config != now.current_config && now.state != Some(State::Working) {
        now.state = Some(State::Working);
    } else if now.desired_config != now.current_config {
        now.current_config.clone_from(&now.desired_config);
        node.is_ready = false;
    } else {
        now.state = Some(State::Done);
    }
}
