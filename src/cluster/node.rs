//! The Node: one object, watched.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use tokio::time::Instant;

use super::api::Cluster;
use crate::plan::cluster::NodeView;
use crate::plan::cluster::annotations::{Annotations, PREFIX};

/// What the watch says: the Node, or none if there is none.
pub(super) type Watch<K> = Pin<Box<dyn Stream<Item = watcher::Result<Option<K>>>>>;

/// The Node as it was last heard of.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    /// As the decision sees it; none if it does not exist or is being deleted.
    pub(super) view: Option<NodeView>,
    /// Its annotations that are ours.
    pub(super) annotations: BTreeMap<String, String>,
    /// Its uid, for events.
    pub(super) uid: String,
    /// Its roles, the part after `node-role.kubernetes.io/`.
    pub(super) roles: Vec<String>,
    /// Since when the kubelet has not been ready, in seconds since the epoch.
    pub(super) not_ready_since: Option<i64>,
    version: u64,
    /// When the API server last answered a write.
    answered: Option<Instant>,
}

/// So long the watch may lag behind the answer to a write.
const OVERTAKEN: Duration = Duration::from_secs(30);

/// Watches the Node: one object, with back-off and jitter.
pub(super) fn watch(cluster: &Cluster) -> Watch<Node> {
    Box::pin(watch_object(Api::<Node>::all(cluster.client()), &cluster.node).default_backoff())
}

impl Heard {
    /// Takes the answer to a write.
    pub(super) fn answer(&mut self, node: Node) {
        self.answered = None;
        self.hear(Some(node));
        self.answered = Some(Instant::now());
    }

    /// Takes what the watch says, unless the answer to a write has overtaken it.
    pub(super) fn hear(&mut self, node: Option<Node>) {
        let Some(node) = node else {
            *self = Self::default();
            return;
        };
        let version = node.metadata.resource_version.as_deref().unwrap_or_default().parse().unwrap_or(0);
        let uid = node.metadata.uid.clone().unwrap_or_default();
        // Not for ever: a cluster that was restored from a backup counts from there.
        let is_overtaken = self.answered.is_some_and(|when| when.elapsed() < OVERTAKEN);
        if uid == self.uid && version < self.version && is_overtaken {
            return;
        }
        let mut annotations: BTreeMap<String, String> = node.metadata.annotations.unwrap_or_default();
        annotations.retain(|name, _| name.starts_with(PREFIX));
        let is_leaving = node.metadata.deletion_timestamp.is_some();
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        self.view =
            (!is_leaving).then(|| NodeView { unschedulable, annotations: Annotations::read(&annotations) });
        self.roles = node
            .metadata
            .labels
            .unwrap_or_default()
            .into_keys()
            .filter_map(|label| label.strip_prefix("node-role.kubernetes.io/").map(str::to_owned))
            .collect();
        self.not_ready_since = node.status.as_ref().and_then(not_ready_since);
        self.annotations = annotations;
        self.uid = uid;
        self.version = version;
    }
}

fn not_ready_since(status: &NodeStatus) -> Option<i64> {
    let ready = status.conditions.iter().flatten().find(|one| one.type_ == "Ready")?;
    let since = ready.last_transition_time.as_ref().map(|time| time.0.as_second());
    (ready.status != "True").then(|| since.unwrap_or(1))
}
