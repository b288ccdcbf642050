//! Drains: by the operator's controller, and by the daemon itself with the kubelet's credentials.

use std::collections::BTreeSet;

use mcd_test_support::kube::table;
use serde_json::{Value, json};

use crate::world::{Host, NAMESPACE, Options, annotation, key, machine_config};

/// Requests of a self drain: one list of the node's pods (it is two: the watch begins with it), and at most
/// three per pod.
const PER_POD_MAX: usize = 3;

const SELF: Options = Options { drains_itself: true, self_heal: false, tls: false, pace: 0 };

/// A pod on the host's node; gives its path.
fn pod(host: &Host<'_>, name: &str, metadata: &Value) -> String {
    let mut metadata = metadata.clone();
    metadata["name"] = name.into();
    let body = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
        "nodeName": host.node.name(), "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
        "tolerations": [{ "operator": "Exists" }],
        "containers": [{ "name": "c", "image": "example.com/c" }],
        "volumes": [{ "name": "scratch", "emptyDir": {} }] } });
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    host.plane.admin().post(&pods, &body).unwrap().ok().unwrap();
    let path = format!("{pods}/{name}");
    let is_ready = |pod: &Value| pod["status"]["phase"] == "Running";
    host.plane.admin().wait_for(&path, "running", std::time::Duration::from_secs(60), is_ready).unwrap();
    path
}

/// A budget that lets none of the pods with this label go; gives its path.
fn budget(host: &Host<'_>, name: &str) -> String {
    let body = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": name } } } });
    let budgets = format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets");
    host.plane.admin().post(&budgets, &body).unwrap().ok().unwrap();
    let path = format!("{budgets}/{name}");
    let is_seen = |found: &Value| found["status"]["observedGeneration"] == 1;
    host.plane.admin().wait_for(&path, "seen", std::time::Duration::from_secs(60), is_seen).unwrap();
    path
}

fn is_there(host: &Host<'_>, path: &str) -> bool {
    host.plane.admin().get(path).unwrap().status == 200
}

#[test]
fn self_drain_evicts_what_must_leave_and_lets_the_node_back() {
    let host = Host::done_with("self-drain", SELF);
    let plain = pod(&host, "self-plain", &json!({}));
    let mirror = pod(&host, "self-mirror", &json!({ "annotations": { "kubernetes.io/config.mirror": "x" } }));
    machine_config(host.plane, "rendered-self", "reboot");
    let audit = host.plane.audit().unwrap();
    host.wish("rendered-self");
    host.until_done("rendered-self");
    assert!(!is_there(&host, &plain));
    assert!(is_there(&host, &mirror), "the kubelet would make it again at once");
    let node = host.node.get().unwrap();
    assert_ne!(node["spec"]["unschedulable"], true);
    assert_eq!(annotation(&node, "mcd-cordon"), "");

    let requests = audit.of_node("self-drain").unwrap();
    let of_pods: Vec<_> = requests.iter().filter(|one| one.resource.starts_with("pods")).cloned().collect();
    assert!(of_pods.iter().all(|one| one.user == "system:node:self-drain"), "{of_pods:#?}");
    let (evictions, others): (Vec<_>, Vec<_>) =
        of_pods.iter().partition(|one| one.resource == "pods/eviction");
    // The pool controller's pods may have been scheduled here, too.
    for name in evictions.iter().map(|one| &one.name).collect::<BTreeSet<_>>() {
        let of_it = evictions.iter().filter(|one| one.name == *name).count();
        assert!(of_it <= PER_POD_MAX, "{name}: {of_pods:#?}");
    }
    assert!(evictions.iter().any(|one| one.name == "self-plain"), "{of_pods:#?}");
    assert!(others.len() <= 2, "a list and a watch: {}", table(&of_pods));
}

#[test]
fn self_drain_that_a_budget_blocks_names_it_and_ends_once_it_is_released() {
    let host = Host::done_with("self-blocked", SELF);
    let guarded = pod(&host, "self-guarded", &json!({ "labels": { "app": "self-budget" } }));
    let budget = budget(&host, "self-budget");
    machine_config(host.plane, "rendered-self-blocked", "reboot");
    host.wish("rendered-self-blocked");
    let reason = host.until_state("Degraded");
    assert!(reason.starts_with("drain-blocked: "), "{reason}");
    assert!(reason.contains("mcd/self-guarded") && reason.contains("self-budget"), "{reason}");
    assert!(is_there(&host, &guarded));
    assert_eq!(host.asked("commit"), 0);
    host.plane.admin().delete(&budget, &json!({})).unwrap().ok().unwrap();
    host.until_done("rendered-self-blocked");
    assert!(!is_there(&host, &guarded));
    assert_ne!(host.node.get().unwrap()["spec"]["unschedulable"], true);
}

