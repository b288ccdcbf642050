//! Boots without a verdict, and configurations that cannot be laid down: left for what was good, once.
//!
//! No initramfs runs here: `mcd-boot.service` counts, as on a host whose initramfs has no hook.

use super::*;

/// A health check that never passes and never fails: there is no verdict while it runs.
const NO_VERDICT: &str = "
mkdir -p /etc/mcd/health/required.d
ln -sf /usr/bin/false /etc/mcd/health/required.d/never
printf '[health]\\ndeadline = \"1h\"\\ninterval = 1\\n' > /etc/mcd/mcd.toml
";

/// Version 2, booted for the first time, after a good version 1, and never to be judged.
fn unjudged(host: &Host) -> Machine<'_> {
    let machine = host.boot();
    assert_eq!(status(&machine)["deployments"][0]["state"], "good");
    machine.shell(NO_VERDICT).unwrap();
    // Else it is known as failing before.
    machine.shell("rm /etc/mcd/health/required.d/never").unwrap();
    let said = mcd(&machine, &["pivot", &image("v2"), "--karg-append", "panic=5"]);
    assert!(!said.contains("panic=SECONDS") && said.contains("RuntimeWatchdogSec="), "{said}");
    machine.shell(NO_VERDICT).unwrap();
    let machine = reboot(host, machine);
    assert_eq!(status(&machine)["deployments"][0]["state"], "booted");
    machine
}

/// Boots version 2. With a judge at work that boot has no end to wait for.
fn boot(host: &Host) -> Machine<'_> {
    let machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    wait_for(&machine, "systemctl is-active --quiet multi-user.target");
    assert_eq!(version(&machine), "2");
    machine
}

fn reboot<'h>(host: &'h Host, mut machine: Machine<'h>) -> Machine<'h> {
    machine.shell("systemctl reboot").unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    boot(host)
}

/// Boots what does not stay up, and then what is booted instead.
fn boot_twice(host: &Host) -> Machine<'_> {
    let mut machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    host.boot()
}

#[test]
fn root_nspawn_three_boots_without_a_verdict_and_it_is_left() {
    let host = Host::new();
    drop(unjudged(&host));
    drop(boot(&host));
    drop(boot(&host));
    // The fourth ends before anything of it is started.
    let machine = boot_twice(&host);
    assert_eq!(version(&machine), "1");
    let seen = status(&machine);
    let left = &seen["deployments"][1];
    assert_eq!(left["state"], "unproven", "{seen:#}");
    assert!(left["cause"].as_str().unwrap().starts_with("3 boots ended without a verdict"), "{seen:#}");
    assert_eq!(seen["went_back"]["by"], "boot-count", "{seen:#}");
    let page = mcd(&machine, &["status"]);
    assert!(page.contains("unproven (3 boots ended"), "{page}");
    wait_for(&machine, "grep -q 'without a verdict' /run/motd.d/50-mcd");
    assert_nothing_failed(&machine);

    // Unproven is no failure: a person may ask again, and then it counts anew.
    let said = mcd(&machine, &["pivot", &image("v2")]);
    assert!(said.contains("panic=SECONDS"), "{said}");
    drop(reboot(&host, machine));
    drop(boot(&host));
}

#[test]
fn root_nspawn_ends_in_order_are_excused_three_times_in_a_row() {
    let host = Host::new();
    let mut machine = unjudged(&host);
    for _ in 0..3 {
        machine = reboot(&host, machine);
    }
    // By its name: of a process that ends at once, journald may not see the unit.
    let journal = machine.shell("journalctl -b -1 -o cat -t mcd --no-pager").unwrap();
    assert!(journal.contains("ends in order, before it was judged"), "{journal}");
    drop(machine);
    drop(boot(&host));
    drop(boot(&host));
    let machine = boot_twice(&host);
    assert_eq!(version(&machine), "1");
    assert_eq!(status(&machine)["deployments"][1]["state"], "unproven");

    // Stopped by a person, the unit notes nothing; nor when the deployment is judged.
    machine.shell("systemctl restart mcd-boot.service").unwrap();
    assert_nothing_failed(&machine);
}

