//! A real systemd on a real deployment: logind, inhibitors, units at boot, finalising at shutdown.

// A story looks at its own scratch folders by plain paths; the program itself may not.
#![allow(clippy::disallowed_methods)]

mod installation;

use std::process::Output;
use std::time::{Duration, Instant};

use installation::Installation;
use mcd_test_support::machine::Machine;
use mcd_test_support::sysroot::Sysroot;
use serde_json::Value;

/// Where the images are seen inside.
const IMAGES: &str = "/run/images";
const PULLSPEC: &str = "/etc/pivot/image-pullspec";

/// A host of its own for a story, and the images beside it.
struct Host {
    sysroot: Sysroot,
    installation: &'static Installation,
}

impl Host {
    fn new() -> Self {
        let installation = Installation::get();
        Self { sysroot: installation.copy(), installation }
    }

    fn boot(&self) -> Machine<'_> {
        Machine::boot(&self.sysroot, &[(&self.installation.images(), IMAGES)]).unwrap()
    }

}

fn image(tag: &str) -> String {
    format!("oci:{IMAGES}:{tag}")
}

fn text(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs `mcd`, which must do what it is asked.
#[track_caller]
fn mcd(machine: &Machine<'_>, arguments: &[&str]) -> String {
    fails(machine, arguments, 0, &[])
}

/// Runs `mcd`, which must end with this code and say these words.
#[track_caller]
fn fails(machine: &Machine<'_>, arguments: &[&str], code: i32, words: &[&str]) -> String {
    let output = machine.mcd(arguments).unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(code), "mcd {arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in\n{said}");
    }
    said
}

fn status(machine: &Machine<'_>) -> Value {
    let output = machine.mcd(&["status", "--json"]).unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
}

fn version(machine: &Machine<'_>) -> String {
    machine.shell(". /etc/os-release; echo -n $VERSION_ID").unwrap()
}

fn exists(machine: &Machine<'_>, path: &str) -> bool {
    machine.shell(&format!("test -e {path} && echo yes || echo no")).unwrap().trim() == "yes"
}

fn show(machine: &Machine<'_>, unit: &str, property: &str) -> String {
    machine.shell(&format!("systemctl show -P {property} {unit}")).unwrap().trim().to_owned()
}

#[track_caller]
fn assert_nothing_failed(machine: &Machine<'_>) {
    let failed = machine.shell("systemctl list-units --failed --plain --no-legend").unwrap();
    let journal = machine.shell("journalctl -b --no-pager -u 'mcd-*' -u 'ostree-*'").unwrap();
    assert_eq!(failed, "", "{journal}\n{}", machine.console());
}

/// A block inhibitor of this name, held until the machine goes down.
fn inhibit(machine: &Machine<'_>, who: &str, why: &str) {
    machine
        .shell(&format!(
            "systemd-run --quiet systemd-inhibit --what=shutdown --mode=block --who='{who}' --why='{why}' sleep infinity"
        ))
        .unwrap();
    wait_for(machine, &format!("systemd-inhibit --list | grep -q '{who}'"));
}

/// Waits until a condition holds inside.
#[track_caller]
fn wait_for(machine: &Machine<'_>, condition: &str) {
    let begun = Instant::now();
    while machine.shell(condition).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {condition}\n{}", machine.console());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn root_nspawn_a_pivot_reboots_into_the_image() {
    let host = Host::new();
    let machine = host.boot();
    assert_eq!(version(&machine), "1");
    assert_nothing_failed(&machine);
    // Even the first boot of a host that another tool installed is judged, and pruned after.
    let installed = host.sysroot.deployments().unwrap();
    assert_eq!(installed.len(), 2);

    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "mitigations=auto"]);
    assert!(machine.is_staged().unwrap());
    machine.shell("echo late > /etc/late; rm /etc/motd").unwrap();
    // The same again: nothing is left to do but the reboot.
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "mitigations=auto", "--reboot"]);
    let machine = machine.next_boot().unwrap();

    assert_eq!(version(&machine), "2");
    assert!(machine.entry().options.contains("mitigations=auto"), "{:?}", machine.entry());
    assert_eq!(machine.shell("cat /etc/late").unwrap(), "late\n");
    assert!(!exists(&machine, "/etc/motd"));
    assert_nothing_failed(&machine);
    // Nobody ran anything: mcd-cleanup.service judged the boot, closed the intent and pruned.
    assert_eq!(show(&machine, "mcd-cleanup.service", "Result"), "success");
    assert_eq!(show(&machine, "mcd-pivot.service", "ConditionResult"), "no");
    let seen = status(&machine);
    assert!(seen["prepared"].is_null(), "{seen:#}");
    assert_eq!(seen["notices"], serde_json::json!([]), "{seen:#}");
    assert!(!exists(&machine, "/var/lib/mcd/intent.json"));
    assert!(mcd(&machine, &["history", "--json"]).contains("booted"));
    assert_eq!(host.sysroot.deployments().unwrap().len(), 2);
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_nspawn_a_block_inhibitor_refuses_the_reboot_and_force_overrides_it() {
    let host = Host::new();
    let machine = host.boot();
    inhibit(&machine, "backup", "saving the database");
    let words = ["backup", "saving the database", "--force"];
    fails(&machine, &["pivot", &image("v2"), "--reboot"], 3, &words);
    // Refused is only the reboot.
    assert!(machine.is_staged().unwrap());
    fails(&machine, &["pivot", &image("v2"), "--reboot"], 3, &words);
    let said = mcd(&machine, &["pivot", &image("v2"), "--reboot", "--force"]);
    assert!(said.contains("backup"), "{said}");
    let machine = machine.next_boot().unwrap();
    assert_eq!(version(&machine), "2");
}

