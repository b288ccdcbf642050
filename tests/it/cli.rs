//! The built program from outside: names, exit codes, and what goes to which stream.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

fn mcd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mcd"))
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_malformed_command_line_exits_2_and_leaves_stdout_empty() {
    for words in [
        &["unknown-verb"][..],
        &["pivot", "--no-such-flag"],
        &["pivot", "one:1", "two:2"],
        &["pivot", "bad reference"],
        &["pull"],
        &["pin", "nothing-such"],
        &["rollback", "--to", "abc"],
        &["pull", "registry.example/os:1", "--rate-limit", "fast"],
        &[],
    ] {
        let output = run(mcd().args(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{words:?}");
        assert!(!output.stderr.is_empty(), "{words:?}: no word about what is wrong");
    }
}

#[test]
fn help_and_version_are_data() {
    for words in [["--help", ""], ["pivot", "-h"], ["--version", ""]] {
        let output = run(mcd().args(words.iter().filter(|word| !word.is_empty())));
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn an_error_is_what_why_and_next() {
    let output = run(mcd().args(["pivot", "os:1"]));
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[1].starts_with("  why: "), "{stderr}");
    assert!(lines[2].starts_with("  next: ") && lines.len() == 3, "{stderr}");
}

#[test]
fn the_old_names_are_the_old_programs() {
    let named = |name: &str, words: &[&str]| run(mcd().arg0(name).args(words));
    let version = named("/usr/libexec/machine-config-daemon", &["version"]);
    assert!(text(&version.stdout).starts_with("MachineConfigDaemon "), "{version:?}");
    assert_eq!(
        named("machine-config-daemon", &["start", "--node-name=x", "--once-from=y"]).status.code(),
        Some(3)
    );
    assert_eq!(named("machine-config-daemon", &["status"]).status.code(), Some(2));
    let help = named("/usr/bin/pivot", &["--help"]);
    assert!(text(&help.stdout).contains("Usage: pivot [OPTIONS] [IMAGE]"), "{help:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let script = format!("{} --help | head -n 1", env!("CARGO_BIN_EXE_mcd"));
    let output = run(Command::new("bash").args(["-o", "pipefail", "-c", &script]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_full_disk_behind_stdout_is_said() {
    let output =
        run(Command::new("bash").args(["-c", &format!("{} --help > /dev/full", env!("CARGO_BIN_EXE_mcd"))]));
    assert!(text(&output.stderr).contains("writing to stdout"), "{output:?}");
}
