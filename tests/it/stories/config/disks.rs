//! Configs of machines that Ignition gave partitions: they keep saying so for ever.

use mcd_test_support::machine_config::MachineConfig;
use serde_json::{Value, json};

use super::*;

/// What is warned of: the field, and that nobody carries it out.
const TOLD: &str = "spec.config.storage.disks is not carried out";

fn with_var(name: &str, size: u32) -> MachineConfig {
    MachineConfig::new(name)
        .ignition(
            ["storage", "disks"],
            json!({ "device": "/dev/vda", "partitions": [{ "label": "var", "startMiB": size }] }),
        )
        .ignition(
            ["storage", "filesystems"],
            json!({ "device": "/dev/disk/by-partlabel/var", "path": "/var", "format": "xfs" }),
        )
}

impl Host {
    fn apply_disks(&self, config: &MachineConfig, more: &[&str]) -> Outcome {
        let path = self.scratch.join("disks.yaml");
        std::fs::write(&path, config.yaml()).unwrap();
        self.mcd(&[&["apply", path.to_str().unwrap()], more].concat())
    }
}

#[test]
fn root_a_rendered_config_with_a_var_partition_is_applied() {
    let host = Host::new();
    let first = host.apply_disks(&with_var("99-a", 50_000).file("/etc/a", "1\n"), &[]).ok();
    assert!(first.stderr.contains(TOLD) && first.stderr.contains("storage.filesystems is not"), "{first}");
    assert_eq!(host.next_file("etc/a").as_deref(), Some("1\n"));
    // Another file, the same disks: nothing to say of them.
    let second = host.apply_disks(&with_var("99-a", 50_000).file("/etc/a", "2\n"), &[]).ok();
    assert!(!second.stderr.contains("storage."), "{second}");
    assert_eq!(host.next_file("etc/a").as_deref(), Some("2\n"));
    host.apply_disks(&with_var("99-a", 50_000).file("/etc/a", "2\n"), &["--unchanged-exit-77"])
        .fails(77, &[]);
    // A pivot keeps what was said.
    host.mcd(&["pivot", &host.v2().reference()]).ok();
    let changed = with_var("99-a", 60_000).file("/etc/a", "3\n");
    host.apply_disks(&changed, &[]).fails(
        3,
        &[
            "spec.config.storage.disks says something else than the config that is applied now",
            "install the machine anew",
        ],
    );
    host.apply_disks(&MachineConfig::new("99-a").file("/etc/a", "3\n"), &[])
        .fails(3, &["storage.disks is gone", "mcd forget"]);
    assert_eq!(host.next_file("etc/a").as_deref(), Some("2\n"));
    // Who gives all up says nothing of disks, and begins anew.
    host.mcd(&["forget", "--remove"]).ok();
    let anew = host.apply_disks(&changed, &[]).ok();
    assert!(anew.stderr.contains(TOLD), "{anew}");
}

#[test]
fn root_disks_that_come_later_are_refused() {
    let host = Host::new();
    host.apply_disks(&MachineConfig::new("99-a").file("/etc/a", "1\n"), &[]).ok();
    host.apply_disks(&with_var("99-a", 1), &[])
        .fails(3, &["spec.config.storage.disks is new", "leave it out"]);
    // Only a MachineConfig may speak of them.
    host.apply_disks(&with_var("99-a", 1), &["--source", "local"])
        .fails(3, &["spec.config.storage.disks is refused from this source"]);
}

#[test]
fn root_disks_on_a_root_without_ostree() {
    let folder = mcd_test_support::scratch::Scratch::new().unwrap();
    let root = folder.join("root");
    for name in ["etc", "var", "usr"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    std::fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
    let path = folder.join("disks.yaml");
    let apply = |config: &MachineConfig| {
        std::fs::write(&path, config.yaml()).unwrap();
        let mut command = std::process::Command::new(program());
        Outcome::of(command.arg("apply").arg(&path).arg("--root").arg(&root).output().unwrap())
    };
    assert!(apply(&with_var("99-a", 1)).ok().stderr.contains(TOLD));
    assert!(!apply(&with_var("99-a", 1).file("/etc/a", "x")).ok().stderr.contains(TOLD));
    apply(&with_var("99-a", 2)).fails(3, &["says something else"]);
}

#[test]
fn what_is_said_of_disks_is_told_by_validate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, with_var("99-a", 1).yaml()).unwrap();
    let mut command = std::process::Command::new(program());
    let told = Outcome::of(command.args(["validate", "--json"]).arg(&path).output().unwrap()).ok();
    let answer: Value = serde_json::from_str(&told.stdout).unwrap();
    let fields: Vec<&str> =
        answer["warnings"].as_array().unwrap().iter().map(|line| line["field"].as_str().unwrap()).collect();
    let of = |section: &str| format!("{}: spec.config.storage.{section}", path.display());
    assert_eq!(fields, [of("disks"), of("filesystems")]);
}
