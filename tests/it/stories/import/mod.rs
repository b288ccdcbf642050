//! The importer by its promises: whole at every cut, bounded, and readable by others.

// Seeds and measured numbers, for whoever looks at a run.
#![allow(clippy::print_stdout)]

mod full_disk;
mod hostile;
mod killed;
mod memory;
mod oracle;
mod order;
mod random;

use std::process::Command;

use mcd_test_support::entry::Entry;
use mcd_test_support::image::Image;
use mcd_test_support::process::run;
use mcd_test_support::sysroot::{Sysroot, ostree};
use mcd_test_support::tree::{Tree, noise};

use super::{Host, Outcome};

const INSECURE: &str = "--insecure-skip-tls-verification";

/// A host that only pulls.
fn puller() -> Host {
    Host::without_deployment(Sysroot::empty().unwrap())
}

impl Host {
    /// `mcd pull IMAGE` from a registry that speaks plain HTTP.
    fn pull_command(&self, image: &str) -> Command {
        self.command(&["pull", image, INSECURE])
    }

    fn pull(&self, image: &str) -> Outcome {
        Outcome::of(self.pull_command(image).output().unwrap())
    }

    /// Version 2 with `files` incompressible files of 20 kB in `chunks` layers, and two layers more
    /// as a container builder adds them: an import of several groups.
    fn layered(&self, chunks: usize, files: usize) -> Image {
        let mut tree = Tree::v2();
        for number in 0..files {
            let bytes = noise(number as u64 + 1, 20_000);
            tree = tree.with(Entry::file(format!("usr/lib/fixture/many/{number}"), bytes));
        }
        self.image_of(&tree)
            .chunks(chunks)
            .derived(vec![Entry::dir("etc"), Entry::file("etc/motd", "one\n")])
            .derived(vec![Entry::file("usr/lib/fixture/derived", noise(7, 400_000))])
    }

    /// What `ostree fsck` says of the repo, and that each ref's tree can be read to its leaves.
    #[track_caller]
    fn assert_whole(&self) {
        self.sysroot.fsck().unwrap();
        let repo = format!("--repo={}", self.sysroot.path().join("ostree/repo").display());
        for (name, commit) in self.sysroot.refs().unwrap() {
            let listed = run(ostree().args(["ls", "-R", "-C", &repo, &commit]));
            listed.unwrap_or_else(|error| panic!("{name}: {error:#}"));
        }
        let state = self.sysroot.path().join("ostree/repo/state");
        let partial = std::fs::read_dir(state).unwrap().count();
        assert_eq!(partial, 0, "commits are marked as partial");
    }

    /// Refs of images.
    fn image_refs(&self) -> Vec<String> {
        let refs = self.sysroot.refs().unwrap().into_keys();
        refs.filter(|name| name.starts_with("ostree/container/image/")).collect()
    }

    /// Staging folders in the repo.
    fn staging_folders(&self) -> Vec<String> {
        let tmp = std::fs::read_dir(self.sysroot.path().join("ostree/repo/tmp")).unwrap();
        let names = tmp.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("mcd-import-")).collect()
    }
}
