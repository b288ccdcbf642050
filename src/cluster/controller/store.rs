//! What the watches of nodes, pools and MachineConfigs say, and what writes answered: as little of each
//! object as decisions need, so that a thousand nodes are a megabyte.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::stream::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use serde_json::{Value, json};

use super::super::api::Cluster;
use crate::model::pool::Pool;
use crate::plan::cluster::annotations::{Annotations, PREFIX};
use crate::plan::pool::{Node, Source};

const GROUP_NAME: &str = "machineconfiguration.openshift.io";
const ZONE: &str = "topology.kubernetes.io/zone";
const POOL_KIND: &str = "MachineConfigPool";

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>>>>;

/// All objects of one kind.
#[derive(Debug)]
struct Kind<T> {
    known: All<T>,
    /// While the watch lists anew.
    fresh: Option<All<T>>,
    is_known: bool,
}

#[derive(Debug)]
struct All<T> {
    objects: BTreeMap<String, T>,
    /// `resourceVersion` of each.
    versions: BTreeMap<String, u64>,
}

/// A MachineConfig.
#[derive(Debug)]
enum ConfigObject {
    /// Of ours, with the uid of the pool that owns it.
    Rendered(String),
    /// Somebody wrote it.
    Source(Source),
}

/// What is known of the cluster.
pub(super) struct Store {
    node_events: Events<NodeObject>,
    pool_events: Events<DynamicObject>,
    config_events: Events<DynamicObject>,
    nodes: Kind<Node>,
    pools: Kind<Pool>,
    configs: Kind<ConfigObject>,
    sources_changed: bool,
}

impl<T> All<T> {
    fn new() -> Self {
        Self { objects: BTreeMap::new(), versions: BTreeMap::new() }
    }

    fn put(&mut self, name: String, version: u64, object: T) {
        if self.versions.get(&name).is_none_or(|known| *known < version) {
            self.versions.insert(name.clone(), version);
            self.objects.insert(name, object);
        }
    }

    fn remove(&mut self, name: &str) -> Option<T> {
        self.versions.remove(name);
        self.objects.remove(name)
    }
}

impl<T> Kind<T> {
    fn new() -> Self {
        Self { known: All::new(), fresh: None, is_known: false }
    }

    /// Takes what a watch or the answer to a write says, unless something newer is known.
    fn put(&mut self, name: String, version: u64, object: T) {
        self.fresh.as_mut().unwrap_or(&mut self.known).put(name, version, object);
    }

    fn remove(&mut self, name: &str) -> Option<T> {
        self.fresh.as_mut().unwrap_or(&mut self.known).remove(name)
    }

    fn restart(&mut self) {
        self.fresh = Some(All::new());
        self.is_known = false;
    }

    fn listed(&mut self) {
        if let Some(fresh) = self.fresh.take() {
            self.known = fresh;
        }
        self.is_known = true;
    }
}

impl Store {
    /// Begins to watch.
    pub(super) fn watch(cluster: &Cluster) -> Self {
        let nodes = Api::<NodeObject>::all(cluster.client());
        Self {
            node_events: Box::pin(watcher(nodes, Config::default()).default_backoff()),
            pool_events: dynamic(cluster, POOL_KIND),
            config_events: dynamic(cluster, "MachineConfig"),
            nodes: Kind::new(),
            pools: Kind::new(),
            configs: Kind::new(),
            sources_changed: false,
        }
    }

