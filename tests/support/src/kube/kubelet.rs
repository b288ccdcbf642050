//! The kubelets, played: pods that are bound to a node become Running and Ready, terminating ones go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::api::Api;

/// The kubelets of all nodes of a control plane. They end with this value.
#[derive(Debug)]
pub struct Kubelet {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A pod with this annotation is left as it is when it is to terminate.
pub const HANGS: &str = "test/hangs";

/// A real kubelet takes about as long.
const PAUSE: Duration = Duration::from_millis(250);

impl Kubelet {
    /// Starts them; `admin` is whom they speak as.
    pub(super) fn start(admin: Api) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                // The API server may be away, and an object may change in between: the next look will do it.
                let _ = look(&admin);
                std::thread::sleep(PAUSE);
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(admin: &Api) -> Result<()> {
    let pods = admin.get("/api/v1/pods?resourceVersion=0")?.ok()?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        if pod["spec"]["nodeName"].is_string() {
            // One pod's trouble is not the next one's.
            let _ = tend(admin, pod);
        }
    }
    Ok(())
}

fn tend(admin: &Api, pod: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    let path =
        format!("/api/v1/namespaces/{}/pods/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    if metadata["deletionTimestamp"].is_string() {
        if metadata["annotations"][HANGS].is_null() {
            let own = json!({ "uid": metadata["uid"] });
            admin.delete(&path, &json!({ "gracePeriodSeconds": 0, "preconditions": own }))?;
        }
    } else if pod["status"]["phase"] == "Pending" {
        let condition = |name: &str| json!({ "type": name, "status": "True" });
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
        let status = json!({ "phase": "Running", "conditions": conditions });
        admin.patch(&format!("{path}/status"), &json!({ "status": status }))?;
    }
    Ok(())
}
