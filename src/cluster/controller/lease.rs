//! Which of several processes leads: the holder of one Lease.
//!
//! Times of other machines are not believed: a Lease is free when it did not change for as long as it
//! lasts, by this process's own clock. The holder stops well before that.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::api::{ApiFault, Cluster};
use super::super::jitter;

/// So long a holder that went away is waited for.
const LASTS: Duration = Duration::from_secs(15);
/// So long after a renewal was begun the holder may write.
const HOLDS: Duration = Duration::from_secs(10);
/// Between two renewals, and between two looks of who waits.
const RENEWED: Duration = Duration::from_secs(5);
/// After a renewal that failed.
const AGAIN: Duration = Duration::from_secs(1);
const NAME: &str = "mcd-controller";

/// The Lease, as one process sees it.
pub(super) struct Lease<'a> {
    cluster: &'a Cluster,
    path: String,
    identity: String,
    /// As it was last read or written.
    object: Value,
    /// When it was first seen so.
    seen: Instant,
    /// When the last successful renewal was begun.
    renewed: Option<Instant>,
    due: Instant,
}

impl<'a> Lease<'a> {
    /// Not held yet.
    pub(super) fn new(cluster: &'a Cluster, namespace: &str) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "controller".to_owned());
        let random = RandomState::new().hash_one(&host);
        Self {
            cluster,
            path: format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"),
            identity: format!("{host}_{random:016x}"),
            object: Value::Null,
            seen: Instant::now(),
            renewed: None,
            due: Instant::now(),
        }
    }

    /// Waits until this process holds it.
    pub(super) async fn acquire(&mut self) {
        self.renewed = None;
        loop {
            match self.cluster.get::<Value>(&self.path).await {
                Ok(object) => self.see(object),
                Err(ApiFault::Absent) => {
                    tracing::error!("there is no Lease {}: apply manifests/50-controller.yaml", self.path);
                }
                Err(fault) => tracing::warn!("the Lease was not read: {fault}"),
            }
            if self.is_free() && self.write(&self.identity.clone()).await {
                return;
            }
            tokio::time::sleep(jitter(RENEWED)).await;
        }
    }

    fn see(&mut self, object: Value) {
        if object["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"] {
            self.object = object;
            self.seen = Instant::now();
        }
    }

    fn is_free(&self) -> bool {
        let holder = self.object["spec"]["holderIdentity"].as_str().unwrap_or_default();
        self.object.is_object()
            && (holder.is_empty() || holder == self.identity || self.seen.elapsed() >= LASTS)
    }

    /// When [`Lease::renew`] is to be called.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Whether it is certain that nobody else holds it.
    pub(super) fn is_held(&self) -> bool {
        self.renewed.is_some_and(|renewed| renewed.elapsed() < HOLDS)
    }

    /// Holds on to it; false once it is lost.
    pub(super) async fn renew(&mut self) -> bool {
        if self.write(&self.identity.clone()).await {
            return true;
        }
        // Somebody wrote to it: another holder, or a person who only looked after it.
        if let Ok(object) = self.cluster.get::<Value>(&self.path).await {
            self.see(object);
        }
        self.object["spec"]["holderIdentity"] == self.identity.as_str() && self.is_held()
    }

    /// Lets the next one have it at once.
    pub(super) async fn release(&mut self) {
        if self.is_held() {
            self.write("").await;
        }
    }

    /// Writes it if nobody else did since it was read.
    async fn write(&mut self, holder: &str) -> bool {
        let begun = Instant::now();
        let before = self.object["spec"].clone();
        let now = jiff::Timestamp::now();
        let stamp = format!("{now:.6}");
        let is_same = before["holderIdentity"] == holder;
        let mut object = self.object.clone();
        object["spec"] = json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": LASTS.as_secs(),
            "acquireTime": if is_same { before["acquireTime"].clone() } else { json!(stamp) },
            "renewTime": stamp,
            "leaseTransitions": before["leaseTransitions"].as_i64().unwrap_or(0) + i64::from(!is_same),
        });
        match self.cluster.send::<Value>("PUT", &self.path, "application/json", &object).await {
            Ok(object) => {
                self.see(object);
                self.renewed = Some(begun);
                self.due = begun + RENEWED;
                true
            }
            Err(fault) => {
                tracing::warn!("the Lease was not written: {fault}");
                self.due = Instant::now() + AGAIN;
                false
            }
        }
    }
}
