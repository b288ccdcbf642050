//! Why an image cannot be read from its registry: one answer, from what was tried and what the container
//! tools said.

use serde::Serialize;

/// What can be at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// This machine has no way out.
    Link,
    /// Names are not found.
    Dns,
    /// This machine's clock.
    Clock,
    /// The proxy that the environment names.
    Proxy,
    /// A certificate is not trusted, or over.
    Certificate,
    /// A mirror of registries.conf.
    Mirror,
    /// The registry wants credentials, or others.
    Credentials,
    /// policy.json or registries.conf forbids it.
    Policy,
    /// The registry itself: it does not answer, or in vain.
    Registry,
    /// The registry has no such image.
    Image,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// What it would be the fault of.
    pub part: Part,
    /// What was looked at: an interface, a host.
    pub target: String,
    /// The host is a mirror.
    pub mirror: bool,
    /// What was found, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is known, in the order of causes: link, clock, then for each place proxy or name, and connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What was tried.
    pub tried: Vec<Tried>,
    /// What the container tools said last; none where they could read the image.
    pub said: Option<String>,
}

/// What is at fault, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What is at fault.
    pub part: Part,
    /// Why it is thought so.
    pub why: String,
    /// What to do.
    pub next: &'static str,
}

/// The words of the container tools; the first that fits counts. Source: messages of skopeo 1.9 to 1.19
/// and of Go's crypto/x509, as the importer's own table of reasons has them.
const WORDS: [(&str, Part); 20] = [
    // Of mcd itself, where it decides.
    ("signature policy", Part::Policy),
    ("policy.json", Part::Policy),
    ("rejected by policy", Part::Policy),
    ("signature was required", Part::Policy),
    ("is blocked in", Part::Policy),
    // Go tells which it is only by these: "current time … is before …", "… is after …".
    ("not yet valid: current time", Part::Certificate),
    ("http response to https", Part::Certificate),
    ("x509", Part::Certificate),
    ("certificate", Part::Certificate),
    ("unauthorized", Part::Credentials),
    ("authentication required", Part::Credentials),
    ("invalid username/password", Part::Credentials),
    ("denied", Part::Credentials),
    ("forbidden", Part::Credentials),
    ("status code from registry 401", Part::Credentials),
    ("manifest unknown", Part::Image),
    ("name unknown", Part::Image),
    ("404 (not found)", Part::Image),
    ("status code 404", Part::Image),
    ("proxyconnect", Part::Proxy),
];

/// What is at fault; none where the image could be read.
pub fn judge(findings: &Findings) -> Option<Diagnosis> {
    let said = findings.said.as_deref()?;
    let lower = said.to_lowercase();
    let word = WORDS.iter().find(|(word, _)| lower.contains(word)).map(|(_, part)| *part);
    let failed = |part: Part| findings.tried.iter().find(|one| one.part == part && one.why.is_some());
    if word == Some(Part::Policy) {
        return Some(diagnosis(Part::Policy, said));
    }
    if word == Some(Part::Certificate) {
        let too_early = lower.contains("is before");
        let clock = failed(Part::Clock).and_then(|one| one.why.as_deref());
        return Some(match clock {
            Some(why) => diagnosis(Part::Clock, &format!("{why}; {said}")),
            None if too_early => diagnosis(Part::Clock, said),
            None => diagnosis(Part::Certificate, said),
        });
    }
    if let Some(part @ (Part::Credentials | Part::Image)) = word {
        return Some(diagnosis(part, said));
    }
    if let Some(link) = failed(Part::Link)
        && !findings.tried.iter().any(|one| one.part == Part::Registry && one.why.is_none())
    {
        return Some(diagnosis(Part::Link, link.why.as_deref().unwrap_or_default()));
    }
    Some(place(findings).unwrap_or_else(|| diagnosis(word.unwrap_or(Part::Registry), said)))
}

/// What fails on the way to the places where the image may be.
fn place(findings: &Findings) -> Option<Diagnosis> {
    let on_the_way = |one: &&Tried| matches!(one.part, Part::Proxy | Part::Dns | Part::Registry);
    let failed: Vec<&Tried> =
        findings.tried.iter().filter(on_the_way).filter(|one| one.why.is_some()).collect();
    let first = *failed.first()?;
    let tell = |one: &Tried| {
        let kind = if one.mirror { "mirror " } else { "" };
        format!("{kind}{}: {}", one.target, one.why.as_deref().unwrap_or_default())
    };
    let why = failed.iter().map(|one| tell(one)).collect::<Vec<_>>().join("; ");
    // All that fails in the same way is one fault; where only a mirror does, it is the mirror's.
    let part = match failed.iter().find(|one| !one.mirror) {
        Some(own) if failed.iter().all(|one| one.part == own.part) => own.part,
        Some(_) => first.part,
        None => Part::Mirror,
    };
    Some(diagnosis(part, &why))
}

