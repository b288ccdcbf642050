//! A registry that misbehaves on order.

use std::time::{Duration, Instant};

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};

use super::*;

fn retries(seen: &Seen) -> usize {
    seen.0.lock().unwrap().iter().filter(|event| matches!(event, Event::Retry { .. })).count()
}

fn impatient() -> PullOptions {
    PullOptions {
        idle_timeout: Duration::from_secs(2),
        first_pause: Duration::from_millis(20),
        tries: 2,
        ..quick()
    }
}

#[test]
fn root_what_passes_is_tried_again() {
    for (name, act) in [
        ("reset", Act::ResetAfter(20_000)),
        ("short", Act::EndAfter(20_000)),
        ("stall", Act::StallAfter(20_000)),
        ("overload", Act::Status(503)),
        ("closed", Act::Close),
    ] {
        let scene = Scene::new();
        let written = scene.write(scene.v1().chunks(3), "v1");
        let largest = written.layers.iter().max_by_key(|layer| layer.size).unwrap().digest.clone();
        let rule = Rule::first(if name == "stall" { 1 } else { 3 }, On::BlobOf(largest), act);
        let server = FakeRegistry::serve(&written.dir, vec![rule]).unwrap();
        let options = PullOptions { tries: 12, ..impatient() };
        let (pulled, seen) = scene
            .pull_with(&server.image("os:latest"), &options, CancellationToken::new())
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"), "{name}");
        assert!(retries(&seen) > 0, "{name}");
    }
}

#[test]
fn root_what_stays_is_not_tried_again() {
    for (status, word) in [(401, "unauthorized"), (403, "denied"), (404, "404")] {
        let scene = Scene::new();
        let written = scene.write(scene.v1().chunks(3), "v1");
        let rule = Rule::always(On::BlobOf(written.layers[1].digest.clone()), Act::Status(status));
        let server = FakeRegistry::serve(&written.dir, vec![rule]).unwrap();
        let start = Instant::now();
        let error = scene.pull(&server.image("os:latest")).expect_err(word);
        assert!(start.elapsed() < Duration::from_secs(10));
        let fault = to_fault(&error);
        assert!(!fault.what.contains("tries"), "{fault:?}");
        assert!(fault.why.is_some() && fault.next.is_some(), "{fault:?}");
        assert!(!scene.refs().iter().any(|name| name.contains("image")));
    }
}

#[test]
fn root_a_wrong_body_is_refused() {
    let scene = Scene::new();
    let written = scene.write(scene.v1().chunks(3), "v1");
    let rule = Rule::always(On::BlobOf(written.layers[1].digest.clone()), Act::WrongBody);
    let server = FakeRegistry::serve(&written.dir, vec![rule]).unwrap();
    let error = scene.pull(&server.image("os:latest")).unwrap_err();
    assert!(!scene.refs().iter().any(|name| name.contains("image")), "{error:#}");
}

#[test]
fn root_finished_layers_survive_a_failure() {
    let scene = Scene::new();
    let written = scene.write(scene.v1().chunks(3), "v1");
    let smallest = written.layers[1..].iter().min_by_key(|layer| layer.size).unwrap().digest.clone();
    let server =
        FakeRegistry::serve(&written.dir, vec![Rule::always(On::BlobOf(smallest), Act::Status(404))])
            .unwrap();
    let reference = server.image("os:latest");
    scene.pull(&reference).unwrap_err();
    let kept = scene.refs().len();
    assert!(kept > 0, "no finished layer was kept");
    server.set_rules(Vec::new());
    let (_, seen) = scene.pull(&reference).unwrap();
    assert_eq!(seen.started(), written.layers.len() - kept);
}

#[test]
fn root_an_unreachable_registry_is_told_from_a_refusal() {
    let scene = Scene::new();
    let error = scene.pull("127.0.0.1:1/os:1").unwrap_err();
    assert!(is_unreachable(&error), "{error:#}");
    let written = scene.write(scene.v1(), "v1");
    let server =
        FakeRegistry::serve(&written.dir, vec![Rule::always(On::Manifest, Act::Status(401))]).unwrap();
    let error = scene.pull(&server.image("os:latest")).unwrap_err();
    assert!(!is_unreachable(&error), "{error:#}");
    assert!(to_fault(&error).next.unwrap().contains("credentials"), "{error:#}");
}

/// Pulls what one tiny layer is missing of: the first layer is there, the commit must not be.
fn all_but_the_last_layer(scene: &Scene) -> (FakeRegistry, String) {
    let by_path = |path: &str| Some(usize::from(path.ends_with("/hosts")));
    let written = scene.write(scene.v1().chunks(2).chunk_by(by_path), "v1");
    let missing = written.layers[2].digest.clone();
    assert!(written.layers.iter().all(|layer| layer.size >= written.layers[2].size));
    let rules = vec![Rule::always(On::BlobOf(missing), Act::Status(404))];
    let server = FakeRegistry::serve(&written.dir, rules).unwrap();
    let reference = server.image("os:latest");
    let options = PullOptions { proxies: 1, ..quick() };
    scene.pull_with(&reference, &options, CancellationToken::new()).unwrap_err();
    server.set_rules(Vec::new());
    (server, reference)
}

#[test]
fn root_a_whole_first_layer_is_not_fetched_again() {
    let scene = Scene::new();
    let (_server, reference) = all_but_the_last_layer(&scene);
    let note = scene.path("repo/extensions/mcd/partial");
    assert_eq!(std::fs::read_dir(&note).unwrap().count(), 1);
    let (pulled, seen) = scene.pull(&reference).unwrap();
    assert_eq!(seen.started(), 1);
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"));
    assert_eq!(std::fs::read_dir(&note).unwrap().count(), 0);
}

#[test]
fn root_a_first_layer_that_lost_objects_is_fetched_again() {
    let scene = Scene::new();
    let (_server, reference) = all_but_the_last_layer(&scene);
    ostree(&["prune", "--refs-only", &format!("--repo={}", scene.path("repo").display())]);
    let (pulled, seen) = scene.pull(&reference).unwrap();
    assert_eq!(seen.started(), 2, "the missing one, and the first");
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"));
}
