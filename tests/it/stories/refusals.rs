//! What is refused, with which exit code and words, and that nothing changed.

use std::process::Command;

use mcd_test_support::entry::Entry;
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::image::{Image, foreign_architecture};
use mcd_test_support::layer::Lie;
use mcd_test_support::process::run;
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::{KERNEL, Tree, noise};

use super::Host;

#[test]
fn bad_references_are_usage_errors_that_name_the_part() {
    for (reference, word) in [
        ("host/os:bad tag", "tag"),
        ("host/os@sha256:123", "64"),
        ("host/os@md5:0123", "sha256"),
        ("HOST/Os Name", "Os Name"),
        ("oci:", "path"),
        ("nonsense:host/os:1", "nonsense"),
        ("ostree-remote-registry:host/os", "remote"),
        ("docker://", "name"),
    ] {
        let output =
            Command::new(super::program()).args(["pivot", reference, "--sysroot", "/nowhere"]).output();
        super::Outcome::of(output.unwrap()).fails(2, &[word]);
    }
}

#[test]
fn root_another_architecture_is_refused_before_any_download() {
    let host = Host::new();
    let image = host.write(host.image_of(&Tree::v2()).architecture(foreign_architecture()), "foreign");
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let before = host.switchable();
    let outcome = host.mcd(&["pivot", &server.image("os:foreign"), "--insecure-skip-tls-verification"]);
    outcome.fails(3, &[foreign_architecture()]);
    let layers: Vec<_> = image.layers.iter().map(|layer| layer.digest.as_str()).collect();
    assert!(
        !server.requests().iter().any(|request| layers.iter().any(|digest| request.path.ends_with(digest)))
    );
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_an_image_without_a_kernel_is_refused() {
    let host = Host::new();
    let before = host.switchable();
    let bare = host.write(host.image_of(&Tree::v2().without("usr/lib/modules")).bootable(false), "bare");
    host.mcd(&["pivot", &bare.reference()]).fails(3, &["kernel"]);
    // What the labels say is not what counts.
    let lying = host.write(host.image_of(&Tree::v2().without("usr/lib/modules")).bootable(true), "lying");
    host.mcd(&["pivot", &lying.reference()]).fails(3, &["kernel"]);
    let program = vec![Entry::dir("usr"), Entry::program("usr/hello", "hello")];
    let plain = host.write(Image::plain(program), "plain");
    host.mcd(&["pivot", &plain.reference()]).fails(3, &["kernel"]);
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_a_manifest_that_claims_more_than_the_disk_is_refused_with_both_numbers() {
    let host = Host::new();
    let image = host.write(host.image_of(&Tree::v2()).lie(1, Lie::WrongSize(900_000_000_000_000)), "huge");
    let before = (host.switchable(), host.sysroot.refs().unwrap());
    host.mcd(&["pivot", &image.reference()]).fails(3, &["estimate", "PiB", "has"]);
    assert_eq!((host.switchable(), host.sysroot.refs().unwrap()), before);
}

#[test]
fn root_a_full_boot_is_refused_with_both_numbers() {
    let sysroot = Sysroot::empty().unwrap();
    sysroot.mount_boot(4 << 20).unwrap();
    let host = Host::on(sysroot);
    let before = host.switchable();
    // Another kernel of some size: the pair that is there is not enough.
    let folder = format!("usr/lib/modules/{KERNEL}");
    let tree = Tree::v3().with(Entry::file(format!("{folder}/initramfs.img"), noise(5, 6_000_000)));
    let image = host.write(host.image_of(&tree), "v3");
    host.mcd(&["pivot", &image.reference()]).fails(3, &["/boot", "5.7 MiB"]);
    assert_eq!(host.switchable(), before);
    // The same kernel needs no place: a full /boot is no reason to refuse.
    host.sysroot.fill("boot", 200_000).unwrap();
    host.mcd(&["pivot", &host.v2().reference()]).ok();
    assert_eq!(host.next_version(), "2");
}

#[test]
fn root_a_full_disk_is_refused_before_the_first_byte() {
    let host = Host::on(Sysroot::empty_on_disk_of(96 << 20).unwrap());
    let big = Tree::v2().with(Entry::file("usr/lib/fixture/big", noise(3, 8_000_000)));
    let image = host.write(host.image_of(&big), "big");
    host.sysroot.fill("", 5_000_000).unwrap();
    let before = host.switchable();
    host.mcd(&["pivot", &image.reference()]).fails(3, &["estimate", "has"]);
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_a_disk_that_fills_up_stops_the_import_cleanly() {
    let host = Host::on(Sysroot::empty_on_disk_of(64 << 20).unwrap());
    // Zeros compress to nothing: no estimate foresees them.
    let bomb = vec![Entry::dir("usr"), Entry::zeros("usr/zeros", 200 << 20)];
    let image = host.write(host.image_of(&Tree::v2()).derived(bomb), "bomb");
    let before = host.switchable();
    let outcome = host.mcd(&["pivot", &image.reference()]);
    assert!(matches!(outcome.code, Some(1 | 3)), "{outcome}");
    assert_eq!(host.switchable(), before);
    host.sysroot.fsck().unwrap();
    // There is room again for what fits.
    host.mcd(&["pivot", &host.v2().reference()]).ok();
    assert_eq!(host.next_version(), "2");
}

#[test]
fn root_a_read_only_sysroot_is_refused_in_plain_words() {
    let host = Host::new();
    let image = host.v2();
    let before = host.switchable();
    let path = host.sysroot.path().to_str().unwrap();
    run(Command::new("mount").args(["--bind", path, path])).unwrap();
    run(Command::new("mount").args(["-o", "remount,bind,ro", path])).unwrap();
    let outcome = host.mcd(&["pivot", &image.reference()]);
    run(Command::new("umount").arg(path)).unwrap();
    assert!(matches!(outcome.code, Some(1 | 3)), "{outcome}");
    assert!(outcome.stderr.to_lowercase().contains("read-only"), "{outcome}");
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_a_sysroot_without_a_deployment_is_refused() {
    let host = Host::without_deployment(Sysroot::empty().unwrap());
    let outcome = host.mcd(&["pivot", &host.v2().reference()]);
    outcome.fails(3, &["deployment"]);
    let status = host.mcd(&["status"]).ok();
    assert!(status.stdout.contains("No deployment"), "{status}");
}

#[test]
fn root_what_is_no_sysroot_is_named() {
    let host = Host::new();
    let elsewhere = host.scratch.join("elsewhere");
    for (path, code) in [(elsewhere.as_path(), 2), (host.scratch.path(), 1)] {
        let output = Command::new(super::program()).args(["status", "--sysroot"]).arg(path).output().unwrap();
        super::Outcome::of(output).fails(code, &[path.to_str().unwrap()]);
    }
}

#[test]
fn root_lying_layers_leave_nothing_behind() {
    let host = Host::new();
    let before = host.switchable();
    for (number, lie) in [
        Lie::WrongDigest,
        Lie::WrongDiffId,
        Lie::Short(1000),
        Lie::Corrupt(5000),
        Lie::Missing,
        Lie::TarEnds(200_000),
        Lie::StreamEnds(500),
    ]
    .into_iter()
    .enumerate()
    {
        let said = format!("{lie:?}");
        // Right bytes with a wrong content: no source has better ones.
        let is_the_image = matches!(lie, Lie::WrongDiffId | Lie::TarEnds(_) | Lie::StreamEnds(_));
        let dir = host.scratch.join(&format!("lie-{number}"));
        let image = host.image_of(&Tree::v2()).lie(1, lie).write(&dir, "lie").unwrap();
        let outcome = host.mcd(&["pivot", &image.reference()]);
        assert_eq!(outcome.code, Some(if is_the_image { 3 } else { 1 }), "{said}: {outcome}");
        assert!(!outcome.stderr.is_empty(), "{said}");
        let refs = host.sysroot.refs().unwrap();
        let lying = mcd_ref_of(&image.layers[1].digest);
        assert!(!refs.contains_key(&lying), "{said}: {lying} is set");
        assert!(!refs.keys().any(|name| name.starts_with("ostree/container/image/")), "{said}");
        assert_eq!(host.switchable(), before, "{said}");
        host.sysroot.fsck().unwrap();
    }
    host.mcd(&["pivot", &host.v2().reference()]).ok();
}

/// The ref that marks a layer as complete.
fn mcd_ref_of(digest: &str) -> String {
    format!("ostree/container/blob/{}", digest.replace(':', "_3A_"))
}

#[test]
fn root_hostile_entries_never_leave_the_tree() {
    let host = Host::new();
    let before = host.switchable();
    for (name, entry) in [
        ("climbs", Entry::file("usr/../../../../../../../../tmp/mcd-climbed", "x")),
        ("huge claim", Entry::file("usr/claim", "x").claiming(10 << 30)),
        ("sparse claim", Entry::sparse("usr/sparse", 10 << 30)),
        ("endless attribute", Entry::file("usr/x", "").xattr("user.x", vec![7; 8 << 20])),
    ] {
        let layer = vec![Entry::dir("usr"), entry];
        let image = host.write(host.image_of(&Tree::v2()).derived(layer), &name.replace(' ', "-"));
        let outcome = host.mcd(&["pivot", &image.reference()]);
        assert!(matches!(outcome.code, Some(1 | 3)), "{name}: {outcome}");
        assert_eq!(host.switchable(), before, "{name}");
    }
    assert!(!std::path::Path::new("/tmp/mcd-climbed").exists());
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_what_a_commit_cannot_hold_is_left_out_and_said() {
    let host = Host::new();
    let layer = vec![
        Entry::dir("usr"),
        Entry::char_device("usr/character", 1, 3),
        Entry::block_device("usr/block", 8, 0),
        Entry::fifo("usr/fifo"),
        Entry::file("usr/file", "kept\n"),
    ];
    let image = host.write(host.image_of(&Tree::v2()).derived(layer), "devices");
    let outcome = host.mcd(&["pivot", &image.reference()]).ok();
    assert!(outcome.stderr.contains("3 entries left out"), "{outcome}");
    let root = host.sysroot.next_boot().unwrap().deployment;
    for name in ["character", "block", "fifo"] {
        assert!(!root.join("usr").join(name).exists(), "{name}");
    }
    assert_eq!(host.next_file("usr/file").unwrap(), "kept\n");
}

#[test]
fn root_a_link_cannot_fetch_a_file_of_the_host() {
    let host = Host::new();
    let canary = host.scratch.join("canary");
    std::fs::write(&canary, "of the host").unwrap();
    let target = canary.to_str().unwrap();
    let climbing = format!("usr/../../../../..{target}");
    let layer = vec![
        Entry::dir("usr"),
        Entry::hard_link("usr/absolute", target),
        Entry::symlink("usr/symbolic", target),
    ];
    let image = host.write(host.image_of(&Tree::v2()).derived(layer), "absolute");
    // An archive's absolute names mean the archive's own root, where there is no such file.
    host.mcd(&["pivot", &image.reference()]);
    let image = host
        .image_of(&Tree::v2())
        .derived(vec![Entry::dir("usr"), Entry::hard_link("usr/climbing", climbing)]);
    host.mcd(&["pivot", &host.write(image, "climbing").reference()]);
    for name in ["usr/absolute", "usr/climbing"] {
        assert!(!host.sysroot.next_boot().unwrap().deployment.join(name).exists(), "{name}");
    }
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(&canary).unwrap().nlink(), 1);
}

#[test]
fn root_objects_that_are_not_what_their_names_say_are_refused() {
    let host = Host::new();
    let before = host.switchable();
    // One that is new in this version: what the repo has is not read again.
    let content = noise(1234, 4321);
    let tree = Tree::v2().with(Entry::program("usr/lib/fixture/only-here", &content));
    let image = host.image_of(&tree).chunks(0).edit_entries(0, move |entries| {
        let object = entries.iter_mut().find(|entry| entry.data_len() == content.len() as u64);
        // The checksum covers owner and mode too.
        object.unwrap().mode = 0o4755;
    });
    let image = host.write(image, "setuid");
    host.mcd(&["pivot", &image.reference()]).fails(3, &["checksum"]);
    assert_eq!(host.switchable(), before);
    host.sysroot.fsck().unwrap();
}
