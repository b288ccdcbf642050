//! Speaking to an API server as somebody: plain requests, JSON in and out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// A caller with a bearer token.
#[derive(Clone)]
pub struct Api {
    url: String,
    token: String,
    agent: ureq::Agent,
}

/// What the API server said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The object, the list or the `Status`; text that is no JSON is a string.
    pub body: Value,
}

impl Answer {
    /// The message of a `Status`, empty for anything else.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The body of an answer below 300, else an error with what the server said.
    pub fn ok(self) -> Result<Value> {
        anyhow::ensure!(self.status < 300, "{}: {}", self.status, self.message());
        Ok(self.body)
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Api").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Api {
    /// A caller of the API server at `url`, whose certificate `ca` (PEM) has signed.
    pub fn new(url: &str, ca: &[u8], token: &str) -> Result<Self> {
        let root = Certificate::from_pem(ca).context("The control plane's CA")?.to_owned();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::NativeTls)
            .root_certs(RootCerts::Specific(Arc::new(vec![root])))
            .build();
        let agent = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build()
            .new_agent();
        Ok(Self { url: url.to_owned(), token: token.to_owned(), agent })
    }

    /// The same server, with another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// The token that it speaks with.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Asks for `path`, which begins with `/api`.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, "", None)
    }

    /// Creates an object, or a subresource.
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("POST", path, "application/json", Some(body))
    }

    /// A JSON merge patch.
    pub fn patch(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("PATCH", path, "application/merge-patch+json", Some(body))
    }

    /// Replaces an object.
    pub fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("PUT", path, "application/json", Some(body))
    }

    /// Deletes an object; `options` are `DeleteOptions`.
    pub fn delete(&self, path: &str, options: &Value) -> Result<Answer> {
        self.send("DELETE", path, "application/json", Some(options))
    }

    /// Asks for `path` until `accept` likes an answer; an error tells what was `wanted` and what came last.
    pub fn wait_for(
        &self,
        path: &str,
        wanted: &str,
        deadline: Duration,
        accept: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let start = Instant::now();
        loop {
            let answer = self.get(path);
            if let Ok(answer) = &answer
                && answer.status < 300
                && accept(&answer.body)
            {
                return Ok(answer.body.clone());
            }
            if start.elapsed() > deadline {
                bail!("{path}: not {wanted} after {deadline:?}, but {answer:#?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Result<Answer> {
        let mut request = http_request(method, &format!("{}{path}", self.url), &self.token);
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let answer = match body {
            None => self.agent.run(request.body(())?),
            Some(body) => self.agent.run(request.body(body.to_string())?),
        };
        let mut response = answer.with_context(|| format!("{method} {path}"))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string()?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }
}

fn http_request(method: &str, url: &str, token: &str) -> ureq::http::request::Builder {
    ureq::http::Request::builder()
        .method(method)
        .uri(url)
        .header("authorization", format!("Bearer {token}"))
        .header("user-agent", "mcd-test")
}
