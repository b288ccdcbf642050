//! `mcd controller`: pools of nodes, for clusters without the operator.
//!
//! ```text
//!   API server ──watch nodes, pools, configs──► store ─► plan::pool::next ─► one write after the other
//!        ▲                                                                      │
//!        └──── rendered configs, desiredConfig of nodes, status of pools ◄──────┘
//! ```
//!
//! One task. Only the holder of a Lease watches and writes; it looks at its watch's clock before each
//! write. What a write answered is known at once, so that no decision is made from before it.

mod lease;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use self::lease::Lease;
use self::store::Store;
use super::api::{ApiFault, Cluster, GROUP};
use super::jitter;
use super::start::client_at;
use crate::model::pool::{Pool, Spec};
use crate::plan::backoff::doubled;
use crate::plan::cluster::annotations::DESIRED_CONFIG;
use crate::plan::pool::{Action, Rendered, Source, View, next, render};

/// Events that come together are one decision.
const GATHER: Duration = Duration::from_millis(50);
/// Decisions in a row; more would mean that a write does not do what it says.
const ROUNDS: usize = 16;
/// Seconds before the first repetition of what failed, and between later ones at most.
const AGAIN: (u64, u64) = (1, 30);

/// Options of `mcd controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerOptions {
    /// Instead of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where the Lease is.
    pub namespace: String,
}

/// What the rendered configs were made from.
type Wishes = BTreeMap<String, (String, Result<Spec, String>)>;

/// The controller, while it holds the Lease.
struct Controller<'a> {
    cluster: &'a Cluster,
    store: Store,
    sources: BTreeMap<String, Source>,
    wishes: Wishes,
    rendered: BTreeMap<String, Result<Rendered, String>>,
    tries: u32,
}

/// Looks after the pools until the process is told to end.
///
/// # Errors
///
/// The cluster's address or credentials cannot be read.
pub async fn run(options: &ControllerOptions) -> Result<()> {
    let cluster = Cluster::new(client_at(options.kubeconfig.as_deref()).await?, "");
    let mut lease = Lease::new(&cluster, &options.namespace);
    tracing::info!("Version: {}", env!("CARGO_PKG_VERSION"));
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = lead(&cluster, &mut lease) => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    lease.release().await;
    Ok(())
}

async fn lead(cluster: &Cluster, lease: &mut Lease<'_>) {
    loop {
        lease.acquire().await;
        tracing::info!("this process leads");
        Controller::new(cluster).run(lease).await;
        tracing::warn!("this process leads no longer");
    }
}

