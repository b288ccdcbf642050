//! References to OS images, in the spellings of the container tools and of the OSTree tools.
//!
//! * Container tools: `host/name[:tag][@digest]`, `docker://…`, `oci:PATH[:tag]`,
//!   `oci-archive:PATH[:tag]`, `containers-storage:[STORE]NAME[:tag][@digest]`.
//! * OSTree tools (rpm-ostree, bootc; the form kept in a deployment's origin):
//!   `ostree-unverified-registry:host/name…`, `ostree-unverified-image:TRANSPORT…`,
//!   `ostree-image-signed:TRANSPORT…`, `ostree-remote-registry:REMOTE:host/name…`,
//!   `ostree-remote-image:REMOTE:TRANSPORT…`.
//!
//! Short names (`os:1`, `docker://library/os`) are refused: which registry they mean depends on the
//! machine, and an OS must not. The parser is in [`parse`].

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use crate::error::Fault;

/// Where an image is fetched from, named as in `containers-transports(5)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// A registry: `docker://`.
    Registry,
    /// An OCI layout directory: `oci:`.
    OciDir,
    /// The same in one tar file: `oci-archive:`.
    OciArchive,
    /// Podman's local storage: `containers-storage:`.
    ContainersStorage,
}

/// One image, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageReference {
    /// How to fetch it.
    pub transport: Transport,
    /// `host[:port]/name`, a path, or `[STORE]name`: everything before tag and digest.
    pub location: String,
    /// The tag. Never made up: absent means that none was written. For layouts it is the name that
    /// the annotation `org.opencontainers.image.ref.name` gives the image.
    pub tag: Option<String>,
    /// The digest of a manifest or an index. Wins over the tag. Layouts cannot be opened by
    /// digest: there it is a demand, which the reader must check against what it opened.
    pub digest: Option<Digest>,
}

/// What must vouch for an image beside `containers-policy.json(5)`, which always applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verification {
    /// Nothing more (`ostree-unverified-…`).
    PolicyOnly,
    /// The policy must ask for a signature: accepting anything is refused (`ostree-image-signed:`).
    Signed,
    /// The base commit must be signed by a key of this OSTree remote (`ostree-remote-…:REMOTE:`).
    OstreeRemote(String),
}

/// An image and what must vouch for it: what a user asks for and an origin stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OsImage {
    /// What must vouch for the image.
    pub verification: Verification,
    /// The image.
    pub image: ImageReference,
}

/// Why a reference was refused: which part, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidReference {
    /// The whole text, without control characters and without anything that may be a credential.
    pub text: String,
    /// The wrong part, and why.
    pub reason: String,
}

impl Transport {
    /// The prefix as skopeo spells it.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Registry => "docker://",
            Self::OciDir => "oci:",
            Self::OciArchive => "oci-archive:",
            Self::ContainersStorage => "containers-storage:",
        }
    }

    /// The name that `containers-policy.json(5)` knows it by.
    pub fn policy_name(self) -> &'static str {
        match self {
            Self::Registry => "docker",
            Self::OciDir => "oci",
            Self::OciArchive => "oci-archive",
            Self::ContainersStorage => "containers-storage",
        }
    }

    /// Whether fetching goes over the network.
    pub fn is_remote(self) -> bool {
        self == Self::Registry
    }
}

impl ImageReference {
    /// The same image by this digest: what a tag was resolved to.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// The tag to use where one is needed: `latest` when neither tag nor digest was written, as all
    /// container tools read it.
    pub fn effective_tag(&self) -> Option<&str> {
        match (&self.tag, &self.digest) {
            (Some(tag), _) => Some(tag),
            (None, None) if self.transport == Transport::Registry => Some("latest"),
            _ => None,
        }
    }

    /// As skopeo takes it. It refuses tag and digest together for registries: the digest wins.
    pub fn to_skopeo(&self) -> String {
        let prefix = self.transport.prefix();
        match (&self.digest, &self.tag) {
            (Some(digest), _)
                if self.transport != Transport::OciDir && self.transport != Transport::OciArchive =>
            {
                format!("{prefix}{}@{digest}", self.location)
            }
            (_, Some(tag)) => format!("{prefix}{}:{tag}", self.location),
            _ => format!("{prefix}{}", self.location),
        }
    }

    /// `host[:port]` of a registry reference.
    pub fn registry_host(&self) -> Option<&str> {
        (self.transport == Transport::Registry)
            .then(|| self.location.split('/').next().unwrap_or(&self.location))
    }

    /// As a person would type it: `host/name:tag`, or with the transport where it is no registry.
    pub fn plain(&self) -> String {
        let whole = self.to_string();
        match whole.strip_prefix(Transport::Registry.prefix()) {
            Some(rest) => rest.to_owned(),
            None => whole,
        }
    }

    /// The text from which the ref `ostree/container/image/…` is made: transport and name as
    /// skopeo spells them, with the tag and digest that were written.
    pub fn ref_key(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport.prefix())?;
        self.write_name(f)
    }
}

impl ImageReference {
    fn write_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// The origin spelling: what `container-image-reference` holds.
impl fmt::Display for OsImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_registry = self.image.transport == Transport::Registry;
        match (&self.verification, is_registry) {
            (Verification::PolicyOnly, true) => f.write_str("ostree-unverified-registry:")?,
            (Verification::PolicyOnly, false) => f.write_str("ostree-unverified-image:")?,
            (Verification::Signed, _) => return write!(f, "ostree-image-signed:{}", self.image),
            (Verification::OstreeRemote(remote), true) => {
                write!(f, "ostree-remote-registry:{remote}:")?;
            }
            (Verification::OstreeRemote(remote), false) => {
                write!(f, "ostree-remote-image:{remote}:")?;
            }
        }
        if is_registry { self.image.write_name(f) } else { write!(f, "{}", self.image) }
    }
}

impl From<ImageReference> for OsImage {
    fn from(image: ImageReference) -> Self {
        Self { verification: Verification::PolicyOnly, image }
    }
}

impl From<OsImage> for String {
    fn from(image: OsImage) -> Self {
        image.to_string()
    }
}

impl TryFrom<String> for OsImage {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl From<ImageReference> for String {
    fn from(image: ImageReference) -> Self {
        image.to_string()
    }
}

impl TryFrom<String> for ImageReference {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl fmt::Display for InvalidReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image reference '{}': {}", self.text, self.reason)
    }
}

impl std::error::Error for InvalidReference {}

impl From<InvalidReference> for Fault {
    fn from(invalid: InvalidReference) -> Self {
        Fault::usage(format!("image reference '{}' is malformed", invalid.text))
            .why(invalid.reason)
            .next("write it as HOST/NAME[:TAG][@DIGEST], or as oci:PATH[:TAG]")
    }
}
