use super::super::annotations::State;
use super::super::phase::{Phase, Progress};
use super::super::*;
use super::world::World;

/// The phases that an update goes through, with the conditions that are not `False`.
fn phases(world: &mut World, progress: &mut Progress, limit: usize) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..limit {
        let action = next(&world.view);
        *progress = progress.after(&world.view, &action);
        let conditions = progress.conditions();
        let shown: Vec<String> = conditions
            .iter()
            .filter(|one| one.status != "False")
            .map(|one| if one.status == "True" { one.kind.to_owned() } else { format!("{}?", one.kind) })
            .collect();
        let line = shown.join(" ");
        if progress.is_known && seen.last() != Some(&line) {
            seen.push(line);
        }
        if world.step().is_some() {
            break;
        }
    }
    seen
}

#[test]
fn the_conditions_of_an_update_with_a_reboot() {
    let mut world = World::done();
    world.desire("reboot-b");
    assert_eq!(
        phases(&mut world, &mut Progress::default(), 40),
        [
            "UpdatePrepared?",
            "UpdatePrepared UpdateExecuted? Cordoned Drained?",
            "UpdatePrepared UpdateExecuted? Cordoned Drained AppliedFilesAndOS?",
            "UpdatePrepared UpdateExecuted Cordoned Drained AppliedFilesAndOS RebootedNode?",
            "UpdatePrepared UpdateExecuted Cordoned Drained AppliedFilesAndOS RebootedNode Resumed UpdateComplete?",
            "Updated",
        ]
    );
}

#[test]
fn the_conditions_of_an_update_without_a_reboot() {
    let mut world = World::done();
    world.desire("live-a");
    let seen = phases(&mut world, &mut Progress::default(), 40);
    assert_eq!(seen, ["UpdatePrepared?", "UpdatePrepared UpdateExecuted? AppliedFilesAndOS?", "Updated"]);
}

#[test]
fn trouble_is_a_condition_until_something_else_is_desired() {
    let mut world = World::done();
    let mut progress = Progress::default();
    world.desire("refused-a");
    assert_eq!(phases(&mut world, &mut progress, 40), ["UpdatePrepared?", "UpdatePrepared? NodeDegraded"]);
    world.desire("live-a");
    assert_eq!(phases(&mut world, &mut progress, 40).last().unwrap(), "Updated");
    assert_eq!(progress.degraded, None);
}

/// A process that begins after the boot does not call the node Updated before it is.
#[test]
fn a_new_process_finds_its_place() {
    let mut world = World::done();
    world.desire("reboot-b");
    while world.log.last().map(String::as_str) != Some("wait Reboot") {
        world.step();
    }
    let seen = phases(&mut world, &mut Progress::default(), 40);
    assert!(seen[0].ends_with("RebootedNode Resumed UpdateComplete?"), "{seen:?}");
    assert_eq!(seen[1..], ["Updated"]);
    assert_eq!(world.node().annotations.state, Some(State::Done));
    assert!(Phase::Resuming > Phase::Rebooting);
}
