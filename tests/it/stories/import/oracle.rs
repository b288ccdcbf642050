//! Both directions with the other implementation of the format: what `mcd` pulled, the oracle
//! takes for its own, and the other way round.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use mcd_test_support::compress::Compression;
use mcd_test_support::encapsulate::XattrStyle;
use mcd_test_support::entry::Entry;
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::image::{Format, Image, Written};
use mcd_test_support::process::run;
use mcd_test_support::sysroot::ostree;
use mcd_test_support::tree::Tree;

use super::{Host, puller};

/// Builds the oracle, if that was not done, and runs it.
struct Oracle(PathBuf);

impl Oracle {
    fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.sh");
        let output = run(&mut Command::new(script)).unwrap();
        Self(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
    }

    #[track_caller]
    fn image(&self, arguments: &[&str]) -> String {
        let output = run(Command::new(&self.0).args(["container", "image"]).args(arguments)).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

fn repo_of(host: &Host) -> String {
    host.sysroot.path().join("ostree/repo").to_str().unwrap().to_owned()
}

/// As the oracle spells an image that `mcd` fetched from here.
fn reference(server: &FakeRegistry) -> String {
    format!("ostree-unverified-registry:{}", server.image("os:v2"))
}

/// Every format that both read.
fn images(host: &Host) -> Vec<(&'static str, Image)> {
    let of = || host.image_of(&Tree::v2());
    let derived = || {
        vec![
            Entry::dir("etc"),
            Entry::file("etc/motd", "hello\n").mode(0o600),
            Entry::whiteout("etc/fixture.conf"),
            Entry::dir("usr"),
            Entry::dir("usr/lib"),
            Entry::dir("usr/lib/fixture"),
            Entry::dir("usr/lib/fixture/private").mode(0o700),
            Entry::opaque("usr/lib/fixture/private"),
            Entry::program("usr/lib/fixture/tool", "#!/bin/sh\n"),
            Entry::file("usr/lib/fixture/名", "x").owner(12, 34),
            Entry::hard_link("usr/lib/fixture/名-again", "usr/lib/fixture/名"),
            Entry::symlink("usr/lib/fixture/dangling", "/elsewhere"),
        ]
    };
    let second = || vec![Entry::dir("var"), Entry::dir("var/lib"), Entry::file("var/lib/state", "kept\n")];
    vec![
        ("single", of().chunks(0)),
        ("chunked", of().chunks(4)),
        ("zstd", of().chunks(3).compression(Compression::Zstd)),
        ("plain tar", of().chunks(2).compression(Compression::None)),
        ("zstd frames", of().chunks(2).compression(Compression::ZstdChunked)),
        ("inline attributes", of().chunks(2).xattrs(XattrStyle::Inline)),
        ("docker", of().chunks(2).format(Format::Docker)),
        ("derived", of().chunks(3).derived(derived()).derived(second())),
        ("derived zstd", of().chunks(2).compression(Compression::Zstd).derived(derived())),
        ("derived on one layer", of().chunks(0).derived(derived())),
    ]
}

/// The layers' refs of an image: digest, commit, and what is in the commit.
fn layers(host: &Host, written: &Written) -> BTreeMap<String, (String, String)> {
    let refs = host.sysroot.refs().unwrap();
    let repo = host.sysroot.repo().unwrap();
    let found = written.layers.iter().map(|layer| {
        let name = format!("ostree/container/blob/{}", layer.digest.replace(':', "_3A_"));
        let commit = refs.get(&name).unwrap_or_else(|| panic!("{name} is not in\n{refs:#?}")).clone();
        let content =
            repo.load_commit(&commit).map(|(commit, _)| ::ostree::commit_get_content_checksum(&commit));
        (layer.digest.clone(), (commit, content.unwrap().unwrap().to_string()))
    });
    found.collect()
}

fn listing(host: &Host, rev: &str) -> String {
    let output =
        run(ostree().args(["ls", "-R", "-X", "-C", rev]).arg(format!("--repo={}", repo_of(host)))).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn root_the_oracle_takes_what_was_pulled_for_its_own() {
    let oracle = Oracle::new();
    let source = puller();
    for (name, image) in images(&source) {
        let written = image.write(&source.scratch.join(&name.replace(' ', "-")), "v2").unwrap();
        let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
        let (ours, theirs) = (puller(), puller());
        ours.pull(&server.image("os:v2")).ok();
        let reference = reference(&server);
        let insecure = "--insecure-skip-tls-verification";
        oracle.image(&["pull", &repo_of(&theirs), &reference, insecure, "--quiet"]);

        // The commits are the same, but for the time stamp that the oracle puts in derived layers.
        let base =
            written.layers.iter().position(|layer| Some(&layer.diff_id) == final_diff_id(&written).as_ref());
        let (seen, wanted) = (layers(&ours, &written), layers(&theirs, &written));
        for (number, layer) in written.layers.iter().enumerate() {
            let (seen, wanted) = (&seen[&layer.digest], &wanted[&layer.digest]);
            if Some(number) <= base {
                assert_eq!(seen.0, wanted.0, "{name}: commit of layer {number}");
            }
            assert_eq!(seen.1, wanted.1, "{name}: content of layer {number}");
        }
        let (seen, wanted) = (&ours.image_refs()[0], &theirs.image_refs()[0]);
        assert_eq!(seen, wanted, "{name}");
        assert_eq!(listing(&ours, seen), listing(&theirs, wanted), "{name}");

        // It lists it, knows its history and has nothing to do.
        let repo = repo_of(&ours);
        let listed = oracle.image(&["list", "--repo", &repo]);
        assert!(listed.contains(&server.image("os:v2")), "{name}: {listed}");
        let history =
            oracle.image(&["history", "--repo", &repo, &format!("docker://{}", server.image("os:v2"))]);
        assert!(history.lines().count() > written.layers.len(), "{name}: {history}");
        server.forget();
        let again = oracle.image(&["pull", &repo, &reference, insecure]);
        assert!(again.contains("No changes"), "{name}: {again}");
        assert!(
            server
                .requests()
                .iter()
                .all(|request| !request.path.contains("/blobs/") || is_config(&written, &request.path)),
            "{name}: {:#?}",
            server.requests()
        );
        ours.assert_whole();
    }
}

#[test]
fn root_what_the_oracle_pulled_is_not_fetched_again() {
    let oracle = Oracle::new();
    let source = puller();
    for (name, image) in images(&source) {
        let written = image.write(&source.scratch.join(&name.replace(' ', "-")), "v2").unwrap();
        let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
        let host = puller();
        let reference = reference(&server);
        oracle.image(&["pull", &repo_of(&host), &reference, "--insecure-skip-tls-verification", "--quiet"]);
        let theirs = listing(&host, &host.image_refs()[0]);
        server.forget();
        host.pull(&server.image("os:v2")).ok();
        let by_digest = server.image(&format!("os@{}", written.digest));
        host.pull(&by_digest).ok();
        for layer in &written.layers {
            let fetched = server.requests().iter().any(|request| request.path.ends_with(&layer.digest));
            assert!(!fetched, "{name}: {} was fetched again", layer.digest);
        }
        // Also when only the layers are the oracle's: the image is put together from them.
        let image_ref = &host.image_refs()[0];
        run(ostree()
            .args(["refs", "--delete", "ostree/container/image"])
            .arg(format!("--repo={}", repo_of(&host))))
        .unwrap();
        server.forget();
        host.pull(&server.image("os:v2")).ok();
        for layer in &written.layers {
            let fetched = server.requests().iter().any(|request| request.path.ends_with(&layer.digest));
            assert!(!fetched, "{name}: {} was fetched again", layer.digest);
        }
        assert_eq!(listing(&host, image_ref), theirs, "{name}");
        host.assert_whole();
    }
}

fn blob(written: &Written, digest: &str) -> serde_json::Value {
    let path = written.dir.join("blobs").join(digest.replace(':', "/"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn config_digest(written: &Written) -> String {
    blob(written, &written.digest)["config"]["digest"].as_str().unwrap().to_owned()
}

fn is_config(written: &Written, path: &str) -> bool {
    path.ends_with(&config_digest(written))
}

/// The diff id of the base's last layer, as the image says.
fn final_diff_id(written: &Written) -> Option<String> {
    let config = blob(written, &config_digest(written));
    config["config"]["Labels"]["ostree.final-diffid"].as_str().map(str::to_owned)
}
