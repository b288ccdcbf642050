//! What a daemon's pod tries and may not do: refused by the real API server.

use mcd_test_support::kube::{Answer, Api, Node, account_token, pod_token};
use serde_json::json;

use crate::world::{ACCOUNT, GROUP, NAMESPACE, key, plane};

fn caller(token: &str) -> Api {
    let plane = plane();
    Api::new(&plane.url(), &plane.ca().unwrap(), token).unwrap()
}

#[track_caller]
fn refused(answer: &Answer, why: &str) {
    assert!(answer.status == 403 || answer.status == 422, "{}: {}", answer.status, answer.message());
    assert!(answer.message().contains(why), "{}", answer.message());
}

#[test]
fn rbac_and_policy_confine_a_pod_to_its_node() {
    let plane = plane();
    let (own, other) = (Node::create(plane, "own").unwrap(), Node::create(plane, "other").unwrap());
    let pod = caller(&pod_token(plane, NAMESPACE, ACCOUNT, own.name()).unwrap());
    let annotate = |name: &str| json!({ "metadata": { "annotations": { name: "x" } } });

    pod.patch(&own.path(), &annotate(&key("state"))).unwrap().ok().unwrap();
    pod.patch(&own.path(), &json!({ "spec": { "unschedulable": true } })).unwrap().ok().unwrap();
    refused(&pod.patch(&other.path(), &annotate(&key("state"))).unwrap(), "may not change node other");
    refused(&pod.patch(&own.path(), &annotate("example.com/x")).unwrap(), "changes only annotations");
    refused(
        &pod.patch(&own.path(), &json!({ "metadata": { "labels": { "a": "b" } } })).unwrap(),
        "no labels",
    );
    let taint = json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } });
    refused(&pod.patch(&own.path(), &taint).unwrap(), "only unschedulable");
    refused(&pod.delete(&own.path(), &json!({})).unwrap(), "cannot delete");
    refused(&pod.patch(&format!("{}/status", own.path()), &json!({ "status": {} })).unwrap(), "cannot patch");

    // A token that no node can be read from.
    let unbound = caller(&account_token(plane, NAMESPACE, ACCOUNT, None).unwrap());
    refused(&unbound.patch(&own.path(), &annotate(&key("state"))).unwrap(), "bound to no pod");
}

#[test]
fn rbac_and_policy_confine_a_pod_to_its_own_reports() {
    let plane = plane();
    let node = Node::create(plane, "reports").unwrap();
    let pod = caller(&pod_token(plane, NAMESPACE, ACCOUNT, node.name()).unwrap());
    let path = format!("{GROUP}/machineconfignodes");
    let report = |name: &str| json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode", "metadata": { "name": name } });
    pod.post(&path, &report("reports")).unwrap().ok().unwrap();
    refused(&pod.post(&path, &report("somebody")).unwrap(), "may not write MachineConfigNode somebody");

    let event = |about: &str| {
        json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "generateName": "mcd-" },
            "involvedObject": { "kind": "Node", "name": about }, "reason": "Test", "type": "Normal" })
    };
    let events = "/api/v1/namespaces/default/events";
    pod.post(events, &event("reports")).unwrap().ok().unwrap();
    refused(&pod.post(events, &event("somebody")).unwrap(), "only of the node that it runs on");
}

#[test]
fn rbac_lets_a_pod_read_no_secret_and_list_no_config() {
    let plane = plane();
    let node = Node::create(plane, "reads").unwrap();
    let pod = caller(&pod_token(plane, NAMESPACE, ACCOUNT, node.name()).unwrap());
    for path in [
        "/api/v1/secrets",
        "/api/v1/pods",
        "/api/v1/namespaces/mcd/configmaps",
        &format!("{GROUP}/machineconfigs"),
        &format!("{GROUP}/controllerconfigs/another"),
    ] {
        refused(&pod.get(path).unwrap(), "forbidden");
    }
}

