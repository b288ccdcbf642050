//! A node with a running daemon, and the controller's side of the handshake.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mcd_test_support::kube::{ControlPlane, Node, pod_token};
use mcd_test_support::process::Guarded;
use serde_json::{Value, json};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_mcd");
pub(super) const NAMESPACE: &str = "mcd";
pub(super) const ACCOUNT: &str = "mcd-daemon";
pub(super) const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";
/// Longer than anything here takes, also on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// The control plane with the project's manifests, applied by kubectl.
pub(super) fn plane() -> &'static ControlPlane {
    static APPLIED: std::sync::OnceLock<()> = std::sync::OnceLock::new();
    let plane = ControlPlane::shared().unwrap();
    APPLIED.get_or_init(|| apply_manifests(plane));
    plane
}

pub(super) fn apply_manifests(plane: &ControlPlane) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests");
    plane.kubectl(&["apply", "--filename", folder]).unwrap();
    plane
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "customresourcedefinitions",
            "--all",
        ])
        .unwrap();
    // A policy acts about a second after it was made.
    let node = Node::create(plane, "probe").unwrap();
    let token = pod_token(plane, NAMESPACE, ACCOUNT, node.name()).unwrap();
    let pod = plane.kubeconfig_with_token("probe", &token).unwrap();
    let start = Instant::now();
    // Another label each time: one that is there already is no change, and refused by nobody.
    while let label = format!("mcd.test/no={}", start.elapsed().as_millis())
        && plane.kubectl_as(&pod, &["label", "node", "probe", &label, "--overwrite"]).is_ok()
    {
        assert!(start.elapsed() < PATIENCE, "the admission policies do not act");
        std::thread::sleep(Duration::from_millis(200));
    }
    node.delete().unwrap();
}

/// The name of an annotation.
pub(super) fn key(name: &str) -> String {
    format!("machineconfiguration.openshift.io/{name}")
}

/// A node whose host has the configuration `config`.
pub(super) struct Host {
    pub(super) node: Node<'static>,
    pub(super) plane: &'static ControlPlane,
    kubeconfig: PathBuf,
    daemon: Option<Guarded>,
}

impl Host {
    fn new(name: &str, config: &str) -> Self {
        let plane = plane();
        let annotations =
            json!({ key("currentConfig"): config, key("desiredConfig"): config, key("state"): "Done" });
        let node = Node::create_with(plane, name, json!({}), annotations).unwrap();
        let token = pod_token(plane, NAMESPACE, ACCOUNT, name).unwrap();
        let kubeconfig = plane.kubeconfig_with_token(name, &token).unwrap();
        Self { node, plane, kubeconfig, daemon: None }
    }

    /// A node that is Done with `rendered-a`, its daemon running.
    pub(super) fn done(name: &str) -> Self {
        let mut host = Self::new(name, "rendered-a");
        host.start("rendered-a");
        host.until_done("rendered-a");
        host.until_started();
        host
    }

    /// Waits until the daemon has said what it finds: its annotations are those of before it began.
    #[track_caller]
    fn until_started(&self) {
        let path = format!("{GROUP}/machineconfignodes/{}", self.node.name());
        let start = Instant::now();
        loop {
            let found = self.plane.admin().get(&path).unwrap().body;
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|one| one["type"] == "Updated" && one["status"] == "True") {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "the daemon does not begin: {found:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the daemon's process, on a simulated host that has `config`.
    pub(super) fn start(&mut self, config: &str) {
        let kubeconfig = self.kubeconfig.display().to_string();
        let arguments = [
            "daemon",
            "--node-name",
            self.node.name(),
            "--kubeconfig",
            &kubeconfig,
            "--listen",
            "127.0.0.1:0",
            "--simulated-host",
            config,
        ];
        let daemon = Guarded::start(PROGRAM, &arguments, |command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        });
        self.daemon = Some(daemon.unwrap());
    }

    /// The daemon's process id.
    pub(super) fn pid(&mut self) -> u32 {
        self.daemon.as_mut().unwrap().child().id()
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        self.daemon = None;
    }

    pub(super) fn wish(&self, config: &str) {
        self.node.annotate(&key("desiredConfig"), config).unwrap();
    }

    /// Waits until the node is Done with `config`, playing the operator's drain controller; gives what the drain
    /// annotation was asked for, in order.
    #[track_caller]
    pub(super) fn until_done(&self, config: &str) -> Vec<String> {
        let is_done = |node: &Value| {
            annotation(node, "state") == "Done"
                && annotation(node, "currentConfig") == config
                && annotation(node, "desiredDrain") == annotation(node, "lastAppliedDrain")
        };
        self.until(&is_done)
    }

    /// The same until the node is in this state with a reason; gives the reason.
    #[track_caller]
    pub(super) fn until_state(&self, state: &str) -> String {
        self.until(&|node| annotation(node, "state") == state && !annotation(node, "reason").is_empty());
        self.node.annotation(&key("reason")).unwrap()
    }

    #[track_caller]
    pub(super) fn until(&self, ends: &dyn Fn(&Value) -> bool) -> Vec<String> {
        let start = Instant::now();
        let mut drains = Vec::new();
        loop {
            let node = self.node.get().unwrap();
            let wished = annotation(&node, "desiredDrain");
            if !wished.is_empty() && wished != annotation(&node, "lastAppliedDrain") {
                let cordon = wished.starts_with("drain-");
                self.node
                    .patch(&json!({
                        "spec": { "unschedulable": cordon },
                        "metadata": { "annotations": { key("lastAppliedDrain"): wished } }
                    }))
                    .unwrap();
                drains.push(wished.to_owned());
            }
            if ends(&node) {
                return drains;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end: {:#}", node["metadata"]["annotations"]);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// An annotation of a node, by its short name; empty if it is not there.
pub(super) fn annotation<'a>(node: &'a Value, name: &str) -> &'a str {
    node["metadata"]["annotations"][key(name)].as_str().unwrap_or_default()
}

/// A MachineConfig; `plan` is what the simulated host makes of it.
pub(super) fn machine_config(plane: &ControlPlane, name: &str, plan: &str) {
    let body = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": name, "annotations": { "mcd.test/plan": plan } },
        "spec": { "config": { "ignition": { "version": "3.2.0" } } }
    });
    plane.admin().post(&format!("{GROUP}/machineconfigs"), &body).unwrap().ok().unwrap();
}
