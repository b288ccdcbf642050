//! Nodes, and the tokens of the pods on them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::plane::ControlPlane;

/// A Node that is Ready, as its kubelet would have registered it.
#[derive(Debug)]
pub struct Node<'plane> {
    plane: &'plane ControlPlane,
    name: String,
}

impl<'plane> Node<'plane> {
    /// Creates a worker of this name.
    pub fn create(plane: &'plane ControlPlane, name: &str) -> Result<Self> {
        Self::create_with(plane, name, json!({ "node-role.kubernetes.io/worker": "" }), json!({}))
    }

    /// Creates one with these labels and annotations.
    pub fn create_with(
        plane: &'plane ControlPlane,
        name: &str,
        mut labels: Value,
        annotations: Value,
    ) -> Result<Self> {
        labels["kubernetes.io/hostname"] = name.into();
        labels["kubernetes.io/os"] = "linux".into();
        let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
        let body = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
        plane.admin().post("/api/v1/nodes", &body)?.ok()?;
        let node = Self { plane, name: name.to_owned() };
        // The server taints a new node until somebody says that it is ready.
        node.patch(&json!({ "spec": { "taints": null } }))?;
        node.set_ready(true)?;
        Ok(node)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path in the API.
    pub fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// The object as it is now.
    pub fn get(&self) -> Result<Value> {
        self.plane.admin().get(&self.path())?.ok()
    }

    /// One of its annotations; empty if it is not there.
    pub fn annotation(&self, key: &str) -> Result<String> {
        Ok(self.get()?["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned())
    }

    /// Sets an annotation, as the administrator.
    pub fn annotate(&self, key: &str, value: &str) -> Result<()> {
        self.patch(&json!({ "metadata": { "annotations": { key: value } } }))
    }

    /// A merge patch, as the administrator.
    pub fn patch(&self, body: &Value) -> Result<()> {
        self.plane.admin().patch(&self.path(), body)?.ok().map(drop)
    }

    /// Says for its kubelet that it is ready, or not.
    pub fn set_ready(&self, is_ready: bool) -> Result<()> {
        let resources = json!({ "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "50Gi" });
        let status = if is_ready { "True" } else { "False" };
        let condition =
            json!({ "type": "Ready", "status": status, "reason": "Test", "message": "played by the test" });
        let status = json!({ "capacity": resources, "allocatable": resources, "conditions": [condition] });
        let path = format!("{}/status", self.path());
        self.plane.admin().patch(&path, &json!({ "status": status }))?.ok().map(drop)
    }

    /// Deletes the object.
    pub fn delete(&self) -> Result<()> {
        self.plane.admin().delete(&self.path(), &json!({}))?.ok().map(drop)
    }
}

/// A token of `account` that is bound to a pod on `node`, as the pods of a daemon set have. The pod is made for it.
pub fn pod_token(plane: &ControlPlane, namespace: &str, account: &str, node: &str) -> Result<String> {
    let name = format!("{account}-{node}");
    let container = json!({ "name": "pod", "image": "example.com/pod" });
    let spec = json!({ "nodeName": node, "serviceAccountName": account, "containers": [container],
        "tolerations": [{ "operator": "Exists" }], "automountServiceAccountToken": false });
    let body = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let answer = plane.admin().post(&pods, &body)?;
    let pod = if answer.status == 409 { plane.admin().get(&format!("{pods}/{name}"))? } else { answer };
    let uid = pod.ok()?["metadata"]["uid"].clone();
    let reference = json!({ "kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid });
    account_token(plane, namespace, account, Some(&reference))
}

/// A token as the pod has that the daemon set `name` keeps on `node`; waits for that pod.
pub fn daemon_set_token(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
    account: &str,
    node: &str,
) -> Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D{node}");
    let is_its = |pod: &&Value| {
        pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
            && pod["metadata"]["ownerReferences"][0]["name"] == name
    };
    let of_set = |list: &Value| list["items"].as_array().and_then(|pods| pods.iter().find(is_its).cloned());
    let wanted = "a list with the daemon set's pod";
    let list =
        plane.admin().wait_for(&path, wanted, Duration::from_secs(60), |list| of_set(list).is_some())?;
    let pod = of_set(&list).context("The pod is gone again")?;
    let reference = json!({ "kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] });
    account_token(plane, namespace, account, Some(&reference))
}

/// A token of `account` that is bound to the Node itself: it carries the same claim, without a pod.
pub fn node_token(plane: &ControlPlane, namespace: &str, account: &str, node: &Node<'_>) -> Result<String> {
    let uid = node.get()?["metadata"]["uid"].clone();
    let reference = json!({ "kind": "Node", "apiVersion": "v1", "name": node.name(), "uid": uid });
    account_token(plane, namespace, account, Some(&reference))
}

/// A token of `account`; bound to an object, or, with `None`, to nothing.
pub fn account_token(
    plane: &ControlPlane,
    namespace: &str,
    account: &str,
    bound_to: Option<&Value>,
) -> Result<String> {
    let mut spec = json!({ "audiences": [] });
    if let Some(reference) = bound_to {
        spec["boundObjectRef"] = reference.clone();
    }
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let answer = plane.admin().post(&path, &body)?.ok()?;
    answer["status"]["token"].as_str().map(str::to_owned).context("The answer has no token")
}
