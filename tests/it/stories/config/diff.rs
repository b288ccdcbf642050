//! `mcd diff`: what an apply would change, and what that needs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mcd_test_support::machine_config::MachineConfig;
use mcd_test_support::scratch::Scratch;
use serde_json::json;

use super::*;

/// A password's hash, made up.
const HASH: &str =
    "$6$c2FsdHNhbHQ$9mQ3Wb0c6S3mJvN1c0g3Qy2o0q6g5Xb3WcVwA7p0u1c4rJc6mZ3kP0tB9s2vY5xQ8nT1dL4hR7fK0jE3gU6wA.";

/// A root without OSTree.
struct PlainRoot {
    scratch: Scratch,
}

impl PlainRoot {
    fn new() -> Self {
        let root = Self { scratch: Scratch::new().unwrap() };
        root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
        root.write("etc/group", "root:x:0:\n");
        for folder in ["usr/lib", "var/lib"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        root
    }

    fn path(&self) -> PathBuf {
        self.scratch.join("root")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn mcd(&self, verb: &str, machine: &Machine, more: &[&str]) -> Outcome {
        self.mcd_with(verb, &machine.name, &machine.text(), more)
    }

    fn mcd_with(&self, verb: &str, name: &str, yaml: &str, more: &[&str]) -> Outcome {
        let config = self.scratch.join(&format!("{name}.yaml"));
        std::fs::write(&config, yaml).unwrap();
        let mut command = Command::new(program());
        command.arg(verb).arg(config).arg("--root").arg(self.path()).args(more);
        Outcome::of(command.stdin(Stdio::null()).output().unwrap())
    }
}

impl Host {
    fn diff(&self, machine: &Machine, more: &[&str]) -> Outcome {
        let path = self.config(machine);
        self.mcd(&[&["diff", path.to_str().unwrap()], more].concat())
    }
}

/// A file below a root, if it is there.
fn read(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok()
}

#[track_caller]
fn has(outcome: &Outcome, lines: &[&str]) {
    for line in lines {
        assert!(outcome.stdout.lines().any(|found| found == *line), "'{line}' is not in\n{outcome}");
    }
}

#[test]
fn root_a_diff_tells_what_an_apply_would_change() {
    let host = Host::new();
    let config = machine("99-a")
        .file("/etc/fixture.conf", "level = 9\n")
        .file_with("/etc/secret.conf", "hush\n", "mode: 384")
        .file("/root/notes", "for root\n")
        .unit("new.service", "contents: \"[Service]\\nExecStart=/bin/true\\n\"")
        .spec("kernelArguments: [mitigations=auto]");
    let before = host.switchable();
    let shown = host.diff(&config, &[]).fails(5, &[]);
    has(
        &shown,
        &[
            "kernel arguments",
            "    +mitigations=auto",
            "file /etc/fixture.conf: replaces what is there: content",
            "-level = 1",
            "+level = 9",
            "file /etc/secret.conf: new, mode 0600, 5 B",
            "    content is hidden; --show-secrets shows it",
            "file /root/notes: new, mode 0644, 9 B",
            "    needs reboot (no policy for this path)",
            "unit new.service",
            "+ExecStart=/bin/true",
            "Actions: 1. reboot",
        ],
    );
    assert!(!shown.stdout.contains("hush"), "{shown}");
    has(&host.diff(&config, &["--show-secrets"]).fails(5, &[]), &["+hush"]);
    assert_eq!(host.switchable(), before);
    assert!(host.status()["prepared"].is_null());

    let json = host.diff(&config, &["--json"]).fails(5, &[]);
    assert!(!json.stdout.contains("hush") && !json.stdout.contains("level = 9"), "{json}");
    let json = json.json();
    assert_eq!(json["differs"], true);
    assert_eq!(json["reboot"], true);
    assert_eq!(json["kernel_arguments"]["after"][0], "mitigations=auto");
    assert_eq!(json["files"][0]["path"], "/etc/fixture.conf");

    host.apply(&config, &[]).ok();
    assert_eq!(host.diff(&config, &[]).ok().stdout, "Nothing differs.\n");
    assert_eq!(host.diff(&config, &["--json"]).ok().json()["differs"], false);

    // What goes, and what the image has instead.
    let less = machine("99-a").file_with("/etc/secret.conf", "hush\n", "mode: 384");
    let shown = host.diff(&less, &[]).fails(5, &[]);
    has(
        &shown,
        &[
            "file /etc/fixture.conf: back to the image's own: content",
            "+level = 1",
            "file /root/notes: goes",
            "    /etc/systemd/system/new.service: goes",
        ],
    );
}

#[test]
fn root_a_diff_of_an_image_says_that_it_is_an_estimate() {
    let host = Host::with_image();
    let v2 = host.v2();
    let config = machine("99-a").file("/etc/a", "a\n").spec(&format!("osImageURL: \"{}\"", v2.reference()));
    let shown = host.diff(&config, &[]).fails(5, &[]);
    has(&shown, &["image", "    needs reboot (another image)", "Actions: 1. reboot"]);
    assert!(shown.stdout.contains("Notice: the image is not on this host yet"), "{shown}");
    host.mcd(&["pull", &v2.reference()]).ok();
    let shown = host.diff(&config, &[]).fails(5, &[]);
    assert!(!shown.stdout.contains("not on this host yet"), "{shown}");
    assert!(shown.stdout.contains("Notice: the host does not run"), "{shown}");
}

#[test]
fn root_what_is_as_wanted_already_is_adopted() {
    let host = Host::new();
    let shown = host.diff(&machine("99-a").file("/etc/fixture.conf", "level = 1\n"), &[]).fails(5, &[]);
    has(
        &shown,
        &[
            "file /etc/fixture.conf: is as wanted already, becomes managed",
            "Actions: none, nothing is restarted",
        ],
    );
}

#[test]
fn root_kernel_arguments_that_are_there_already_need_no_boot() {
    let host = Host::new();
    host.mcd(&["pivot", "--karg-append", "mitigations=auto"]).ok();
    let config = |more: &str| machine("99-a").spec(&format!("kernelArguments: [mitigations=auto{more}]"));
    assert_eq!(host.diff(&config(""), &[]).ok().stdout, "Nothing differs.\n");
    let shown = host.diff(&config(", nosmt"), &[]).fails(5, &[]);
    has(&shown, &["    +nosmt", "Actions: 1. reboot"]);
}

#[test]
fn root_units_and_keys_are_each_one_change() {
    let root = PlainRoot::new();
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/bash\n");
    root.write("etc/group", "root:x:0:\ncore:x:1000:\n");
    root.write("etc/shadow", "root:*:19000::::::\ncore:*:19000::::::\n");
    std::fs::create_dir_all(root.path().join("home/core")).unwrap();
    root.write(
        "usr/lib/systemd/system/vendor.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    );
    let config = MachineConfig::new("99-b")
        .unit(
            "vendor.service",
            json!({"enabled": true, "dropins": [{"name": "10-x.conf", "contents": "[Unit]\nDescription=x\n"}]}),
        )
        .ignition(
            ["passwd", "users"],
            json!({"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3 a@example"], "passwordHash": HASH}),
        );
    let shown = root.mcd_with("diff", "99-b", &config.yaml(), &[]).fails(5, &[]);
    has(
        &shown,
        &[
            "unit vendor.service",
            "    /etc/systemd/system/vendor.service.d/10-x.conf: new, mode 0644, 21 B",
            "    enabled by /etc/systemd/system/multi-user.target.wants/vendor.service",
            "    needs reboot (no policy for this unit)",
            "+Description=x",
            "user core",
            "    password: another one",
            "    needs nothing (built-in policy)",
            "+ssh-ed25519 AAAAC3 a@example",
            "Actions: 1. reboot",
        ],
    );
    assert!(!shown.stdout.contains(HASH), "{shown}");
    let json = root.mcd_with("diff", "99-b", &config.yaml(), &["--json"]).fails(5, &[]);
    assert!(!json.stdout.contains("$6$") && !json.stdout.contains("AAAAC3"), "{json}");
    assert_eq!(json.json()["user"]["password"], "set");
    assert_eq!(json.json()["units"].as_array().unwrap().len(), 1);
}

#[test]
fn root_a_persons_file_is_compared_as_it_is() {
    let root = PlainRoot::new();
    root.write("etc/own.conf", "one\ntwo\nthree\n");
    root.write("etc/gone.conf", "stays\n");
    let config = machine("99-a").file("/etc/own.conf", "one\nzwei\nthree\n").file("/etc/new.conf", "new\n");
    let shown = root.mcd("diff", &config, &[]).fails(5, &[]);
    has(&shown, &["--- a/etc/own.conf", "+++ b/etc/own.conf", "-two", "+zwei", " three", "+new"]);
    assert_eq!(read(&root.path(), "etc/mcd/applied.json"), None);

    // The page is a patch: applied to a copy, it gives what mcd makes.
    let copy = root.scratch.join("copy");
    let ended = Command::new("cp").arg("-a").arg(root.path()).arg(&copy).status().unwrap();
    assert!(ended.success());
    let page = root.scratch.join("page");
    std::fs::write(&page, &shown.stdout).unwrap();
    let ended = Command::new("patch").arg("-p1").arg("-i").arg(&page).current_dir(&copy).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    root.mcd("apply", &config, &[]).ok();
    for path in ["etc/own.conf", "etc/new.conf", "etc/gone.conf"] {
        assert_eq!(read(&copy, path), read(&root.path(), path), "{path}");
    }
    assert_eq!(root.mcd("diff", &config, &[]).ok().stdout, "Nothing differs.\n");
}

#[test]
fn root_policies_of_the_host_say_what_a_change_needs() {
    let root = PlainRoot::new();
    let config = machine("99-a").file("/etc/own/x.conf", "x\n").file("/usr/lib/y.conf", "y\n");
    has(&root.mcd("diff", &config, &[]).fails(5, &[]), &["Actions: 1. reboot"]);
    root.write(
        "etc/mcd/policy.d/20-own.yaml",
        "files:
- {path: /usr/lib/y.conf, actions: [{type: None}]}
- {path: /etc/own, actions: [{type: Reload, reload: {serviceName: own.service}}]}
",
    );
    has(
        &root.mcd("diff", &config, &[]).fails(5, &[]),
        &[
            "    needs reload own.service (policy file 20-own.yaml for /etc/own)",
            "    needs nothing (policy file 20-own.yaml)",
            "Actions: 1. reload own.service",
        ],
    );
    root.write("etc/mcd/policy.d/30-typo.yaml", "files: [{path: /etc/own, action: []}]\n");
    let words = ["/etc/mcd/policy.d/30-typo.yaml cannot be used", "files[0].action: is not known here"];
    root.mcd("diff", &config, &[]).fails(3, &words);
    root.mcd("apply", &config, &[]).fails(3, &words);
    assert_eq!(read(&root.path(), "etc/own/x.conf"), None);
}

#[test]
fn root_registries_conf_is_judged_by_its_meaning() {
    let root = PlainRoot::new();
    let path = "etc/containers/registries.conf";
    root.write(path, "# by hand\nunqualified-search-registries = [\"a.example\"]\n");
    let config = |text: &str| machine("99-a").file("/etc/containers/registries.conf", text);
    for (text, expected) in [
        ("unqualified-search-registries = ['a.example']\n", "Actions: none, nothing is restarted"),
        ("unqualified-search-registries = ['a.example', 'b.example']\n", "Actions: 1. reload crio.service"),
        ("unqualified-search-registries = ['b.example']\n", "Actions: 1. drain"),
    ] {
        has(&root.mcd("diff", &config(text), &[]).fails(5, &[]), &[expected]);
    }
}

#[test]
fn a_diff_of_nothing_is_a_mistake() {
    let mut command = Command::new(program());
    Outcome::of(command.arg("diff").output().unwrap()).fails(2, &["no file is named"]);
    let root = PlainRoot::new();
    let missing = root.scratch.join("missing.yaml");
    let mut command = Command::new(program());
    command.arg("diff").arg(&missing).arg("--root").arg(root.path());
    let ended = Outcome::of(command.output().unwrap());
    assert!(ended.stderr.contains("missing.yaml") && ended.code != Some(5), "{ended}");
}