#[test]
fn self_drain_is_taken_back_when_the_wish_is() {
    let host = Host::done_with("self-back", SELF);
    pod(&host, "self-back", &json!({ "labels": { "app": "self-back" } }));
    budget(&host, "self-back");
    machine_config(host.plane, "rendered-self-back", "reboot");
    host.wish("rendered-self-back");
    host.until_state("Degraded");
    host.wish("rendered-a");
    host.until_done("rendered-a");
    assert_ne!(host.node.get().unwrap()["spec"]["unschedulable"], true);
    assert_eq!(host.asked("reboot"), 0);
}

#[test]
fn self_drain_leaves_a_persons_cordon() {
    let host = Host::done_with("self-cordoned", SELF);
    machine_config(host.plane, "rendered-self-cordoned", "reboot");
    host.node.patch(&json!({ "spec": { "unschedulable": true } })).unwrap();
    host.wish("rendered-self-cordoned");
    host.until_done("rendered-self-cordoned");
    assert_eq!(host.node.get().unwrap()["spec"]["unschedulable"], true);
}

/// The API server answers 500 where a webhook that must be asked cannot be reached.
#[test]
fn self_uncordon_is_tried_until_the_server_takes_it() {
    let host = Host::done_with("self-500", SELF);
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let body = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "nobody-there" },
        "webhooks": [{ "name": "nobody.mcd.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "matchConditions": [{ "name": "uncordon", "expression":
                "object.metadata.name == 'self-500' && has(oldObject.spec.unschedulable) && oldObject.spec.unschedulable \
                 && !(has(object.spec.unschedulable) && object.spec.unschedulable)" }],
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"] }] }] });
    host.plane.admin().post(hooks, &body).unwrap().ok().unwrap();
    let audit = host.plane.audit().unwrap();
    machine_config(host.plane, "rendered-self-500", "reboot");
    host.wish("rendered-self-500");
    host.until_node(&|_| {
        let requests = audit.of_node("self-500").unwrap();
        requests.iter().filter(|one| one.resource == "nodes" && one.status == 500).count() >= 2
    });
    let node = host.node.get().unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_ne!(annotation(&node, "state"), "Done");
    host.plane.admin().delete(&format!("{hooks}/nobody-there"), &json!({})).unwrap().ok().unwrap();
    host.until_done("rendered-self-500");
    assert_ne!(host.node.get().unwrap()["spec"]["unschedulable"], true);
}

/// The drain controller is played by the real kubectl, which meets the budget as the operator's does.
#[test]
fn a_drain_of_the_controller_that_a_budget_blocks_is_waited_for() {
    let host = Host::done("controller-blocked");
    let guarded = pod(&host, "guarded", &json!({ "labels": { "app": "guarded" } }));
    let budget = budget(&host, "guarded");
    machine_config(host.plane, "rendered-guarded", "reboot");
    host.wish("rendered-guarded");
    host.until_node(&|node| annotation(node, "desiredDrain") == "drain-rendered-guarded");
    let drain = |timeout: &str| {
        let words = [
            "drain",
            "controller-blocked",
            "--force",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            timeout,
        ];
        host.plane.kubectl(&words)
    };
    let error = drain("--timeout=4s").unwrap_err().to_string();
    assert!(error.contains("disruption budget"), "{error}");
    assert_eq!(host.asked("commit"), 0, "nothing is committed on a node that is not drained");
    assert!(is_there(&host, &guarded));
    host.plane.admin().delete(&budget, &json!({})).unwrap().ok().unwrap();
    drain("--timeout=60s").unwrap();
    host.node.annotate(&key("lastAppliedDrain"), "drain-rendered-guarded").unwrap();
    let drains = host.until_done("rendered-guarded");
    assert_eq!(drains, ["uncordon-rendered-guarded"]);
}

#[test]
fn self_drain_has_a_manifest_that_mounts_the_kubelets_credentials_only() {
    let plane = crate::world::plane();
    let patch = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/self-drain/patch.yaml");
    let words = ["patch", "daemonset", "mcd-daemon", "--namespace=mcd", "--dry-run=server", "--output=json"];
    let said = plane.kubectl(&[&words[..], &["--patch-file", patch]].concat()).unwrap();
    let spec = serde_json::from_str::<Value>(&said).unwrap()["spec"]["template"]["spec"].clone();
    let daemon = &spec["containers"][0];
    assert!(daemon["args"].as_array().unwrap().contains(&json!("--drain=self")), "{daemon:#}");
    let mounts = daemon["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount["readOnly"] == true), "{mounts:#?}");
    let paths: Vec<&Value> =
        spec["volumes"].as_array().unwrap().iter().map(|volume| &volume["hostPath"]["path"]).collect();
    assert_eq!(paths, ["/var/lib/kubelet/kubeconfig", "/var/lib/kubelet/pki"]);
    assert_eq!(daemon["env"][0]["name"], "NODE_NAME", "the rest is as it was");
}
