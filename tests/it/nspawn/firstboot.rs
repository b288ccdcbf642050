//! First boots: what Ignition or an installer leaves, carried out before kubelet.

use std::path::PathBuf;

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::machine::Machine;

use super::{Host, IMAGES, exists, image, mcd, show, status, version, wait_for};

const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
const UNIT: &str = "mcd-firstboot.service";
/// Notes which OS it starts on.
const KUBELET: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c '. /etc/os-release; echo $VERSION_ID >> /var/kubelet'\n";

/// A file in the root that boots next, put there before its first boot.
fn put(host: &Host, path: &str, content: &str) {
    let file: PathBuf = host.sysroot.next_boot().unwrap().deployment.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, content).unwrap();
}

/// A unit, enabled.
fn unit(host: &Host, name: &str, text: &str) {
    put(host, &format!("etc/systemd/system/{name}"), text);
    let wants =
        host.sysroot.next_boot().unwrap().deployment.join("etc/systemd/system/multi-user.target.wants");
    std::fs::create_dir_all(&wants).unwrap();
    std::os::unix::fs::symlink(format!("/etc/systemd/system/{name}"), wants.join(name)).unwrap();
}

/// What the Machine Config Server sends last.
fn encapsulate(host: &Host, image: &str, kernel_arguments: &str) {
    let text = format!(
        r#"{{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
            "metadata":{{"name":"rendered-worker-1"}},"spec":{{"osImageURL":"{image}",
            "kernelArguments":[{kernel_arguments}],"fips":false,
            "config":{{"ignition":{{"version":"3.2.0"}}}}}}}}"#
    );
    put(host, &ENCAPSULATED[1..], &text);
}

/// Boots, and boots again once it has gone down by itself.
fn boot_through(host: &Host) -> Machine<'_> {
    let machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    machine.next_boot().unwrap()
}

#[test]
fn root_nspawn_a_first_boot_reboots_once_into_what_the_cluster_wants() {
    let host = Host::new();
    encapsulate(&host, &image("v2"), r#""nosmt", "a=b c=\"d e\"""#);
    unit(&host, "kubelet.service", KUBELET);

    let machine = boot_through(&host);
    assert_eq!(version(&machine), "2");
    for argument in ["nosmt", "a=b", "c=\"d e\""] {
        assert!(machine.entry().options.contains(argument), "{:?}", machine.entry());
    }
    // The first boot ended without kubelet: not even in the seconds after the reboot was queued.
    assert_eq!(machine.shell("cat /var/kubelet").unwrap(), "2\n");
    assert_eq!(show(&machine, UNIT, "Result"), "success");
    assert!(!exists(&machine, ENCAPSULATED) && exists(&machine, &format!("{ENCAPSULATED}.bak")));
    let journal = machine.shell(&format!("journalctl -b --no-pager -u {UNIT} -o cat")).unwrap();
    assert!(journal.contains("this machine is what its first boot asked for"), "{journal}");
    assert_eq!(status(&machine)["health"]["verdict"], "good");

    // A rollback brings the older /etc back, and with it the request: it is not run again.
    mcd(&machine, &["rollback"]);
    let machine = machine.reboot().unwrap();
    assert_eq!(version(&machine), "1");
    assert!(exists(&machine, &format!("{ENCAPSULATED}.rolled-back")) && !exists(&machine, ENCAPSULATED));
    assert_eq!(machine.shell("cat /var/kubelet").unwrap(), "2\n1\n");
    let journal = machine.shell(&format!("journalctl -b --no-pager -u {UNIT} -o cat")).unwrap();
    assert!(journal.contains("carried out before and is not run again"), "{journal}");
}

#[test]
fn root_nspawn_a_first_boot_with_nothing_to_do_does_not_reboot() {
    let host = Host::new();
    encapsulate(&host, &image("v1"), "\"rw\"");
    unit(&host, "kubelet.service", KUBELET);
    // The Go daemon's own, as a cluster brings it.
    unit(
        &host,
        "machine-config-daemon-firstboot.service",
        "[Unit]\nConditionPathExists=/etc/ignition-machine-config-encapsulated.json\n[Service]\nType=oneshot\n\
         ExecStart=/usr/bin/touch /var/go-daemon-ran\n",
    );
    let before = host.sysroot.deployments().unwrap();
    let machine = host.boot();
    assert_eq!(version(&machine), "1");
    assert!(exists(&machine, &format!("{ENCAPSULATED}.bak")), "{}", machine.console());
    assert!(!exists(&machine, "/var/go-daemon-ran"));
    assert_eq!(machine.shell("cat /var/kubelet").unwrap(), "1\n");
    assert_eq!(host.sysroot.deployments().unwrap(), before);
    let journal = machine.shell("journalctl -b --no-pager").unwrap();
    assert!(!journal.contains("ordering cycle"), "{journal}");
    // Later boots have nothing to ask.
    assert_eq!(mcd(&machine, &["firstboot"]).matches("nothing is asked for").count(), 1);
}

#[test]
fn root_nspawn_a_first_boot_waits_for_its_registry() {
    let host = Host::new();
    let registry = FakeRegistry::serve(
        &host.installation.images(),
        vec![Rule::first(2, On::Manifest, Act::Status(403))],
    )
    .unwrap();
    encapsulate(&host, &registry.image("os:v2"), "");
    unit(&host, "kubelet.service", KUBELET);
    let plain = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    put(&host, "etc/containers/registries.conf.d/test.conf", &plain);
    let machine = boot_through(&host);
    assert_eq!(version(&machine), "2");
    assert_eq!(machine.shell("cat /var/kubelet").unwrap(), "2\n");
    let journal = machine.shell(&format!("journalctl -b -1 --no-pager -u {UNIT} -o cat")).unwrap();
    assert!(journal.contains("403") && journal.contains("again in 5 s"), "{journal}");
    assert!(journal.contains("at fault: credentials: "), "{journal}");
}

#[test]
fn root_nspawn_a_whole_config_of_a_machine_without_a_cluster() {
    let host = Host::new();
    put(
        &host,
        "etc/mcd/firstboot.yaml",
        &format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: edge}}\nspec:\n  \
             osImageURL: {}\n  config:\n    ignition: {{version: 3.2.0}}\n    storage:\n      files:\n      \
             - {{path: /etc/edge.conf, mode: 384, contents: {{source: 'data:,edge'}}}}\n      \
             - {{path: /var/lib/edge/state, contents: {{source: 'data:,state'}}}}\n    systemd:\n      units:\n      \
             - {{name: edge.service, enabled: true, contents: \"[Service]\\nExecStart=/usr/bin/sleep infinity\\n\
             [Install]\\nWantedBy=multi-user.target\\n\"}}\n",
            image("v2")
        ),
    );
    let machine = boot_through(&host);
    assert_eq!(version(&machine), "2");
    let seen = machine.shell("stat -c %a /etc/edge.conf; cat /etc/edge.conf /var/lib/edge/state").unwrap();
    assert_eq!(seen, "600\nedgestate");
    wait_for(&machine, "systemctl is-active -q edge.service");
    assert!(exists(&machine, "/etc/mcd/firstboot.yaml.bak") && !exists(&machine, "/etc/mcd/firstboot.yaml"));
    // It is configured from now on.
    mcd(&machine, &["verify"]);
}
