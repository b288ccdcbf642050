//! The drain that this process carries out itself, for clusters without a drain controller.
//!
//! The cordon is written with the pod's own rights; evictions use the kubelet's credentials, which node
//! restriction confines to this node's pods.

mod evict;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use self::evict::{Kubelet, Pods};
use super::api::Cluster;
use super::drainer::Drainer;
use crate::error::Fault;
use crate::plan::drain::{Evicted, Fate, clinging, fate, pause};

pub use self::evict::kubelet;

/// Cordons, evicts, waits, uncordons.
#[derive(Debug)]
pub struct SelfDrainer {
    cluster: Cluster,
    kubelet: Kubelet,
}

/// What was tried with a pod.
#[derive(Debug, Default)]
struct Try {
    uid: Option<String>,
    count: u32,
    /// When to ask again; none once it was accepted.
    due: Option<Instant>,
    why: Option<String>,
}

impl SelfDrainer {
    /// Drains the node of `cluster`, evicting as its kubelet.
    pub fn new(cluster: Cluster, kubelet: kube::Client) -> Self {
        let kubelet = Kubelet::new(kubelet, cluster.node.clone());
        Self { cluster, kubelet }
    }

    async fn drain(&self, blocked: &UnboundedSender<String>) -> Result<()> {
        let mut pods = self.kubelet.pods().await?;
        // What will not go is better known while workloads can still come here.
        self.rehearse(&pods, blocked).await?;
        self.cordon(true).await?;
        self.empty(&mut pods, blocked).await
    }

    /// Asks for all evictions without making any. A budget may allow it later, and is only said; what is
    /// refused for good keeps the node as it is.
    async fn rehearse(&self, pods: &Pods, blocked: &UnboundedSender<String>) -> Result<()> {
        let (mut later, mut never) = (Vec::new(), Vec::new());
        for pod in pods.all.values().filter(|pod| fate(pod) == Fate::Evict) {
            match self.kubelet.evict(pod, true).await {
                Evicted::Refused(why) => never.push(why),
                Evicted::Later(why) => later.push(why),
                Evicted::Accepted | Evicted::Gone => later.extend(clinging(pod)),
            }
        }
        if !never.is_empty() {
            let why = never.join("; ");
            let _ = blocked.send(why.clone());
            return Err(Fault::failed("the node cannot be drained, and is not cordoned")
                .why(why)
                .next("mend the webhook, policy or PodDisruptionBudget that it names")
                .into());
        }
        if !later.is_empty() {
            let _ = blocked.send(later.join("; "));
        }
        Ok(())
    }

    /// Evicts until nothing is left that must leave. Dropped when another order replaces it.
    async fn empty(&self, pods: &mut Pods, blocked: &UnboundedSender<String>) -> Result<()> {
        let mut tries: BTreeMap<String, Try> = BTreeMap::new();
        let mut said = String::new();
        loop {
            let left: Vec<(String, Pod)> = pods
                .all
                .iter()
                .filter(|(_, pod)| matches!(fate(pod), Fate::Evict | Fate::Await))
                .map(|(name, pod)| (name.clone(), pod.clone()))
                .collect();
            if left.is_empty() {
                return Ok(());
            }
            for (name, pod) in left.iter().filter(|(_, pod)| fate(pod) == Fate::Evict) {
                self.try_to_evict(pod, tries.entry(name.clone()).or_default()).await;
            }
            tries.retain(|name, _| left.iter().any(|(one, _)| one == name));
            let ending = left.iter().filter(|(_, pod)| fate(pod) == Fate::Await);
            let clings = ending.filter_map(|(_, pod)| clinging(pod));
            let reasons: Vec<String> =
                tries.values().filter_map(|one| one.why.clone()).chain(clings).collect();
            let text = reasons.join("; ");
            if !text.is_empty() && text != said {
                let _ = blocked.send(text.clone());
            }
            said = text;
            match tries.values().filter_map(|one| one.due).min() {
                None => {
                    pods.next().await?;
                }
                Some(due) => {
                    if let Ok(changed) = tokio::time::timeout_at(due, pods.next()).await {
                        changed?;
                    }
                }
            }
        }
    }

    /// Evicts a pod, unless that was accepted or it is too early to ask again.
    async fn try_to_evict(&self, pod: &Pod, so_far: &mut Try) {
        let is_same = so_far.uid == pod.metadata.uid;
        if !is_same {
            *so_far = Try { uid: pod.metadata.uid.clone(), ..Try::default() };
        } else if so_far.count > 0 && so_far.due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        so_far.count += 1;
        match self.kubelet.evict(pod, false).await {
            Evicted::Accepted | Evicted::Gone => (so_far.due, so_far.why) = (None, None),
            Evicted::Later(why) | Evicted::Refused(why) => {
                so_far.due = Some(Instant::now() + Duration::from_secs(pause(so_far.count)));
                so_far.why = Some(why);
            }
        }
    }

    async fn cordon(&self, unschedulable: bool) -> Result<()> {
        let patched = self.cluster.cordon(unschedulable).await;
        patched.map_err(|fault| {
            let verb = if unschedulable { "cordoned" } else { "uncordoned" };
            Fault::failed(format!("the node cannot be {verb}")).why(fault.to_string()).into()
        })
    }
}

impl Drainer for SelfDrainer {
    async fn carry_out(&self, order: &str, blocked: &UnboundedSender<String>) -> Result<()> {
        match order.split_once('-') {
            Some(("drain", _)) => self.drain(blocked).await,
            Some(("uncordon", _)) => {
                if self.cluster.is_cordoned_by_a_person().await? {
                    return Ok(());
                }
                self.cordon(false).await
            }
            _ => Err(Fault::refused(format!("{order}: neither drain-NAME nor uncordon-NAME")).into()),
        }
    }
}
