//! Every format of OS image, through the whole of a pivot.

use mcd_test_support::compress::Compression;
use mcd_test_support::encapsulate::XattrStyle;
use mcd_test_support::entry::{Entry, TarStyle};
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::image::{
    Format, Image, foreign_architecture, write_archive, write_index, write_index_of_index,
};
use mcd_test_support::process::run;
use mcd_test_support::sysroot::ostree;
use mcd_test_support::tree::{Tree, noise};

use super::Host;

/// Every path of a commit with mode, owner, attributes and content checksum, as `ostree ls` tells.
fn listing(repo: &std::path::Path, rev: &str) -> String {
    let output =
        run(ostree().args(["ls", "-R", "-X", "-C", rev]).arg(format!("--repo={}", repo.display()))).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn root_every_format_gives_the_same_tree() {
    let host = Host::new();
    let commit = Tree::v2().commit(&host.repo, "fixture/2").unwrap();
    let wanted = listing(&host.scratch.join("source"), &commit);
    let of = || Image::of(&host.repo, &commit);
    let cases: Vec<(&str, Image)> = vec![
        ("single", of()),
        ("chunked", of().chunks(4)),
        ("gzip-members", of().chunks(2).compression(Compression::GzipMembers)),
        ("zstd", of().chunks(2).compression(Compression::Zstd)),
        ("zstd-chunked", of().chunks(2).compression(Compression::ZstdChunked)),
        ("plain-tar", of().chunks(2).compression(Compression::None)),
        (
            "mixed",
            of().chunks(2).layer_compression(0, Compression::Zstd).layer_compression(2, Compression::None),
        ),
        ("inline-attributes", of().chunks(2).xattrs(XattrStyle::Inline)),
        ("docker", of().chunks(2).format(Format::Docker)),
        ("empty-layer", of().chunk_by(|_| Some(0)).chunks(2)),
        ("same-layer-twice", of().chunks(2).derived(vec![Entry::dir("usr")]).repeat_layer(3)),
    ];
    for (name, image) in cases {
        // A sysroot of its own, so that nothing is there from the case before.
        let host = Host::new();
        let image = image.write(&host.scratch.join("oci"), "v2").unwrap();
        // By a registry: skopeo reads Docker's format from there only.
        let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
        let outcome = host.mcd(&["pivot", &server.image("os:v2"), "--insecure-skip-tls-verification"]);
        assert_eq!(outcome.code, Some(0), "{name}: {outcome}");
        let refs = host.sysroot.refs().unwrap();
        let found = refs.keys().find(|name| name.starts_with("ostree/container/image/")).unwrap();
        let seen = listing(&host.sysroot.path().join("ostree/repo"), found);
        assert!(seen == wanted, "{name}: {}", first_difference(&seen, &wanted));
        host.sysroot.fsck().unwrap();
    }
}

fn first_difference(seen: &str, wanted: &str) -> String {
    let mut lines = seen.lines().zip(wanted.lines());
    match lines.find(|(seen, wanted)| seen != wanted) {
        Some((seen, wanted)) => format!("{seen}\ninstead of\n{wanted}"),
        None => format!("{} lines instead of {}", seen.lines().count(), wanted.lines().count()),
    }
}

/// What a Containerfile makes on top of version 2.
fn derived_layers() -> [Vec<Entry>; 2] {
    [
        vec![
            Entry::dir("etc"),
            Entry::file("etc/motd", "derived\n").mode(0o600),
            Entry::whiteout("etc/fixture.conf"),
            Entry::dir("usr"),
            Entry::dir("usr/lib"),
            Entry::dir("usr/lib/fixture"),
            Entry::dir("usr/lib/fixture/private").mode(0o700),
            Entry::opaque("usr/lib/fixture/private"),
            Entry::file("usr/lib/fixture/private/other", "x").mode(0o600),
            Entry::whiteout("usr/lib/fixture/a-long-folder-name"),
            Entry::program("usr/lib/fixture/tool", "#!/bin/sh\n").mtime(1_600_000_000),
            Entry::file("usr/lib/fixture/名前", "a name beyond ASCII\n").owner(12, 34),
            Entry::hard_link("usr/lib/fixture/名前-again", "usr/lib/fixture/名前"),
            Entry::symlink("usr/lib/fixture/dangling", "/elsewhere"),
        ],
        vec![
            Entry::dir("var"),
            Entry::dir("var/lib"),
            Entry::file("var/lib/state", "kept aside\n"),
            Entry::file("run/ignored", "x"),
            Entry::whiteout("etc/motd"),
            Entry::file("etc/second", "2\n"),
        ],
    ]
}

#[test]
fn root_derived_layers_lie_over_the_base() {
    for (style, compression) in [(TarStyle::Pax, Compression::Gzip), (TarStyle::Gnu, Compression::Zstd)] {
        let host = Host::new();
        let [first, second] = derived_layers();
        let image = host.image_of(&Tree::v2()).compression(compression);
        let image = host.write(image.derived_in(style, first).derived_in(style, second), "derived");
        host.mcd(&["pivot", &image.reference()]).ok();
        let has = |path: &str| host.next_file(path);
        assert_eq!(has("etc/motd"), None);
        assert_eq!(has("etc/second").unwrap(), "2\n");
        assert_eq!(has("usr/etc/fixture.conf"), None);
        assert_eq!(has("usr/lib/fixture/private/key"), None);
        assert_eq!(has("usr/lib/fixture/private/other").unwrap(), "x");
        assert_eq!(has("usr/lib/fixture/tool").unwrap(), "#!/bin/sh\n");
        assert_eq!(has("usr/lib/fixture/名前-again").unwrap(), "a name beyond ASCII\n");
        assert_eq!(has("usr/share/factory/var/lib/state").unwrap(), "kept aside\n");
        let root = host.sysroot.next_boot().unwrap().deployment;
        assert!(!root.join("usr/lib/fixture/a-long-folder-name").exists());
        assert!(!root.join("run/ignored").exists());
        assert_eq!(
            std::fs::read_link(root.join("usr/lib/fixture/dangling")).unwrap().to_str(),
            Some("/elsewhere")
        );
        // What no layer touched is the base's: a setuid bit and a capability among them.
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(root.join("usr/lib/fixture/sudo")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o4755);
        host.sysroot.fsck().unwrap();
    }
}

#[test]
fn root_a_plain_image_with_a_kernel_boots_too() {
    let host = Host::new();
    let image = host.write(Image::plain(Tree::v2().entries()), "plain");
    host.mcd(&["pivot", &image.reference()]).ok();
    assert_eq!(host.next_version(), "2");
    assert_eq!(host.next_file("etc/fixture.conf").unwrap(), "level = 2\n");
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_an_archive_of_the_layout_is_read() {
    let host = Host::new();
    let image = host.v2();
    let archive = host.scratch.join("os.tar");
    write_archive(&image.dir, &archive).unwrap();
    host.mcd(&["pivot", &format!("oci-archive:{}:v2", archive.display())]).ok();
    assert_eq!(host.next_version(), "2");
}

#[test]
fn root_of_an_index_this_machines_image_is_taken() {
    let host = Host::new();
    let other = host.image_of(&Tree::v1().version("other")).architecture(foreign_architecture());
    let index =
        write_index(&host.scratch.join("oci"), "all", vec![other, host.image_of(&Tree::v2())]).unwrap();
    let server = FakeRegistry::serve(&index.dir, vec![]).unwrap();
    let insecure = "--insecure-skip-tls-verification";
    let by_digest = server.image(&format!("os@{}", index.digest));
    host.mcd(&["pivot", &by_digest, insecure]).ok();
    assert_eq!(host.next_version(), "2");
    let next = host.status()["deployments"][0].clone();
    assert_eq!(next["asked_digest"], index.digest.as_str());
    assert_ne!(next["digest"], index.digest.as_str());
    // The index's digest is what was asked for, and is enough to know that nothing is to do.
    server.forget();
    host.mcd(&["pivot", &by_digest, "--unchanged-exit-77"]).fails(77, &[]);
    assert_eq!(server.requests(), []);
}

#[test]
fn root_an_index_inside_an_index_is_refused() {
    let host = Host::new();
    let inner = write_index(&host.scratch.join("oci"), "all", vec![host.image_of(&Tree::v2())]).unwrap();
    let outer = write_index_of_index(&inner, "nested").unwrap();
    let before = host.status();
    host.mcd(&["pivot", &outer.reference()])
        .fails(3, &["an index inside an index is not followed", "its own digest"]);
    assert_eq!(host.status(), before);
}

#[test]
fn root_only_what_changed_is_fetched() {
    let host = Host::new();
    let v1 = host.write(host.image_of(&Tree::v1()).chunks(8), "v1");
    let v2 = host.write(host.image_of(&Tree::v2()).chunks(8), "v2");
    let server = FakeRegistry::serve(&v1.dir, vec![]).unwrap();
    let insecure = "--insecure-skip-tls-verification";
    host.mcd(&["pivot", &server.image("os:v1"), insecure]).ok();
    server.forget();
    host.mcd(&["pivot", &server.image("os:v2"), insecure]).ok();
    let had: Vec<_> = v1.layers.iter().map(|layer| &layer.digest).collect();
    let new = v2.layers.iter().filter(|layer| !had.contains(&&layer.digest)).count();
    assert!(new < v2.layers.len(), "the fixture's versions share no layer");
    let fetched = |digest: &str| {
        server.requests().iter().any(|request| request.path.ends_with(digest) && request.bytes > 0)
    };
    for layer in &v2.layers {
        assert_eq!(fetched(&layer.digest), !had.contains(&&layer.digest), "{}", layer.digest);
    }
}

#[test]
fn root_large_files_keep_every_byte() {
    // Larger than any buffer on the way: pipes, decoders, writers.
    let host = Host::new();
    let content = noise(99, 9_000_001);
    let tree = Tree::v2().with(Entry::file("usr/lib/fixture/large", &content));
    let image = host.write(host.image_of(&tree).compression(Compression::Zstd), "large");
    host.mcd(&["pivot", &image.reference()]).ok();
    let path = host.sysroot.next_boot().unwrap().deployment.join("usr/lib/fixture/large");
    assert!(std::fs::read(path).unwrap() == content);
}
