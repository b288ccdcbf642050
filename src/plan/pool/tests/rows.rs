//! Case by case.

use serde_json::json;

use super::super::status::Why;
use super::super::*;
use super::world::{World, pool, source};
use crate::model::pool::{CANARY, HALT_AFTER};
use crate::plan::cluster::annotations::State;

#[test]
fn a_pool_is_rendered_once_and_owned() {
    let mut world = World::new(0, json!({}), json!({}));
    let actions = world.decide();
    let [Action::Create { pool, object }] = actions.as_slice() else { panic!("{actions:#?}") };
    assert_eq!(pool, "worker");
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("rendered-worker-") && name.len() == "rendered-worker-".len() + 32, "{name}");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid-worker");
    world.turn();
    assert_eq!(world.target(), name);
    assert_eq!(world.condition("Updated"), (true, format!("All nodes are updated with {name}")));
    assert_eq!(world.decide(), [], "the same again is nothing to do");
}

#[test]
fn configs_are_merged_worker_first_then_by_name() {
    let mut world = World::new(0, json!({}), json!({}));
    world.pools.insert("infra".to_owned(), pool("infra", json!({}), json!({})));
    world.sources.insert("10-infra".to_owned(), source("10-infra", "infra", "a=2"));
    let rendered = render(&world.pools["infra"], &world.sources).unwrap();
    assert_eq!(rendered.sources, ["50-a", "10-infra"]);
    assert_eq!(rendered.spec["kernelArguments"], json!(["a=1", "a=2"]));
    let rendered = render(&world.pools["worker"], &world.sources).unwrap();
    assert_eq!(rendered.sources, ["50-a"], "another pool's are not selected");
}

#[test]
fn one_node_goes_first_and_the_others_when_it_is_done() {
    let mut world = World::done(5, json!({ "maxUnavailable": 3 }), json!({}));
    world.set("a=2");
    assert_eq!(world.turn(), ["n00"]);
    let (is_updating, text) = world.condition("Updating");
    assert!(is_updating && text.starts_with("Node n00 gets rendered-worker-"), "{text}");
    world.end("n00", State::Working, "");
    assert_eq!(world.turn(), [""; 0]);
    world.end("n00", State::Done, "");
    assert_eq!(world.turn(), ["n01", "n02", "n03"]);
}

#[test]
fn the_pool_says_how_many_go_first() {
    let mut world = World::done(5, json!({ "maxUnavailable": 4 }), json!({ CANARY: "2" }));
    world.set("a=2");
    assert_eq!(world.turn(), ["n00", "n01"]);
    let mut world = World::done(5, json!({ "maxUnavailable": 4 }), json!({ CANARY: "0" }));
    world.set("a=2");
    assert_eq!(world.turn(), ["n00", "n01", "n02", "n03"]);
}

#[test]
fn zone_by_zone_and_the_oldest_first() {
    let mut world = World::new(0, json!({ "maxUnavailable": 9 }), json!({ CANARY: "0" }));
    for (name, zone, created) in [
        ("e", "b", "2026-01-01T00:00:00Z"),
        ("d", "a", "2026-01-03T00:00:00Z"),
        ("c", "a", "2026-01-02T00:00:00Z"),
        ("b", "a", "2026-01-03T00:00:00Z"),
        ("a", "b", "2026-01-02T00:00:00Z"),
    ] {
        world.add(name, zone, created);
    }
    assert_eq!(world.turn(), ["c", "b", "d", "e", "a"]);
}

#[test]
fn nodes_that_are_away_already_count_and_cost_nothing() {
    let mut world = World::done(4, json!({ "maxUnavailable": 2 }), json!({ CANARY: "0" }));
    world.nodes.get_mut("n00").unwrap().is_ready = false;
    world.nodes.get_mut("n03").unwrap().unschedulable = true;
    world.set("a=2");
    assert_eq!(world.turn(), ["n03"], "of two that may be away, two are; the cordoned one is free");
    assert_eq!(world.pools["worker"].status["unavailableMachineCount"], 2);
}

