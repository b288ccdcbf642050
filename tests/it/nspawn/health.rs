//! Boots that are judged: what fails is left for what was good, once, and only for its own fault.

use super::*;

/// A required check of the administrator's that fails on every version but those in `good`.
fn check_of(machine: &Machine<'_>, weight: &str, name: &str, body: &str) {
    let path = format!("/etc/mcd/health/{weight}.d/{name}");
    machine
        .shell(&format!(
            "mkdir -p /etc/mcd/health/{weight}.d; printf '%s\\n' '#!/bin/sh' '{body}' > {path}; chmod +x {path}; \
             printf '[health]\\ndeadline = 5\\ninterval = 1\\n' > /etc/mcd/mcd.toml"
        ))
        .unwrap();
}

fn verdict(machine: &Machine<'_>) -> Value {
    status(machine)["health"].clone()
}

fn wait_until_down(mut machine: Machine<'_>) {
    machine.wait_until_down().unwrap();
}

/// Boots what the boot menu has first, which does not stay up.
fn boot_until_down(host: &Host) -> Machine<'_> {
    let mut machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    machine.wait_until_down().unwrap();
    machine
}

#[test]
fn nspawn_a_failed_check_goes_back_once_and_says_why() {
    let host = Host::new();
    let machine = host.boot();
    // The first boot is judged good: nothing required fails.
    assert_eq!(verdict(&machine)["verdict"], "good", "{:#}", status(&machine));
    assert_eq!(status(&machine)["deployments"][0]["state"], "good");
    check_of(
        &machine,
        "required",
        "app",
        ". /etc/os-release; echo serving $VERSION_ID; test $VERSION_ID != 2",
    );
    check_of(&machine, "wanted", "shared", "exit 1");
    // Wanted checks never go back: it is healthy, and says so.
    let said = fails(&machine, &["health"], 0, &["failed wanted   shared"]);
    assert!(said.contains("ok     required app") && said.contains("serving 1"), "{said}");

    mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    wait_until_down(machine);
    let down = boot_until_down(&host);
    drop(down);
    let machine = host.boot();
    assert_eq!(version(&machine), "1");
    let seen = status(&machine);
    assert_eq!(seen["went_back"]["by"], "health", "{seen:#}");
    assert!(seen["went_back"]["cause"].as_str().unwrap().contains("app"), "{seen:#}");
    let left = &seen["deployments"][1];
    assert_eq!(
        (&left["state"], left["cause"].as_str().unwrap().contains("serving 2")),
        (&"failed".into(), true)
    );
    assert_eq!(verdict(&machine)["verdict"], "good");
    let page = mcd(&machine, &["status"]);
    assert!(page.contains("Went back:") && page.contains("serving 2"), "{page}");
    let motd = machine.shell("cat /run/motd.d/50-mcd").unwrap();
    assert!(motd.contains("went back") && motd.contains("app"), "{motd}");
    let journal =
        machine.shell("journalctl -b -1 -o cat MESSAGE_ID=c6d2a7df31ac4f3a8b0b6f2d4a7f91e5").unwrap();
    assert!(journal.contains("failed: health check failed: app"), "{journal}");

    // The same again is refused, but not what corrects it: another argument, or --force.
    fails(&machine, &["pivot", &image("v2")], 3, &["failed on this host before", "serving 2", "--force"]);
    check_of(&machine, "required", "app", "exit 0");
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "corrected=1"]);
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
    // It is over with the next change that is good.
    assert!(status(&machine)["went_back"].is_null());
    assert!(!exists(&machine, "/run/motd.d/50-mcd"));
    assert_nothing_failed(&machine);
}

#[test]
fn nspawn_a_failed_change_is_made_again_when_forced() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", ". /etc/os-release; test $VERSION_ID != 2");
    mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    wait_until_down(machine);
    drop(boot_until_down(&host));
    let machine = host.boot();
    fails(&machine, &["pivot", &image("v2")], 3, &["--force"]);
    check_of(&machine, "required", "app", "exit 0");
    mcd(&machine, &["pivot", &image("v2"), "--force"]);
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
}

