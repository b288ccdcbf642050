//! Pools, rolled out by `mcd controller` over nodes with running daemons.

use std::process::Stdio;
use std::time::{Duration, Instant};

use mcd_test_support::kube::{ControlPlane, account_token};
use mcd_test_support::process::Guarded;
use serde_json::{Value, json};

use crate::world::{GROUP, Host, NAMESPACE, PROGRAM, annotation, plane};

pub(super) const ACCOUNT: &str = "mcd-controller";
/// Longer than a roll-out here takes, also on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// A controller's process.
pub(super) fn controller(plane: &ControlPlane, name: &str) -> Guarded {
    let token = account_token(plane, NAMESPACE, ACCOUNT, None).unwrap();
    let kubeconfig = plane.kubeconfig_with_token(name, &token).unwrap();
    let arguments = ["controller", "--kubeconfig", &kubeconfig.display().to_string()];
    Guarded::start(PROGRAM, &arguments, |command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    })
    .unwrap()
}

/// The controller of the shared control plane; it ends with the test process.
fn lead() {
    static RUNNING: std::sync::OnceLock<std::sync::Mutex<Guarded>> = std::sync::OnceLock::new();
    RUNNING.get_or_init(|| controller(plane(), "controller").into());
}

/// A pool of its own: name, label of its nodes and of its configs.
struct Pool {
    name: &'static str,
}

