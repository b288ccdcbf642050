//! What the API server was asked, by its own audit log.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One request that somebody other than the control plane and the test itself made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `get`, `watch`, `patch` …
    pub verb: String,
    /// `nodes`, `pods/eviction` …
    pub resource: String,
    /// The object's name, empty for a list or a watch of several.
    pub name: String,
    /// Who asked.
    pub user: String,
    /// The program, as it names itself.
    pub agent: String,
    /// The node whose pod's token was used, empty for another token.
    pub node: String,
    /// When it came, as `2026-01-02T03:04:05.678901Z`.
    pub received: String,
    /// The answer's status; 0 while there is none (a watch that goes on).
    pub status: u64,
}

/// A part of the log: what was asked since [`super::ControlPlane::audit`].
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
    from: u64,
}

impl Audit {
    pub(super) fn from_now(path: PathBuf) -> Result<Self> {
        let from = fs::metadata(&path).map(|found| found.len()).unwrap_or_default();
        Ok(Self { path, from })
    }

    /// The requests since then, in order, each once.
    pub fn requests(&self) -> Result<Vec<Request>> {
        let mut file = fs::File::open(&self.path).context("The audit log")?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut requests: Vec<Request> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for line in text.lines() {
            // The last line may be half written.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let id = event["auditID"].as_str().unwrap_or_default().to_owned();
            let request = read(&event);
            match places.get(&id).and_then(|place| requests.get_mut(*place)) {
                Some(known) => *known = request,
                // A watch that began earlier, and ended now.
                None if event["stage"] != "RequestReceived" => {}
                None => {
                    places.insert(id, requests.len());
                    requests.push(request);
                }
            }
        }
        Ok(requests)
    }

    /// The requests of one node: of its pod, and those with its kubelet's credentials.
    pub fn of_node(&self, node: &str) -> Result<Vec<Request>> {
        let kubelet = format!("system:node:{node}");
        let mut requests = self.requests()?;
        requests.retain(|request| request.node == node || request.user == kubelet);
        Ok(requests)
    }
}

/// Requests as a table for people: `2 patch nodes`, most frequent first.
pub fn table(requests: &[Request]) -> String {
    let mut rows: Vec<(usize, String)> = Vec::new();
    for request in requests {
        let what = format!("{} {}", request.verb, request.resource);
        match rows.iter_mut().find(|(_, other)| *other == what) {
            Some((count, _)) => *count += 1,
            None => rows.push((1, what)),
        }
    }
    rows.sort_by(|one, other| other.cmp(one));
    rows.iter().map(|(count, what)| format!("{count} {what}\n")).collect()
}

fn read(event: &Value) -> Request {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let mut resource = text(&object["resource"]);
    if let Some(sub) = object["subresource"].as_str() {
        resource = format!("{resource}/{sub}");
    }
    Request {
        verb: text(&event["verb"]),
        resource,
        name: text(&object["name"]),
        user: text(&event["user"]["username"]),
        agent: text(&event["userAgent"]),
        node: text(&event["user"]["extra"]["authentication.kubernetes.io/node-name"][0]),
        received: text(&event["requestReceivedTimestamp"]),
        status: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
    }
}
