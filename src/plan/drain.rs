//! Which pods leave a node that is drained: the rules of `kubectl drain --force --delete-emptydir-data
//! --ignore-daemonsets`, as the operator's controller drains.

use k8s_openapi::api::core::v1::Pod;

use super::backoff::doubled;

/// The annotation of a pod that the kubelet made from a file of the host.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Longest that pods without an answer of the API server are given.
const PAUSE_MAX_SECONDS: u64 = 60;
/// Pause after a first refusal; `kubectl drain` pauses as long.
const PAUSE_SECONDS: u64 = 5;

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is evicted.
    Evict,
    /// It is ending already: its end is waited for.
    Await,
    /// It stays: the kubelet made it from a file of the host.
    Mirror,
    /// It stays: its DaemonSet would start it again at once.
    DaemonSet,
}

/// What becomes of this pod. One that finished is evicted too, whoever owns it: it holds volumes.
pub fn fate(pod: &Pod) -> Fate {
    if pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR)) {
        return Fate::Mirror;
    }
    if is_of_daemon_set(pod) && !is_finished(pod) {
        return Fate::DaemonSet;
    }
    if pod.metadata.deletion_timestamp.is_some() { Fate::Await } else { Fate::Evict }
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).any(|owner| owner.kind == "DaemonSet")
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Seconds to pause before eviction number `attempt` (from 1) is asked for again: 5, 10, 20, 40, then 60.
pub fn pause(attempt: u32) -> u64 {
    doubled(PAUSE_SECONDS, PAUSE_MAX_SECONDS, attempt)
}

/// What an answer to an eviction means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evicted {
    /// It will end.
    Accepted,
    /// It is not there any more.
    Gone,
    /// It may pass: a PodDisruptionBudget, or an API server that is busy. With the reason for people.
    Later(String),
    /// It does not pass by itself: a webhook, a policy, missing rights. With the reason for people.
    Refused(String),
}

/// Reads the answer to an eviction by its status code and message. `pod` is `NAMESPACE/NAME`.
pub fn answer(pod: &str, code: u16, message: &str) -> Evicted {
    let message = message.trim();
    match code {
        200..=299 => Evicted::Accepted,
        404 => Evicted::Gone,
        429 => Evicted::Later(format!("pod {pod} is protected: {message}")),
        // Several PodDisruptionBudgets cover the pod: that is no passing trouble for the API server, but
        // people delete one while the drain waits.
        500 if message.contains("more than one PodDisruptionBudget") => {
            Evicted::Refused(format!("pod {pod}: {message}"))
        }
        408 | 409 | 500.. => Evicted::Later(format!("pod {pod}: {message}")),
        _ => Evicted::Refused(format!("pod {pod} may not be evicted: {message}")),
    }
}

/// Why a pod that is ending does not end, as far as the pod says.
pub fn clinging(pod: &Pod) -> Option<String> {
    let finalizers = pod.metadata.finalizers.as_deref().filter(|all| !all.is_empty())?;
    Some(format!("pod {} waits for its finalizers {}", name(pod), finalizers.join(", ")))
}

/// `NAMESPACE/NAME`.
pub fn name(pod: &Pod) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value, phase: &str) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    fn owned(kind: &str) -> Value {
        json!({"name": "a", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]})
    }

    #[test]
    fn pods_leave_by_the_rules_of_kubectl() {
        let mirror = json!({"name": "a", "annotations": {MIRROR: "x"}});
        let ending = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let mut listed = owned("DaemonSet");
        listed["ownerReferences"][0]["controller"] = json!(false);
        for (metadata, phase, expected) in [
            (json!({"name": "unmanaged"}), "Running", Fate::Evict),
            (owned("ReplicaSet"), "Running", Fate::Evict),
            (owned("ReplicaSet"), "Pending", Fate::Evict),
            (owned("DaemonSet"), "Running", Fate::DaemonSet),
            (owned("DaemonSet"), "Failed", Fate::Evict),
            (listed, "Running", Fate::Evict),
            (mirror, "Running", Fate::Mirror),
            (ending, "Running", Fate::Await),
            (json!({"name": "a"}), "Succeeded", Fate::Evict),
        ] {
            assert_eq!(fate(&pod(&metadata, phase)), expected, "{metadata} {phase}");
        }
    }

    #[test]
    fn answers_are_told_apart() {
        let is_later =
            |code| matches!(answer("ns/a", code, "why"), Evicted::Later(why) if why.contains("ns/a"));
        assert_eq!(answer("ns/a", 201, ""), Evicted::Accepted);
        assert_eq!(answer("ns/a", 404, ""), Evicted::Gone);
        assert!(is_later(429) && is_later(500) && is_later(503));
        assert!(
            matches!(answer("ns/a", 403, "webhook w denied"), Evicted::Refused(why) if why.contains("webhook w"))
        );
        let several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        assert!(matches!(answer("ns/a", 500, several), Evicted::Refused(_)));
    }

    #[test]
    fn pauses_grow_and_end() {
        let pauses: Vec<u64> = [1, 2, 3, 4, 5, 6, 90].into_iter().map(pause).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn finalizers_are_named() {
        let clings = pod(&json!({"namespace": "n", "name": "a", "finalizers": ["x/y"]}), "Running");
        assert_eq!(clinging(&clings).unwrap(), "pod n/a waits for its finalizers x/y");
        assert_eq!(clinging(&pod(&json!({"name": "a"}), "Running")), None);
    }
}
