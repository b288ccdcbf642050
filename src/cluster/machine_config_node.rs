//! The MachineConfigNode of this node: conditions for people and the operator's pages.
//!
//! Cluster-scoped, named like the node, written by server-side apply: the specification when something
//! else is desired, the conditions when the update enters another phase. All errors are only logged;
//! where the cluster does not have the type, nothing is asked again.

use serde_json::{Value, json};

use super::api::{APPLY, ApiFault, Cluster, GROUP};
use super::node::Heard;
use crate::plan::cluster::NodeView;
use crate::plan::cluster::phase::{Condition, Progress};

/// The Go daemon writes under this name; with it the object is taken over field by field.
const MANAGER: &str = "fieldManager=machine-config-operator&force=true";

/// What was written last.
#[derive(Debug, Default)]
pub(super) struct MachineConfigNode {
    is_absent: bool,
    is_read: bool,
    /// Of the Node that owns it.
    owner: String,
    desired: String,
    generation: i64,
    progress: Option<Progress>,
    written: Vec<(Condition, String)>,
}

impl MachineConfigNode {
    /// Writes what changed.
    pub(super) async fn publish(
        &mut self,
        cluster: &Cluster,
        node: &NodeView,
        heard: &Heard,
        progress: &Progress,
    ) {
        if self.owner != heard.uid {
            // With its Node it went away, too.
            *self = Self { owner: heard.uid.clone(), is_absent: self.is_absent, ..Self::default() };
        }
        if self.is_absent || self.progress.as_ref() == Some(progress) {
            return;
        }
        match self.write(cluster, node, heard, progress).await {
            Ok(()) => self.progress = Some(progress.clone()),
            Err(ApiFault::Absent) => {
                tracing::info!("this cluster has no MachineConfigNodes; none is written");
                self.is_absent = true;
            }
            Err(fault) => {
                tracing::warn!("the MachineConfigNode was not written: {fault}");
                // What is refused now is refused again: the next phase asks anew.
                if matches!(fault, ApiFault::Refused(_)) {
                    self.progress = Some(progress.clone());
                }
            }
        }
    }

    async fn write(
        &mut self,
        cluster: &Cluster,
        node: &NodeView,
        heard: &Heard,
        progress: &Progress,
    ) -> Result<(), ApiFault> {
        let path = format!("{GROUP}/machineconfignodes/{}", cluster.node);
        if !self.is_read {
            match cluster.get::<Value>(&path).await {
                Ok(found) => self.read(&found),
                Err(ApiFault::Absent) => {}
                Err(fault) => return Err(fault),
            }
            self.is_read = true;
        }
        let desired = &node.annotations.desired_config;
        if self.desired != *desired {
            let body = self.specification(cluster, heard, desired);
            let found: Value = cluster.send("PATCH", &format!("{path}?{MANAGER}"), APPLY, &body).await?;
            self.generation = found["metadata"]["generation"].as_i64().unwrap_or(0);
            self.desired.clone_from(desired);
        }
        let written = self.conditions(progress);
        if written != self.written {
            let body = self.status(cluster, node, &written);
            let _: Value = cluster.send("PATCH", &format!("{path}/status?{MANAGER}"), APPLY, &body).await?;
            self.written = written;
        }
        Ok(())
    }

    /// Another process wrote before this one: its times are kept.
    fn read(&mut self, found: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.desired = text(&found["spec"]["configVersion"]["desired"]);
        self.generation = found["metadata"]["generation"].as_i64().unwrap_or(0);
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        self.written = crate::plan::cluster::phase::KINDS
            .iter()
            .filter_map(|kind| {
                let one = conditions.iter().find(|one| one["type"] == **kind)?;
                let status =
                    ["True", "False", "Unknown"].into_iter().find(|status| one["status"] == **status)?;
                let (reason, message) = (text(&one["reason"]), text(&one["message"]));
                let condition = Condition { kind, status, reason, message };
                Some((condition, text(&one["lastTransitionTime"])))
            })
            .collect();
    }

    fn conditions(&self, progress: &Progress) -> Vec<(Condition, String)> {
        let now = super::stamp();
        let since = |new: &Condition| {
            self.written
                .iter()
                .find(|(old, _)| old.kind == new.kind && old.status == new.status)
                .map_or_else(|| now.clone(), |(_, since)| since.clone())
        };
        progress.conditions().into_iter().map(|one| (one.clone(), since(&one))).collect()
    }

    fn specification(&self, cluster: &Cluster, heard: &Heard, desired: &str) -> Value {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigNode",
            "metadata": {
                "name": cluster.node,
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": cluster.node, "uid": heard.uid }],
            },
            "spec": {
                "node": { "name": cluster.node },
                "pool": { "name": pool(&heard.roles) },
                "configVersion": { "desired": desired },
            },
        })
    }

    fn status(&self, cluster: &Cluster, node: &NodeView, written: &[(Condition, String)]) -> Value {
        let conditions: Vec<Value> = written
            .iter()
            .map(|(one, since)| {
                json!({
                    "type": one.kind, "status": one.status, "reason": one.reason,
                    "message": one.message, "lastTransitionTime": since,
                })
            })
            .collect();
        let mut version = json!({ "desired": node.annotations.desired_config });
        if !node.annotations.current_config.is_empty() {
            version["current"] = json!(node.annotations.current_config);
        }
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigNode",
            "metadata": { "name": cluster.node },
            "status": {
                "conditions": conditions,
                "configVersion": version,
                "observedGeneration": self.generation,
            },
        })
    }
}

/// As the operator chooses: a custom pool before worker, master before both unless custom.
fn pool(roles: &[String]) -> &str {
    let is_standard = |role: &String| matches!(role.as_str(), "master" | "control-plane" | "worker");
    if roles.iter().any(|role| role == "master" || role == "control-plane") {
        return "master";
    }
    roles.iter().find(|role| !is_standard(role)).map_or("worker", String::as_str)
}
