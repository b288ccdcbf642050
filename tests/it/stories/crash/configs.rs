//! Hosts with a configuration, and what changes it.

use mcd_test_support::booted::Booted;
use mcd_test_support::machine_config::MachineConfig;
use mcd_test_support::tree::Tree;
use serde_json::json;

use super::super::{Host, program};
use super::scene::{Expected, PREPARED, Phase, STAGED, SWITCHED, Scene};
use super::site::Place;

/// Of every kind one: files in `/etc`, `/usr` and `/var`, by way of links too, a directory, a link,
/// units, a mask, a drop-in, keys, arguments.
fn old() -> MachineConfig {
    MachineConfig::new("00-worker")
        .file("/etc/chrony.conf", "pool old.example\n")
        .file("/etc/mcd-test/kept.conf", "old\n")
        .file("/etc/mcd-test/gone.conf", "old\n")
        .file("/etc/mcd-test/same.conf", "the same\n")
        .file_as("/var/lib/kubelet/config.json", "{\"old\":1}\n", 0o600, "root")
        .file_as("/usr/local/bin/tool", "#!/bin/sh\n", 0o755, "root")
        .file_as("/opt/old/keep", "old\n", 0o640, "core")
        .file("/usr/lib/sysctl.d/90-managed.conf", "kernel.sysrq = 1\n")
        .directory("/etc/mcd-test/folder", 0o750)
        .link("/etc/mcd-test/link", "kept.conf")
        .service("mine.service")
        .unit("vendor-a.service", json!({ "enabled": false }))
        .unit("vendor-b.service", json!({ "mask": true }))
        .drop_in("crio.service", "10-mcd.conf", "[Service]\nEnvironment=A=old\n")
        .keys(&["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOLD old@example"])
        .kernel_arguments(&["managed=1"])
}

/// Of every kind one is changed, added and removed.
fn new() -> MachineConfig {
    MachineConfig::new("00-worker")
        .file("/etc/chrony.conf", "pool new.example\n")
        .file_as("/etc/mcd-test/kept.conf", "new\n", 0o600, "core")
        .file("/etc/mcd-test/same.conf", "the same\n")
        .file("/etc/mcd-new/deep/er/file", "new\n")
        .file("/etc/kubernetes/kubelet.conf", "kind: Managed\n")
        .file_as("/var/lib/kubelet/config.json", "{\"new\":2}\n", 0o600, "root")
        .file_as("/opt/new/file", "new\n", 0o640, "core")
        .file("/usr/lib/sysctl.d/90-managed.conf", "kernel.sysrq = 2\n")
        .file("/usr/lib/sysctl.d/91-managed.conf", "kernel.panic = 2\n")
        .link("/etc/mcd-test/link", "same.conf")
        .service("other.service")
        .unit("mine.service", json!({ "enabled": false, "contents": "[Service]\nExecStart=/usr/bin/false\n[Install]\nWantedBy=basic.target\n" }))
        .unit("vendor-b.service", json!({ "enabled": true }))
        .keys(&["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINEW new@example"])
        .kernel_arguments(&["managed=2", "more"])
}

/// What needs no reboot: a pull secret and keys.
fn new_without_reboot() -> MachineConfig {
    let text = serde_json::to_string(&old().json()).unwrap();
    let encoded = |text: &str| mcd_test_support::machine_config::data_url(text);
    let text = text.replace(&encoded("{\"old\":1}\n"), &encoded("{\"live\":3}\n"));
    MachineConfig::parse(&text.replace("AIOLD old@", "AILIVE live@"))
}

/// Writes a config where every copy of the host sees it.
fn write(host: &Host, name: &str, config: &MachineConfig) -> String {
    let path = host.scratch.join(name);
    std::fs::write(&path, config.yaml()).unwrap();
    path.display().to_string()
}

/// A host that runs with the old config, with edits of a person's.
fn configured() -> Host {
    let host = Host::with_tree(&Tree::configurable().with_selinux());
    let path = write(&host, "old.yaml", &old());
    host.mcd(&["apply", &path]).ok();
    converge(&host);
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::write(etc.join("own.conf"), "a person's\n").unwrap();
    // Becomes managed with the new config.
    std::fs::write(etc.join("kubernetes/kubelet.conf"), "kind: Edited\n").unwrap();
    host
}

/// One boot.
fn converge(host: &Host) {
    let next = host.sysroot.next_boot().unwrap().deployment;
    super::super::Outcome::of(
        std::process::Command::new(program()).args(["boot", "--root"]).arg(&next).output().unwrap(),
    )
    .ok();
    let booted = Booted::boot(&host.sysroot, program(), &[]).unwrap();
    super::super::Outcome::of(booted.mcd(&["boot"]).unwrap()).ok();
}

