//! What a user does with the built program, on real sysroots, registries and images.

// A story looks at its own scratch folders by plain paths; the program itself may not.
#![allow(clippy::disallowed_methods)]

mod booted;
mod config;
mod crash;
mod gentle;
mod images;
mod import;
mod interrupted;
mod keeping;
mod legacy;
mod network;
mod pivot;
mod refusals;
mod requests;
mod validate;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use mcd_test_support::image::{Image, Written};
use mcd_test_support::scratch::Scratch;
use mcd_test_support::sysroot::{BootEntry, Sysroot};
use mcd_test_support::tree::{Tree, create_repo};
use serde_json::Value;

/// The program under test. A run of an hour takes a copy, so that the next build does not disturb it.
fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        std::env::var_os("MCD_TEST_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_mcd").into(), PathBuf::from)
    });
    &PROGRAM
}

/// A host after its installation: version 1 of the fixture OS, not running.
struct Host {
    sysroot: Sysroot,
    repo: ostree::Repo,
    scratch: Scratch,
}

/// How a run ended.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// What must stay as it was when something fails.
#[derive(Debug, PartialEq, Eq)]
struct Switchable {
    boot_entries: Vec<BootEntry>,
    deployments: Vec<String>,
}

impl Host {
    fn new() -> Self {
        Self::on(Sysroot::empty().unwrap())
    }

    /// Installs version 1 in this sysroot.
    fn on(sysroot: Sysroot) -> Self {
        Self::installed(sysroot, &Tree::v1())
    }

    /// Installs this tree.
    fn with_tree(tree: &Tree) -> Self {
        Self::installed(Sysroot::empty().unwrap(), tree)
    }

    fn installed(sysroot: Sysroot, tree: &Tree) -> Self {
        let host = Self::without_deployment(sysroot);
        let commit = tree.commit(&host.repo, "fixture/1").unwrap();
        host.sysroot.deploy(&host.repo, &commit, &["root=LABEL=root", "quiet"]).unwrap();
        host
    }

    fn without_deployment(sysroot: Sysroot) -> Self {
        let scratch = Scratch::new().unwrap();
        let repo = create_repo(&scratch.join("source"), ostree::RepoMode::Archive).unwrap();
        Self { sysroot, repo, scratch }
    }

    /// An image of this tree, to be told more.
    fn image_of(&self, tree: &Tree) -> Image {
        let branch =
            format!("fixture/{}", mcd_test_support::layout::digest_of(format!("{tree:?}").as_bytes()));
        let commit = tree.commit(&self.repo, &branch.replace(':', "-")).unwrap();
        Image::of(&self.repo, &commit).chunks(3)
    }

    /// Writes an image into this host's OCI layout.
    fn write(&self, image: Image, tag: &str) -> Written {
        image.write(&self.scratch.join("oci"), tag).unwrap()
    }

    /// Version 2 of the fixture OS as an image.
    fn v2(&self) -> Written {
        self.write(self.image_of(&Tree::v2()), "v2")
    }

    /// Version 1 of the fixture OS as an image.
    fn v1(&self) -> Written {
        self.write(self.image_of(&Tree::v1()), "v1")
    }

    /// `mcd ARGUMENTS --sysroot DIR`, to be started by the test.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).arg("--sysroot").arg(self.sysroot.path());
        command.env("OSTREE_SYSROOT_DEBUG", "mutable-deployments").stdin(Stdio::null());
        command
    }

    /// Runs `mcd ARGUMENTS --sysroot DIR` to its end.
    fn mcd(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().unwrap())
    }

    fn status(&self) -> Value {
        self.mcd(&["status", "--json"]).ok().json()
    }

    /// Boot entries and deployments.
    fn switchable(&self) -> Switchable {
        let folder = self.sysroot.deployment("").join("");
        let mut deployments: Vec<String> = std::fs::read_dir(folder)
            .map(|found| {
                found.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
            })
            .unwrap_or_default();
        deployments.sort();
        Switchable { boot_entries: self.sysroot.boot_entries().unwrap(), deployments }
    }

    /// A file of what the next boot starts.
    fn next_file(&self, path: &str) -> Option<String> {
        let file = self.sysroot.next_boot().unwrap().deployment.join(path);
        std::fs::read(file).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `VERSION_ID` of what the next boot starts.
    fn next_version(&self) -> String {
        let release = self.next_file("usr/lib/os-release").unwrap();
        release.lines().find_map(|line| line.strip_prefix("VERSION_ID=")).unwrap().to_owned()
    }

    fn next_kernel_arguments(&self) -> String {
        self.sysroot.next_boot().unwrap().kernel_arguments().join(" ")
    }
}

impl Outcome {
    fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        // A shell's view: 128 and the signal's number.
        let code = output.status.code().or_else(|| output.status.signal().map(|number| 128 + number));
        Self {
            code,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It did what was asked.
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// It failed with this exit code, and stderr has each of these words.
    #[track_caller]
    fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        for word in words {
            assert!(self.stderr.contains(word), "'{word}' is not in\n{self}");
        }
        self
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}
