//! A disk without bytes, and one without inodes, at each stage of an import.

use std::path::Path;
use std::process::Command;

use mcd_test_support::entry::Entry;
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::process::run;
use mcd_test_support::scratch::Scratch;
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::Tree;

use super::{Host, puller};

/// A host whose disk is a tmpfs with these options.
fn on_tmpfs(options: &str) -> Host {
    let host = Host::without_deployment(Sysroot::empty_on(options).unwrap());
    // The reserve is another matter.
    host.sysroot.configure("core.min-free-space-size", "0MB").unwrap();
    host
}

fn free_inodes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).unwrap().f_favail
}

/// Uses up inodes until `left` are free.
fn take_inodes(folder: &Path, left: u64) {
    std::fs::create_dir_all(folder).unwrap();
    let take = free_inodes(folder).saturating_sub(left);
    for number in 0..take {
        std::fs::File::create(folder.join(format!("taken-{number}"))).unwrap();
    }
}

#[test]
fn root_without_inodes_at_any_stage() {
    let source = puller();
    let written = source.write(source.layered(3, 20), "v2");
    let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
    let name = server.image("os:v2");
    // How many a whole pull needs.
    let host = on_tmpfs("size=64m,nr_inodes=20000");
    let before = free_inodes(host.sysroot.path());
    host.pull(&name).ok();
    let needed = before - free_inodes(host.sysroot.path());
    let mut told = 0;
    // From the first folder to the last ref, in steps that are no multiple of anything.
    let stages: Vec<u64> = (0..needed).step_by(needed as usize / 12).chain(needed - 12..needed).collect();
    for left in stages {
        let host = on_tmpfs("size=64m,nr_inodes=20000");
        let taken = host.sysroot.path().join("taken");
        take_inodes(&taken, left);
        let outcome = host.pull(&name);
        if outcome.code != Some(0) {
            assert!(matches!(outcome.code, Some(1 | 3)), "{left} inodes: {outcome}");
            let text = outcome.stderr.to_lowercase();
            assert!(text.contains("inode"), "{left} inodes: {outcome}");
            assert!(text.chars().any(|letter| letter.is_ascii_digit()), "{left} inodes: {outcome}");
            told += 1;
            assert_eq!(host.image_refs(), Vec::<String>::new(), "{left} inodes");
            assert_eq!(host.staging_folders(), Vec::<String>::new(), "{left} inodes");
        }
        host.assert_whole();
        std::fs::remove_dir_all(taken).unwrap();
        host.pull(&name).ok();
        host.assert_whole();
    }
    assert!(told > 6, "only {told} runs met a full disk");
}

#[test]
fn root_without_bytes_at_any_stage() {
    let source = puller();
    let image = source.layered(3, 20);
    // What no estimate foresees: zeros compress to nothing.
    let zeros: Vec<Entry> =
        (0..40).map(|number| Entry::zeros(format!("usr/zeros/{number}"), (1 << 20) + number)).collect();
    let written = source.write(image.derived(zeros), "v2");
    let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
    let name = server.image("os:v2");
    let mut told = 0;
    for left in [100_000, 1_000_000, 3_000_000, 5_000_000, 10_000_000, 20_000_000, 40_000_000] {
        let host = on_tmpfs("size=96m");
        host.sysroot.fill("", left).unwrap();
        let outcome = host.pull(&name);
        assert!(matches!(outcome.code, Some(1 | 3)), "{left} bytes: {outcome}");
        let text = &outcome.stderr;
        assert!(text.contains(" has ") || text.contains("free"), "{left} bytes: {outcome}");
        assert!(text.contains("B "), "{left} bytes: {outcome}");
        told += usize::from(!text.contains("estimate"));
        assert_eq!(host.image_refs(), Vec::<String>::new(), "{left} bytes");
        assert_eq!(host.staging_folders(), Vec::<String>::new(), "{left} bytes");
        host.assert_whole();
        std::fs::remove_file(host.sysroot.path().join(".filled-by-a-test")).unwrap();
        host.pull(&name).ok();
        host.assert_whole();
    }
    assert!(told > 1, "every run was refused before it began");
}

#[test]
fn root_a_real_file_system_with_few_inodes() {
    let scratch = Scratch::new().unwrap();
    let disk = scratch.join("disk");
    let folder = scratch.join("mounted");
    std::fs::create_dir(&folder).unwrap();
    run(Command::new("truncate").args(["-s", "64M"]).arg(&disk)).unwrap();
    run(Command::new("mkfs.ext4").args(["-q", "-N", "640"]).arg(&disk)).unwrap();
    run(Command::new("mount").args(["-o", "loop"]).arg(&disk).arg(&folder)).unwrap();
    let host = Host::without_deployment(Sysroot::empty_at(scratch, "mounted").unwrap());
    let mut tree = Tree::v2();
    for number in 0..400 {
        tree = tree.with(Entry::file(format!("usr/share/many/{number}"), format!("{number}")));
    }
    let image = host.write(host.image_of(&tree), "many");
    let outcome = host.mcd(&["pull", &image.reference()]);
    assert!(matches!(outcome.code, Some(1 | 3)), "{outcome}");
    assert!(outcome.stderr.contains("inode"), "{outcome}");
    host.assert_whole();
    host.mcd(&["pull", &host.v2().reference()]).ok();
    host.assert_whole();
}
