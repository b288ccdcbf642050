//! A host that does not run: configuration as a deployment.

use super::*;

#[test]
fn root_a_first_config_is_deployed_with_the_image() {
    let host = Host::new();
    let config = machine("99-a")
        .file("/etc/fixture.conf", "level = 9\n")
        .file_with("/etc/secret/key", "hush\n", "mode: 384")
        .file("/var/lib/thing/data", "for /var\n")
        .file("/usr/lib/thing.conf", "below /usr\n")
        .spec("kernelArguments: [mitigations=auto, nosmt]");
    let before = host.status()["deployments"][0].clone();
    let ended = host.apply(&config, &["--json"]).ok();
    assert!(!ended.stdout.contains("hush") && !ended.stderr.contains("hush"));
    assert_eq!(host.next_file("usr/etc/fixture.conf").as_deref(), Some("level = 9\n"));
    assert_eq!(host.next_file("etc/fixture.conf").as_deref(), Some("level = 9\n"));
    assert_eq!(host.next_file("usr/lib/thing.conf").as_deref(), Some("below /usr\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet mitigations=auto nosmt");
    let status = host.status();
    let next = &status["deployments"][0];
    assert_eq!(next["config"]["names"][0], "99-a");
    assert_eq!(next["config"]["entries"], 4);
    assert_eq!(next["image_commit"], before["name"].as_str().unwrap().split('.').next().unwrap());
    assert_ne!(next["name"], before["name"]);
    host.sysroot.fsck().unwrap();

    // The same again is nothing to do, and the rollback deployment is the bare image.
    host.apply(&config, &["--unchanged-exit-77"]).fails(77, &[]);
    host.mcd(&["rollback"]).ok();
    assert_eq!(host.next_file("etc/fixture.conf").as_deref(), Some("level = 1\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet");
}

#[test]
fn root_a_second_config_replaces_the_first() {
    let host = Host::new();
    let first = machine("99-a")
        .file("/etc/fixture.conf", "level = 9\n")
        .file("/etc/only-first", "x\n")
        .spec("kernelArguments: [one, two]");
    host.apply(&first, &[]).ok();
    let second = machine("99-b").file("/etc/other", "y\n").spec("kernelArguments: [two, three]");
    host.apply(&second, &[]).ok();
    assert_eq!(host.next_file("usr/etc/fixture.conf").as_deref(), Some("level = 1\n"));
    assert_eq!(host.next_file("usr/etc/only-first"), None);
    assert_eq!(host.next_file("usr/etc/other").as_deref(), Some("y\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet two three");
    // The same image and the same config are the same commit, whatever came between.
    let commit =
        host.status()["deployments"][0]["name"].as_str().unwrap().split('.').next().unwrap().to_owned();
    host.apply(&first, &[]).ok();
    host.apply(&second, &[]).ok();
    let again =
        host.status()["deployments"][0]["name"].as_str().unwrap().split('.').next().unwrap().to_owned();
    assert_eq!(commit, again);
}

#[test]
fn root_a_pivot_carries_the_config_to_the_new_image() {
    let host = Host::with_image();
    host.apply(&machine("99-a").file("/etc/fixture.conf", "level = 9\n").spec("kernelArguments: [x=1]"), &[])
        .ok();
    let v2 = host.v2();
    host.mcd(&["pivot", &v2.reference()]).ok();
    assert_eq!(host.next_version(), "2");
    assert_eq!(host.next_file("usr/etc/fixture.conf").as_deref(), Some("level = 9\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet x=1");
    let status = host.status();
    assert_eq!(status["deployments"][0]["config"]["names"][0], "99-a");
    assert_eq!(status["deployments"][0]["digest"], v2.digest.as_str());
    // The default that comes back is that of the new image.
    host.apply(&machine("99-a").spec("kernelArguments: []"), &[]).ok();
    assert_eq!(host.next_file("usr/etc/fixture.conf").as_deref(), Some("level = 2\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet");
    // Nothing is managed any more, but records are: still a derived commit.
    host.mcd(&["pivot", &host.v1().reference()]).ok();
    let status = host.status();
    assert_ne!(
        status["deployments"][0]["image_commit"].as_str().unwrap(),
        status["deployments"][0]["name"].as_str().unwrap().split('.').next().unwrap()
    );
}

#[test]
fn root_an_image_and_a_config_are_one_change() {
    let host = Host::with_image();
    let v2 = host.v2();
    let config = machine("99-a").file("/etc/a", "a\n").spec(&format!("osImageURL: \"{}\"", v2.reference()));
    host.apply(&config, &[]).ok();
    assert_eq!(host.next_version(), "2");
    assert_eq!(host.next_file("etc/a").as_deref(), Some("a\n"));
    host.apply(&config, &["--unchanged-exit-77"]).fails(77, &[]);
}

#[test]
fn root_kernel_arguments_alone_keep_image_and_config() {
    let host = Host::with_image();
    host.apply(&machine("99-a").file("/etc/a", "a\n"), &[]).ok();
    let before = host.status()["deployments"][0].clone();
    host.mcd(&["pivot", "--karg-append", "b=c"]).ok();
    let after = host.status()["deployments"][0].clone();
    assert_eq!(after["image"], before["image"]);
    assert_eq!(after["digest"], before["digest"]);
    assert_eq!(after["config"]["names"][0], "99-a");
    assert_eq!(host.next_file("etc/a").as_deref(), Some("a\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet b=c");
}

#[test]
fn root_a_dry_run_changes_nothing() {
    let host = Host::new();
    let before = host.switchable();
    let plan = host.apply(&machine("99-a").file("/etc/a", "a\n"), &["--dry-run"]).ok();
    assert!(plan.stdout.contains("99-a"), "{plan}");
    assert_eq!(host.switchable(), before);
    assert!(host.status()["prepared"].is_null());
    assert!(!host.sysroot.path().join("ostree/deploy/fixture/var/lib/mcd").exists());
}

#[test]
fn root_a_prepared_config_is_committed_later() {
    let host = Host::new();
    let before = host.switchable();
    host.apply(&machine("99-a").file("/etc/a", "a\n"), &["--until", "prepared"]).ok();
    assert_eq!(host.switchable(), before);
    let status = host.status();
    assert_eq!(status["prepared"]["config"][0], "99-a");
    let id = status["prepared"]["id"].as_str().unwrap().to_owned();
    host.mcd(&["cleanup"]).ok();
    host.mcd(&["apply", "--resume=other"]).fails(3, &[&id]);
    host.mcd(&["apply", &format!("--resume={id}")]).ok();
    assert_eq!(host.next_file("etc/a").as_deref(), Some("a\n"));
    assert!(host.status()["prepared"].is_null());
}

#[test]
fn root_a_refusal_leaves_nothing() {
    let host = Host::new();
    let before = (host.switchable(), host.sysroot.refs().unwrap());
    let bad = machine("99-a").file("/boot/x", "a\n").file("/proc/y", "b\n");
    host.apply(&bad, &[]).fails(3, &["/boot/x", "files[0]", "files[1]"]);
    host.apply(&machine("99-a").spec("fips: true"), &[]).fails(3, &["fips"]);
    host.apply(&machine("99-a").spec("kernelType: realtime"), &[]).fails(3, &["kernelType"]);
    host.apply(&machine("99-a").spec("extensions: [usbguard]"), &[]).fails(3, &["extensions"]);
    assert_eq!((host.switchable(), host.sysroot.refs().unwrap()), before);
    assert!(host.status()["prepared"].is_null());
}

#[test]
fn root_units_are_enabled_in_the_commit() {
    let host = Host::new();
    let config = machine("99-a")
        .unit("mine.service", "enabled: true, contents: \"[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n\"")
        .unit("gone.service", "mask: true");
    host.apply(&config, &[]).ok();
    let root = host.sysroot.next_boot().unwrap().deployment;
    let link = |path: &str| std::fs::read_link(root.join(path)).map(|link| link.display().to_string());
    assert_eq!(
        link("etc/systemd/system/multi-user.target.wants/mine.service").unwrap(),
        "/etc/systemd/system/mine.service"
    );
    assert_eq!(link("etc/systemd/system/gone.service").unwrap(), "/dev/null");
}

#[test]
fn root_forgetting_with_remove_brings_the_image_back() {
    let host = Host::new();
    host.apply(&machine("99-a").file("/etc/fixture.conf", "level = 9\n").spec("kernelArguments: [x]"), &[])
        .ok();
    host.mcd(&["forget", "--remove"]).ok();
    assert_eq!(host.next_file("usr/etc/fixture.conf").as_deref(), Some("level = 1\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet");
    assert_eq!(host.status()["deployments"][0]["config"]["entries"], 0);
}

#[test]
fn root_a_cleanup_keeps_what_is_needed_to_go_on() {
    let host = Host::new();
    host.apply(&machine("99-a").file("/etc/a", "a\n"), &[]).ok();
    host.apply(&machine("99-b").file("/etc/b", "b\n"), &[]).ok();
    host.apply(&machine("99-c").file("/etc/c", "c\n"), &[]).ok();
    host.mcd(&["cleanup"]).ok();
    host.sysroot.fsck().unwrap();
    // The first deployment of the bare image is gone; the next config is still made from its commit.
    host.apply(&machine("99-d").file("/etc/d", "d\n"), &[]).ok();
    assert_eq!(host.next_file("usr/etc/c"), None);
    let refs = host.sysroot.refs().unwrap();
    assert!(refs.keys().filter(|name| name.starts_with("mcd/derived/")).count() <= 3, "{refs:?}");
}

#[test]
fn root_each_source_replaces_its_own_entries_only() {
    let host = Host::new();
    let config = machine("99-a").file("/etc/a", "a\n").spec("kernelArguments: [x]");
    host.apply(&config, &[]).ok();
    let other = machine("certificates").file("/etc/b", "b\n");
    host.apply(&other, &["--source", "controller-config"]).ok();
    assert_eq!(host.next_file("etc/a").as_deref(), Some("a\n"));
    assert_eq!(host.next_file("usr/etc/b").as_deref(), Some("b\n"));
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet x", "not its business");
    // A path that two sources claim.
    let claims = machine("99-a").file("/etc/a", "a\n").file("/etc/b", "mine\n");
    host.apply(&claims, &[]).fails(3, &["/etc/b"]);
    let again = machine("certificates").file("/etc/c", "c\n");
    host.apply(&again, &["--source", "controller-config"]).ok();
    assert_eq!(host.next_file("usr/etc/b"), None);
    assert_eq!(host.next_file("usr/etc/a").as_deref(), Some("a\n"));
    host.apply(&again.spec("osImageURL: \"quay.io/os:1\""), &["--source", "local"]).fails(3, &["osImageURL"]);
    host.mcd(&["forget", "--remove"]).ok();
    assert_eq!((host.next_file("usr/etc/a"), host.next_file("usr/etc/c")), (None, None));
}

#[test]
fn root_what_the_first_boot_lays_down_is_no_difference() {
    let host = Host::new();
    let config =
        machine("99-a").file("/etc/fixture.conf", "level = 9\n").file("/var/lib/thing/data", "for /var\n");
    host.apply(&config, &[]).ok();
    let found = host.mcd(&["verify"]).ok();
    assert!(found.stdout.contains("but for what the first boot does"), "{found}");
    assert!(found.stdout.contains("  /var/lib/thing/data: will be laid down at the first boot"), "{found}");
    let json = host.mcd(&["verify", "--json"]).ok().json();
    assert_eq!(json["pending"][0]["path"], "/var/lib/thing/data");
    assert_eq!(json["differences"].as_array().unwrap().len(), 0);
    let next = host.sysroot.next_boot().unwrap().deployment;
    let booted = mcd_test_support::booted::Booted::boot(&host.sysroot, program(), &[]).unwrap();
    Outcome::of(booted.mcd(&["boot"]).unwrap()).ok();
    drop(booted);
    assert!(!host.mcd(&["verify"]).ok().stdout.contains("first boot"));
    // From then on it is one.
    std::fs::write(next.join("etc/fixture.conf"), "level = 7\n").unwrap();
    host.mcd(&["verify"]).fails(5, &[]);
}

#[test]
fn root_a_systemctl_that_is_killed_is_no_fault_of_the_config() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = Host::new();
    let before = host.switchable();
    let config = machine("99-a").unit("a.service", "enabled: true, contents: \"[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n\"");
    let path = host.config(&config);
    // As one that the kernel kills for want of memory.
    let folder = host.scratch.join("bin");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("systemctl"), "#!/bin/sh\nkill -KILL $$\n").unwrap();
    std::fs::set_permissions(folder.join("systemctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let search = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = host.command(&["apply", path.to_str().unwrap()]);
    let killed = Outcome::of(command.env("PATH", search).output().unwrap());
    killed.fails(1, &["systemctl", "signal: 9"]);
    assert_eq!(host.switchable(), before);
    host.apply(&config, &[]).ok();
}
