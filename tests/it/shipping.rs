//! What `make install` and `make rpm` ship. Both are run for real, on the program that is under test.

use std::process::Command;

const TREE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs make with the program under test, in a target folder of its own.
fn make(goal: &str, target: &tempfile::TempDir, more: &[String]) {
    let output = Command::new("make")
        // Tests run below `make test`: its variables are not meant for this one.
        .env_remove("MAKEFLAGS")
        .args(["--no-print-directory", "-C", TREE, goal])
        .arg(format!("BINARY={}", env!("CARGO_BIN_EXE_mcd")))
        // The small program is another test's subject, and takes minutes to compile.
        .arg("INITRAMFS_BINARY=/dev/null")
        .arg(format!("CARGO_TARGET_DIR={}", target.path().display()))
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "make {goal}: {}", String::from_utf8_lossy(&output.stderr));
}

fn lines_of(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn shipping_install_puts_everything_below_destdir() {
    let target = tempfile::tempdir().unwrap();
    let root = target.path().join("root");
    make("install", &target, &[format!("DESTDIR={}", root.display())]);
    // Mode, path and where a link leads; never an absolute link, which would leave the root.
    let listing = lines_of("find", &[root.to_str().unwrap(), "!", "-type", "d", "-printf", "%M %P %l\n"]);
    insta::assert_snapshot!("install", listing.replace(" \n", "\n"));
}

#[test]
fn shipping_rpm_holds_the_same_files_and_says_what_it_needs() {
    let target = tempfile::tempdir().unwrap();
    make("rpm-prebuilt", &target, &[]);
    let folder = target.path().join("rpm/RPMS");
    let package = lines_of("find", &[folder.to_str().unwrap(), "-name", "*.rpm"]);
    insta::assert_snapshot!(
        "rpm_files",
        lines_of("rpm", &["-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", &package])
    );

    let needs = lines_of("rpm", &["-qp", "--requires", &package]);
    for program in ["skopeo", "ostree"] {
        assert!(needs.lines().any(|line| line.starts_with(program)), "{program} is not required: {needs}");
    }
    assert!(needs.contains("libc.so.6"), "the program was not looked at: {needs}");
    assert_eq!(lines_of("rpm", &["-qp", "--provides", &package]).matches("pivot = 1").count(), 1);
}