#[test]
fn root_nspawn_the_old_host_api_pivots_at_boot_and_only_once() {
    let host = Host::new();
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::create_dir_all(etc.join("pivot")).unwrap();
    std::fs::write(etc.join("pivot/image-pullspec"), format!("{}\n", image("v2"))).unwrap();
    std::fs::write(etc.join("pivot/kernel-args"), "ADD nosmt\nDELETE quiet\n").unwrap();
    std::fs::create_dir_all(etc.join("tmpfiles.d")).unwrap();
    // What asks for the reboot, in /run, is made at each boot by somebody else.
    std::fs::write(etc.join("tmpfiles.d/pivot.conf"), "f /run/pivot/reboot-needed 0644 - - -\n").unwrap();

    let machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    let machine = machine.next_boot().unwrap();
    assert_eq!(version(&machine), "2");
    let options = &machine.entry().options;
    assert!(options.starts_with("root=LABEL=root rw nosmt ostree="), "{options}");
    assert!(!exists(&machine, PULLSPEC) && !exists(&machine, "/etc/pivot/kernel-args"));
    assert!(!exists(&machine, "/run/pivot/reboot-needed"));
    assert_eq!(show(&machine, "mcd-pivot.service", "Result"), "success");
    assert_nothing_failed(&machine);

    mcd(&machine, &["rollback", "--reboot"]);
    let machine = machine.next_boot().unwrap();
    // This /etc is the one that the request was written to.
    assert_eq!(version(&machine), "1");
    assert!(!machine.is_staged().unwrap());
    assert!(!exists(&machine, PULLSPEC));
    assert!(exists(&machine, &format!("{PULLSPEC}.rolled-back")));
    assert_nothing_failed(&machine);
    let machine = machine.reboot().unwrap();
    assert_eq!(version(&machine), "1");
    assert_eq!(show(&machine, "mcd-pivot.service", "ConditionResult"), "no");
}

#[test]
fn root_nspawn_what_a_power_cut_lost_is_staged_again_without_network() {
    let host = Host::new();
    let machine = host.boot();
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "nosmt"]);
    assert!(machine.is_staged().unwrap());
    drop(machine);

    // The images are not there any more.
    let machine = Machine::boot(&host.sysroot, &[]).unwrap();
    assert_eq!(version(&machine), "1");
    assert!(!machine.is_staged().unwrap());
    let seen = status(&machine);
    assert!(!seen["notices"].as_array().unwrap().is_empty(), "{seen:#}");
    assert!(mcd(&machine, &["status"]).contains("--resume"));
    mcd(&machine, &["pivot", "--resume"]);
    let machine = machine.reboot().unwrap();
    assert_eq!(version(&machine), "2");
    assert!(machine.entry().options.contains("nosmt"));
    assert_nothing_failed(&machine);
}

#[test]
fn root_nspawn_a_stopped_unit_leaves_the_host_as_it_was() {
    let host = Host::new();
    let machine = host.boot();
    let before = (host.sysroot.boot_entries().unwrap(), status(&machine));
    // Slow enough to be stopped in the middle.
    let update = image("v2");
    machine
        .shell(&format!("systemd-run --quiet --unit=update -p Type=exec mcd pivot {update} --rate-limit 10"))
        .unwrap();
    wait_for(&machine, "systemctl show -P SubState update | grep -q running && pgrep -x skopeo");
    machine.shell("systemctl stop update").unwrap();
    let journal = machine.shell("journalctl -b --no-pager -u update").unwrap();
    assert!(!machine.is_staged().unwrap(), "{journal}");
    assert_eq!((host.sysroot.boot_entries().unwrap(), status(&machine)), before, "{journal}");
    assert!(machine.shell("pgrep -x 'skopeo|mcd'").is_err(), "{journal}");
    // Nothing is in the way of the next try.
    mcd(&machine, &["pivot", &update]);
    assert!(machine.is_staged().unwrap());
}
