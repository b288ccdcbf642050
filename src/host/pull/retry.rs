//! What may pass and is tried again, and what never does.
//!
//! Old skopeo tells only in words what went wrong. The patterns are from real failures of skopeo
//! 1.9 to 1.19; what fits none is not tried again.

use std::time::Duration;

use anyhow::Error;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use containers_image_proxy::Error as ProxyError;

use crate::error::Fault;

/// No pause is longer.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may pass: network, overload, a body that ended early.
    MayPass,
    /// It will not: no access, no such image, wrong bytes, policy.
    Final,
}

/// What stays: looked at first, because such messages often carry words of the other table too.
const FINAL: [&str; 26] = [
    "unauthorized",
    "authentication required",
    "denied",
    "forbidden",
    "manifest unknown",
    "name unknown",
    "manifest_unknown",
    "name_unknown",
    "not found",
    "status code 401",
    "status code 403",
    "status code 404",
    "401 (unauthorized)",
    "403 (forbidden)",
    "404 (not found)",
    "digest did not match",
    "corrupted blob",
    "does not match digest",
    "rejected by policy",
    "signature",
    "x509:",
    "certificate",
    "server gave http response to https client",
    "no image found in manifest list",
    "no image found in image index",
    "is blocked",
];

/// What passes.
const MAY_PASS: [&str; 25] = [
    "no such host",
    "temporary failure in name resolution",
    "server misbehaving",
    "i/o timeout",
    "timeout",
    "timed out",
    "deadline exceeded",
    "connection refused",
    "connection reset",
    "broken pipe",
    "network is unreachable",
    "no route to host",
    "unexpected eof",
    "eof",
    "tls handshake",
    "too many requests",
    "toomanyrequests",
    "status code 429",
    "status code 5",
    "500 internal server error",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway",
    "expected size",
    "unexpectedly exited",
];

/// Judges skopeo's words.
pub(super) fn judge_text(text: &str) -> Verdict {
    let text = text.to_lowercase();
    if FINAL.iter().any(|pattern| text.contains(pattern)) {
        return Verdict::Final;
    }
    if MAY_PASS.iter().any(|pattern| text.contains(pattern)) || has_server_error(&text) {
        return Verdict::MayPass;
    }
    Verdict::Final
}

/// `(500 Internal Server Error)`, `503 (…)`, `StatusCode: 502`: any 5xx written as a status.
fn has_server_error(text: &str) -> bool {
    let is_5xx =
        |word: &str| word.len() == 3 && word.starts_with('5') && word.bytes().all(|b| b.is_ascii_digit());
    let says_status = text.contains("status") || text.contains("server error");
    says_status && text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_5xx)
}

/// No byte came for too long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stalled(pub(super) Duration);

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the source sent nothing for {} seconds", self.0.as_secs())
    }
}

impl std::error::Error for Stalled {}

/// Judges any error of fetching.
pub(super) fn judge(error: &Error) -> Verdict {
    if error.downcast_ref::<Fault>().is_some() {
        return Verdict::Final;
    }
    if error.chain().any(|cause| cause.is::<Stalled>()) {
        return Verdict::MayPass;
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<ProxyError>()) {
        Some(proxy) if proxy.is_retryable() => Verdict::MayPass,
        Some(
            ProxyError::SkopeoSpawnError(_) | ProxyError::ProxyTooOld { .. } | ProxyError::Configuration(_),
        )
        | None => Verdict::Final,
        Some(proxy) => judge_text(&proxy.to_string()),
    }
}

/// The pauses between `tries` tries.
pub(super) fn delays(first: Duration, tries: usize) -> impl Iterator<Item = Duration> {
    ExponentialBuilder::new()
        .with_min_delay(first)
        .with_max_delay(LONGEST_DELAY)
        .with_max_times(tries.saturating_sub(1))
        .with_jitter()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_real_messages() {
        use Verdict::{Final, MayPass};
        for (text, verdict) in [
            (
                "pinging container registry r.example:5000: Get \"http://r.example:5000/v2/\": dial tcp: lookup r.example on 10.0.0.1:53: no such host",
                MayPass,
            ),
            ("dial tcp: lookup r.example: Temporary failure in name resolution", MayPass),
            ("lookup r.example on 10.0.0.2:53: server misbehaving", MayPass),
            ("Get \"https://r.example/v2/\": dial tcp 10.0.0.9:443: i/o timeout", MayPass),
            (
                "net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)",
                MayPass,
            ),
            ("Get \"https://r.example/v2/\": context deadline exceeded", MayPass),
            ("dial tcp 127.0.0.1:1: connect: connection refused", MayPass),
            ("read tcp 10.0.0.1:4->10.0.0.2:443: read: connection reset by peer", MayPass),
            ("write tcp 10.0.0.1:4->10.0.0.2:443: write: broken pipe", MayPass),
            ("dial tcp 10.0.0.1:443: connect: network is unreachable", MayPass),
            ("dial tcp 10.0.0.1:443: connect: no route to host", MayPass),
            ("happened during read: unexpected EOF", MayPass),
            ("Get \"https://r.example/v2/\": EOF", MayPass),
            ("net/http: TLS handshake timeout", MayPass),
            ("toomanyrequests: You have reached your pull rate limit", MayPass),
            ("fetching blob: received unexpected HTTP status: 500 Internal Server Error", MayPass),
            (
                "reading manifest 1 in r.example/os: received unexpected HTTP status: 503 Service Unavailable",
                MayPass,
            ),
            ("invalid status code from registry 502 (Bad Gateway)", MayPass),
            ("fetching blob: StatusCode: 504, <html>", MayPass),
            ("skopeo proxy unexpectedly exited during request method GetBlob: signal: 9 (SIGKILL)", MayPass),
            ("reading manifest 1 in r.example/os: unauthorized: authentication required", Final),
            ("Requesting bearer token: invalid status code from registry 403 (Forbidden)", Final),
            ("requested access to the resource is denied", Final),
            ("reading manifest nope in r.example/os: manifest unknown", Final),
            (
                "reading manifest 1 in r.example/os: name unknown: repository name not known to registry",
                Final,
            ),
            ("fetching blob: invalid status code from registry 404 (Not Found)", Final),
            ("corrupted blob, expecting sha256:1, got sha256:2", Final),
            ("Digest did not match, expected sha256:1, got sha256:2", Final),
            ("Source image rejected: Running image docker://x is rejected by policy.", Final),
            ("A signature was required, but no signature exists", Final),
            ("x509: certificate signed by unknown authority", Final),
            ("http: server gave HTTP response to HTTPS client", Final),
            ("no image found in manifest list for architecture s390x, variant \"\", OS linux", Final),
            ("registry r.example is blocked in /etc/containers/registries.conf", Final),
            ("something nobody has seen", Final),
        ] {
            assert_eq!(judge_text(text), verdict, "{text}");
        }
    }

    #[test]
    fn pauses_grow_and_end() {
        let first = Duration::from_secs(1);
        let pauses: Vec<_> = delays(first, 4).collect();
        assert_eq!(pauses.len(), 3);
        assert!(pauses.iter().all(|pause| *pause >= first && *pause <= LONGEST_DELAY * 2));
        assert_eq!(delays(first, 1).count(), 0);
    }
}