impl<'a> Controller<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            store: Store::watch(cluster),
            sources: BTreeMap::new(),
            wishes: BTreeMap::new(),
            rendered: BTreeMap::new(),
            tries: 0,
        }
    }

    /// Until the Lease is lost.
    async fn run(&mut self, lease: &mut Lease<'_>) {
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(lease.due()) => {
                    if !lease.renew().await {
                        return;
                    }
                }
                () = self.store.changed() => {
                    // A repetition waits for its time: what failed would fail again.
                    due = due.or(Some(Instant::now() + GATHER));
                }
                () = until(due) => due = self.act(lease).await,
            }
        }
    }

    /// Decides and does it; tells when to come back for what failed.
    async fn act(&mut self, lease: &mut Lease<'_>) -> Option<Instant> {
        if !self.store.is_known() {
            return None;
        }
        for _ in 0..ROUNDS {
            let actions = self.decide();
            if actions.is_empty() {
                self.tries = 0;
                return None;
            }
            for action in actions {
                if lease.due() <= Instant::now() && !lease.renew().await || !lease.is_held() {
                    return Some(Instant::now());
                }
                if let Err(fault) = self.perform(&action).await {
                    tracing::warn!("{}: {fault}", name(&action));
                    self.tries = self.tries.saturating_add(1);
                    let pause = Duration::from_secs(doubled(AGAIN.0, AGAIN.1, self.tries));
                    return Some(Instant::now() + jitter(pause));
                }
            }
        }
        Some(Instant::now() + jitter(Duration::from_secs(AGAIN.1)))
    }

    fn decide(&mut self) -> Vec<Action> {
        self.render();
        next(&View {
            pools: self.store.pools(),
            rendered: &self.rendered,
            existing: &self.store.existing(),
            nodes: self.store.nodes(),
            now: &super::stamp(),
        })
    }

    /// Only when what it is made from changed: it is the dearest part of a decision.
    fn render(&mut self) {
        let changed = self.store.take_sources();
        let pools = self.store.pools();
        let wish = |pool: &Pool| (pool.name.clone(), (pool.uid.clone(), pool.spec.clone()));
        let wishes: Wishes = pools.values().map(wish).collect();
        if changed.is_none() && wishes == self.wishes {
            return;
        }
        self.sources = changed.unwrap_or_else(|| std::mem::take(&mut self.sources));
        self.wishes = wishes;
        self.rendered =
            pools.iter().map(|(name, pool)| (name.clone(), render(pool, &self.sources))).collect();
    }

    async fn perform(&mut self, action: &Action) -> Result<(), ApiFault> {
        let (pools, configs) = (format!("{GROUP}/machineconfigpools"), format!("{GROUP}/machineconfigs"));
        match action {
            Action::Create { pool, object } => {
                tracing::info!("rendering {}", object["metadata"]["name"].as_str().unwrap_or_default());
                match self.cluster.create(&configs, object).await {
                    Ok(made) => self.store.config(&made),
                    // Too large, or refused by a policy: for people, in the pool's condition.
                    Err(ApiFault::Refused(why)) => {
                        self.rendered.insert(pool.clone(), Err(format!("it cannot be stored: {why}")));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            Action::Configure { pool, configuration } => {
                let body = json!({ "spec": { "configuration": configuration } });
                let made = self.cluster.merge(&format!("{pools}/{pool}"), &body).await?;
                self.store.pool(made);
            }
            Action::Assign { node, config } => {
                tracing::info!("node {node} gets {config}");
                let version = self.store.version_of(node);
                let body = json!({ "metadata": {
                    // Of two that decide from the same state, the second is refused.
                    "resourceVersion": version,
                    "annotations": { DESIRED_CONFIG: config },
                } });
                let made = self.cluster.merge(&format!("/api/v1/nodes/{node}"), &body).await?;
                self.store.node(made);
            }
            Action::Status { pool, status } => {
                let body = json!({ "status": status });
                let made = self.cluster.merge(&format!("{pools}/{pool}/status"), &body).await?;
                self.store.pool(made);
            }
            Action::Remove(config) => {
                tracing::info!("{config} is named by nobody and goes");
                match self.cluster.delete(&format!("{configs}/{config}")).await {
                    Ok(()) | Err(ApiFault::Absent) => self.store.forget_config(config),
                    Err(fault) => return Err(fault),
                }
            }
        }
        Ok(())
    }
}

/// For people.
fn name(action: &Action) -> String {
    match action {
        Action::Create { pool, .. } => format!("rendering for pool {pool}"),
        Action::Configure { pool, .. } => format!("the configuration of pool {pool}"),
        Action::Assign { node, .. } => format!("telling node {node}"),
        Action::Status { pool, .. } => format!("the status of pool {pool}"),
        Action::Remove(config) => format!("removing {config}"),
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Cluster {
    async fn create(&self, path: &str, object: &Value) -> Result<DynamicObject, ApiFault> {
        self.send("POST", path, "application/json", object).await
    }

    async fn merge<T: serde::de::DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ApiFault> {
        self.send("PATCH", path, "application/merge-patch+json", body).await
    }

    async fn delete(&self, path: &str) -> Result<(), ApiFault> {
        self.send::<Value>("DELETE", path, "application/json", &json!({})).await.map(drop)
    }
}