#[test]
fn a_paused_pool_is_rendered_and_told_to_nobody() {
    let mut world = World::done(2, json!({}), json!({}));
    let before = world.target();
    world.pools.get_mut("worker").unwrap().spec.as_mut().unwrap().paused = true;
    world.set("a=2");
    assert_eq!(world.turn(), [""; 0]);
    assert_ne!(world.target(), before);
    assert!(world.condition("Updating").1.starts_with("The pool is paused"));
    assert!(!world.condition("Updated").0);
    assert_eq!(world.pools["worker"].status["configuration"]["name"], before);
    world.pools.get_mut("worker").unwrap().spec.as_mut().unwrap().paused = false;
    assert_eq!(world.turn(), ["n00"]);
}

#[test]
fn a_failing_canary_halts_and_the_corrected_config_goes_on() {
    let mut world = World::done(3, json!({}), json!({}));
    world.set("bad=1");
    assert_eq!(world.turn(), ["n00"]);
    world.end("n00", State::Degraded, "change-failed: kubelet.service is not active");
    assert_eq!(world.turn(), [""; 0]);
    let (is_degraded, text) = world.condition("Degraded");
    assert!(is_degraded, "{text}");
    assert!(text.contains("Node n00 is Degraded: change-failed: kubelet.service is not active"), "{text}");
    assert!(text.contains("is halted"), "{text}");
    assert!(!world.condition("Updating").0);
    assert_eq!(world.pools["worker"].status["degradedMachineCount"], 1);
    world.set("good=1");
    assert_eq!(world.turn(), ["n00"], "the one that failed costs nobody anything");
    world.end("n00", State::Done, "");
    assert_eq!(world.turn(), ["n01"]);
    assert!(!world.condition("Degraded").0);
    world.end("n01", State::Done, "");
    world.settle();
    assert!(world.condition("Updated").0);
}

#[test]
fn going_back_to_what_the_others_have_needs_no_canary() {
    let mut world = World::done(3, json!({}), json!({}));
    world.set("bad=1");
    world.turn();
    world.end("n00", State::Unreconcilable, "config-refused: no");
    world.turn();
    world.set("a=1");
    assert_eq!(world.turn(), ["n00"]);
    world.end("n00", State::Done, "");
    world.turn();
    assert!(world.condition("Updated").0);
}

#[test]
fn the_pool_says_how_many_failures_halt() {
    let mut world = World::done(6, json!({ "maxUnavailable": 3 }), json!({ CANARY: "1", HALT_AFTER: "2" }));
    world.set("a=2");
    assert_eq!(world.turn(), ["n00"]);
    world.end("n00", State::Done, "");
    assert_eq!(world.turn(), ["n01", "n02", "n03"]);
    world.end("n01", State::Degraded, "x");
    world.end("n02", State::Done, "");
    assert_eq!(world.turn(), ["n04"], "one failure takes a place and halts nothing");
    world.end("n03", State::Degraded, "x");
    world.end("n04", State::Done, "");
    assert_eq!(world.turn(), [""; 0]);
    assert!(world.condition("Degraded").1.contains("(and 1 more)"));
}

#[test]
fn a_config_that_cannot_be_read_is_named_and_what_was_rendered_goes_on() {
    let mut world = World::done(3, json!({}), json!({}));
    world.set("a=2");
    assert_eq!(world.turn(), ["n00"]);
    let bad = source("60-bad", "worker", "x");
    let text = bad.text.replace("kernelArguments", "kernelArgument");
    world.sources.insert("60-bad".to_owned(), Source { text, ..bad });
    world.end("n00", State::Done, "");
    assert_eq!(world.turn(), ["n01"]);
    let (is_degraded, text) = world.condition("RenderDegraded");
    assert!(
        is_degraded && text.contains("MachineConfig 60-bad: spec.kernelArgument: there is no such field"),
        "{text}"
    );
    assert!(world.condition("Degraded").0);
}

