//! A root file system without OSTree.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mcd_test_support::scratch::Scratch;

use super::*;

/// A small root.
pub(super) fn root() -> Scratch {
    let scratch = Scratch::new().unwrap();
    let files = [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000::/home/core:/bin/bash\n"),
        ("etc/group", "root:x:0:\ncore:x:1000:\n"),
        ("etc/shadow", "root:*:19000:0:99999:7:::\ncore:*:19000:0:99999:7:::\n"),
        ("etc/there", "before\n"),
        ("usr/lib/os-release", "ID=plain\n"),
    ];
    for (path, content) in files {
        let path = scratch.join("root").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    for folder in ["var/lib", "home/core", "usr/lib/systemd/system"] {
        std::fs::create_dir_all(scratch.join("root").join(folder)).unwrap();
    }
    scratch
}

pub(super) fn mcd(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    let mut command = std::process::Command::new(program());
    command.args(arguments).arg("--root").arg(scratch.join("root"));
    Outcome::of(command.stdin(std::process::Stdio::null()).output().unwrap())
}

pub(super) fn apply(scratch: &Scratch, machine: &Machine, more: &[&str]) -> Outcome {
    let path = scratch.join("config.yaml");
    std::fs::write(&path, machine.text()).unwrap();
    mcd(scratch, &[&["apply", path.to_str().unwrap()], more].concat())
}

pub(super) fn read(scratch: &Scratch, path: &str) -> Option<String> {
    std::fs::read_to_string(scratch.join("root").join(path)).ok()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn root_a_plain_root_is_configured_at_once_and_given_back() {
    let scratch = root();
    let config = machine("99-a")
        .file("/etc/there", "after\n")
        .file_with("/etc/new/key", "hush\n", "mode: 384")
        .file("/var/lib/thing/data", "for /var\n")
        .file("/usr/lib/thing.conf", "below /usr\n");
    apply(&scratch, &config, &["--dry-run"]).ok();
    assert_eq!(read(&scratch, "etc/there").as_deref(), Some("before\n"));
    assert_eq!(read(&scratch, "etc/mcd/applied.json"), None);
    apply(&scratch, &config, &[]).ok();
    assert_eq!(read(&scratch, "etc/there").as_deref(), Some("after\n"));
    assert_eq!(read(&scratch, "usr/lib/thing.conf").as_deref(), Some("below /usr\n"));
    assert_eq!(read(&scratch, "var/lib/thing/data").as_deref(), Some("for /var\n"));
    assert_eq!(mode(&scratch.join("root/etc/new/key")), 0o600);
    assert_eq!(mode(&scratch.join("root/var/lib/mcd")), 0o700);
    apply(&scratch, &config, &["--unchanged-exit-77"]).fails(77, &[]);
    mcd(&scratch, &["verify"]).ok();

    // What differs is put right from what the root keeps.
    std::fs::write(scratch.join("root/etc/new/key"), "other").unwrap();
    let found = mcd(&scratch, &["verify"]);
    assert_eq!(found.code, Some(5), "{found}");
    mcd(&scratch, &["verify", "--repair"]).ok();
    assert_eq!(read(&scratch, "etc/new/key").as_deref(), Some("hush\n"));

    mcd(&scratch, &["forget", "--remove"]).ok();
    assert_eq!(read(&scratch, "etc/there").as_deref(), Some("before\n"));
    assert_eq!(read(&scratch, "etc/new/key"), None);
    assert!(!scratch.join("root/etc/new").exists(), "made for the file, and empty");
    assert_eq!(read(&scratch, "usr/lib/thing.conf"), None);
    let kept = std::fs::read_dir(scratch.join("root/var/lib/mcd/content")).unwrap().count();
    assert_eq!(kept, 0, "contents that nothing names");
}

#[test]
fn root_a_plain_root_keeps_what_is_forgotten() {
    let scratch = root();
    apply(&scratch, &machine("99-a").file("/etc/there", "after\n"), &[]).ok();
    mcd(&scratch, &["forget", "--keep"]).ok();
    assert_eq!(read(&scratch, "etc/there").as_deref(), Some("after\n"));
    assert_eq!(read(&scratch, "etc/mcd/applied.json"), None);
    mcd(&scratch, &["verify"]).ok();
}

#[test]
fn root_what_a_plain_root_cannot_have_is_refused() {
    let scratch = root();
    for (line, word) in [
        ("osImageURL: \"quay.io/os:1\"", "osImageURL"),
        ("kernelArguments: [a]", "kernelArguments"),
        ("kernelType: realtime", "kernelType"),
    ] {
        apply(&scratch, &machine("99-a").file("/etc/x", "x").spec(line), &[]).fails(3, &[word]);
    }
    assert_eq!(read(&scratch, "etc/x"), None);
    // A file where a folder must be, found before anything is written.
    let config = machine("99-a").file("/etc/a", "a\n").file("/etc/there/x", "x\n");
    apply(&scratch, &config, &[]).fails(3, &["/etc/there"]);
    assert_eq!(read(&scratch, "etc/a"), None);
}
