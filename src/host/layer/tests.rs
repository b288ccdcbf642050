//! Layering on real repos.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod files;
mod images;
mod plain_root;
mod units;

use std::process::Command;

use mcd_test_support::entry::Entry as TreeEntry;
use mcd_test_support::tree::{Tree, create_repo};

use super::*;
use crate::model::config::{Blob, Contents, Core, Id, Managed, Owner, Request, RequestKind, Unit};
use crate::model::manifest::{Entry, Node, Part};

/// A repo with one image's commit in it.
struct Scene {
    scratch: tempfile::TempDir,
    repo: ostree::Repo,
    image: String,
}

fn image_tree() -> Tree {
    Tree::v1()
        .with(TreeEntry::file("usr/etc/chrony.conf", "pool default\n"))
        .with(TreeEntry::file(
            "usr/etc/passwd",
            "root:x:0:0::/root:/bin/bash\ncore:x:1000:1001::/home/core:/bin/bash\n",
        ))
        .with(TreeEntry::file("usr/etc/group", "root:x:0:\ncore:x:1001:\n"))
        .with(TreeEntry::file("usr/lib/passwd", "chrony:x:992:990::/:/sbin/nologin\n"))
        .with(TreeEntry::file("usr/lib/group", "chrony:x:990:\n"))
        .with(TreeEntry::file("usr/lib/systemd/system/multi-user.target", "[Unit]\n"))
        .with(TreeEntry::file("usr/lib/systemd/system/a.service", unit("multi-user.target")))
        .with(TreeEntry::file("usr/lib/systemd/system/b.service", unit("multi-user.target")))
        .with(TreeEntry::file("usr/lib/systemd/system/static.service", "[Service]\nExecStart=/bin/true\n"))
        .with(TreeEntry::file(
            "usr/lib/systemd/system/t@.service",
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nDefaultInstance=one\n",
        ))
        .with(TreeEntry::file(
            "usr/lib/systemd/system-preset/90-default.preset",
            "enable preset-on.service\ndisable *\n",
        ))
        .with(TreeEntry::dir("usr/etc/systemd/system/multi-user.target.wants"))
        .with(TreeEntry::symlink(
            "usr/etc/systemd/system/multi-user.target.wants/b.service",
            "/usr/lib/systemd/system/b.service",
        ))
        .with(TreeEntry::symlink("usr/etc/systemd/system/masked.service", "/dev/null"))
}

fn unit(wanted_by: &str) -> String {
    format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={wanted_by}\n")
}

impl Scene {
    fn new() -> Self {
        Self::of(&image_tree())
    }

    fn of(tree: &Tree) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let repo = create_repo(&scratch.path().join("repo"), ostree::RepoMode::Bare).unwrap();
        let image = tree.commit(&repo, "image/one").unwrap();
        Self { scratch, repo, image }
    }

    fn request<'a>(&'a self, config: &'a Config) -> LayerRequest<'a> {
        LayerRequest {
            image_commit: &self.image,
            config: Some(config),
            source: Source::MachineConfig,
            previous: None,
            previous_image_commit: None,
            etc: None,
        }
    }

    fn layer(&self, config: &Config) -> Layered {
        layer(&self.repo, &self.request(config)).unwrap()
    }

    fn problems(&self, config: &Config) -> Vec<String> {
        let error = layer(&self.repo, &self.request(config)).unwrap_err();
        let invalid = error.downcast_ref::<Invalid>().unwrap_or_else(|| panic!("{error:#}"));
        invalid.problems.iter().map(ToString::to_string).collect()
    }

    fn ostree(&self, words: &[&str]) -> String {
        let repo = format!("--repo={}", self.scratch.path().join("repo").display());
        let output = Command::new("ostree").arg(repo).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn cat(&self, commit: &str, path: &str) -> String {
        self.ostree(&["cat", commit, path])
    }

    /// Mode, owner, group of a path as `ostree ls` says it.
    fn ls(&self, commit: &str, path: &str) -> String {
        let line = self.ostree(&["ls", "-d", commit, path]);
        line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    }
}

fn config(managed: Managed) -> Config {
    Config {
        names: vec!["99-test".to_owned()],
        kernel_arguments: Some(Vec::new()),
        managed: Some(managed),
        ..Config::default()
    }
}

fn file(content: &str) -> Request {
    Request {
        field: "x.yaml: spec.config.storage.files[0]".to_owned(),
        kind: RequestKind::File {
            contents: Some(Contents::Inline(Blob::from(content.as_bytes().to_vec()))),
            append: Vec::new(),
            mode: None,
        },
        owner: Owner::default(),
        overwrite: None,
    }
}

fn files<'a>(files: impl IntoIterator<Item = (&'a str, Request)>) -> Config {
    let entries = files.into_iter().map(|(path, request)| (path.into(), request)).collect();
    config(Managed { entries, ..Managed::default() })
}

fn units<'a>(units: impl IntoIterator<Item = (&'a str, Unit)>) -> Config {
    let units = units.into_iter().map(|(name, unit)| (name.to_owned(), unit)).collect();
    config(Managed { units, ..Managed::default() })
}

fn of_contents(contents: &str, enabled: Option<bool>) -> Unit {
    Unit { contents: Some(Blob::from(contents.as_bytes().to_vec())), enabled, ..Unit::default() }
}

fn enabled(enabled: bool) -> Unit {
    Unit {
        field: "x.yaml: spec.config.systemd.units[0]".to_owned(),
        enabled: Some(enabled),
        ..Unit::default()
    }
}

fn entry<'a>(layered: &'a Layered, path: &str) -> &'a Entry {
    layered.manifest.entry(path.into()).unwrap_or_else(|| panic!("no {path} in {:#?}", layered.manifest))
}

fn links(layered: &Layered) -> Vec<String> {
    let links = layered.manifest.entries.iter().filter(|entry| matches!(entry.part, Part::Enablement(_)));
    links
        .map(|entry| match &entry.node {
            Node::Symlink { target, .. } => format!("{} -> {target}", entry.path),
            node => format!("{} {node:?}", entry.path),
        })
        .collect()
}
