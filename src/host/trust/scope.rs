//! Scopes of `containers-policy.json(5)`: which ones name an image, from narrow to wide.
//!
//! As containers/image looks them up (each line was tried against skopeo, see `tests/it/trust`):
//!
//! * docker: `host/ns/name:tag` *or* `host/ns/name@digest`, as it was asked for; `host/ns/name`;
//!   `host/ns`; `host[:port]`; then, without the port, `*.b.c` and `*.c` for the host `a.b.c`; `""`.
//! * oci, oci-archive, dir: the real path without links, its parents down to the first level, `""`.
//!   The tag is no part of it, whatever the manual says.
//! * containers-storage: `[driver@root]name…`, where driver and root are those of the store. They
//!   are not known before the store is opened, so every scope that might apply counts; where these
//!   disagree, skopeo, which opens the store, is the judge.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use camino::Utf8PathBuf;

use super::policy::Demand;
use crate::error::Fault;
use crate::model::image_ref::{ImageReference, Transport};

/// The scopes that may name an image.
#[derive(Debug)]
pub(super) enum Candidates {
    /// The first one that the policy has is the one.
    Chain(Vec<String>),
    /// Names within a store that is not known; none: the image is named by its id.
    AnyStore(Vec<String>),
}

/// What holds for an image, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The scope that says so; none: the policy's `default`.
    pub(super) scope: Option<String>,
    /// The strictest that may hold.
    pub(super) strictest: Demand,
    /// The laxest that may hold.
    pub(super) laxest: Demand,
}

impl Found {
    fn of(scope: Option<&str>, demand: Demand) -> Self {
        Self { scope: scope.map(str::to_owned), strictest: demand, laxest: demand }
    }

    /// Another scope may hold instead: the strictest one is named.
    fn or(self, scope: &str, demand: Demand) -> Self {
        let laxest = self.laxest.min(demand);
        let strictest = if demand > self.strictest { Self::of(Some(scope), demand) } else { self };
        Self { laxest, ..strictest }
    }
}

impl Candidates {
    /// The scopes for `image`. For local files the real path is looked up.
    pub(super) fn of(image: &ImageReference) -> Result<Self> {
        match image.transport {
            Transport::Registry => Ok(Self::Chain(docker_chain(image))),
            Transport::OciDir | Transport::OciArchive => {
                Ok(Self::Chain(path_chain(real_path(image)?.as_str())))
            }
            Transport::ContainersStorage => Ok(Self::AnyStore(store_names(image))),
        }
    }

    /// What holds for the image: by the scopes of its transport, else by the policy's `default`.
    pub(super) fn find(&self, scopes: &BTreeMap<String, Demand>, default: Demand) -> Found {
        let widest = scopes.get("").map_or(Found::of(None, default), |demand| Found::of(Some(""), *demand));
        match self {
            Self::Chain(names) => {
                let mut found =
                    names.iter().filter_map(|name| Some(Found::of(Some(name), *scopes.get(name)?)));
                found.next().unwrap_or(widest)
            }
            Self::AnyStore(names) => {
                let might = scopes.iter().filter(|(scope, _)| !scope.is_empty() && may_name(scope, names));
                might.fold(widest, |found, (scope, demand)| found.or(scope, *demand))
            }
        }
    }

    /// A scope to suggest to a person: the repository, the path.
    pub(super) fn suggestion(&self) -> &str {
        match self {
            // The first of a registry's chain has a tag or a digest, which is too narrow for updates.
            Self::Chain(names) => names.iter().find(|name| !has_tag(name)).map_or("", String::as_str),
            Self::AnyStore(_) => "",
        }
    }
}

/// Whether a scope of this transport can be one at all, as containers/image sees it.
pub(super) fn validate(transport: &str, scope: &str) -> Result<(), String> {
    match transport {
        _ if scope.is_empty() => Ok(()),
        "oci" | "oci-archive" | "dir" => validate_path(scope),
        "containers-storage" => validate_store(scope),
        _ => Ok(()),
    }
}

fn validate_path(path: &str) -> Result<(), String> {
    let Some(relative) = path.strip_prefix('/') else {
        return Err("a scope of local files is an absolute path".to_owned());
    };
    if relative.is_empty() {
        return Err("write the scope \"\" for everything".to_owned());
    }
    if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("the path must be written without \"//\", \".\", \"..\" and a final \"/\"".to_owned());
    }
    Ok(())
}

fn validate_store(scope: &str) -> Result<(), String> {
    let spec = scope.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(spec, _)| spec);
    match spec.map(|spec| spec.split_once('@').map_or(spec, |(_, root)| root)) {
        Some(root) if root.starts_with('/') => Ok(()),
        _ => Err("a scope of a local storage begins with [DRIVER@/ROOT] or [/ROOT]".to_owned()),
    }
}

fn docker_chain(image: &ImageReference) -> Vec<String> {
    let name = normalized_name(&image.location);
    let mut chain = Vec::new();
    match (&image.digest, &image.tag) {
        (Some(digest), _) => chain.push(format!("{name}@{digest}")),
        (None, tag) => chain.push(format!("{name}:{}", tag.as_deref().unwrap_or("latest"))),
    }
    chain.extend(with_parents(&name).map(str::to_owned));
    let host = name.split('/').next().unwrap_or_default();
    let mut domain = host.split(':').next().unwrap_or_default();
    while let Some((_, parent)) = domain.split_once('.') {
        chain.push(format!("*.{parent}"));
        domain = parent;
    }
    chain
}