#[test]
fn a_pool_that_cannot_be_read_tells_nobody_anything() {
    let mut world = World::done(3, json!({}), json!({}));
    world.set("a=2");
    world.pools.get_mut("worker").unwrap().spec = Err("spec.maxUnavailable: no".to_owned());
    assert_eq!(world.turn(), [""; 0]);
    assert_eq!(world.condition("RenderDegraded"), (true, "spec.maxUnavailable: no".to_owned()));
}

#[test]
fn old_rendered_configs_go_when_nobody_names_them() {
    let mut world = World::done(2, json!({}), json!({}));
    let first = world.target();
    world.set("a=2");
    assert_eq!(world.turn(), ["n00"]);
    world.end("n00", State::Done, "");
    assert_eq!(world.turn(), ["n01"]);
    assert!(world.existing.contains_key(&first), "n01 has it still, and the pool's status names it");
    world.end("n01", State::Done, "");
    world.turn();
    assert_eq!(world.existing.keys().cloned().collect::<Vec<_>>(), [world.target()]);
    // Not ours: of a pool that is gone, or made by somebody else.
    world.existing.insert("rendered-worker-x".to_owned(), "uid-other".to_owned());
    world.existing.insert("rendered-other-x".to_owned(), "uid-worker".to_owned());
    assert_eq!(world.decide(), []);
}

#[test]
fn a_node_belongs_to_one_pool() {
    let mut world = World::new(2, json!({}), json!({}));
    for name in ["infra", "gpu", "master"] {
        world.pools.insert(name.to_owned(), pool(name, json!({}), json!({})));
    }
    let label = |node: &mut Node, role: &str| {
        node.labels.insert(format!("node-role.kubernetes.io/{role}"), String::new())
    };
    let mut node = world.nodes["n00"].clone();
    assert_eq!(pool_of(&world.pools, &node), Ok(Some("worker")));
    label(&mut node, "infra");
    assert_eq!(pool_of(&world.pools, &node), Ok(Some("infra")), "a custom pool before worker");
    label(&mut node, "master");
    assert_eq!(pool_of(&world.pools, &node), Ok(Some("master")), "master before all");
    label(&mut node, "gpu");
    assert_eq!(pool_of(&world.pools, &node), Err(vec!["gpu", "infra"]));
    world.nodes.insert("n00".to_owned(), node);
    assert_eq!(world.turn(), ["n01"]);
    let status = &world.pools["gpu"].status;
    assert!(status.to_string().contains("Node n00 is selected by several pools: gpu, infra"), "{status:#}");
}

#[test]
fn the_time_of_a_condition_stays_while_it_does() {
    let mut world = World::done(1, json!({}), json!({}));
    world.now = "2026-01-02T00:00:00Z".to_owned();
    assert_eq!(world.decide(), []);
    world.set("a=2");
    world.turn();
    let conditions = world.pools["worker"].status["conditions"].as_array().unwrap().clone();
    let since =
        |kind: &str| conditions.iter().find(|one| one["type"] == kind).unwrap()["lastTransitionTime"].clone();
    assert_eq!(since("Updated"), "2026-01-02T00:00:00Z");
    assert_eq!(since("Degraded"), "2026-01-01T00:00:00Z");
}

/// The runbook has a row for every reason, and no other.
#[test]
fn the_runbook_knows_every_reason_of_a_pool() {
    let text = include_str!("../../../../docs/runbook.md");
    let (_, table) = text.split_once("\n## Pools\n").unwrap();
    let mut rows: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(reason, _)| reason)
        .collect();
    let mut ids: Vec<&str> = Why::ALL.iter().map(|why| why.id()).collect();
    rows.sort_unstable();
    ids.sort_unstable();
    assert_eq!(rows, ids);
}
