//! Legacy oscontainers: an archive repo in a plain image.

use mcd_test_support::entry::{Body, Node};

use super::*;

const LABEL: &str = "com.coreos.ostree-commit";

fn legacy(scene: &Scene, refs: &[&str]) -> Image {
    Image::legacy(&scene.source, refs).unwrap()
}

#[test]
fn root_a_legacy_image_gives_the_tree_back() {
    for (name, labelled, compression) in [
        ("labelled", true, Compression::Gzip),
        ("by-its-ref", false, Compression::Zstd),
        ("plain-tar", false, Compression::None),
    ] {
        let scene = Scene::new();
        let image = legacy(&scene, &["fixture/1"]).compression(compression);
        let image = if labelled { image } else { image.without_label(LABEL) };
        let written = scene.write(image, name);
        let (pulled, _) = scene.pull(&written.reference()).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        let listing = scene.listing("repo", &pulled.commit);
        assert_eq!(listing, scene.listing("source", "fixture/1"), "{name}");
        // What status shows: the image's digest, and the version of the commit in it.
        assert_eq!(pulled.digest.as_str(), written.digest);
        assert_eq!(pulled.version.as_deref(), Some("1"));
        assert_eq!(
            image_in_repo(&scene.target, &pulled.digest).unwrap().unwrap().version.as_deref(),
            Some("1")
        );
        // Streamed: what lies in the repo is the tree's objects, none of the archive's files.
        assert!(!listing.contains("filez"));
        let (again, seen) = scene.pull(&written.reference()).unwrap();
        assert_eq!((again.commit, seen.started()), (pulled.commit, 0));
    }
}

#[test]
fn root_a_label_chooses_among_refs_and_without_one_they_are_listed() {
    let scene = Scene::new();
    let both = || legacy(&scene, &["fixture/2", "fixture/1"]);
    let written = scene.write(both(), "labelled");
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/2"));

    let written = scene.write(both().without_label(LABEL), "several");
    let fault = to_fault(&scene.pull(&written.reference()).unwrap_err());
    assert_eq!(fault.kind, ExitKind::Refused);
    let why = fault.why.unwrap();
    assert!(why.contains("refs/heads/fixture/1") && why.contains("refs/heads/fixture/2"), "{why}");

    // An upper layer that hides one of them leaves no doubt.
    let upper = vec![Entry::whiteout("srv/repo/refs/heads/fixture/2"), Entry::file("etc/x", "x")];
    let written = scene.write(both().without_label(LABEL).derived(upper), "hidden");
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"));
}

#[test]
fn root_objects_may_be_spread_over_layers_and_the_rest_of_the_image_does_not_count() {
    let scene = Scene::new();
    let (mut lower, commit) = mcd_test_support::legacy::repo_entries(&scene.source, &["fixture/1"]).unwrap();
    let upper = lower.split_off(lower.len() / 2);
    let hidden = lower.iter().find(|entry| entry.name().ends_with(".filez")).unwrap().name();
    let image = Image::plain(vec![Entry::file("usr/bin/sh", "x"), Entry::fifo("dev/x")])
        .derived(lower)
        .derived(upper)
        .derived(vec![Entry::whiteout(&hidden)])
        .label(LABEL, &commit);
    let written = scene.write(image, "spread");
    let (pulled, seen) = scene.pull(&written.reference()).unwrap();
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"));
    assert_eq!(seen.warnings(), Vec::<String>::new());
}

#[test]
fn root_broken_repos_are_refused() {
    let scene = Scene::new();
    let change = |suffix: &'static str, change: fn(&mut Vec<u8>)| {
        move |entries: &mut Vec<Entry>| {
            let entry = entries.iter_mut().find(|entry| entry.name().ends_with(suffix)).unwrap();
            let Node::File(Body::Bytes(bytes)) = &mut entry.node else { panic!("not a file") };
            change(bytes);
        }
    };
    let flip = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    let cases: Vec<(&str, Image)> = vec![
        ("content", legacy(&scene, &["fixture/1"]).edit_entries(0, change(".filez", flip))),
        ("header", legacy(&scene, &["fixture/1"]).edit_entries(0, change(".filez", |b| b[0] = 0x7f))),
        ("short", legacy(&scene, &["fixture/1"]).edit_entries(0, change(".filez", |b| b.truncate(9)))),
        ("dirtree", legacy(&scene, &["fixture/1"]).edit_entries(0, change(".dirtree", flip))),
        (
            "mode",
            legacy(&scene, &["fixture/1"])
                .edit_entries(0, change("config", |b| *b = b"[core]\nmode=bare\n".to_vec())),
        ),
        (
            "missing",
            legacy(&scene, &["fixture/1"]).edit_entries(0, |entries| {
                let at = entries.iter().position(|entry| entry.name().ends_with(".filez")).unwrap();
                entries.remove(at);
            }),
        ),
        ("other", legacy(&scene, &["fixture/1"]).label(LABEL, &"ab".repeat(32))),
        ("no-repo", Image::plain(vec![Entry::file("usr/x", "x")]).label(LABEL, &"ab".repeat(32))),
    ];
    for (name, image) in cases {
        let written = scene.write(image, name);
        let fault = to_fault(&scene.pull(&written.reference()).expect_err(name));
        assert!(fault.why.is_some(), "{name}: {fault:?}");
        assert_eq!(scene.refs(), Vec::<String>::new(), "{name}");
    }
}
