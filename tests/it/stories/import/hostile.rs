//! Images that lie: refused with the limit or the mismatch in the message, within bounded memory,
//! and without a ref.

use mcd_test_support::compress::Compression;
use mcd_test_support::encapsulate::object_path;
use mcd_test_support::entry::Entry;
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::image::{Image, Written};
use mcd_test_support::layer::Lie;
use mcd_test_support::tree::Tree;

use super::memory::Watched;
use super::{Host, puller};

/// What an import of a hostile image may use: some 20 MB for the program and its buffers, what limits
/// allow to be held, and the pages that are touched of an unoptimised program's file.
const MEMORY: u64 = 96 << 20;

/// Pulls from a registry; it must fail with each of these words, in bounded memory, and set no ref
/// of an image.
#[track_caller]
fn refused(host: &Host, name: &str, written: &Written, words: &[&str]) {
    let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
    let image = server.image(&format!("os:{}", written.tag));
    let watched = Watched::run(&mut host.pull_command(&image));
    let outcome = &watched.outcome;
    assert!(matches!(outcome.code, Some(1 | 3)), "{name}: {outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "{name}: '{word}' is not in\n{outcome}");
    }
    assert!(watched.peak < MEMORY, "{name}: {} bytes of memory", watched.peak);
    assert_eq!(host.image_refs(), Vec::<String>::new(), "{name}");
    assert_eq!(host.staging_folders(), Vec::<String>::new(), "{name}");
    host.sysroot.fsck().unwrap();
}

fn derived(host: &Host, entries: Vec<Entry>) -> Image {
    host.image_of(&Tree::v2()).derived(entries)
}

#[test]
fn root_blobs_that_are_not_what_the_image_says() {
    let host = puller();
    // Layer 1 is a chunk of objects, layer 4 a container builder's.
    for layer in [0, 1, 4] {
        for (lie, words) in [
            (Lie::WrongDigest, vec!["corrupt"]),
            (Lie::WrongDiffId, vec!["diff id"]),
            (Lie::Corrupt(200), vec![]),
            (Lie::Missing, vec!["404"]),
            (Lie::TarEnds(700), vec!["end"]),
            (Lie::StreamEnds(30), vec![]),
            (Lie::Trailing(b"rest".to_vec()), vec![]),
            (Lie::WrongSize(10), vec![]),
            (Lie::WrongSize(123_456_789), vec![]),
        ] {
            let name = format!("{lie:?} in layer {layer}");
            // Layers that are not lied about stay in the repo: a fresh one each.
            let target = puller();
            let entries = vec![Entry::file("usr/lib/fixture/x", mcd_test_support::tree::noise(1, 3000))];
            let image = derived(&host, entries).lie(layer, lie);
            let dir = tempfile::tempdir_in(host.scratch.path()).unwrap();
            refused(&target, &name, &image.write(dir.path(), "v").unwrap(), &words);
        }
    }
}

#[test]
fn root_entries_that_no_builder_writes() {
    let host = puller();
    let big = vec![0; 100 << 20];
    let cases: Vec<(&str, Vec<Entry>, &[&str])> = vec![
        ("traversal", vec![Entry::file("../etc/passwd", "x")], &["../etc/passwd"]),
        ("inner traversal", vec![Entry::file("usr/../../x", "x")], &["usr/../../x"]),
        ("link out", vec![Entry::hard_link("usr/x", "../../etc/shadow")], &["../../etc/shadow"]),
        ("absolute link", vec![Entry::hard_link("usr/x", "/etc/shadow")], &["/etc/shadow"]),
        (
            "through a link",
            vec![Entry::symlink("usr/lib/out", "/etc"), Entry::file("usr/lib/out/passwd", "x")],
            &["leads through"],
        ),
        ("sparse", vec![Entry::sparse("usr/x", 10 << 30)], &["sparse"]),
        (
            "sparse in PAX form",
            vec![Entry::file("usr/x", "x").pax("GNU.sparse.realsize", "10737418240")],
            &["sparse"],
        ),
        ("claim", vec![Entry::file("usr/x", "x").claiming(10 << 30)], &["end of file"]),
        (
            "attribute",
            vec![Entry::file("usr/x", "x").xattr("user.x", big)],
            &["PAX header", "the limit is 1114112"],
        ),
        ("many attributes", many_attributes(), &["the limit"]),
        ("long names", long_names(), &["the limit"]),
        ("deep path", vec![Entry::file("d/".repeat(500) + "x", "x")], &["128, the limit"]),
        ("long name", vec![Entry::file(format!("usr/{}", "n".repeat(300)), "x")], &["255 bytes, the limit"]),
        ("long path", vec![Entry::file("usr/".to_owned() + &"d/".repeat(3000), "x")], &["the limit is 4096"]),
    ];
    for (name, entries, words) in cases {
        let dir = tempfile::tempdir_in(host.scratch.path()).unwrap();
        let image = derived(&host, entries).compression(Compression::Zstd);
        refused(&host, name, &image.write(dir.path(), "v").unwrap(), words);
    }
}