impl Pool {
    /// A pool with this `spec` beside its selectors.
    fn new(name: &'static str, spec: &Value) -> Self {
        let pool = Self { name };
        // Before the pool, or there is a moment in which it selects nothing.
        pool.config("", "first=1");
        let mut all = json!({
            "nodeSelector": { "matchLabels": { format!("node-role.kubernetes.io/{name}"): "" } },
            "machineConfigSelector": { "matchLabels": { "mcd.test/pool": name } },
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        let body = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": { "name": name }, "spec": all });
        plane().admin().post(&format!("{GROUP}/machineconfigpools"), &body).unwrap().ok().unwrap();
        lead();
        pool
    }

    /// Nodes of it, their daemons running, each Done with what the pool has.
    fn hosts(&self, count: usize) -> Vec<Host<'static>> {
        let target = self.target();
        let host = |index| Host::of_pool(&format!("{}-{index}", self.name), self.name, &target);
        (0..count).map(host).collect()
    }

    /// Its MachineConfig `NAME-SUFFIX` with this kernel argument.
    fn config(&self, suffix: &str, argument: &str) {
        let name = format!("50-{}{suffix}", self.name);
        let body = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": { "name": name, "labels": { "mcd.test/pool": self.name } },
            "spec": { "kernelArguments": [argument], "config": { "ignition": { "version": "3.2.0" } } } });
        let configs = format!("{GROUP}/machineconfigs");
        let answer = plane().admin().post(&configs, &body).unwrap();
        if answer.status == 409 {
            plane().admin().patch(&format!("{configs}/{name}"), &body).unwrap().ok().unwrap();
        }
    }

    fn patch(&self, body: &Value) {
        plane().admin().patch(&self.path(), body).unwrap().ok().unwrap();
    }

    fn path(&self) -> String {
        format!("{GROUP}/machineconfigpools/{}", self.name)
    }

    fn get(&self) -> Value {
        plane().admin().get(&self.path()).unwrap().ok().unwrap()
    }

    /// What it was rendered to, once it is.
    #[track_caller]
    fn target(&self) -> String {
        let start = Instant::now();
        loop {
            if let Some(name) = self.get()["spec"]["configuration"]["name"].as_str() {
                return name.to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "it is not rendered: {:#}", self.get()["status"]);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until something else is rendered than `before`.
    #[track_caller]
    fn target_after(&self, before: &str) -> String {
        let start = Instant::now();
        while self.target() == before {
            assert!(start.elapsed() < PATIENCE, "nothing else is rendered: {:#}", self.get()["status"]);
            std::thread::sleep(Duration::from_millis(50));
        }
        self.target()
    }

    /// Nodes that are away at one moment: one list, or one that comes back is counted beside the next one.
    fn away(&self) -> usize {
        let path = format!("/api/v1/nodes?labelSelector=node-role.kubernetes.io/{}", self.name);
        let nodes = plane().admin().get(&path).unwrap().ok().unwrap();
        let is_away = |node: &&Value| {
            let is_done = annotation(node, "state") == "Done"
                && annotation(node, "currentConfig") == annotation(node, "desiredConfig");
            !is_done || node["spec"]["unschedulable"] == true
        };
        nodes["items"].as_array().unwrap().iter().filter(is_away).count()
    }

    /// Waits for a condition, playing the drain controller; gives how many nodes were away at most.
    #[track_caller]
    fn until(&self, hosts: &[Host<'_>], kind: &str, status: &str, seen: &str) -> usize {
        let start = Instant::now();
        let mut most = 0;
        loop {
            most = most.max(self.away());
            hosts.iter().for_each(|host| drop(host.play_drain()));
            let pool = self.get();
            if condition(&pool, kind)
                .is_some_and(|one| one["status"] == status && one["message"].as_str().unwrap().contains(seen))
            {
                return most;
            }
            assert!(start.elapsed() < PATIENCE, "{kind} is not {status}: {:#}", pool["status"]);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn condition<'a>(pool: &'a Value, kind: &str) -> Option<&'a Value> {
    pool["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}

#[test]
fn a_pool_is_rolled_out_with_max_unavailable_and_cleaned_up() {
    let pool = Pool::new("rolls", &json!({ "maxUnavailable": 2 }));
    let hosts = pool.hosts(5);
    let first = pool.target();
    pool.until(&hosts, "Updated", "True", &first);
    pool.config("", "second=2");
    let second = pool.target_after(&first);
    let most = pool.until(&hosts, "Updated", "True", &second);
    assert!((1..=2).contains(&most), "{most} were away");
    let status = pool.get()["status"].clone();
    assert_eq!((&status["machineCount"], &status["updatedMachineCount"]), (&json!(5), &json!(5)));
    assert_eq!(status["configuration"]["name"], second);
    // The old one is named by nobody now.
    let path = format!("{GROUP}/machineconfigs/{first}");
    let start = Instant::now();
    while plane().admin().get(&path).unwrap().status != 404 {
        assert!(start.elapsed() < PATIENCE, "{first} stays");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_paused_pool_waits() {
    let pool = Pool::new("pauses", &json!({ "paused": false }));
    let hosts = pool.hosts(2);
    let first = pool.target();
    pool.until(&hosts, "Updated", "True", &first);
    pool.patch(&json!({ "spec": { "paused": true } }));
    pool.config("", "mcd.test/plan=live");
    let second = pool.target_after(&first);
    pool.until(&hosts, "Updating", "False", "The pool is paused");
    std::thread::sleep(Duration::from_secs(1));
    assert!(hosts.iter().all(|host| annotation(&host.node.get().unwrap(), "desiredConfig") == first));
    pool.patch(&json!({ "spec": { "paused": false } }));
    pool.until(&hosts, "Updated", "True", &second);
}

#[test]
fn a_failing_canary_halts_its_pool_and_the_corrected_config_goes_on() {
    let pool = Pool::new("halts", &json!({ "maxUnavailable": "100%" }));
    let hosts = pool.hosts(3);
    let first = pool.target();
    pool.until(&hosts, "Updated", "True", &first);
    pool.config("", "mcd.test/plan=unhealthy");
    let bad = pool.target_after(&first);
    pool.until(&hosts, "Degraded", "True", "change-failed");
    let text = condition(&pool.get(), "Degraded").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(text.contains("is halted") && text.contains("Node halts-0 is Degraded"), "{text}");
    std::thread::sleep(Duration::from_secs(1));
    let told = |config: &str| {
        let is_told = |host: &&Host<'_>| annotation(&host.node.get().unwrap(), "desiredConfig") == config;
        hosts.iter().filter(is_told).count()
    };
    assert_eq!((told(&first), told(&bad)), (2, 1), "no other node was tried");
    pool.config("", "corrected=1");
    let good = pool.target_after(&bad);
    pool.until(&hosts, "Updated", "True", &good);
    assert_eq!(condition(&pool.get(), "Degraded").unwrap()["status"], "False");
}

#[test]
fn a_config_that_cannot_be_merged_is_named() {
    let pool = Pool::new("wrong", &json!({}));
    let first = pool.target();
    let body = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": { "name": "60-wrong", "labels": { "mcd.test/pool": "wrong" } },
        "spec": { "kernelArgument": ["x"] } });
    plane().admin().post(&format!("{GROUP}/machineconfigs"), &body).unwrap().ok().unwrap();
    pool.until(&[], "RenderDegraded", "True", "MachineConfig 60-wrong: spec.kernelArgument");
    assert_eq!(pool.target(), first);
    plane().admin().delete(&format!("{GROUP}/machineconfigs/60-wrong"), &json!({})).unwrap().ok().unwrap();
    pool.until(&[], "RenderDegraded", "False", "");
}

#[test]
fn the_second_controller_takes_over_when_the_first_is_killed() {
    let plane = ControlPlane::api_server_only().unwrap();
    crate::world::apply_manifests(&plane);
    let holder = || {
        let path = "/apis/coordination.k8s.io/v1/namespaces/mcd/leases/mcd-controller";
        let lease = plane.admin().get(path).unwrap().ok().unwrap();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let until = |ends: &dyn Fn(&str) -> bool| {
        let start = Instant::now();
        loop {
            let now = holder();
            if ends(&now) {
                return now;
            }
            assert!(start.elapsed() < PATIENCE, "'{now}' leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let first = controller(&plane, "first");
    let leader = until(&|now| !now.is_empty());
    let mut second = controller(&plane, "second");
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(holder(), leader, "it waits");
    drop(first);
    let next = until(&|now| now != leader);
    assert!(!next.is_empty(), "a killed one gives nothing back");
    // One that is told to end lets go at once.
    let pid = rustix::process::Pid::from_child(second.child());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let start = Instant::now();
    until(&|now| now.is_empty());
    assert!(start.elapsed() < Duration::from_secs(10));
}
