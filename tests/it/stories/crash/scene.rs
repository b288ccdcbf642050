//! What is struck: hosts and commands.

use std::path::PathBuf;

use mcd_test_support::scratch::Scratch;
use mcd_test_support::strace::{self, Call, Cut};
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::Tree;

use super::super::Host;
use super::case::Ended;
use super::site::{Down, Place, Site, Watch};
use super::state::{State, remains};

/// A host, not running, and a command that changes it.
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// For the page.
    pub(super) about: &'static str,
    /// What is copied before each run.
    pub(super) sysroot: Sysroot,
    /// Where its images and configs are.
    pub(super) scratch: Scratch,
    pub(super) place: Place,
    /// Whether `mcd boot` runs at each boot.
    pub(super) converges: bool,
    pub(super) arguments: Vec<String>,
    /// What a person runs after that was cut short: the same, where nothing is said.
    pub(super) again: Option<Vec<String>>,
    /// What the next boot starts before and after, and all names on the disk at the end.
    pub(super) expected: Expected,
    pub(super) phases: &'static [Phase],
}

/// Ends with the first call whose name begins so, after the end of the phase before, and whose
/// arguments have all of these words.
pub(super) struct Phase(&'static str, &'static str, &'static [&'static str]);

/// What undisturbed runs lead to.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) old: State,
    pub(super) new: State,
    pub(super) remains: Vec<String>,
}

/// A deployment that is switched at once.
pub(super) const SWITCHED: &[Phase] = &[
    Phase("prepare", "rename", &["intent.json"]),
    Phase("commit: note it", "rename", &["intent.json"]),
    Phase("commit: deploy", "symlink", &["loader"]),
    Phase("commit: switch", "rename", &["loader"]),
];
/// A deployment that waits for the shutdown.
pub(super) const STAGED: &[Phase] = &[
    Phase("prepare", "rename", &["intent.json"]),
    Phase("commit: note it", "rename", &["intent.json"]),
    Phase("commit: stage", "rename", &["staged-deployment"]),
];

/// Nothing is deployed.
pub(super) const PREPARED: &[Phase] = &[
    Phase("prepare", "rename", &["live.json"]),
    Phase("converge", "rename", &["applied.json"]),
    Phase("converge /var", "rename", &["applied.json"]),
];

