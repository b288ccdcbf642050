//! Where images come from, and what is said when they do not.

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::image::{write_archive, write_index};

use super::*;

fn config_of(written: &Written) -> String {
    let blob = written.dir.join("blobs").join(written.digest.replace(':', "/"));
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(blob).unwrap()).unwrap();
    manifest["config"]["digest"].as_str().unwrap().to_owned()
}

#[test]
fn root_manifest_config_and_layer_are_refused_in_the_same_words() {
    let scene = Scene::new();
    let written = scene.write(scene.v1().chunks(2), "v1");
    let (config, layer) = (config_of(&written), written.layers[1].digest.clone());
    for (status, hint) in [(401, "credentials"), (403, "credentials"), (404, "reference")] {
        for on in [On::Manifest, On::BlobOf(config.clone()), On::BlobOf(layer.clone())] {
            let rule = Rule::always(on.clone(), Act::Status(status));
            let server = FakeRegistry::serve(&written.dir, vec![rule]).unwrap();
            let options = PullOptions { configured: Some("a mirror is asked first".to_owned()), ..quick() };
            let error = scene
                .pull_with(&server.image("os:latest"), &options, CancellationToken::new())
                .expect_err("refused");
            let fault = to_fault(&error);
            assert_eq!(fault.kind, ExitKind::Failed, "{status} {on:?}: {fault:?}");
            assert!(fault.next.as_deref().unwrap().contains(hint), "{status} {on:?}: {fault:?}");
            assert!(fault.why.as_deref().unwrap().contains("a mirror is asked first"), "{fault:?}");
            assert!(!is_unreachable(&error));
        }
    }
}

#[test]
fn root_wrong_bytes_are_called_so_whatever_stumbles_over_them() {
    for (name, compression) in
        [("gzip", Compression::Gzip), ("zstd", Compression::Zstd), ("none", Compression::None)]
    {
        let scene = Scene::new();
        let written = scene.write(scene.v1().chunks(2).compression(compression), name);
        let rule = Rule::always(On::BlobOf(written.layers[1].digest.clone()), Act::WrongBody);
        let server = FakeRegistry::serve(&written.dir, vec![rule]).unwrap();
        let fault = to_fault(&scene.pull(&server.image("os:latest")).expect_err(name));
        assert_eq!(fault.kind, ExitKind::Failed, "{name}: {fault:?}");
        let why = fault.why.as_deref().unwrap();
        // skopeo's words where it compares, ours else.
        assert!(why.contains("corrupted blob") || why.contains("digest should be"), "{name}: {fault:?}");
        assert!(fault.next.unwrap().contains("trust"), "{name}");
    }
}

#[test]
fn root_right_bytes_with_a_wrong_diff_id_or_content_are_refused() {
    let scene = Scene::new();
    for (name, lie) in [("diff-id", Lie::WrongDiffId), ("tar", Lie::TarEnds(200_000))] {
        let written = scene.write(scene.v1().lie(0, lie), name);
        let Err(error) = scene.pull(&written.reference()) else { panic!("{name} was taken") };
        let fault = to_fault(&error);
        assert_eq!(fault.kind, ExitKind::Refused, "{name}: {fault:?}");
    }
}

#[test]
fn root_a_digest_behind_a_layout_is_checked() {
    let scene = Scene::new();
    let written = scene.write(scene.v1(), "v1");
    let index = write_index(&scene.path("index"), "latest", vec![scene.v1()]).unwrap();
    for layout in [&written, &index] {
        let archive = layout.dir.with_extension("tar");
        write_archive(&layout.dir, &archive).unwrap();
        let options =
            PullOptions { scratch: Some(Arc::new(staging::repo_dir(&scene.target).unwrap())), ..quick() };
        for source in [layout.reference(), format!("oci-archive:{}:latest", archive.display())] {
            let pull = |digest: &str| {
                scene.pull_with(&format!("{source}@{digest}"), &options, CancellationToken::new())
            };
            let (pulled, _) = pull(&layout.digest).unwrap_or_else(|error| panic!("{source}: {error:#}"));
            let asked = pulled.asked_digest.as_ref().unwrap_or(&pulled.digest);
            assert_eq!(asked.as_str(), layout.digest, "{source}");
            let fault = to_fault(&pull(&format!("sha256:{}", "ab".repeat(32))).expect_err(&source));
            assert_eq!(fault.kind, ExitKind::Refused, "{source}: {fault:?}");
            assert!(fault.why.unwrap().contains("not sha256:abab"), "{source}");
        }
    }
}

#[test]
fn root_an_archive_is_unpacked_beside_the_repo_and_that_goes() {
    let scene = Scene::new();
    let written = scene.write(scene.v1().chunks(3), "v1");
    let archive = scene.path("v1.tar");
    write_archive(&written.dir, &archive).unwrap();
    let unpacked = || {
        let names = std::fs::read_dir("/var/tmp").unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("oci")).count()
    };
    let before = unpacked();
    let scratch = Some(Arc::new(staging::repo_dir(&scene.target).unwrap()));
    let options = PullOptions { scratch, ..quick() };
    let reference = format!("oci-archive:{}:latest", archive.display());
    let (pulled, _) = scene.pull_with(&reference, &options, CancellationToken::new()).unwrap();
    assert_eq!(scene.listing("repo", &pulled.commit), scene.listing("source", "fixture/1"));
    assert_eq!(unpacked(), before, "skopeo left something in /var/tmp");
    let left: Vec<_> = std::fs::read_dir(scene.path("repo/tmp"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "cache")
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn root_a_rate_limit_is_kept_within_a_fifth() {
    let scene = Scene::new();
    let written = scene.write(scene.v1().compression(Compression::None), "v1");
    let server = FakeRegistry::serve(&written.dir, Vec::new()).unwrap();
    let bytes = written.layer_bytes();
    let limit = bytes / 4;
    let options = PullOptions { rate_limit: Some(limit), ..quick() };
    let (pulled, _) =
        scene.pull_with(&server.image("os:latest"), &options, CancellationToken::new()).unwrap();
    let seconds = pulled.stats.seconds;
    assert!((3.2..6.0).contains(&seconds), "{bytes} bytes at {limit} a second took {seconds} s");
}

#[test]
fn root_another_architecture_is_refused_before_any_layer() {
    use mcd_test_support::image::foreign_architecture;
    let scene = Scene::new();
    let index = vec![scene.v1().architecture(foreign_architecture())];
    let written = write_index(&scene.path("index"), "latest", index).unwrap();
    let server = FakeRegistry::serve(&written.dir, Vec::new()).unwrap();
    let fault = to_fault(&scene.pull(&server.image("os:latest")).expect_err("foreign"));
    assert_eq!(fault.kind, ExitKind::Refused, "{fault:?}");
    assert!(fault.next.unwrap().contains("architecture"));
    assert!(server.requests().iter().all(|request| !request.path.contains("/blobs/")));
}