    /// Waits until a watch says something, and takes note of it.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            Some(event) = self.node_events.next() => self.node_event(event),
            Some(event) = self.pool_events.next() => self.pool_event(event),
            Some(event) = self.config_events.next() => self.config_event(event),
            else => std::future::pending().await,
        }
    }

    /// Whether all kinds have been listed.
    pub(super) fn is_known(&self) -> bool {
        self.nodes.is_known && self.pools.is_known && self.configs.is_known
    }

    /// By name.
    pub(super) fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes.known.objects
    }

    /// By name.
    pub(super) fn pools(&self) -> &BTreeMap<String, Pool> {
        &self.pools.known.objects
    }

    /// Rendered configs, with the uid of the owner of each.
    pub(super) fn existing(&self) -> BTreeMap<String, String> {
        let owned = self.configs.known.objects.iter().filter_map(|(name, config)| match config {
            ConfigObject::Rendered(owner) => Some((name.clone(), owner.clone())),
            ConfigObject::Source(_) => None,
        });
        owned.collect()
    }

    /// The configs that people wrote, if they changed since the last call.
    pub(super) fn take_sources(&mut self) -> Option<BTreeMap<String, Source>> {
        std::mem::take(&mut self.sources_changed).then(|| {
            let sources = self.configs.known.objects.iter().filter_map(|(name, config)| match config {
                ConfigObject::Source(source) => Some((name.clone(), source.clone())),
                ConfigObject::Rendered(_) => None,
            });
            sources.collect()
        })
    }

    /// `resourceVersion` of a node, empty if there is none.
    pub(super) fn version_of(&self, node: &str) -> String {
        self.nodes.known.versions.get(node).map(u64::to_string).unwrap_or_default()
    }

    /// Takes the answer to a write.
    pub(super) fn node(&mut self, node: NodeObject) {
        let version = version(&node.metadata);
        let node = read_node(node);
        self.nodes.put(node.name.clone(), version, node);
    }

    /// Takes the answer to a write.
    pub(super) fn pool(&mut self, pool: DynamicObject) {
        let version = version(&pool.metadata);
        let pool = Pool::read(&whole(&pool));
        self.pools.put(pool.name.clone(), version, pool);
    }

    /// Takes the answer to a write.
    pub(super) fn config(&mut self, config: &DynamicObject) {
        let name = config.metadata.name.clone().unwrap_or_default();
        let object = read_config(config);
        self.sources_changed |= matches!(object, ConfigObject::Source(_));
        self.configs.put(name, version(&config.metadata), object);
    }

    /// It was removed.
    pub(super) fn forget_config(&mut self, name: &str) {
        self.sources_changed |= matches!(self.configs.remove(name), Some(ConfigObject::Source(_)));
    }

    fn node_event(&mut self, event: watcher::Result<Event<NodeObject>>) {
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => self.node(node),
            Ok(Event::Delete(node)) => {
                drop(self.nodes.remove(node.metadata.name.as_deref().unwrap_or_default()))
            }
            Ok(Event::Init) => self.nodes.restart(),
            Ok(Event::InitDone) => self.nodes.listed(),
            Err(error) => broke("nodes", &error),
        }
    }

    fn pool_event(&mut self, event: watcher::Result<Event<DynamicObject>>) {
        match event {
            Ok(Event::Apply(pool) | Event::InitApply(pool)) => self.pool(pool),
            Ok(Event::Delete(pool)) => {
                drop(self.pools.remove(pool.metadata.name.as_deref().unwrap_or_default()))
            }
            Ok(Event::Init) => self.pools.restart(),
            Ok(Event::InitDone) => self.pools.listed(),
            Err(error) => broke("MachineConfigPools", &error),
        }
    }

    fn config_event(&mut self, event: watcher::Result<Event<DynamicObject>>) {
        match event {
            Ok(Event::Apply(config) | Event::InitApply(config)) => self.config(&config),
            Ok(Event::Delete(config)) => {
                self.forget_config(config.metadata.name.as_deref().unwrap_or_default())
            }
            Ok(Event::Init) => self.configs.restart(),
            Ok(Event::InitDone) => {
                self.configs.listed();
                self.sources_changed = true;
            }
            Err(error) => broke("MachineConfigs", &error),
        }
    }
}

fn dynamic(cluster: &Cluster, kind: &str) -> Events<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP_NAME, "v1", kind);
    let api = Api::<DynamicObject>::all_with(cluster.client(), &ApiResource::from_gvk(&kind));
    Box::pin(watcher(api, Config::default()).default_backoff())
}

fn broke(what: &str, error: &watcher::Error) {
    tracing::warn!("the watch of {what} broke and is taken up again: {error}");
}

fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().unwrap_or_default().parse().unwrap_or(0)
}

fn read_node(node: NodeObject) -> Node {
    let metadata = node.metadata;
    let labels = metadata.labels.unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|name, _| name.starts_with(PREFIX));
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    Node {
        name: metadata.name.unwrap_or_default(),
        zone: labels.get(ZONE).cloned().unwrap_or_default(),
        labels,
        created: metadata.creation_timestamp.map(|time| time.0.to_string()).unwrap_or_default(),
        is_ready: conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"),
        unschedulable: node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        is_leaving: metadata.deletion_timestamp.is_some(),
        annotations: Annotations::read(&annotations),
    }
}

/// The object as the API server gave it, with what decisions need of its metadata.
fn whole(object: &DynamicObject) -> Value {
    let metadata = serde_json::to_value(&object.metadata).unwrap_or_default();
    json!({ "metadata": metadata, "spec": object.data["spec"], "status": object.data["status"] })
}

fn read_config(object: &DynamicObject) -> ConfigObject {
    let owners = object.metadata.owner_references.iter().flatten();
    if let Some(owner) = owners.filter(|owner| owner.kind == POOL_KIND).map(|owner| owner.uid.clone()).next()
    {
        return ConfigObject::Rendered(owner);
    }
    let labels = object.metadata.labels.clone().unwrap_or_default();
    let text = json!({
        "apiVersion": format!("{GROUP_NAME}/v1"),
        "kind": "MachineConfig",
        "metadata": { "name": object.metadata.name, "labels": labels },
        "spec": object.data["spec"],
    });
    ConfigObject::Source(Source { labels, text: text.to_string() })
}
