//! What is struck: hosts and commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use mcd_test_support::strace::{self, Call, Cut, Fate};
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::Tree;

use super::super::{Host, Outcome};
use super::state::{State, remains};

/// A host, not running, and a command that changes it.
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// What is copied before each run.
    host: Host,
    arguments: Vec<String>,
    /// What the next boot starts before and after, and all names on the disk at the end.
    pub(super) expected: Expected,
    /// Ends of phases: a phase is over when a call's arguments have all of these words.
    phases: &'static [(&'static str, &'static str, &'static [&'static str])],
}

/// What undisturbed runs lead to.
pub(super) struct Expected {
    pub(super) old: State,
    pub(super) new: State,
    pub(super) remains: Vec<String>,
}

/// How a run is watched.
pub(super) enum Watch<'a> {
    Not,
    Recording(&'a Path),
    Struck(&'a Cut, Fate, &'a Path),
}

impl Scene {
    fn new(name: &'static str, host: Host, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut scene = Self { name, host, arguments, expected: Expected::unknown(), phases: &[] };
        let copy = scene.copy();
        let old = State::of(&copy);
        scene.run(&copy, &Watch::Not).ok();
        let new = State::of(&copy);
        assert!(old != new || name == "pull", "{name} changes nothing");
        scene.run(&copy, &Watch::Not).ok();
        assert_eq!(new.differences(&State::of(&copy)), Vec::<String>::new(), "{name} is not idempotent");
        scene.clean(&copy);
        scene.expected = Expected { old, new, remains: remains(&copy) };
        scene
    }

    /// An image that is in the repo becomes the next boot's.
    pub(super) fn pivot() -> Self {
        let host = Host::new();
        let image = host.v2();
        host.mcd(&["pull", &image.reference()]).ok();
        let mut scene = Self::new("pivot", host, &["pivot", &image.reference(), "--karg-append", "a=b"]);
        scene.phases = &[
            ("prepare", "rename", &["intent.json"]),
            ("commit: intent", "rename", &["intent.json"]),
            ("commit: deploy", "rename", &["loader"]),
        ];
        scene
    }

    /// An image is fetched.
    pub(super) fn pull() -> Self {
        let host = Host::new();
        let image = host.write(host.image_of(&Tree::v3()).chunks(2), "v3");
        Self::new("pull", host, &["pull", &image.reference()])
    }

    /// The host as it was prepared.
    pub(super) fn copy(&self) -> Sysroot {
        self.host.sysroot.copy().unwrap()
    }

    /// Runs the command to its end, whatever that is.
    pub(super) fn run(&self, sysroot: &Sysroot, watch: &Watch<'_>) -> Outcome {
        let plain = command(sysroot, &self.arguments);
        let mut watched = match watch {
            Watch::Not => plain,
            Watch::Recording(log) => strace::recording(&plain, log),
            Watch::Struck(cut, fate, log) => strace::struck(&plain, cut, *fate, log),
        };
        Outcome::of(watched.stdin(std::process::Stdio::null()).output().unwrap())
    }

    /// `mcd cleanup`.
    pub(super) fn clean(&self, sysroot: &Sysroot) {
        Outcome::of(command(sysroot, &["cleanup".to_owned()]).output().unwrap()).ok();
    }

    /// Where a run can be struck, in its order.
    pub(super) fn cuts(&self) -> Vec<(Cut, Call)> {
        let copy = self.copy();
        let log = self.log("recording");
        self.run(&copy, &Watch::Recording(&log)).ok();
        let cuts = strace::cuts(&strace::changes(&log).unwrap());
        assert!(!cuts.is_empty(), "{} makes no system call that changes anything", self.name);
        cuts
    }

    /// A place for a log of strace's.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.host.scratch.join(&format!("{name}.strace"))
    }

    /// The phase that each of these calls belongs to.
    pub(super) fn phases(&self, cuts: &[(Cut, Call)]) -> Vec<&'static str> {
        let mut ends = self.phases.iter();
        let mut end = ends.next();
        let mut told = Vec::new();
        for (_, call) in cuts {
            told.push(end.map_or("after", |(name, _, _)| name));
            if let Some((_, name, words)) = end
                && call.name.starts_with(name)
                && words.iter().all(|word| call.arguments.contains(word))
            {
                end = ends.next();
            }
        }
        told
    }
}

impl Expected {
    fn unknown() -> Self {
        Self { old: State::default(), new: State::default(), remains: Vec::new() }
    }
}

fn command(sysroot: &Sysroot, arguments: &[String]) -> Command {
    let mut command = Command::new(super::super::program());
    command.args(arguments).arg("--sysroot").arg(sysroot.path());
    command.env("OSTREE_SYSROOT_DEBUG", "mutable-deployments").env("NO_COLOR", "1");
    command
}
