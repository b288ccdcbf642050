//! A node with a running daemon, and the controller's side of the handshake.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mcd_test_support::kube::{ControlPlane, Node, account_token, daemon_set_token, pod_token};
use mcd_test_support::process::Guarded;
use serde_json::{Value, json};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_mcd");
pub(super) const NAMESPACE: &str = "mcd";
pub(super) const ACCOUNT: &str = "mcd-daemon";
pub(super) const DAEMON_SET: &str = "mcd-daemon";
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
    let token = account_token(plane, NAMESPACE, crate::pools::ACCOUNT, None).unwrap();
    let controller = plane.admin().with_token(&token);
    let probe =
        |number: u128| json!({ "metadata": { "annotations": { "mcd.test/no": number.to_string() } } });
    while controller.patch(&node.path(), &probe(start.elapsed().as_millis())).unwrap().status < 300 {
        assert!(start.elapsed() < PATIENCE, "the admission policies of the pool controller do not act");
        std::thread::sleep(Duration::from_millis(200));
    }
    node.delete().unwrap();
}

/// The name of an annotation.
pub(super) fn key(name: &str) -> String {
    format!("machineconfiguration.openshift.io/{name}")
}

/// How a daemon is started.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    /// It drains by itself, with the kubelet's credentials.
    pub(super) drains_itself: bool,
    /// It puts drift right.
    pub(super) self_heal: bool,
    /// It serves its metrics with TLS, on all addresses.
    pub(super) tls: bool,
    /// Milliseconds that the host prepares, reboots and judges.
    pub(super) pace: u64,
}

/// A node whose host is simulated and outlives its daemon.
pub(super) struct Host<'p> {
    pub(super) node: Node<'p>,
    pub(super) plane: &'p ControlPlane,
    pub(super) options: Options,
    kubeconfig: PathBuf,
    daemon: Option<Guarded>,
    scratch: tempfile::TempDir,
}

impl Host<'static> {
    /// A node that is Done with `rendered-a`, its daemon running.
    pub(super) fn done(name: &str) -> Self {
        Self::done_with(name, Options::default())
    }

    /// The same with another daemon.
    pub(super) fn done_with(name: &str, options: Options) -> Self {
        Self::done_on(plane(), name, options)
    }

    /// A node of a pool that is Done with `config`, its daemon running.
    pub(super) fn of_pool(name: &str, pool: &str, config: &str) -> Self {
        let annotations =
            json!({ key("currentConfig"): config, key("desiredConfig"): config, key("state"): "Done" });
        let mut host = Self::new(plane(), name, annotations, Options::default());
        let label = format!("node-role.kubernetes.io/{pool}");
        host.node.patch(&json!({ "metadata": { "labels": { label: "" } } })).unwrap();
        host.start(config);
        host.until_started();
        host
    }
}

impl<'p> Host<'p> {
    /// A node with these annotations, without a daemon yet.
    pub(super) fn new(plane: &'p ControlPlane, name: &str, annotations: Value, options: Options) -> Self {
        let node = Node::create_with(plane, name, json!({}), annotations).unwrap();
        let token = daemon_set_token(plane, NAMESPACE, DAEMON_SET, ACCOUNT, name).unwrap();
        let kubeconfig = plane.kubeconfig_with_token(name, &token).unwrap();
        Self { node, plane, options, kubeconfig, daemon: None, scratch: tempfile::tempdir().unwrap() }
    }

