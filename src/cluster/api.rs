//! What the daemon asks of the API server: its Node, one MachineConfig, events. Each call is one
//! request, and never waits longer than [`PATIENCE`].

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::plan::cluster::annotations::{CORDON, CORDON_PERSON, NodePatch};

/// A request that takes longer counts as failed: the API server's own limit for one is a minute, and
/// what hangs that long is better asked again.
const PATIENCE: Duration = Duration::from_secs(15);
/// The group that the operator's objects live in.
pub(super) const GROUP: &str = "/apis/machineconfiguration.openshift.io/v1";
const MERGE: &str = "application/merge-patch+json";
/// Server-side apply; JSON is YAML.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// The API server, as seen from one node.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// The node's name.
    pub node: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why a request was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiFault {
    /// There is no such object.
    Absent,
    /// It is not allowed, or malformed: asking again does not help.
    Refused(String),
    /// The API server is away or overloaded: asking again may help.
    Away(String),
}

impl std::fmt::Display for ApiFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such object"),
            Self::Refused(why) => write!(f, "the API server refuses: {why}"),
            Self::Away(why) => write!(f, "the API server does not answer: {why}"),
        }
    }
}

impl std::error::Error for ApiFault {}

impl Cluster {
    /// The API server of `client`, for the node `node`.
    pub fn new(client: Client, node: impl Into<String>) -> Self {
        Self { client, node: node.into() }
    }

    /// For watches.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Writes annotations of the Node and returns it as it is then.
    ///
    /// # Errors
    ///
    /// Nothing was written, or the answer was lost: writing it again does no harm.
    pub async fn patch_node(&self, patch: &NodePatch) -> Result<Node, ApiFault> {
        let annotations: Map<String, Value> =
            patch.annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let body = json!({ "metadata": { "annotations": annotations } });
        let path = format!("/api/v1/nodes/{}?fieldManager=machine-config-daemon", self.node);
        self.send("PATCH", &path, MERGE, &body).await
    }

    /// Makes the Node unschedulable, or schedulable again.
    ///
    /// # Errors
    ///
    /// It was not written, or the answer was lost: writing it again does no harm.
    pub async fn cordon(&self, unschedulable: bool) -> Result<(), ApiFault> {
        let value = unschedulable.then_some(true);
        let body = json!({ "spec": { "unschedulable": value } });
        let path = format!("/api/v1/nodes/{}?fieldManager=machine-config-daemon", self.node);
        self.send::<Node>("PATCH", &path, MERGE, &body).await.map(drop)
    }

    /// Whether the drain found the Node cordoned by a person.
    ///
    /// # Errors
    ///
    /// The Node cannot be read.
    pub async fn is_cordoned_by_a_person(&self) -> Result<bool, ApiFault> {
        let node: Node = self.get(&format!("/api/v1/nodes/{}", self.node)).await?;
        let annotations = node.metadata.annotations.unwrap_or_default();
        Ok(annotations.get(CORDON).is_some_and(|whose| whose == CORDON_PERSON))
    }

    /// A MachineConfig as JSON text, without what only the API server needs of it.
    ///
    /// # Errors
    ///
    /// It cannot be had; [`ApiFault::Absent`] if there is none of this name.
    pub async fn machine_config(&self, name: &str) -> Result<Value, ApiFault> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)) {
            return Err(ApiFault::Refused(format!("'{name}' cannot be the name of a MachineConfig")));
        }
        let mut config: Value = self.get(&format!("{GROUP}/machineconfigs/{name}")).await?;
        if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| matches!(key.as_str(), "name" | "annotations" | "labels"));
        }
        Ok(config)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiFault> {
        let request = Request::get(path).body(Vec::new()).map_err(malformed)?;
        bounded(self.client.request(request)).await
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> Result<T, ApiFault> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content)
            .body(body.to_string().into_bytes())
            .map_err(malformed)?;
        bounded(self.client.request(request)).await
    }
}

/// A client with the address and credentials of this kubeconfig.
///
/// # Errors
///
/// The file, or what it names, cannot be read: why.
pub(super) async fn client_of(kubeconfig: &Path) -> Result<Client, String> {
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    client(config.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// A client that gives every answer as it came. By itself it would ask again fifteen times what was answered
/// with 429: a drain that a PodDisruptionBudget blocks would look slow for minutes instead.
pub(super) fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    Client::try_from(config)
}

async fn bounded<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, ApiFault> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(end) => end.map_err(|error| classify(&error)),
        Err(_) => Err(ApiFault::Away(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

fn malformed(error: http::Error) -> ApiFault {
    ApiFault::Refused(error.to_string())
}

/// What an error of the client means.
pub(super) fn classify(error: &kube::Error) -> ApiFault {
    match error {
        kube::Error::Api(status) if status.code == 404 => ApiFault::Absent,
        // A conflict, too many requests and time-outs pass.
        kube::Error::Api(status) if matches!(status.code, 408 | 409 | 429) || status.code >= 500 => {
            ApiFault::Away(format!("{} {}", status.code, status.message))
        }
        kube::Error::Api(status) => ApiFault::Refused(format!("{} {}", status.code, status.message)),
        kube::Error::SerdeError(error) => {
            ApiFault::Refused(format!("an answer that cannot be read: {error}"))
        }
        other => ApiFault::Away(other.to_string()),
    }
}
