//! Drift, noticed as it happens.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcd_test_support::process::Guarded;
use mcd_test_support::scratch::Scratch;
use serde_json::Value;

use super::root::{apply, mcd, read, root};
use super::*;

/// Memory of the process that watches, without the pages of the program's file, in KiB.
const MEMORY_MAX: u64 = 8 * 1024;
/// Longer than anything here takes, also on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(60);

struct Follower<'a> {
    scratch: &'a Scratch,
    process: Guarded,
}

impl<'a> Follower<'a> {
    fn start(scratch: &'a Scratch) -> Self {
        let root = scratch.join("root").display().to_string();
        let process = Guarded::start(
            program().to_str().unwrap(),
            &["verify", "--follow", "--root", &root],
            |command| {
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            },
        );
        Self { scratch, process: process.unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.scratch.join("root/run/mcd/drift.json")
    }

    fn told(&self) -> Vec<String> {
        let Ok(text) = std::fs::read(self.file()) else { return Vec::new() };
        let drift: Value = serde_json::from_slice(&text).unwrap();
        drift["differs"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until just these paths are told; gives how long that took.
    #[track_caller]
    fn until(&self, paths: &[&str]) -> Duration {
        let begun = Instant::now();
        loop {
            let told = self.told();
            if told.len() == paths.len() && told.iter().zip(paths).all(|(one, path)| one.starts_with(path)) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{told:?}, not {paths:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn root_drift_is_told_as_it_happens_and_until_it_is_gone() {
    let scratch = root();
    let config = machine("99-a")
        .file("/etc/there", "after\n")
        .file("/etc/deep/down/file", "x\n")
        .file("/var/lib/thing/data", "for /var\n");
    apply(&scratch, &config, &[]).ok();
    let at = |path: &str| scratch.join("root").join(path);
    // It was changed while nobody looked.
    std::fs::write(at("etc/there"), "edited\n").unwrap();
    let follower = Follower::start(&scratch);
    follower.until(&["/etc/there"]);
    mcd(&scratch, &["verify", "--repair"]).ok();
    follower.until(&[]);

    std::fs::remove_file(at("var/lib/thing/data")).unwrap();
    follower.until(&["/var/lib/thing/data"]);
    // A folder high above is renamed, and what had not been watched there is written to.
    std::fs::rename(at("etc/deep"), at("etc/gone")).unwrap();
    follower.until(&["/etc/deep/down/file", "/var/lib/thing/data"]);
    std::fs::rename(at("etc/gone"), at("etc/deep")).unwrap();
    follower.until(&["/var/lib/thing/data"]);
    std::fs::write(at("etc/deep/down/file"), "y\n").unwrap();
    follower.until(&["/etc/deep/down/file", "/var/lib/thing/data"]);
    mcd(&scratch, &["verify", "--repair"]).ok();
    follower.until(&[]);

    // Another configuration: what it manages is watched, what it left is not.
    let next = machine("99-a").file("/etc/new", "new\n");
    apply(&scratch, &next, &[]).ok();
    assert_eq!(read(&scratch, "etc/there").as_deref(), Some("before\n"));
    std::fs::write(at("etc/there"), "mine\n").unwrap();
    std::fs::write(at("etc/new"), "edited\n").unwrap();
    follower.until(&["/etc/new"]);
    mcd(&scratch, &["verify", "--repair"]).ok();
    follower.until(&[]);

    let status = std::fs::read_to_string(format!("/proc/{}/status", follower.process.id())).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kibibytes: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < MEMORY_MAX, "{kibibytes} KiB");
}

#[test]
fn root_an_apply_is_never_told_as_drift() {
    let scratch = root();
    let config = |text: &str| {
        (0..200).fold(machine("99-a"), |config, number| config.file(&format!("/etc/many/{number}"), text))
    };
    apply(&scratch, &config("one"), &[]).ok();
    let follower = Follower::start(&scratch);
    std::fs::write(scratch.join("root/etc/many/0"), "edited").unwrap();
    follower.until(&["/etc/many/0"]);
    mcd(&scratch, &["verify", "--repair"]).ok();
    follower.until(&[]);
    let ends = std::sync::atomic::AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut told = Vec::new();
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                told.extend(follower.told());
                std::thread::sleep(Duration::from_millis(5));
            }
            told
        });
        for text in ["two", "three", "four"] {
            apply(&scratch, &config(text), &[]).ok();
        }
        std::thread::sleep(Duration::from_secs(2));
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        watching.join().unwrap()
    });
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn root_follow_wants_a_root_that_it_can_watch() {
    let scratch = root();
    mcd(&scratch, &["verify", "--follow", "--repair"]).fails(2, &["--repair"]);
}