/// A kubelet that says on which version it was started.
const KUBELET: &str = "
printf '[Service]\\nExecStart=/bin/sh -c \". /etc/os-release; date >> /var/started-$$VERSION_ID; sleep infinity\"\\n[Install]\\nWantedBy=multi-user.target\\n' > /etc/systemd/system/kubelet.service
systemctl -q enable kubelet.service
";

/// A file in /var, which only the boot lays down; and, once that is staged, what is in its way.
const APPLY: &str = "
cat > /run/mc.yaml <<'END'
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-app
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - path: /var/lib/app/settings
        mode: 420
        contents: {source: 'data:,new'}
  kernelArguments: [app=1]
END
mcd apply /run/mc.yaml
touch /var/lib/app
";

#[test]
fn root_nspawn_a_configuration_that_cannot_be_laid_down_goes_back_before_kubelet() {
    let host = Host::new();
    let machine = host.boot();
    machine.shell(KUBELET).unwrap();
    mcd(&machine, &["pivot", &image("v2")]);
    let machine = machine.reboot().unwrap();
    assert_eq!(version(&machine), "2");
    wait_for(&machine, "test -s /var/started-2");
    let started = machine.shell("wc -l < /var/started-2").unwrap();
    machine.shell(APPLY).unwrap();
    machine.shell("systemctl reboot").unwrap();
    let mut down = machine;
    down.wait_until_down().unwrap();
    drop(down);

    let mut machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    assert!(machine.entry().options.contains("app=1"));
    machine.wait_until_down().unwrap();
    drop(machine);
    let machine = host.boot();
    assert!(!machine.entry().options.contains("app=1"));
    let seen = status(&machine);
    assert_eq!(
        (&seen["went_back"]["by"], &seen["deployments"][1]["state"]),
        (&"converge".into(), &"failed".into())
    );
    assert!(seen["went_back"]["cause"].as_str().unwrap().contains("/var/lib/app"), "{seen:#}");
    wait_for(&machine, "test $(wc -l < /var/started-2) -gt 1");
    let after = machine.shell("wc -l < /var/started-2").unwrap();
    let number = |text: &str| text.trim().parse::<u32>().unwrap();
    assert_eq!(number(&after), number(&started) + 1, "kubelet was started on what was left");
}

#[test]
fn root_nspawn_without_a_good_one_the_boot_goes_on_and_says_degraded() {
    let host = Host::new();
    let machine = host.boot();
    machine
        .shell("mkdir -p /etc/mcd; printf '[health]\\ndeadline = 3\\ninterval = 1\\n' > /etc/mcd/mcd.toml")
        .unwrap();
    machine.shell(KUBELET).unwrap();
    machine.shell(APPLY).unwrap();
    let mut down = machine;
    down.shell("systemctl reboot").unwrap();
    down.wait_until_down().unwrap();
    drop(down);
    std::fs::remove_file(host.sysroot.path().join("ostree/mcd-boots")).unwrap();
    let machine = host.boot();
    assert!(machine.entry().options.contains("app=1"));
    let page = mcd(&machine, &["status"]);
    assert!(page.contains("this system is degraded: its configuration could not be laid down"), "{page}");
    assert!(page.contains("/var/lib/app") && page.contains("no other deployment"), "{page}");
    assert!(machine.shell("cat /run/motd.d/51-mcd-boot").unwrap().contains("degraded"));
    assert_eq!(show(&machine, "mcd-boot.service", "Result"), "exit-code");
    // No emergency shell, and the rest is started.
    wait_for(&machine, "test -s /var/started-1");
    // It is never called good while that is so.
    wait_for(&machine, "grep -q degraded /run/mcd/health.json");
    fails(&machine, &["health"], 5, &["FAILED required configuration"]);

    machine.shell("rm /var/lib/app").unwrap();
    mcd(&machine, &["boot"]);
    assert_eq!(machine.shell("cat /var/lib/app/settings").unwrap(), "new");
    assert!(!mcd(&machine, &["status"]).contains("this system is degraded"));
    fails(&machine, &["health"], 0, &["ok     required configuration"]);
}