#[test]
fn a_kubelets_credentials_evict_only_from_its_node() {
    let plane = plane();
    let (here, there) = (Node::create(plane, "here").unwrap(), Node::create(plane, "there").unwrap());
    let kubeconfig = plane.kubelet_kubeconfig(here.name()).unwrap();
    for (pod, node) in [("victim-here", &here), ("victim-there", &there)] {
        let body = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod },
            "spec": { "nodeName": node.name(), "containers": [{ "name": "c", "image": "example.com/c" }] } });
        plane.admin().post("/api/v1/namespaces/mcd/pods", &body).unwrap().ok().unwrap();
    }
    let evict = |pod: &str| {
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": "mcd" } });
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), body.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/mcd/pods/{pod}/eviction");
        plane.kubectl_as(
            &kubeconfig,
            &["create", "--raw", &path, "--filename", &file.path().display().to_string()],
        )
    };
    evict("victim-here").unwrap();
    let error = evict("victim-there").unwrap_err().to_string();
    assert!(error.contains("can only evict") || error.contains("no relationship"), "{error}");
}

#[test]
fn rbac_and_policy_confine_the_pool_controller() {
    let plane = plane();
    let caller = caller(&account_token(plane, NAMESPACE, crate::pools::ACCOUNT, None).unwrap());
    let node = Node::create_with(plane, "told", json!({}), json!({ "example.com/kept": "x" })).unwrap();
    let annotate = |name: &str, value: &str| json!({ "metadata": { "annotations": { name: value } } });
    let (path, desired) = (node.path(), key("desiredConfig"));

    caller.patch(&path, &annotate(&desired, "rendered-a")).unwrap().ok().unwrap();
    refused(&caller.patch(&path, &annotate(&desired, "99-mine")).unwrap(), "only rendered MachineConfigs");
    refused(
        &caller.patch(&path, &annotate(&key("state"), "Done")).unwrap(),
        "only the annotation desiredConfig",
    );
    let taken = json!({ "metadata": { "annotations": { "example.com/kept": null } } });
    refused(&caller.patch(&path, &taken).unwrap(), "only the annotation desiredConfig");
    let cordon = json!({ "spec": { "unschedulable": true } });
    refused(&caller.patch(&path, &cordon).unwrap(), "only an annotation");
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    refused(&caller.patch(&path, &label).unwrap(), "only an annotation");
    refused(&caller.delete(&path, &json!({})).unwrap(), "cannot delete");

    let configs = format!("{GROUP}/machineconfigs");
    let config = |name: &str, pool: Option<&str>| {
        let owners: Vec<_> = pool
            .map(|pool| json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": pool, "uid": "1" }))
            .into_iter()
            .collect();
        json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": { "name": name, "ownerReferences": owners }, "spec": {} })
    };
    caller.post(&configs, &config("rendered-x-1", Some("x"))).unwrap().ok().unwrap();
    for one in [config("50-x", Some("x")), config("rendered-x-2", None), config("rendered-x-2", Some("y"))] {
        refused(&caller.post(&configs, &one).unwrap(), "is not rendered");
    }
    plane.admin().post(&configs, &config("50-kept", None)).unwrap().ok().unwrap();
    refused(&caller.delete(&format!("{configs}/50-kept"), &json!({})).unwrap(), "is not rendered");
    refused(&caller.patch(&format!("{configs}/50-kept"), &label).unwrap(), "cannot patch");
    // Allowed; the garbage collector may have been faster, since there is no such pool.
    let gone = caller.delete(&format!("{configs}/rendered-x-1"), &json!({})).unwrap();
    assert!([200, 404].contains(&gone.status), "{gone:?}");

    let pools = format!("{GROUP}/machineconfigpools");
    let pool = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": { "name": "confined" }, "spec": { "paused": true } });
    plane.admin().post(&pools, &pool).unwrap().ok().unwrap();
    let path = format!("{pools}/confined");
    let set = |field: &str, value| json!({ "spec": { field: value } });
    caller.patch(&path, &set("configuration", json!({ "name": "rendered-x" }))).unwrap().ok().unwrap();
    refused(&caller.patch(&path, &set("paused", json!(false))).unwrap(), "only spec.configuration");
    refused(&caller.patch(&path, &set("maxUnavailable", json!(9))).unwrap(), "only spec.configuration");
    refused(&caller.patch(&path, &label).unwrap(), "only spec.configuration");
    refused(&caller.post(&pools, &pool).unwrap(), "cannot create");

    for path in ["/api/v1/secrets", "/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/mcd/leases"] {
        refused(&caller.get(path).unwrap(), "forbidden");
    }
}
