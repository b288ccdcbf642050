//! Who may read the metrics where everybody can reach them: whoever the API server lets.
//!
//! A reader shows a token. The API server says whose it is (TokenReview), and whether they may `get` the
//! path `/metrics` (SubjectAccessReview): the same two questions that a proxy in front would ask.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, StatusCode, header};
use kube::Client;
use serde_json::{Value, json};

use super::api::{ApiFault, classify};
use crate::model::digest::Digest;

/// What readers ask for.
const PATH: &str = "/metrics";
/// So long an answer holds: readers come twice a minute.
const HOLDS: Duration = Duration::from_secs(120);
/// Answers that are kept. There are one or two readers; more are somebody who tries.
const KEPT_MAX: usize = 64;
/// The API server's answer is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than any token that a cluster gives.
const TOKEN_MAX: usize = 16 << 10;

/// Asks the API server about readers.
pub(super) struct Readers {
    client: Client,
    /// By the token's digest: no token is kept.
    known: Mutex<BTreeMap<Digest, (Instant, StatusCode)>>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

impl Readers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// 200 for whoever may read; 401 for nobody that is known, 403 for somebody else, 503 while the API server
    /// does not say.
    pub(super) async fn may_read(&self, headers: &HeaderMap) -> StatusCode {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let Some(token) = token.filter(|token| !token.is_empty() && token.len() <= TOKEN_MAX) else {
            return StatusCode::UNAUTHORIZED;
        };
        let digest = Digest::of(token.as_bytes());
        if let Some(status) = self.known(&digest) {
            return status;
        }
        match tokio::time::timeout(PATIENCE, self.ask(token)).await {
            Ok(Ok(status)) => {
                self.keep(digest, status);
                status
            }
            Ok(Err(fault)) => {
                tracing::warn!("who may read the metrics is not known: {fault}");
                StatusCode::SERVICE_UNAVAILABLE
            }
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn known(&self, digest: &Digest) -> Option<StatusCode> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (when, _)| when.elapsed() < HOLDS);
        known.get(digest).map(|(_, status)| *status)
    }

    fn keep(&self, digest: Digest, status: StatusCode) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < KEPT_MAX {
            known.insert(digest, (Instant::now(), status));
        }
    }

    async fn ask(&self, token: &str) -> Result<StatusCode, ApiFault> {
        let review = self
            .create("/apis/authentication.k8s.io/v1/tokenreviews", "TokenReview", json!({ "token": token }))
            .await?;
        let status = &review["status"];
        if status["authenticated"] != true {
            return Ok(StatusCode::UNAUTHORIZED);
        }
        let user = &status["user"];
        let spec = json!({
            "user": user["username"],
            "uid": user["uid"],
            "groups": user["groups"],
            "extra": user["extra"],
            "nonResourceAttributes": { "path": PATH, "verb": "get" },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review = self.create(path, "SubjectAccessReview", spec).await?;
        let is_allowed = review["status"]["allowed"] == true;
        Ok(if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }

    async fn create(&self, path: &str, kind: &str, spec: Value) -> Result<Value, ApiFault> {
        let group = path.trim_start_matches("/apis/").rsplit_once('/').map_or("", |(group, _)| group);
        let body = json!({ "apiVersion": group, "kind": kind, "spec": spec });
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| ApiFault::Refused(error.to_string()))?;
        self.client.request(request).await.map_err(|error| classify(&error))
    }
}
