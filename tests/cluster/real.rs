//! One case without anything simulated on the host's side: a booted machine with the program as it is shipped,
//! the daemon in its own mount namespace on it, as a pod has one, and the API server outside.

use std::time::{Duration, Instant};

use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::kube::{ControlPlane, Node, daemon_set_token};
use mcd_test_support::machine::Machine;
use serde_json::{Value, json};

use crate::installation::Installation;
use crate::world::{ACCOUNT, DAEMON_SET, GROUP, NAMESPACE, annotation, key, plane};

/// A boot, an image and a reboot, on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(120);

struct Pod<'a> {
    node: &'a Node<'static>,
    kubeconfig: String,
    folder: String,
}

impl Pod<'_> {
    /// Starts it on the machine, as a kubelet does after each boot. It sees the host's processes, and of the
    /// host's files the programs only.
    fn start(&self, machine: &Machine<'_>) {
        let program =
            format!("/usr/bin/mcd daemon --node-name {} --kubeconfig {}", self.node.name(), self.kubeconfig);
        let hidden = ["/run", "/etc", "/var", "/root", "/sysroot", "/boot"]
            .map(|path| format!("-p TemporaryFileSystem={path}"));
        machine
            .shell(&format!(
                "systemd-run --quiet --collect --unit=pod {} -p BindReadOnlyPaths={} -p SyslogIdentifier=pod {program}",
                hidden.join(" "),
                self.folder,
            ))
            .unwrap();
    }

    /// Waits until the Node is so, and plays the drain controller meanwhile.
    #[track_caller]
    fn until(&self, machine: &Machine<'_>, ends: &dyn Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let node = self.node.get().unwrap();
            let wished = annotation(&node, "desiredDrain").to_owned();
            if !wished.is_empty() && wished != annotation(&node, "lastAppliedDrain") {
                let cordon = wished.starts_with("drain-");
                let applied = json!({ key("lastAppliedDrain"): wished });
                self.node
                    .patch(&json!({ "spec": { "unschedulable": cordon }, "metadata": { "annotations": applied } }))
                    .unwrap();
            }
            if ends(&node) {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let journal = machine.shell("journalctl -b --no-pager -t pod -t mcd | tail -50");
                panic!(
                    "it does not end: {:#}\n{}",
                    node["metadata"]["annotations"],
                    journal.unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn until_done(&self, machine: &Machine<'_>, config: &str) {
        self.until(machine, &|node| {
            annotation(node, "state") == "Done"
                && annotation(node, "currentConfig") == config
                && annotation(node, "desiredDrain") == annotation(node, "lastAppliedDrain")
        });
    }
}

fn machine_config(plane: &ControlPlane, name: &str, image: &str, content: &str) {
    let file = |path: &str| json!({ "path": path, "mode": 420, "overwrite": true, "contents": { "source": format!("data:,{content}") } });
    let body = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": name },
        "spec": {
            "osImageURL": image,
            "config": {
                "ignition": { "version": "3.4.0" },
                // Of the second one policy says that it needs nothing.
                "storage": { "files": [file("/etc/from-config"), file("/etc/nmstate/openshift/a.yml")] },
            },
        },
    });
    plane.admin().post(&format!("{GROUP}/machineconfigs"), &body).unwrap().ok().unwrap();
}

#[test]
fn root_nspawn_a_real_host_is_updated_rebooted_and_done() {
    let plane = plane();
    let installation = Installation::get();
    let sysroot = installation.copy();
    let registry = FakeRegistry::serve(&installation.images(), vec![]).unwrap();
    let etc = sysroot.next_boot().unwrap().deployment.join("etc/containers/registries.conf.d");
    std::fs::create_dir_all(&etc).unwrap();
    let plain = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host());
    std::fs::write(etc.join("test.conf"), plain).unwrap();

    let node = Node::create(plane, "real").unwrap();
    let token = daemon_set_token(plane, NAMESPACE, DAEMON_SET, ACCOUNT, "real").unwrap();
    let kubeconfig = plane.kubeconfig_with_token("real", &token).unwrap();
    let folder = kubeconfig.parent().unwrap().to_owned();
    let shared = folder.display().to_string();
    let pod = Pod { node: &node, kubeconfig: kubeconfig.display().to_string(), folder: shared.clone() };
    machine_config(plane, "rendered-real-1", &registry.image("os:v2"), "one");
    machine_config(plane, "rendered-real-2", &registry.image("os:v2"), "one");
    node.annotate(&key("desiredConfig"), "rendered-real-1").unwrap();

    let machine = Machine::boot(&sysroot, &[(&folder, &shared)]).unwrap();
    pod.start(&machine);
    pod.until(&machine, &|node| annotation(node, "post-config-action") == "Rebooting");
    let drained = node.get().unwrap();
    assert_eq!(drained["spec"]["unschedulable"], true);
    assert_eq!(annotation(&drained, "lastAppliedDrain"), "drain-rendered-real-1");
    let machine = machine.next_boot().unwrap();
    pod.start(&machine);
    pod.until_done(&machine, "rendered-real-1");
    assert_ne!(node.get().unwrap()["spec"]["unschedulable"], true);
    assert_eq!(
        machine.shell(". /etc/os-release; cat /etc/from-config; echo -n $VERSION_ID").unwrap(),
        "one2"
    );

    // The whole way of an edit: the host's watch, its report, the pod, the Node; and back.
    machine.shell("echo edited > /etc/from-config").unwrap();
    pod.until(&machine, &|node| {
        annotation(node, "state") == "Degraded" && annotation(node, "reason").contains("/etc/from-config")
    });
    machine.shell("mcd verify --repair").unwrap();
    pod.until_done(&machine, "rendered-real-1");

    // The same under another name is a change that needs nothing.
    node.annotate(&key("desiredConfig"), "rendered-real-2").unwrap();
    pod.until_done(&machine, "rendered-real-2");
    let status: Value = serde_json::from_str(&machine.shell("mcd status --json").unwrap()).unwrap();
    assert_eq!(status["deployments"][0]["booted"], true, "{status:#}");
    assert_eq!(machine.shell("systemctl is-active pod").unwrap().trim(), "active");
}
