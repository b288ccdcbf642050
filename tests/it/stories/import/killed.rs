//! SIGKILL at random points: nothing is half done, and what was finished is not fetched again.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::image::Written;

use super::{Host, puller};

/// `make kill-test N=100` asks for more.
fn kills() -> usize {
    std::env::var("MCD_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Random enough for moments of killing, and printed so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("MCD_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("MCD_TEST_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// An image of several groups, and who serves it.
struct Scene {
    _source: Host,
    written: Written,
    server: FakeRegistry,
    name: String,
}

impl Scene {
    fn new() -> Self {
        let source = puller();
        let written = source.write(source.layered(6, 150), "v2");
        let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
        let name = server.image("os:v2");
        Self { _source: source, written, server, name }
    }

    fn start(&self, host: &Host) -> Child {
        let mut command = host.pull_command(&self.name);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Digests of the image's layers that have a ref in the repo.
    fn finished(&self, host: &Host) -> Vec<&str> {
        let refs = host.sysroot.refs().unwrap();
        let is_there = |digest: &str| {
            let name = format!("ostree/container/blob/{}", digest.replace(':', "_3A_"));
            refs.contains_key(&name)
        };
        self.written.layers.iter().map(|layer| layer.digest.as_str()).filter(|name| is_there(name)).collect()
    }

    /// A run to the end that fetches nothing of `finished`.
    #[track_caller]
    fn assert_goes_on(&self, host: &Host, finished: &[&str]) {
        self.server.forget();
        host.pull(&self.name).ok();
        let requests = self.server.requests();
        for digest in finished {
            let again = requests.iter().any(|request| request.path.ends_with(digest) && request.bytes > 0);
            assert!(!again, "{digest} was fetched again");
        }
        host.assert_whole();
        assert_eq!(host.image_refs().len(), 1);
    }
}

#[test]
fn root_kill_at_random_points() {
    let scene = Scene::new();
    let mut dice = Dice::new();
    let start = Instant::now();
    puller().pull(&scene.name).ok();
    let whole = start.elapsed();
    let (mut with_layers, mut complete) = (0, 0);
    for number in 0..kills() {
        let host = puller();
        // Some runs are killed twice or three times in a row.
        for _ in 0..=dice.below(3) {
            let mut child = scene.start(&host);
            std::thread::sleep(Duration::from_micros(dice.below(whole.as_micros() as u64)));
            child.kill().unwrap();
            child.wait().unwrap();
            host.assert_whole();
        }
        let finished = scene.finished(&host);
        with_layers += usize::from(!finished.is_empty());
        complete += host.image_refs().len();
        scene.assert_goes_on(&host, &finished);
        // The run that went on has cleaned up nothing of the others': that is for `cleanup`.
        host.mcd(&["cleanup"]).ok();
        assert_eq!(host.staging_folders(), Vec::<String>::new(), "kill {number}");
        host.assert_whole();
    }
    println!("{} kills: {with_layers} after a group was finished, {complete} after the end", kills());
}

#[test]
fn root_finished_groups_survive_a_kill() {
    let scene = Scene::new();
    let host = puller();
    let last = scene.written.layers.last().unwrap();
    let stall = Act::StallAfter(last.size / 2);
    scene.server.set_rules(vec![Rule::always(On::BlobOf(last.digest.clone()), stall)]);
    let mut child = scene.start(&host);
    let start = Instant::now();
    while scene.finished(&host).len() < 6 {
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", scene.server.requests());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    host.assert_whole();
    assert_eq!(host.image_refs(), Vec::<String>::new());
    assert_eq!(host.staging_folders().len(), 1, "a killed run leaves its folder");
    scene.server.set_rules(vec![]);
    let finished = scene.finished(&host);
    assert!(finished.len() >= 6, "{finished:?}");
    scene.assert_goes_on(&host, &finished);
}

/// What `mcd cleanup` says at its end.
fn cleanup(host: &Host, arguments: &[&str]) -> serde_json::Value {
    let outcome = host.mcd(&[&["cleanup", "--json"], arguments].concat()).ok();
    serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap()
}

#[test]
fn root_leftovers_of_a_killed_run_are_counted_and_removed() {
    let scene = Scene::new();
    let host = puller();
    let large = scene.written.layers[1..].iter().max_by_key(|layer| layer.size).unwrap();
    let stall = Act::StallAfter(large.size / 2);
    scene.server.set_rules(vec![Rule::always(On::BlobOf(large.digest.clone()), stall)]);
    let mut child = scene.start(&host);
    let start = Instant::now();
    let written = || host.staging_folders().first().map_or(0, |name| disk_usage(&host, name));
    while written() < 500_000 {
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", scene.server.requests());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Of a run that lives, nothing may be taken away.
    assert_eq!(cleanup(&host, &["--dry-run"])["bytes"], 0);
    assert_eq!(host.staging_folders().len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let left = written();
    let planned = cleanup(&host, &["--dry-run"]);
    assert!(planned["bytes"].as_u64().unwrap() >= left / 2, "{planned}, {left} bytes are left");
    assert_eq!(host.staging_folders().len(), 1, "a dry run removes nothing");
    let freed = cleanup(&host, &[]);
    assert_eq!(freed["bytes"], planned["bytes"]);
    assert_eq!(host.staging_folders(), Vec::<String>::new());
    host.assert_whole();
}

/// Bytes on the disk below a staging folder.
fn disk_usage(host: &Host, folder: &str) -> u64 {
    let path = host.sysroot.path().join("ostree/repo/tmp").join(folder);
    let output = std::process::Command::new("du").args(["-s", "-B1"]).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().map_or(0, |bytes| bytes.parse().unwrap())
}

#[test]
fn root_a_dead_proxy_is_replaced() {
    let scene = Scene::new();
    let host = puller();
    let last = scene.written.layers.last().unwrap();
    let stall = Act::StallAfter(last.size / 2);
    scene.server.set_rules(vec![Rule::first(1, On::BlobOf(last.digest.clone()), stall)]);
    let mut child = scene.start(&host);
    let start = Instant::now();
    while scene.finished(&host).len() < 6 {
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", scene.server.requests());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    let found = super::memory::children(child.id());
    assert!(!found.is_empty(), "no proxy runs");
    for id in found {
        let pid = rustix::process::Pid::from_raw(id as i32).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    assert!(child.wait().unwrap().success(), "the pull did not outlive its proxy");
    host.assert_whole();
}