fn scene(
    name: &'static str,
    about: &'static str,
    place: Place,
    host: Host,
    arguments: &[&str],
    phases: &'static [Phase],
) -> Scene {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let Host { sysroot, scratch, .. } = host;
    let expected = Expected::default();
    Scene { name, about, sysroot, scratch, place, converges: true, arguments, again: None, expected, phases }
}

impl Scene {
    /// Another config becomes the next boot's.
    pub(super) fn apply() -> Self {
        let host = configured();
        let path = write(&host, "new.yaml", &new());
        let about = "`mcd apply --sysroot` on a configured host: of every kind of entry one is changed, added and removed; units, keys and arguments too. After each boot, `mcd boot`.";
        scene("apply", about, Place::Directory, host, &["apply", &path], SWITCHED).watched()
    }

    /// The same on a host that runs: staged.
    pub(super) fn booted_apply() -> Self {
        let host = configured();
        let path = write(&host, "new.yaml", &new());
        let about = "`mcd apply` on a booted host: the same, staged for the shutdown.";
        scene("booted apply", about, Place::Running, host, &["apply", &path], STAGED).watched()
    }

    /// What was prepared is committed.
    pub(super) fn resume() -> Self {
        let host = configured();
        let path = write(&host, "new.yaml", &new());
        host.mcd(&["apply", &path, "--until", "prepared"]).ok();
        let about = "`mcd apply --resume` of the same change, prepared before.";
        let mut scene =
            scene("resume", about, Place::Directory, host, &["apply", "--resume"], &SWITCHED[1..]);
        // Once it is committed there is nothing to resume.
        scene.again = Some(vec!["apply".to_owned(), path]);
        scene.watched()
    }

    /// On the running root, without a reboot.
    pub(super) fn live_apply() -> Self {
        let host = configured();
        let path = write(&host, "live.yaml", &new_without_reboot());
        let about = "`mcd apply` on a booted host: a pull secret and keys, which need no reboot.";
        scene("live apply", about, Place::Running, host, &["apply", &path], PREPARED).watched()
    }

    /// The configuration is given up.
    pub(super) fn forget() -> Self {
        let host = configured();
        let about = "`mcd forget --remove --sysroot`: the image's defaults come back.";
        scene("forget", about, Place::Directory, host, &["forget", "--remove"], SWITCHED).watched()
    }

    /// The step of the initramfs, on a deployment whose `/etc` is not what belongs there.
    pub(super) fn early_boot() -> Self {
        let host = pending();
        let about = "`mcd boot --root`, as the initramfs runs it, on a new deployment in whose `/etc` a managed file was edited.";
        scene("early boot", about, Place::Outside, host, &["boot", "--root", "{next}"], &[]).watched()
    }

    /// The step of the running root: `/var`.
    pub(super) fn late_boot() -> Self {
        let host = pending();
        let next = host.sysroot.next_boot().unwrap().deployment;
        super::super::Outcome::of(
            std::process::Command::new(program()).args(["boot", "--root"]).arg(&next).output().unwrap(),
        )
        .ok();
        let about = "`mcd boot` in the running root of that deployment: `/var` is laid down.";
        scene("late boot", about, Place::Running, host, &["boot"], &[]).watched()
    }

    /// A root without OSTree.
    pub(super) fn plain_root() -> Self {
        let host = configured();
        let root = plain_copy(&host);
        let old = write(&host, "old-files.yaml", &old().without("kernelArguments"));
        super::super::Outcome::of(
            std::process::Command::new(program())
                .args(["apply", &old, "--root"])
                .arg(&root)
                .output()
                .unwrap(),
        )
        .ok();
        let path = write(&host, "new.yaml", &new().without("kernelArguments"));
        let about = "`mcd apply --root`: a root without OSTree, where all is done at once.";
        scene("plain root", about, Place::Outside, host, &["apply", &path, "--root", "{plain}"], &[])
            .watched()
    }
}

/// The new config is the next boot's, and was not booted; a managed file was edited.
fn pending() -> Host {
    let host = configured();
    let path = write(&host, "new.yaml", &new());
    host.mcd(&["apply", &path]).ok();
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::write(etc.join("mcd-test/kept.conf"), "edited\n").unwrap();
    host
}

/// A root that no OSTree made, in the sysroot, so that copies of that have it.
fn plain_copy(host: &Host) -> std::path::PathBuf {
    let plain = host.sysroot.path().join("plain");
    let deployed = host.sysroot.deployment(&host.sysroot.deployments().unwrap().pop().unwrap());
    let copied = std::process::Command::new("cp").arg("-a").arg(&deployed).arg(&plain).status().unwrap();
    assert!(copied.success());
    std::fs::remove_dir_all(plain.join("usr/etc")).unwrap();
    plain
}