/// Folders whose attributes must be held until the layer ends: 150 MB together.
fn many_attributes() -> Vec<Entry> {
    let value = vec![b'x'; 500_000];
    (0..300).map(|number| Entry::dir(format!("usr/{number}")).xattr("user.x", &value)).collect()
}

/// Names that must be held until the layer ends: 160 MB together.
fn long_names() -> Vec<Entry> {
    let part = "n".repeat(250);
    let path = |number: usize| format!("usr/{}{number}", format!("{number}{part}/").repeat(15));
    (0..42_000).map(|number| Entry::file(path(number), "")).collect()
}

#[test]
fn root_the_same_large_file_twice_in_a_layer() {
    let host = puller();
    let copy = |number: u64| Entry::zeros(format!("usr/lib/fixture/copy-{number}"), 1 << 20);
    let written = host.write(derived(&host, (0..8).map(copy).collect()), "copies");
    host.mcd(&["pull", &written.reference()]).ok();
    host.assert_whole();
}

#[test]
fn root_devices_are_left_out_and_said() {
    let host = puller();
    let image = derived(
        &host,
        vec![
            Entry::char_device("usr/lib/fixture/tty", 5, 0),
            Entry::block_device("usr/lib/fixture/disk", 8, 0),
            Entry::fifo("usr/lib/fixture/fifo"),
        ],
    );
    let written = host.write(image, "devices");
    let outcome = host.mcd(&["pull", &written.reference()]).ok();
    assert!(outcome.stderr.contains("3 entries left out") && outcome.stderr.contains("devices"), "{outcome}");
}

#[test]
fn root_objects_that_are_not_what_their_names_say() {
    let host = puller();
    let zeros = "0".repeat(64);
    let object = |suffix: &str| object_path(&zeros, suffix);
    let cases: Vec<(&str, Vec<Entry>, &[&str])> = vec![
        (
            "a metadata object of 1 GB",
            vec![Entry::zeros(object("dirtree"), 1 << 30)],
            &["1073741824 bytes", "the limit is 10485760"],
        ),
        ("a wrong name", vec![Entry::file(object("dirtree"), "x")], &["corrupt"]),
        (
            "attributes of 100 MB",
            vec![Entry::zeros(object("file-xattrs"), 100 << 20)],
            &["104857600 bytes", "the limit is 1048576"],
        ),
        (
            "own attributes of 100 MB",
            vec![Entry::zeros(object("file-xattrs-link"), 100 << 20)],
            &["104857600 bytes", "the limit is 1048576"],
        ),
        (
            "a device",
            vec![Entry::file(object("file-xattrs-link"), ""), Entry::char_device(object("file"), 1, 3)],
            &["neither a file nor a symbolic link"],
        ),
        (
            "a corrupt file",
            vec![Entry::file(object("file-xattrs-link"), ""), Entry::file(object("file"), "x")],
            &["corrupt"],
        ),
        (
            "a large corrupt file",
            vec![Entry::file(object("file-xattrs-link"), ""), Entry::zeros(object("file"), 3 << 20)],
            &["corrupt"],
        ),
        (
            "no object",
            vec![Entry::file("sysroot/ostree/repo/objects/../../x", "x")],
            &["not the name of an object"],
        ),
        ("a missing object", vec![], &[]),
    ];
    for (name, entries, words) in cases {
        let dir = tempfile::tempdir_in(host.scratch.path()).unwrap();
        let image = host.image_of(&Tree::v2()).compression(Compression::Zstd);
        let image = image.edit_entries(0, move |all| {
            if entries.is_empty() {
                // A dirtree that the commit needs.
                let at = all.iter().rposition(|entry| entry.name().ends_with(".dirtree")).unwrap();
                all.remove(at);
            }
            all.extend(entries);
        });
        refused(&host, name, &image.write(dir.path(), "v").unwrap(), words);
    }
}

#[test]
fn root_a_bomb_is_refused_by_its_limit() {
    let host = puller();
    let tar = host.scratch.join("bomb.tar");
    // Sparse on this disk; names that are no object's are read over, so that nothing is written.
    let header = |size: u64| {
        let mut bytes = Vec::new();
        Entry::file("usr/zeros", "")
            .claiming(size)
            .write_to(&mut bytes, mcd_test_support::entry::TarStyle::Gnu, None)
            .unwrap();
        bytes
    };
    std::fs::write(&tar, header(5 << 30)).unwrap();
    std::fs::File::options().write(true).open(&tar).unwrap().set_len((5 << 30) + 2048).unwrap();
    let image = host.image_of(&Tree::v2()).derived_tar(&tar);
    let image = image.layer_compression(4, Compression::Zstd).edit_config(|config| {
        // The bomb is a layer of objects, so that its zeros are only read.
        config["config"]["Labels"]["ostree.final-diffid"] = config["rootfs"]["diff_ids"][4].clone();
    });
    let written = host.write(image, "bomb");
    refused(&host, "bomb", &written, &["unpacks to more than 4294967296 bytes, the limit"]);
}
