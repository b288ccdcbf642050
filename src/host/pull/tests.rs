//! Imports of real images by real skopeo into real repos. Root only: a `bare` repo keeps owners.

#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use mcd_test_support::compress::Compression;
use mcd_test_support::encapsulate::XattrStyle;
use mcd_test_support::entry::Entry;
use mcd_test_support::image::{Format, Image, Written, resolve as commit_of};
use mcd_test_support::layer::Lie;
use mcd_test_support::registry::Registry;
use mcd_test_support::tree::{Tree, create_repo};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::error::{ExitKind, to_fault};
use crate::model::event::{Event, EventSink};
use crate::model::image_ref::OsImage;

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Event>>);

impl EventSink for Seen {
    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl Seen {
    fn started(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|event| matches!(event, Event::LayerStarted { .. })).count()
    }

    fn warnings(&self) -> Vec<String> {
        let events = self.0.lock().unwrap();
        events
            .iter()
            .filter_map(
                |event| if let Event::Warning { message } = event { Some(message.clone()) } else { None },
            )
            .collect()
    }
}

struct Scene {
    scratch: tempfile::TempDir,
    source: ostree::Repo,
    target: ostree::Repo,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let source = create_repo(&scratch.path().join("source"), ostree::RepoMode::Archive).unwrap();
        Tree::v1().commit(&source, "fixture/1").unwrap();
        Tree::v2().commit(&source, "fixture/2").unwrap();
        let target = create_repo(&scratch.path().join("repo"), ostree::RepoMode::Bare).unwrap();
        Self { scratch, source, target }
    }

    fn with_fresh_repo(&self) -> Self {
        let scratch = tempfile::tempdir_in(self.scratch.path()).unwrap();
        let target = create_repo(&scratch.path().join("repo"), ostree::RepoMode::Bare).unwrap();
        Self { scratch, source: self.source.clone(), target }
    }

    fn v1(&self) -> Image {
        Image::of(&self.source, &commit_of(&self.source, "fixture/1").unwrap())
    }

    fn v2(&self) -> Image {
        Image::of(&self.source, &commit_of(&self.source, "fixture/2").unwrap())
    }

    fn write(&self, image: Image, name: &str) -> Written {
        image.write(&self.path(name), "latest").unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn listing(&self, repo: &str, rev: &str) -> String {
        ostree(&["ls", "-R", "-X", "-C", &format!("--repo={}", self.path(repo).display()), rev])
    }

    fn fsck(&self) {
        ostree(&["fsck", "--quiet", &format!("--repo={}", self.path("repo").display())]);
    }

    fn refs(&self) -> Vec<String> {
        let text = ostree(&["refs", &format!("--repo={}", self.path("repo").display())]);
        text.lines().map(str::to_owned).collect()
    }

    fn pull(&self, reference: &str) -> anyhow::Result<(PulledImage, Arc<Seen>)> {
        self.pull_with(reference, &quick(), CancellationToken::new())
    }

    fn pull_with(
        &self,
        reference: &str,
        options: &PullOptions,
        cancel: CancellationToken,
    ) -> anyhow::Result<(PulledImage, Arc<Seen>)> {
        let image: OsImage = reference.parse().unwrap();
        let seen = Arc::new(Seen::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let result = runtime.block_on(async {
            let resolved = resolve(&image.image, options, seen.as_ref()).await?;
            import(&self.target, &image, resolved, options, Arc::clone(&seen) as _, cancel).await
        });
        // Whatever happened, nothing may be left behind but whole objects.
        assert_eq!(leftovers(&self.target).unwrap(), Leftovers::default());
        self.fsck();
        result.map(|pulled| (pulled, seen))
    }
}

fn quick() -> PullOptions {
    let access = Access { insecure_skip_tls_verification: true, ..Access::default() };
    PullOptions { access, tries: 2, ..PullOptions::default() }
}

fn ostree(arguments: &[&str]) -> String {
    let output = Command::new("ostree").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn has(listing: &str, path: &str) -> bool {
    listing.lines().any(|line| line.ends_with(&format!(" {path}")) || line.contains(&format!(" {path} -> ")))
}

#[test]
fn root_every_form_of_an_image_gives_the_tree_back() {
    let scene = Scene::new();
    let wanted = scene.listing("source", "fixture/1");
    let base = commit_of(&scene.source, "fixture/1").unwrap();
    let cases: Vec<(&str, Image)> = vec![
        ("single", scene.v1()),
        ("chunked", scene.v1().chunks(4)),
        ("zstd", scene.v1().chunks(3).compression(Compression::Zstd)),
        ("plain", scene.v1().chunks(2).compression(Compression::None)),
        ("frames", scene.v1().chunks(2).compression(Compression::ZstdChunked)),
        ("inline", scene.v1().chunks(2).xattrs(XattrStyle::Inline)),
        ("empty-chunk", scene.v1().chunk_by(|_| Some(0)).chunks(2)),
    ];
    for (name, image) in cases {
        let scene = scene.with_fresh_repo();
        let written = scene.write(image, name);
        let (pulled, _) =
            scene.pull(&written.reference()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(scene.listing("repo", &pulled.commit), wanted, "{name}");
        assert_eq!(pulled.digest.as_str(), written.digest);
        assert_eq!(pulled.version.as_deref(), Some("1"));
        // Layer 0's ref holds the base commit itself.
        let layer = crate::model::repo_refs::blob_ref(&written.layers[0].digest.parse().unwrap());
        assert_eq!(scene.target.resolve_rev(&layer, false).unwrap().unwrap(), base);
        assert!(kernel_of(&scene.target, &pulled.commit).unwrap().is_some());
    }
}

#[test]
fn root_from_a_registry_in_docker_format() {
    let scene = Scene::new();
    let registry = Registry::start().unwrap();
    let written = scene.write(scene.v1().chunks(3).format(Format::Docker), "docker");
    registry.push(&written, "os:1").unwrap();
    let (pulled, seen) = scene.pull(&registry.image("os:1")).unwrap();
    assert_eq!(pulled.digest.as_str(), written.digest);
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"));
    assert_eq!(seen.started(), written.layers.len());
}

#[test]
fn root_an_update_fetches_only_new_layers_and_a_known_digest_nothing() {
    let scene = Scene::new();
    let by_path = |path: &str| {
        Some(if path.contains("fixture") || path.contains("etc") || path.contains("os-release") {
            0
        } else {
            1
        })
    };
    let first = scene.write(scene.v1().chunk_by(by_path).chunks(2), "v1");
    let second = scene.write(scene.v2().chunk_by(by_path).chunks(2), "v2");
    let (one, _) = scene.pull(&first.reference()).unwrap();
    let (two, seen) = scene.pull(&second.reference()).unwrap();
    assert_eq!(seen.started(), 2, "layer 0 and the changed chunk");
    assert_eq!(scene.listing("repo", &two.commit), scene.listing("source", "fixture/2"));
    assert!(two.stats.reused_bytes > 0);

    let (again, seen) = scene.pull(&first.reference()).unwrap();
    assert_eq!((again.commit, seen.started()), (one.commit.clone(), 0));
    assert_eq!(image_in_repo(&scene.target, &one.digest).unwrap().unwrap().commit, one.commit);
    let image: OsImage = first.reference().parse().unwrap();
    assert_eq!(image_by_reference(&scene.target, &image).unwrap().unwrap().commit, one.commit);
}

#[test]
fn root_what_a_damaged_repo_lost_is_fetched_again() {
    let scene = Scene::new();
    let image = scene.write(scene.v1(), "v1");
    let (pulled, _) = scene.pull(&image.reference()).unwrap();
    let repo = staging::repo_dir(&scene.target).unwrap();
    let lose = |commit: &str| {
        repo.remove_file(format!("objects/{}/{}.commit", &commit[..2], &commit[2..])).unwrap();
    };
    lose(&pulled.commit);
    let reference: OsImage = image.reference().parse().unwrap();
    assert!(image_by_reference(&scene.target, &reference).unwrap().is_none());
    let (again, _) = scene.pull(&image.reference()).unwrap();
    assert_eq!(again.commit, pulled.commit);

    let refs = "refs/heads/ostree/container/blob";
    let layer = repo.read_dir(refs).unwrap().next().unwrap().unwrap().file_name();
    let commit = repo.read_to_string(format!("{refs}/{}", layer.to_str().unwrap())).unwrap();
    lose(commit.trim());
    lose(&pulled.commit);
    let (again, seen) = scene.pull(&image.reference()).unwrap();
    assert_eq!((&again.commit, seen.started()), (&pulled.commit, 1));

    // A power cut can leave a ref empty.
    let name = crate::model::repo_refs::image_ref(&reference.image);
    repo.write(format!("refs/heads/{name}"), "").unwrap();
    assert_eq!(scene.pull(&image.reference()).unwrap().0.commit, pulled.commit);
}

#[test]
fn root_the_same_content_in_another_compression_is_not_fetched() {
    let scene = Scene::new();
    let gzip = scene.write(scene.v1().chunks(3), "gzip");
    let zstd = scene.write(scene.v1().chunks(3).compression(Compression::Zstd), "zstd");
    scene.pull(&gzip.reference()).unwrap();
    let (pulled, seen) = scene.pull(&zstd.reference()).unwrap();
    assert_eq!(seen.started(), 0);
    assert_eq!(pulled.stats.fetched_bytes, 0);
    for layer in &zstd.layers {
        let name = crate::model::repo_refs::blob_ref(&layer.digest.parse().unwrap());
        assert!(scene.target.resolve_rev(&name, true).unwrap().is_some(), "{name}");
    }
}

#[test]
fn root_derived_layers_are_laid_over_the_base() {
    let scene = Scene::new();
    let image = scene
        .v1()
        .chunks(2)
        .derived(vec![
            Entry::dir("etc"),
            Entry::file("etc/motd", "hello\n"),
            Entry::file("etc/hostname", ""),
            Entry::whiteout("etc/fixture.conf"),
            Entry::dir("usr/lib/fixture/private"),
            Entry::opaque("usr/lib/fixture/private"),
            Entry::file("usr/lib/fixture/名", "x"),
            Entry::hard_link("usr/lib/fixture/名-again", "usr/lib/fixture/名"),
            Entry::file("opt/dropped", "x"),
            Entry::fifo("usr/lib/fixture/fifo"),
            Entry::symlink("usr/lib/fixture/absolute", "/etc/shadow"),
        ])
        .derived(vec![Entry::file("var/lib/thing/x", "state\n")]);
    let written = scene.write(image, "derived");
    let (pulled, seen) = scene.pull(&written.reference()).unwrap();
    let listing = scene.listing("repo", &pulled.commit);
    for (path, there) in [
        ("/usr/etc/motd", true),
        ("/usr/etc/hostname", false),
        ("/usr/etc/fixture.conf", false),
        ("/usr/lib/fixture/private", true),
        ("/usr/lib/fixture/private/key", false),
        ("/usr/lib/fixture/名-again", true),
        ("/usr/lib/fixture/absolute", true),
        ("/usr/lib/fixture/fifo", false),
        ("/usr/share/factory/var/lib/thing/x", true),
        ("/opt/dropped", false),
    ] {
        assert_eq!(has(&listing, path), there, "{path}\n{listing}");
    }
    let warnings = seen.warnings().join("\n");
    assert!(warnings.contains("/opt") && warnings.contains("devices"), "{warnings}");

    // Only the image ref gone: everything comes from the cached layers, whiteouts included.
    ostree(&[
        "refs",
        "--delete",
        &format!("--repo={}", scene.path("repo").display()),
        "ostree/container/image",
    ]);
    let (again, seen) = scene.pull(&written.reference()).unwrap();
    assert_eq!((again.commit, seen.started()), (pulled.commit, 0));
}

#[test]
fn root_an_implied_directory_keeps_the_attributes_of_the_base() {
    let scene = Scene::new();
    let before = scene.listing("source", "fixture/1");
    let private =
        before.lines().find(|line| line.ends_with("/usr/lib/fixture/private")).expect("a private directory");
    let written =
        scene.write(scene.v1().derived(vec![Entry::file("usr/lib/fixture/private/new", "x")]), "implied");
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    let after = scene.listing("repo", &pulled.commit);
    let line = after.lines().find(|line| line.ends_with("/usr/lib/fixture/private")).unwrap();
    assert_eq!(line.split_whitespace().next(), private.split_whitespace().next());
    assert!(has(&after, "/usr/lib/fixture/private/new"));
}

#[test]
fn root_a_plain_image_boots_if_it_has_a_kernel() {
    let scene = Scene::new();
    let kernel = "usr/lib/modules/6.1/vmlinuz";
    let entries = |with_kernel: bool| {
        let mut entries = vec![
            Entry::dir("etc"),
            Entry::file("etc/os-release", "ID=x\n"),
            Entry::symlink("bin", "usr/bin"),
            Entry::file("usr/bin/sh", "x"),
        ];
        if with_kernel {
            entries.push(Entry::file(kernel, "kernel"));
        }
        entries
    };
    let written = scene.write(Image::plain(entries(true)), "plain");
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    let listing = scene.listing("repo", &pulled.commit);
    for path in [
        "/usr/etc/os-release",
        "/bin",
        "/ostree",
        "/sysroot",
        "/var",
        "/proc",
        "/usr/lib/modules/6.1/vmlinuz",
    ] {
        assert!(has(&listing, path), "{path}\n{listing}");
    }
    assert_eq!(kernel_of(&scene.target, &pulled.commit).unwrap().as_deref(), Some("6.1"));

    let written = scene.write(Image::plain(entries(false)), "no-kernel");
    let fault = to_fault(&scene.pull(&written.reference()).unwrap_err());
    assert_eq!(fault.kind, ExitKind::Refused);
    assert!(fault.why.unwrap().contains("no kernel"));
}

#[test]
fn root_lies_are_refused_and_no_ref_is_set() {
    let scene = Scene::new();
    for lie in
        [Lie::WrongDigest, Lie::Corrupt(5000), Lie::Missing, Lie::TarEnds(200_000), Lie::StreamEnds(500)]
    {
        let dir = scene.path("lie");
        let written = scene.v1().lie(0, lie.clone()).write(&dir, "latest").unwrap();
        let error = scene.pull(&written.reference()).expect_err(&format!("{lie:?}"));
        let fault = to_fault(&error);
        assert!(fault.why.is_some(), "{lie:?}: {error:#}");
        assert_eq!(scene.refs(), Vec::<String>::new(), "{lie:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn root_hostile_entries_are_refused() {
    let scene = Scene::new();
    for (name, entry) in [
        ("traversal", Entry::file("../etc/passwd", "x")),
        ("inner", Entry::file("usr/../../x", "x")),
        ("link-out", Entry::hard_link("usr/x", "../../etc/shadow")),
        ("unknown-link", Entry::hard_link("usr/x", "usr/nothing")),
        ("sparse", Entry::sparse("usr/x", 10 << 30)),
        ("claim", Entry::file("usr/x", "x").claiming(10 << 30)),
        ("xattr", Entry::file("usr/x", "x").xattr("user.x", vec![1; 2 << 20])),
        ("name", Entry::file([b"usr/".as_slice(), b"\xff"].concat(), "x")),
    ] {
        let written = scene.v1().derived(vec![entry]).write(&scene.path(name), "latest").unwrap();
        let error = scene.pull(&written.reference()).expect_err(name);
        assert!(to_fault(&error).why.is_some(), "{name}: {error:#}");
        assert!(!scene.refs().iter().any(|name| name.contains("image")), "{name}");
    }
}

#[test]
fn root_a_path_through_a_link_is_refused() {
    let scene = Scene::new();
    let written = scene.write(
        scene
            .v1()
            .derived(vec![Entry::symlink("usr/lib/out", "/etc"), Entry::file("usr/lib/out/passwd", "x")]),
        "through",
    );
    let error = to_fault(&scene.pull(&written.reference()).unwrap_err());
    assert!(error.why.unwrap().contains("leads through"));
}

#[test]
fn root_a_cancelled_import_leaves_no_image() {
    let scene = Scene::new();
    let written = scene.write(scene.v1().chunks(3), "v1");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = scene.pull_with(&written.reference(), &quick(), cancel).unwrap_err();
    assert!(matches!(to_fault(&error).kind, ExitKind::Signal(_)), "{error:#}");
    assert_eq!(scene.refs(), Vec::<String>::new());
}

#[test]
fn root_leftovers_of_killed_runs_are_found_and_removed() {
    let scene = Scene::new();
    let tmp = scene.path("repo/tmp/mcd-import-1-0");
    std::fs::create_dir_all(tmp.join("layer-0/0")).unwrap();
    std::fs::write(tmp.join("layer-0/0/large"), vec![1; 10_000]).unwrap();
    let transaction = scene.path("repo/tmp/staging-0000-1");
    std::fs::create_dir_all(transaction.join("ab")).unwrap();
    std::fs::write(transaction.with_file_name("staging-0000-1-lock"), "").unwrap();
    let live = staging::Staging::create(&staging::repo_dir(&scene.target).unwrap()).unwrap();
    let found = leftovers(&scene.target).unwrap();
    assert_eq!(found.folders, ["mcd-import-1-0"]);
    assert!(found.bytes >= 10_000);
    // A child that another test is just starting holds the lock until it has called exec.
    let removed =
        (0..50).map(|_| remove_leftovers(&scene.target).unwrap()).find(|removed| !removed.folders.is_empty());
    assert_eq!(removed.unwrap(), found);
    assert_eq!(leftovers(&scene.target).unwrap(), Leftovers::default());
    drop(live);
    let left = std::fs::read_dir(Path::new(&scene.path("repo/tmp"))).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(
        !names.iter().any(|name| name.starts_with("mcd-import") || name.starts_with("staging-")),
        "{names:?}"
    );
}

mod derived;
mod fuzz;
mod labels;
mod legacy;
mod network;
mod signed;
mod sources;