#[test]
fn nspawn_what_failed_before_does_not_go_back() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", "echo broken for long; exit 1");
    let said = fails(&machine, &["health"], 5, &["FAILED required app", "broken for long"]);
    assert!(said.contains("unhealthy"), "{said}");
    let said = mcd(&machine, &["pivot", &image("v2")]);
    assert!(said.contains("not held against the change: health check app"), "{said}");
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
    assert_eq!(verdict(&machine)["checks"][0]["failed_before"], true, "{:#}", verdict(&machine));
    assert!(status(&machine)["went_back"].is_null());
}

#[test]
fn nspawn_without_a_good_deployment_it_stays_and_says_degraded() {
    let host = Host::new();
    // Set up before its first boot, so that nothing was ever good.
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::create_dir_all(etc.join("mcd/health/required.d")).unwrap();
    std::fs::write(etc.join("mcd/mcd.toml"), "[health]\ndeadline = 2\ninterval = 1\n").unwrap();
    std::os::unix::fs::symlink("/usr/bin/false", etc.join("mcd/health/required.d/app")).unwrap();
    // The installation's own deployment counts as good since it was pivoted from; it goes.
    std::fs::remove_file(host.sysroot.path().join("ostree/mcd-boots")).unwrap();
    let machine = host.boot();
    assert_eq!(verdict(&machine)["verdict"], "degraded", "{:#}", verdict(&machine));
    assert_eq!(version(&machine), "1");
    assert!(machine.shell("cat /run/motd.d/50-mcd").unwrap().contains("degraded"));
    assert!(mcd(&machine, &["status"]).contains("degraded"));
}

#[test]
fn nspawn_a_shutdown_while_judging_is_no_verdict() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", ". /etc/os-release; test $VERSION_ID != 2");
    machine.shell("printf '[health]\\ndeadline = 600\\ninterval = 1\\n' > /etc/mcd/mcd.toml").unwrap();
    mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    wait_until_down(machine);
    let mut machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    wait_for(&machine, "grep -q judging /run/mcd/health.json");
    machine.shell("systemctl reboot").unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    let machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    wait_for(&machine, "grep -q judging /run/mcd/health.json");
    let seen = status(&machine);
    assert_eq!(version(&machine), "2");
    assert_ne!(seen["deployments"][0]["state"], "failed", "{seen:#}");
    assert!(seen["went_back"].is_null());
}

#[test]
fn nspawn_a_lost_change_is_staged_again_once() {
    let host = Host::new();
    let machine = host.boot();
    mcd(&machine, &["pivot", &image("v2")]);
    let machine = machine.power_cut().unwrap();
    assert_eq!(version(&machine), "1");
    assert!(
        machine.is_staged().unwrap(),
        "{}",
        machine.shell("journalctl -b -u mcd-resume --no-pager").unwrap()
    );
    let machine = machine.power_cut().unwrap();
    assert!(!machine.is_staged().unwrap(), "only once");
    let journal = machine.shell("journalctl -b -u mcd-resume -o cat --no-pager").unwrap();
    assert!(journal.contains("lost again") && journal.contains("--resume="), "{journal}");
    let id = status(&machine)["prepared"]["id"].as_str().unwrap().to_owned();
    mcd(&machine, &["pivot", &format!("--resume={id}")]);
    let machine = machine.reboot().unwrap();
    assert_eq!(version(&machine), "2");

    // What was dropped stays dropped.
    mcd(&machine, &["pivot", &image("v3")]);
    mcd(&machine, &["cancel"]);
    let machine = machine.power_cut().unwrap();
    assert!(!machine.is_staged().unwrap());
    assert_eq!(version(&machine), "2");
}
