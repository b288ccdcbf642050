//! Events of the Node, under the names that people know from the Go daemon. Few: what a person wants
//! to see in `kubectl describe node`. A lost one is no loss, so each is sent once and not waited for.

use serde_json::{Value, json};

use super::api::Cluster;
use crate::plan::cluster::reason::ReasonKind;

/// Who says it.
const COMPONENT: &str = "machineconfigdaemon";
/// Events of cluster-scoped objects live here.
const NAMESPACE: &str = "default";
/// Longest message that the API server takes.
const MESSAGE_MAX: usize = 1024;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Event {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_warning: false, reason, message: message.into() }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_warning: true, reason, message: message.into() }
    }
}

/// The name under which a reason is told; the Go daemon's where it had one.
pub(super) fn name(kind: ReasonKind) -> &'static str {
    match kind {
        ReasonKind::Drift => "ConfigDriftDetected",
        ReasonKind::VerifyFailed => "OnDiskStateValidationFailed",
        ReasonKind::ConfigRefused | ReasonKind::ConfigInvalid => "FailedToReconcile",
        ReasonKind::DrainBlocked | ReasonKind::DrainSlow => "FailedToDrain",
        ReasonKind::UncordonSlow => "FailedToUncordon",
        _ => "UpdateFailed",
    }
}

/// Sends it, without waiting.
pub(super) fn send(cluster: &Cluster, uid: &str, event: &Event) {
    let cluster = cluster.clone();
    let body = body(&cluster.node, uid, event);
    tokio::spawn(async move {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events");
        if let Err(fault) = cluster.send::<Value>("POST", &path, "application/json", &body).await {
            tracing::debug!("an event was not taken: {fault}");
        }
    });
}

fn body(node: &str, uid: &str, event: &Event) -> Value {
    let (now, seconds) = (jiff::Timestamp::now(), super::stamp());
    let message: String = event.message.chars().take(MESSAGE_MAX).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": format!("{node}.{:x}", now.as_nanosecond()), "namespace": NAMESPACE },
        "involvedObject": { "kind": "Node", "name": node, "uid": uid, "apiVersion": "v1" },
        "reason": event.reason,
        "message": message,
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "source": { "component": COMPONENT, "host": node },
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    })
}
