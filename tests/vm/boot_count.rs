//! Boots that never come to a verdict, and what the hook of the initramfs does about them.

use mcd_test_support::sysroot::STATEROOT;
use mcd_test_support::vm::qemu::Down;

use crate::world::World;

/// On version 2 the kernel panics, or the boot hangs for ever, before anything of the usual boot is
/// started.
fn breaks_version_2(how: &str) -> String {
    format!(
        "cat >/etc/systemd/system/broken.service <<'END'
[Unit]
DefaultDependencies=no
Before=sysinit.target shutdown.target mcd-boot.service
[Service]
Type=oneshot
ExecStart=/bin/bash -c '. /etc/os-release; test $VERSION_ID = 1 || {{ echo BROKEN >/dev/console; {how}; }}'
TimeoutStartSec=infinity
[Install]
WantedBy=sysinit.target
END
systemctl -q enable broken.service"
    )
}

#[test]
fn boot_count_leaves_a_root_that_panics_or_hangs() {
    let mut world = World::new();
    world.machine.boot().unwrap();
    assert_eq!(world.status()["deployments"][0]["state"], "good");
    let how =
        "if test -e /var/once; then sleep infinity; fi; touch /var/once; sync; echo c >/proc/sysrq-trigger";
    world.does(&breaks_version_2(how));
    world.pivot("os:v2", "--karg-append mcd.story=count");
    world.machine.tell("systemctl reboot").unwrap();
    assert_eq!(world.machine.wait_until_down().unwrap(), Down::Reboot);

    // The first boot ends in a panic, which `panic=` turns into a reboot.
    world.machine.power_on().unwrap();
    assert_eq!(world.machine.wait_until_down().unwrap(), Down::Reboot);
    assert!(world.machine.console().contains("Kernel panic"), "{}", world.machine.console());
    // Two more hang, until somebody pulls the plug.
    for _ in 0..2 {
        world.machine.power_on().unwrap();
        world.machine.wait_for_console("BROKEN").unwrap();
        world.machine.cut_power();
    }
    // The fourth never leaves the initramfs.
    world.machine.power_on().unwrap();
    assert_eq!(world.machine.entry().unwrap().argument("mcd.story"), Some("count"));
    assert_eq!(world.machine.wait_until_down().unwrap(), Down::Reboot);
    let console = world.machine.console();
    assert!(console.contains("3 boots ended without a verdict") && !console.contains("BROKEN"), "{console}");

    world.machine.boot().unwrap();
    assert_eq!(world.version(), "1");
    let status = world.status();
    assert_eq!(status["went_back"]["by"], "boot-count", "{status:#}");
    assert_eq!(status["deployments"][1]["state"], "unproven", "{status:#}");
    assert!(status["deployments"][1]["cause"].to_string().contains("3 boots ended"), "{status:#}");
    world.nothing_failed();
    // Good as it was, it is not counted again; the sysroot is as it should be.
    assert!(world.does("cat /run/mcd/boot.json").stdout.contains(r#""counted":true"#));
    assert!(world.does("findmnt -no OPTIONS /sysroot").stdout.starts_with("ro"));
    world.does("! mountpoint -q /run/mcd/back");
}

/// A file that the boot must lay down.
const APPLY: &str = "
cat >/run/mc.yaml <<'END'
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-app
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - path: /etc/app/settings
        mode: 420
        contents: {source: 'data:,new'}
  kernelArguments: [app=1]
END
mcd apply /run/mc.yaml";

#[test]
fn converge_that_fails_in_the_initramfs_boots_the_good_deployment() {
    let mut world = World::new();
    world.machine.separate_var().unwrap();
    world.machine.boot().unwrap();
    world.does(APPLY);
    world.machine.power_off().unwrap();
    // Something is in the way that no preflight could see.
    let mounted = world.machine.disk().mount().unwrap();
    let new = mounted.sysroot().unwrap().next_boot().unwrap();
    assert!(new.options.contains("app=1"));
    let etc = new.deployment.join("etc");
    assert!(etc.ancestors().any(|above| above.ends_with(STATEROOT)));
    std::fs::remove_dir_all(etc.join("app")).unwrap();
    std::fs::write(etc.join("app"), "in the way").unwrap();
    mounted.unmount().unwrap();

    world.machine.power_on().unwrap();
    assert_eq!(world.machine.wait_until_down().unwrap(), Down::Reboot);
    let console = world.machine.console();
    assert!(console.contains("its configuration could not be laid down"), "{console}");
    world.machine.boot().unwrap();
    assert_eq!(world.machine.entry().unwrap().argument("app"), None);
    let status = world.status();
    assert_eq!(status["went_back"]["by"], "converge", "{status:#}");
    assert_eq!(status["deployments"][1]["state"], "failed", "{status:#}");
    assert!(status["went_back"]["cause"].to_string().contains("/etc/app"), "{status:#}");
    // In the initramfs /var was not there: the change is closed all the same.
    world.does("test ! -e /var/lib/mcd/intent.json; mcd history | grep 'why .*could not be laid down'");
    world.nothing_failed();
}