/// A repository name in full: `busybox` is `docker.io/library/busybox` to all container tools.
fn normalized_name(name: &str) -> String {
    let (host, rest) = match name.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
        _ => ("docker.io", name),
    };
    match host {
        "docker.io" | "index.docker.io" if !rest.contains('/') => format!("docker.io/library/{rest}"),
        "index.docker.io" => format!("docker.io/{rest}"),
        _ => format!("{host}/{rest}"),
    }
}

/// `a/b/c`, `a/b`, `a`.
fn with_parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(parent, _)| parent))
}

fn path_chain(path: &str) -> Vec<String> {
    with_parents(path).filter(|parent| !parent.is_empty()).map(str::to_owned).collect()
}

fn real_path(image: &ImageReference) -> Result<Utf8PathBuf> {
    let location = image.location.as_str();
    let real = std::path::Path::new(location).canonicalize().map_err(|error| {
        Fault::failed(format!("image {} cannot be opened", image.to_skopeo()))
            .why(format!("{location}: {error}"))
    })?;
    Utf8PathBuf::from_path_buf(real)
        .map_err(|path| anyhow!("the real path of {location} is not UTF-8: {}", path.display()))
}

fn store_names(image: &ImageReference) -> Vec<String> {
    let name = match image.location.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, name)) => name,
        None => &image.location,
    };
    // An id, or the beginning of one: which names such an image has, only the store knows.
    if name.is_empty() || name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Vec::new();
    }
    with_parents(&normalized_name(name)).map(str::to_owned).collect()
}

/// Whether a scope `[store]name…` may hold for an image with these names.
fn may_name(scope: &str, names: &[String]) -> bool {
    let name = scope.split_once(']').map_or("", |(_, name)| name);
    let (repository, _) = split_tag(name);
    names.is_empty() || repository.is_empty() || names.iter().any(|known| known == repository)
}

/// A name without its tag and digest, and whether it had any.
fn split_tag(name: &str) -> (&str, bool) {
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[start..].find([':', '@']) {
        // `host:port` alone is a host; only what follows a slash can carry a tag.
        Some(at) if start > 0 || name[at..].starts_with('@') => (&name[..start + at], true),
        _ => (name, false),
    }
}

fn has_tag(name: &str) -> bool {
    !name.starts_with('/') && split_tag(name).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(location: &str, tag: Option<&str>, digest: bool) -> ImageReference {
        ImageReference {
            transport: Transport::Registry,
            location: location.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.then(|| crate::model::digest::Digest::of(b"")),
        }
    }

    #[test]
    fn docker_chains() {
        let table: [(ImageReference, &[&str]); 3] = [
            (
                registry("a.b.example.com:5000/ns/os", Some("1"), false),
                &[
                    "a.b.example.com:5000/ns/os:1",
                    "a.b.example.com:5000/ns/os",
                    "a.b.example.com:5000/ns",
                    "a.b.example.com:5000",
                    "*.b.example.com",
                    "*.example.com",
                    "*.com",
                ],
            ),
            (
                registry("busybox", None, false),
                &[
                    "docker.io/library/busybox:latest",
                    "docker.io/library/busybox",
                    "docker.io/library",
                    "docker.io",
                    "*.io",
                ],
            ),
            (registry("localhost/os", None, false), &["localhost/os:latest", "localhost/os", "localhost"]),
        ];
        for (image, expected) in table {
            assert_eq!(docker_chain(&image), expected);
        }
        // The digest wins over the tag, as it does for skopeo.
        let both = docker_chain(&registry("h.x/os", Some("1"), true));
        assert!(both[0].starts_with("h.x/os@sha256:"), "{both:?}");
        assert!(!both.contains(&"h.x/os:1".to_owned()));
    }

    #[test]
    fn path_chains_stop_above_the_root() {
        assert_eq!(path_chain("/srv/images/os"), ["/srv/images/os", "/srv/images", "/srv"]);
    }

    #[test]
    fn suggestions_are_repositories_and_paths() {
        assert_eq!(
            Candidates::Chain(docker_chain(&registry("h:5/os", Some("1"), false))).suggestion(),
            "h:5/os"
        );
        assert_eq!(Candidates::Chain(docker_chain(&registry("h:5/os", None, true))).suggestion(), "h:5/os");
        assert_eq!(Candidates::Chain(path_chain("/a/b:c")).suggestion(), "/a/b:c");
    }

    #[test]
    fn a_scope_of_any_store_may_count() {
        let names = vec!["quay.io/ns/os".to_owned(), "quay.io/ns".to_owned(), "quay.io".to_owned()];
        for (scope, expected) in [
            ("", true),
            ("[overlay@/var/lib/containers/storage]", true),
            ("[/srv]quay.io/ns", true),
            ("[/srv]quay.io/ns/os:1", true),
            ("[/srv]quay.io/ns/os:1@0123", true),
            ("[/srv]quay.io/ns/os@sha256:00", true),
            ("[/srv]@0123", true),
            ("[/srv]quay.io/ns/other", false),
            ("[/srv]localhost:5000", false),
        ] {
            assert_eq!(may_name(scope, &names), expected, "{scope}");
            assert!(may_name(scope, &[]), "{scope}");
        }
    }
}