    /// A node of this control plane that is Done with `rendered-a`.
    pub(super) fn done_on(plane: &'p ControlPlane, name: &str, options: Options) -> Self {
        let config = "rendered-a";
        let annotations =
            json!({ key("currentConfig"): config, key("desiredConfig"): config, key("state"): "Done" });
        let mut host = Self::new(plane, name, annotations, options);
        host.start(config);
        host.until_done(config);
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

    /// Starts the daemon's process, on the host as it was left, or, the first time, on one that has `config`.
    pub(super) fn start(&mut self, config: &str) {
        let kubeconfig = self.kubeconfig.display().to_string();
        let (state, pace) = (self.state().display().to_string(), self.options.pace.to_string());
        let (certificate, key) = (self.file("tls.crt"), self.file("tls.key"));
        let mut arguments = vec![
            "daemon",
            "--node-name",
            self.node.name(),
            "--kubeconfig",
            &kubeconfig,
            "--listen",
            if self.options.tls { "0.0.0.0:0" } else { "127.0.0.1:0" },
            "--start-spread",
            "0",
            "--simulated-host",
            config,
            "--simulated-state",
            &state,
            "--simulated-pace",
            &pace,
        ];
        let kubelet = self.plane.kubelet_kubeconfig(self.node.name()).unwrap().display().to_string();
        if self.options.drains_itself {
            arguments.extend(["--drain", "self", "--kubelet-kubeconfig", &kubelet]);
        }
        if self.options.tls {
            arguments.extend(["--metrics-tls-cert", &certificate, "--metrics-tls-key", &key]);
        }
        if self.options.self_heal {
            arguments.push("--self-heal");
        }
        let log = std::fs::File::options().append(true).create(true).open(self.scratch.path().join("log"));
        let daemon = Guarded::start(PROGRAM, &arguments, |command| {
            command.stdout(Stdio::null()).stderr(log.unwrap());
        });
        self.daemon = Some(daemon.unwrap());
    }

    /// The path of a file beside the host.
    pub(super) fn file(&self, name: &str) -> String {
        self.scratch.path().join(name).display().to_string()
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("host.json")
    }

    /// The host: what it says of itself, and what it was asked for.
    pub(super) fn host(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.state()).unwrap()).unwrap()
    }

    /// Changes the host while it has nothing to do.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut Value)) {
        let mut host = self.host();
        edit(&mut host);
        self.make(&host);
    }

    /// Makes the host, before its daemon begins.
    pub(super) fn make(&self, host: &Value) {
        let new = self.scratch.path().join("host.new");
        std::fs::write(&new, host.to_string()).unwrap();
        std::fs::rename(new, self.state()).unwrap();
    }

    /// How often the host was asked for this.
    pub(super) fn asked(&self, verb: &str) -> usize {
        self.host()["log"].as_array().unwrap().iter().filter(|one| *one == verb).count()
    }

    /// What the daemon's processes wrote.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    /// The page of metrics that the daemon serves.
    pub(super) fn metrics(&self) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// Where the daemon listens.
    pub(super) fn port(&self) -> u16 {
        let log = self.log();
        let address = log.lines().rev().find_map(|line| line.split("Listening on ").nth(1)).unwrap();
        address.trim().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Waits until the host is so.
    #[track_caller]
    pub(super) fn until_host(&self, is_so: &dyn Fn(&Value) -> bool) {
        let start = Instant::now();
        while !is_so(&self.host()) {
            assert!(start.elapsed() < PATIENCE, "{:#}\n{}", self.host(), self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
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

    /// Carries an order of the drain annotation out, if there is one; gives the node as it was, and the order.
    pub(super) fn play_drain(&self) -> (Value, Option<String>) {
        let node = self.node.get().unwrap();
        let wished = annotation(&node, "desiredDrain").to_owned();
        let is_carried_out = wished.is_empty() || wished == annotation(&node, "lastAppliedDrain");
        if self.options.drains_itself || is_carried_out {
            return (node, None);
        }
        let cordon = wished.starts_with("drain-");
        self.node
            .patch(&json!({
                "spec": { "unschedulable": cordon },
                "metadata": { "annotations": { key("lastAppliedDrain"): wished } }
            }))
            .unwrap();
        (node, Some(wished))
    }

    #[track_caller]
    pub(super) fn until(&self, ends: &dyn Fn(&Value) -> bool) -> Vec<String> {
        let start = Instant::now();
        let mut drains = Vec::new();
        loop {
            let (node, drained) = self.play_drain();
            drains.extend(drained);
            if ends(&node) {
                return drains;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "it does not end: {:#}\n{}",
                node["metadata"]["annotations"],
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the Node is so, while no controller drains.
    #[track_caller]
    pub(super) fn until_node(&self, is_so: &dyn Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let node = self.node.get().unwrap();
            if is_so(&node) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{:#}\n{}", node["metadata"]["annotations"], self.log());
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
