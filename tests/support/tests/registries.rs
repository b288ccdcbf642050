//! The registries, seen by skopeo: what tests say about a misbehaving server must be so.

#![allow(clippy::disallowed_methods)]

use std::process::Command;

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::image::{Format, Image, Written, foreign_architecture, resolve, write_index};
use mcd_test_support::process::run;
use mcd_test_support::registry::Registry;
use mcd_test_support::scratch::Scratch;
use mcd_test_support::tree::{Tree, create_repo};

struct Source {
    repo: ostree::Repo,
    scratch: Scratch,
}

impl Source {
    fn new() -> Self {
        let scratch = Scratch::new().unwrap();
        let repo = create_repo(&scratch.join("source"), ostree::RepoMode::Archive).unwrap();
        Tree::v1().commit(&repo, "fixture/1").unwrap();
        Self { repo, scratch }
    }

    fn of(&self) -> Image {
        Image::of(&self.repo, &resolve(&self.repo, "fixture/1").unwrap()).chunks(2)
    }

    fn image(&self) -> Written {
        self.of().write(&self.scratch.join("oci"), "v1").unwrap()
    }
}

/// Copies an image from a registry to a `dir:`; gives what skopeo says if it fails.
fn fetch(source: &Source, image: &str, authfile: Option<&str>) -> Result<(), String> {
    let target = tempfile::tempdir_in(source.scratch.path()).unwrap();
    let mut command = Command::new("skopeo");
    command.args(["copy", "--quiet", "--insecure-policy", "--src-tls-verify=false"]);
    if let Some(path) = authfile {
        command.arg(format!("--src-authfile={path}"));
    }
    command.arg(format!("docker://{image}")).arg(format!("dir:{}", target.path().display()));
    run(&mut command).map(drop).map_err(|error| error.to_string())
}

fn digest_at(image: &str) -> String {
    let mut command = Command::new("skopeo");
    command.args(["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &format!("docker://{image}")]);
    String::from_utf8(run(&mut command).unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn a_real_registry_keeps_every_form_as_it_is() {
    let source = Source::new();
    let registry = Registry::start().unwrap();
    let dir = source.scratch.join("forms");
    let docker = source.of().format(Format::Docker).write(&dir, "docker").unwrap();
    let both = vec![source.of(), source.of().architecture(foreign_architecture())];
    let index = write_index(&dir, "index", both).unwrap();
    for (image, name) in [(&source.image(), "os:oci"), (&docker, "os:docker"), (&index, "os:index")] {
        let pushed = registry.push(image, name).unwrap();
        assert_eq!(digest_at(&pushed), image.digest, "{name}");
        fetch(&source, &pushed, None).unwrap();
    }
    assert!(!registry.requests().unwrap().is_empty());
}

#[test]
fn a_registry_may_want_a_password() {
    let source = Source::new();
    let registry = Registry::start_with_password("core", "secret").unwrap();
    let image = registry.push(&source.image(), "os:v1").unwrap();
    assert!(fetch(&source, &image, None).unwrap_err().contains("unauthorized"));
    let authfile = source.scratch.join("auth.json");
    registry.write_authfile(&authfile).unwrap();
    fetch(&source, &image, authfile.to_str()).unwrap();
}

#[test]
fn the_fake_registry_serves_and_counts() {
    let source = Source::new();
    let image = source.image();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    fetch(&source, &server.image("os:v1"), None).unwrap();
    // Every layer and the config.
    assert_eq!(server.blobs_served(), image.layers.len() + 1);
    assert!(server.bytes_served() >= image.layer_bytes());
    server.forget();
    fetch(&source, &server.image(&format!("os@{}", image.digest)), None).unwrap();
    assert!(server.requests().iter().any(|request| request.path.ends_with(&image.digest)));
}

#[test]
fn the_fake_registry_misbehaves_as_told() {
    let source = Source::new();
    let image = source.image();
    let layer = image.layers[1].digest.clone();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let name = server.image("os:v1");
    for (on, act, message) in [
        // All that skopeo tells of a server error at the first request.
        (On::Ping, Act::Status(500), "can't talk to a V1 container registry"),
        (On::Manifest, Act::Status(404), "404"),
        (On::Manifest, Act::Status(403), "403"),
        (On::Manifest, Act::Status(401), "unauthorized"),
        (On::Blob, Act::Status(503), "503"),
        (On::BlobOf(layer.clone()), Act::ResetAfter(1000), "connection reset"),
        (On::BlobOf(layer.clone()), Act::EndAfter(1000), "EOF"),
        (On::BlobOf(layer.clone()), Act::WrongBody, "igest"),
        (On::Any, Act::Close, "EOF"),
    ] {
        server.set_rules(vec![Rule::always(on.clone(), act.clone())]);
        let error = fetch(&source, &name, None).expect_err(&format!("{on:?} {act:?}"));
        assert!(error.contains(message), "{on:?} {act:?}: {error}");
    }
    server.set_rules(vec![Rule::first(1, On::Blob, Act::Status(404))]);
    fetch(&source, &name, None).expect_err("the first try");
    fetch(&source, &name, None).unwrap();
}

#[test]
fn the_fake_registry_wants_its_password() {
    let source = Source::new();
    let server = FakeRegistry::serve_with_password(&source.image().dir, vec![], "core", "secret").unwrap();
    assert!(fetch(&source, &server.image("os:v1"), None).is_err());
    assert!(server.requests().iter().all(|request| !request.authorized));
}