/// A scene's name and how it is made.
type Maker = (&'static str, fn() -> Scene);

impl Scene {
    /// All of them, for the page.
    pub(super) fn all() -> [Maker; 12] {
        [
            ("pull", Self::pull),
            ("pivot", Self::pivot),
            ("booted pivot", Self::booted_pivot),
            ("rollback", Self::rollback),
            ("apply", Self::apply),
            ("resume", Self::resume),
            ("booted apply", Self::booted_apply),
            ("live apply", Self::live_apply),
            ("early boot", Self::early_boot),
            ("late boot", Self::late_boot),
            ("forget", Self::forget),
            ("plain root", Self::plain_root),
        ]
    }

    /// Finds out what an undisturbed run leads to.
    pub(super) fn watched(mut self) -> Self {
        let name = self.name;
        let copy = self.copy();
        let site = self.site(&copy).next_boot(Down::InOrder).unwrap();
        let old = State::of(&copy);
        site.run(&self.arguments, &Watch::Not).ok();
        let site = site.next_boot(Down::InOrder).unwrap();
        let new = State::of(&copy);
        // After a pull the same boots, and a boot that was cut short is a boot that comes again.
        assert!(old != new || name == "pull" || name.ends_with(" boot"), "{name} changes nothing");
        site.run(self.again(), &Watch::Not).ok();
        let site = site.next_boot(Down::InOrder).unwrap();
        assert_eq!(new.differences(&State::of(&copy)), Vec::<String>::new(), "{name} is not idempotent");
        clean(&site).unwrap();
        self.expected = Expected { old, new, remains: remains(&copy) };
        drop(site);
        self
    }

    fn pivoting(name: &'static str, about: &'static str, place: Place, phases: &'static [Phase]) -> Self {
        let host = Host::new();
        let image = host.v2();
        host.mcd(&["pull", &image.reference()]).ok();
        let arguments = ["pivot", &image.reference(), "--karg-append", "a=b"].map(str::to_owned).to_vec();
        let expected = Expected::default();
        let Host { sysroot, scratch, .. } = host;
        let converges = false;
        Self { name, about, sysroot, scratch, place, converges, arguments, again: None, expected, phases }
            .watched()
    }

    /// An image that is in the repo becomes the next boot's.
    pub(super) fn pivot() -> Self {
        let about = "`mcd pivot --sysroot`: an image that was pulled before and a kernel argument.";
        Self::pivoting("pivot", about, Place::Directory, SWITCHED)
    }

    /// The same on a host that runs: staged.
    pub(super) fn booted_pivot() -> Self {
        let about = "`mcd pivot` on a booted host: the same, staged for the shutdown.";
        Self::pivoting("booted pivot", about, Place::Running, STAGED)
    }

    /// An image is fetched.
    pub(super) fn pull() -> Self {
        let host = Host::new();
        let image = host.write(host.image_of(&Tree::v3()).chunks(2), "v3");
        Self {
            name: "pull",
            about: "`mcd pull --sysroot`: an image of three layers, some objects of which are there. Nothing that boots changes.",
            sysroot: host.sysroot,
            scratch: host.scratch,
            place: Place::Directory,
            converges: false,
            arguments: vec!["pull".to_owned(), image.reference()],
            again: None,
            expected: Expected::default(),
            phases: &[
                Phase("fetch", "syncfs", &[]),
                Phase("publish", "rename", &["refs/heads/ostree/container/image"]),
            ],
        }
        .watched()
    }

    /// Back to what was installed.
    pub(super) fn rollback() -> Self {
        let host = Host::new();
        let installed = host.sysroot.next_boot().unwrap().deployment_name();
        host.mcd(&["pivot", &host.v2().reference(), "--karg-append", "a=b"]).ok();
        Self {
            name: "rollback",
            about: "`mcd rollback --sysroot` after a pivot.",
            sysroot: host.sysroot,
            scratch: host.scratch,
            place: Place::Directory,
            converges: false,
            arguments: ["rollback", "--to", &installed].map(str::to_owned).to_vec(),
            again: None,
            expected: Expected::default(),
            phases: &SWITCHED[2..],
        }
        .watched()
    }

    /// Whether that is what the command is to lead to. Some change nothing that boots.
    pub(super) fn is_new(&self, seen: Ended) -> bool {
        seen == Ended::New || self.expected.old == self.expected.new
    }

    /// The arguments of the second run.
    pub(super) fn again(&self) -> &[String] {
        self.again.as_ref().unwrap_or(&self.arguments)
    }

    /// The host as it was prepared.
    pub(super) fn copy(&self) -> Sysroot {
        self.sysroot.copy().unwrap()
    }

    /// A copy at work.
    pub(super) fn site<'a>(&self, copy: &'a Sysroot) -> Site<'a> {
        Site::new(copy, self.place, self.converges, self.scratch.path())
    }

    /// Where a run can be struck, in its order.
    pub(super) fn cuts(&self) -> Vec<(Cut, Call)> {
        let copy = self.copy();
        let log = self.log(&copy);
        self.site(&copy).run(&self.arguments, &Watch::Recording(&log)).ok();
        let cuts = strace::cuts(&strace::changes(&log).unwrap());
        assert!(!cuts.is_empty(), "{} makes no system call that changes anything", self.name);
        cuts
    }

    /// A place for a log of strace's, which a running copy sees too.
    pub(super) fn log(&self, copy: &Sysroot) -> PathBuf {
        let name = copy.scratch().path().file_name().unwrap_or_default();
        self.scratch.path().join(name).with_extension("strace")
    }

    /// The phase that each of these calls belongs to.
    pub(super) fn phases(&self, cuts: &[(Cut, Call)]) -> Vec<&'static str> {
        let mut ends = self.phases.iter();
        let mut end = ends.next();
        let mut told = Vec::new();
        for (_, call) in cuts {
            told.push(end.map_or("records", |phase| phase.0));
            if let Some(Phase(_, name, words)) = end
                && call.name.starts_with(name)
                && words.iter().all(|word| call.arguments.contains(word))
            {
                end = ends.next();
            }
        }
        told
    }
}

/// The cleanup that a person asks for, or the one that follows a boot.
pub(super) fn clean(site: &Site<'_>) -> Result<(), String> {
    let arguments: &[&str] = if site.is_running() { &["cleanup", "--after-boot"] } else { &["cleanup"] };
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let outcome = site.run(&arguments, &Watch::Not);
    if outcome.code == Some(0) { Ok(()) } else { Err(format!("mcd cleanup: {outcome}")) }
}