fn diagnosis(part: Part, why: &str) -> Diagnosis {
    Diagnosis { part, why: why.to_owned(), next: next(part) }
}

fn next(part: Part) -> &'static str {
    match part {
        Part::Link => "look at cable, interface and address: `ip address`, `ip route`",
        Part::Dns => "look at the name servers: `cat /etc/resolv.conf`, `getent hosts NAME`",
        Part::Clock => "set the clock (`timedatectl`, `chronyc tracking`), or wait for time synchronisation",
        Part::Proxy => {
            "look at HTTPS_PROXY and NO_PROXY (on OpenShift: /etc/mco/proxy.env), and at the proxy"
        }
        Part::Certificate => {
            "trust the registry's certificate (/etc/containers/certs.d/HOST), renew it, or mark the registry \
             insecure in registries.conf"
        }
        Part::Mirror => "look at the mirror, or take it out of registries.conf",
        Part::Credentials => {
            "look at the pull secret: `--authfile`, /etc/ostree/auth.json, or /var/lib/kubelet/config.json"
        }
        Part::Policy => "look at /etc/containers/policy.json and registries.conf, or name another image",
        Part::Registry => "look at the registry, and at firewalls on the way to it",
        Part::Image => "look at the reference, or push the image again",
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Link => "link",
            Self::Dns => "DNS",
            Self::Clock => "clock",
            Self::Proxy => "proxy",
            Self::Certificate => "certificate",
            Self::Mirror => "mirror",
            Self::Credentials => "credentials",
            Self::Policy => "policy",
            Self::Registry => "registry",
            Self::Image => "image",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(part: Part, mirror: bool, why: Option<&str>) -> Tried {
        Tried { part, target: "host".to_owned(), mirror, why: why.map(str::to_owned) }
    }

    fn at_fault(said: &str, tried: &[Tried]) -> Part {
        judge(&Findings { tried: tried.to_vec(), said: Some(said.to_owned()) }).unwrap().part
    }

    #[test]
    fn each_part_can_be_at_fault() {
        let reached = tried(Part::Registry, false, None);
        let no_route = tried(Part::Link, false, Some("no route"));
        let no_name = tried(Part::Dns, false, Some("not found"));
        let slow = tried(Part::Clock, false, Some("1970"));
        let refused = tried(Part::Registry, false, Some("refused"));
        let refused_mirror = tried(Part::Registry, true, Some("refused"));
        let no_proxy = tried(Part::Proxy, false, Some("refused"));
        let early = "x509: certificate has expired or is not yet valid: current time 1970-01-01T00:00:09Z is before 2026-01-01T00:00:00Z";
        let late = "x509: certificate has expired or is not yet valid: current time 2026-12-01T00:00:00Z is after 2026-01-01T00:00:00Z";
        let timeout = "dial tcp 192.0.2.1:443: i/o timeout";
        for (said, tried, expected) in [
            (
                "dial tcp: lookup r on [::1]:53: connection refused",
                vec![no_route.clone(), no_name.clone()],
                Part::Link,
            ),
            ("dial tcp: lookup r: no such host", vec![no_name.clone()], Part::Dns),
            (early, vec![reached.clone()], Part::Clock),
            (late, vec![reached.clone()], Part::Certificate),
            (
                "x509: certificate signed by unknown authority",
                vec![slow.clone(), reached.clone()],
                Part::Clock,
            ),
            ("x509: certificate signed by unknown authority", vec![reached.clone()], Part::Certificate),
            ("http: server gave HTTP response to HTTPS client", vec![reached.clone()], Part::Certificate),
            ("proxyconnect tcp: dial tcp 127.0.0.1:3128: connection refused", vec![no_proxy], Part::Proxy),
            (timeout, vec![refused_mirror.clone(), reached.clone()], Part::Mirror),
            (timeout, vec![refused_mirror, refused.clone()], Part::Registry),
            (timeout, vec![refused], Part::Registry),
            (
                "invalid status code from registry 401 (Unauthorized)",
                vec![reached.clone()],
                Part::Credentials,
            ),
            ("requested access to the resource is denied", vec![reached.clone()], Part::Credentials),
            ("Source image rejected: x is rejected by policy", vec![reached.clone()], Part::Policy),
            ("registry r is blocked in /etc/containers/registries.conf", vec![no_route], Part::Policy),
            ("manifest unknown: manifest unknown", vec![reached.clone()], Part::Image),
            (
                "invalid status code from registry 503 (Service Unavailable)",
                vec![slow, reached],
                Part::Registry,
            ),
        ] {
            assert_eq!(at_fault(said, &tried), expected, "{said} {tried:?}");
        }
        assert_eq!(judge(&Findings::default()), None);
    }
}
