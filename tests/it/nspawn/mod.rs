//! A real systemd on a real deployment: logind, inhibitors, units at boot, finalising at shutdown.

// A story looks at its own scratch folders by plain paths; the program itself may not.
#![allow(clippy::disallowed_methods)]

mod boot_count;
mod doctor;
mod drift;
mod firstboot;
mod health;
#[cfg(feature = "cluster")]
mod host_call;
mod initramfs;
mod installation;

use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

use installation::Installation;
use mcd_test_support::fake_registry::FakeRegistry;
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

/// The old host API, as whoever sets a host up writes it before its boot.
fn request(host: &Host, registry: &FakeRegistry, tag: &str) {
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    let write = |name: &str, content: &str| {
        let file = etc.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    };
    write("pivot/image-pullspec", &format!("{}\n", registry.image(&format!("os:{tag}"))));
    write("pivot/kernel-args", "ADD nosmt\nDELETE quiet\n");
    // What asks for the reboot, in /run, is made at each boot by somebody else.
    write("tmpfiles.d/pivot.conf", "f /run/pivot/reboot-needed 0644 - - -\n");
    let plain = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    write("containers/registries.conf.d/test.conf", &plain);
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

fn can_write(machine: &Machine<'_>, folder: &str) -> bool {
    machine.shell(&format!("touch {folder}/written 2>/dev/null && echo yes || echo no")).unwrap().trim()
        == "yes"
}

/// Whether a service was started only after that moment of another unit.
fn starts_after(machine: &Machine<'_>, unit: &str, other: &str, moment: &str) -> bool {
    let start: u64 = show(machine, unit, "ExecMainStartTimestampMonotonic").parse().unwrap();
    let other: u64 = show(machine, other, moment).parse().unwrap();
    start >= other && other > 0
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
    assert!(!can_write(&machine, "/sysroot") && !can_write(&machine, "/usr"));
    assert!(!machine.shell("journalctl -b --no-pager").unwrap().contains("ordering cycle"));
    assert!(starts_after(
        &machine,
        "mcd-cleanup.service",
        "multi-user.target",
        "ActiveEnterTimestampMonotonic"
    ));

    // Fetched and then not wanted: the first good boot removes it.
    mcd(&machine, &["pull", &image("v3")]);
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "mitigations=auto"]);
    assert!(machine.is_staged().unwrap());
    assert_eq!(show(&machine, "ostree-finalize-staged.service", "ActiveState"), "active");
    machine.shell("echo late > /etc/late; rm /etc/issue.net").unwrap();
    let (before, refs) = (host.sysroot.deployments().unwrap(), host.sysroot.refs().unwrap());
    // The same again: nothing is left to do but the reboot.
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "mitigations=auto", "--reboot"]);
    let machine = machine.next_boot().unwrap();

    assert_eq!(version(&machine), "2");
    assert!(machine.entry().options.contains("mitigations=auto"), "{:?}", machine.entry());
    assert_eq!(machine.shell("cat /etc/late /etc/motd").unwrap(), "late\nwelcome to v2\n");
    assert!(!exists(&machine, "/etc/issue.net"));
    assert_nothing_failed(&machine);
    // Nobody ran anything: mcd-cleanup.service judged the boot, closed the intent and pruned.
    let journal = machine.shell("journalctl -b --no-pager -t mcd").unwrap();
    for word in ["is complete", "is good", "freed ", " MiB: 1 images", "1 layers"] {
        assert!(journal.contains(word), "'{word}' is not in\n{journal}");
    }
    assert_eq!(show(&machine, "mcd-pivot.service", "ConditionResult"), "no");
    let seen = status(&machine);
    assert!(seen["prepared"].is_null(), "{seen:#}");
    assert_eq!(seen["notices"], serde_json::json!([]), "{seen:#}");
    assert!(!exists(&machine, "/var/lib/mcd/intent.json"));
    assert!(mcd(&machine, &["history", "--json"]).contains("booted"));
    let deployments = host.sysroot.deployments().unwrap();
    assert_eq!((deployments.len(), &deployments[1]), (2, &before[0]));
    let images = |refs: &BTreeMap<String, String>| {
        refs.keys().filter(|name| name.starts_with("ostree/container/")).cloned().collect::<Vec<_>>()
    };
    let (was, is) = (images(&refs), images(&host.sysroot.refs().unwrap()));
    assert_eq!(is.len(), was.len() - 2, "{was:#?}\n{is:#?}");
    assert!(!is.iter().any(|name| name.ends_with("_3A_v3")), "{is:#?}");
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
    let registry = FakeRegistry::serve(&host.installation.images(), vec![]).unwrap();
    request(&host, &registry, "v2");
    let machine = Machine::power_on(&host.sysroot, &[]).unwrap();
    let machine = machine.next_boot().unwrap();
    let asked = registry.requests().len();
    assert_eq!(version(&machine), "2");
    let options = &machine.entry().options;
    assert!(options.starts_with("root=LABEL=root rw nosmt ostree="), "{options}");
    assert!(!exists(&machine, PULLSPEC) && !exists(&machine, "/etc/pivot/kernel-args"));
    assert!(!exists(&machine, "/run/pivot/reboot-needed"));
    assert_eq!(show(&machine, "mcd-pivot.service", "Result"), "success");
    assert_nothing_failed(&machine);

    assert!(starts_after(
        &machine,
        "mcd-cleanup.service",
        "mcd-pivot.service",
        "ExecMainExitTimestampMonotonic"
    ));
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
    // All that needed no network.
    assert_eq!(registry.requests().len(), asked);
}

/// A request that fails must not keep the host from coming up, nor reboot it for ever.
#[test]
fn root_nspawn_a_request_that_cannot_be_carried_out_fails_its_unit_and_stays() {
    let host = Host::new();
    let registry = FakeRegistry::serve(&host.installation.images(), vec![]).unwrap();
    request(&host, &registry, "not-there");
    let mut machine = Machine::boot(&host.sysroot, &[]).unwrap();
    assert_eq!(version(&machine), "1");
    assert!(!machine.is_down().unwrap() && !machine.is_staged().unwrap());
    assert_eq!(show(&machine, "mcd-pivot.service", "Result"), "exit-code");
    assert_eq!(show(&machine, "mcd-cleanup.service", "Result"), "success");
    assert!(exists(&machine, PULLSPEC));
    assert!(machine.shell("journalctl -b --no-pager -u mcd-pivot").unwrap().contains("not-there"));
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
    assert!(machine.is_staged().unwrap());
    assert!(mcd(&machine, &["history"]).contains("it was not finalised"));
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
    // Slow enough to be stopped in the middle of a layer.
    let update = image("v2");
    machine
        .shell(&format!(
            "systemd-run --quiet --unit=update -r -p KillMode=mixed mcd pivot {update} --rate-limit 50K"
        ))
        .unwrap();
    wait_for(&machine, "journalctl -b --no-pager -u update | grep -q importing; pgrep -x skopeo");
    let begun = Instant::now();
    machine.shell("systemctl stop update").unwrap();
    let journal = machine.shell("journalctl -b --no-pager -u update").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{journal}");
    assert!(journal.contains("stopped by SIGTERM"), "{journal}");
    assert!(!machine.is_staged().unwrap(), "{journal}");
    assert_eq!((host.sysroot.boot_entries().unwrap(), status(&machine)), before, "{journal}");
    assert!(machine.shell("pgrep -x skopeo || pgrep -f '[m]cd pivot'").is_err(), "{journal}");
    // Nothing is in the way of the next try.
    mcd(&machine, &["pivot", &update]);
    assert!(machine.is_staged().unwrap());
}
