//! What is asked with the kubelet's credentials: this node's pods, and their eviction.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;

use anyhow::{Context as _, Result};
use futures_util::{Stream, StreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::api::client_of;
use crate::error::Fault;
use crate::plan::drain::{Evicted, answer, name};

/// The API server as this node's kubelet may use it.
pub(super) struct Kubelet {
    client: Client,
    node: String,
}

impl std::fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelet").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The node's pods, kept up to date by one list and one watch.
pub(super) struct Pods {
    stream: Pin<Box<dyn Stream<Item = Result<Event<Pod>, watcher::Error>>>>,
    /// By `NAMESPACE/NAME`.
    pub(super) all: BTreeMap<String, Pod>,
    coming: BTreeMap<String, Pod>,
}

/// A client with the credentials of this kubeconfig: the kubelet's.
///
/// # Errors
///
/// The file, or what it names, cannot be read.
pub async fn kubelet(path: &Path) -> Result<Client> {
    let unusable = |why: String| {
        Fault::failed(format!("the kubelet's kubeconfig {} cannot be used", path.display()))
            .why(why)
            .next("mount the host's file, and the certificates that it names, read-only at the same paths")
    };
    Ok(client_of(path).await.map_err(unusable)?)
}

impl Kubelet {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node }
    }

    /// This node's pods, once all are known.
    pub(super) async fn pods(&self) -> Result<Pods> {
        let of_node = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let stream = watcher(Api::<Pod>::all(self.client.clone()), of_node);
        let mut pods = Pods { stream: Box::pin(stream), all: BTreeMap::new(), coming: BTreeMap::new() };
        while !pods.next().await? {}
        Ok(pods)
    }

    /// Asks for the eviction of a pod; with `rehearses` nothing is evicted.
    pub(super) async fn evict(&self, pod: &Pod, rehearses: bool) -> Evicted {
        let of = name(pod);
        match self.ask(pod, rehearses).await {
            Ok(_) => Evicted::Accepted,
            Err(kube::Error::Api(status)) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let causes: Vec<&str> = causes.map(|cause| cause.message.as_str()).collect();
                answer(&of, status.code, &format!("{} {}", status.message, causes.join("; ")))
            }
            Err(error) => Evicted::Later(format!("pod {of}: {error}")),
        }
    }

    async fn ask(&self, pod: &Pod, rehearses: bool) -> Result<Value, kube::Error> {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let (namespace, name) = (part(&pod.metadata.namespace), part(&pod.metadata.name));
        let mut options = json!({ "preconditions": { "uid": pod.metadata.uid } });
        if rehearses {
            options["dryRun"] = json!(["All"]);
        }
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": options,
        });
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
            .header("Content-Type", "application/json")
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

impl Pods {
    /// Waits for the next change; tells whether what is known is complete.
    pub(super) async fn next(&mut self) -> Result<bool> {
        let event = self.stream.next().await.context("the watch of this node's pods ended")?;
        match event.context("Watching this node's pods with the kubelet's credentials")? {
            Event::Init => {
                self.coming.clear();
                return Ok(false);
            }
            Event::InitApply(pod) => {
                self.coming.insert(name(&pod), pod);
                return Ok(false);
            }
            Event::InitDone => self.all = std::mem::take(&mut self.coming),
            Event::Apply(pod) => {
                self.all.insert(name(&pod), pod);
            }
            Event::Delete(pod) => {
                self.all.remove(&name(&pod));
            }
        }
        Ok(true)
    }
}
