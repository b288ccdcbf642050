//! Why fetching failed, in the words of whoever must act on it: one table for manifest,
//! configuration and layers alike.

use anyhow::Error;

use super::retry::{Verdict, judge};
use crate::error::{ExitKind, Fault};
use crate::host::trust::redact;

/// The bytes are not those that manifest or configuration promise.
#[derive(Debug, Clone)]
pub(super) struct Corrupt(pub(super) String);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Corrupt {}

/// Marks errors of a layer whose bytes are the right ones: no other source will have better ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Invalid;

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the layer's content cannot be used")
    }
}

impl std::error::Error for Invalid {}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Network,
    Access,
    Missing,
    Corrupt,
    Invalid,
    Rejected,
    Blocked,
    Certificate,
    Architecture,
    /// What is named is no image: an index inside an index, an artefact.
    Format,
    Space,
    /// A local storage keeps layers unpacked; old proxies cannot give them by their digests.
    Storage,
    Other,
}

/// The words of registries and of skopeo 1.9 to 1.19; the first that fits counts.
const WORDS: [(&str, Reason); 27] = [
    ("no space left on device", Reason::Space),
    ("disk quota exceeded", Reason::Space),
    ("rejected by policy", Reason::Rejected),
    ("signature was required", Reason::Rejected),
    ("is blocked in", Reason::Blocked),
    ("corrupted blob", Reason::Corrupt),
    ("digest did not match", Reason::Corrupt),
    ("does not match digest", Reason::Corrupt),
    ("does not match provided manifest digest", Reason::Corrupt),
    ("no image found in", Reason::Architecture),
    ("unsupported manifest mime type", Reason::Format),
    ("http response to https", Reason::Certificate),
    ("x509", Reason::Certificate),
    ("certificate", Reason::Certificate),
    ("locating item named", Reason::Storage),
    ("unauthorized", Reason::Access),
    ("authentication required", Reason::Access),
    ("denied", Reason::Access),
    ("forbidden", Reason::Access),
    ("invalid username/password", Reason::Access),
    ("manifest unknown", Reason::Missing),
    ("name unknown", Reason::Missing),
    ("blob unknown", Reason::Missing),
    ("404 (not found)", Reason::Missing),
    ("status code 404", Reason::Missing),
    ("no such file or directory", Reason::Missing),
    ("no descriptor found for reference", Reason::Missing),
];

fn reason(error: &Error, text: &str) -> Reason {
    if error.chain().any(|cause| cause.is::<Corrupt>()) {
        return Reason::Corrupt;
    }
    if error.is::<Invalid>() {
        return Reason::Invalid;
    }
    if judge(error) == Verdict::MayPass {
        return Reason::Network;
    }
    let text = text.to_lowercase();
    WORDS.iter().find(|(word, _)| text.contains(word)).map_or(Reason::Other, |(_, reason)| *reason)
}

impl Reason {
    fn kind(self) -> ExitKind {
        match self {
            Self::Invalid | Self::Rejected | Self::Blocked | Self::Architecture | Self::Format => {
                ExitKind::Refused
            }
            _ => ExitKind::Failed,
        }
    }

    /// Whether it matters which of several hosts gave the answer.
    fn depends_on_the_host(self) -> bool {
        matches!(
            self,
            Self::Network
                | Self::Access
                | Self::Missing
                | Self::Corrupt
                | Self::Blocked
                | Self::Certificate
                | Self::Other
        )
    }

    fn next(self) -> &'static str {
        match self {
            Self::Network => "check the network, the name and the registry, then run the same command again",
            Self::Access => "check the credentials: `--authfile`, or one of the usual files",
            Self::Missing => {
                "check the reference: host, name, tag, digest; if it is right, push the image again"
            }
            Self::Corrupt => {
                "somebody has changed or damaged the image: pull it from a source that you trust, or push it again"
            }
            Self::Invalid => "build the image again without what is named here, or name another one",
            Self::Rejected => "use an image that /etc/containers/policy.json accepts",
            Self::Blocked => "name a registry that registries.conf does not block",
            Self::Certificate => {
                "trust the registry's certificate, or mark the registry insecure in registries.conf"
            }
            Self::Architecture => "name an image, or an index with an image, for this architecture",
            Self::Format => {
                "name an image, or an index of images, by its own digest: an index inside an index is not followed"
            }
            Self::Space => {
                "free some space (`mcd cleanup` drops what no deployment needs) and run the same command again"
            }
            Self::Storage => {
                "pull it from its registry, or copy it out with `skopeo copy` to an oci: folder and name that"
            }
            Self::Other => {
                "check the reference and the source; if they were repaired, run the same command again"
            }
        }
    }
}

/// A fault that says what failed, with the last real cause. `configured` is what this machine's
/// configuration says about where the image comes from.
pub(super) fn explain(what: String, error: &Error, configured: Option<&str>) -> Fault {
    let mut why = redact(&match error.is::<Invalid>() {
        // The marker is for the table above, not for people.
        true => error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": "),
        false => format!("{error:#}"),
    });
    let reason = reason(error, &why);
    if let Some(configured) = configured.filter(|_| reason.depends_on_the_host()) {
        why = format!("{why} ({configured})");
    }
    Fault::new(reason.kind(), what).why(why).next(reason.next())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn hints_fit_the_reason() {
        for (text, kind, hint) in [
            (
                "fetching blob: invalid status code from registry 401 (Unauthorized)",
                ExitKind::Failed,
                "credentials",
            ),
            (
                "fetching blob: invalid status code from registry 403 (Forbidden)",
                ExitKind::Failed,
                "credentials",
            ),
            ("requested access to the resource is denied", ExitKind::Failed, "credentials"),
            (
                "fetching blob: invalid status code from registry 404 (Not Found)",
                ExitKind::Failed,
                "reference",
            ),
            ("reading manifest x in r/os: manifest unknown", ExitKind::Failed, "reference"),
            ("corrupted blob, expecting sha256:1, got sha256:2", ExitKind::Failed, "trust"),
            ("Source image rejected: x is rejected by policy", ExitKind::Refused, "policy.json"),
            ("registry r is blocked in /etc/containers/registries.conf", ExitKind::Refused, "block"),
            ("x509: certificate signed by unknown authority", ExitKind::Failed, "certificate"),
            ("no image found in manifest list for architecture s390x", ExitKind::Refused, "architecture"),
            ("write /x: no space left on device", ExitKind::Failed, "cleanup"),
            (
                "failed to invoke method GetBlob: locating item named \"sha256:1\" for image with ID \"2\" (consider removing the image to resolve the issue): file does not exist",
                ExitKind::Failed,
                "skopeo copy",
            ),
            ("something nobody has seen", ExitKind::Failed, "source"),
        ] {
            let fault = explain("x".to_owned(), &anyhow!("{text}"), None);
            assert_eq!(fault.kind, kind, "{text}");
            assert!(fault.next.as_deref().unwrap().contains(hint), "{text}: {fault:?}");
        }
    }

    #[test]
    fn mirrors_are_named_where_they_matter() {
        let told = Some("/etc/containers/registries.conf tries m/os first");
        let of = |error: &Error| explain("x".to_owned(), error, told).why.unwrap();
        assert!(of(&Error::new(Corrupt("bad".to_owned()))).contains("tries m/os first"));
        let invalid = of(&anyhow!("entry '../x'").context(Invalid));
        assert_eq!(invalid, "entry '../x'");
    }
}
