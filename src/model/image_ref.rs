//! References to OS images, in the spellings of the container tools and of the OSTree tools.
//!
//! * Container tools: `host/name[:tag][@digest]`, `docker://…`, `oci:PATH[:tag]`,
//!   `oci-archive:PATH[:tag]`, `containers-storage:[STORE]NAME[:tag][@digest]`.
//! * OSTree tools (rpm-ostree, bootc; the form kept in a deployment's origin):
//!   `ostree-unverified-registry:host/name…`, `ostree-unverified-image:TRANSPORT…`,
//!   `ostree-image-signed:TRANSPORT…`, `ostree-remote-registry:REMOTE:host/name…`,
//!   `ostree-remote-image:REMOTE:TRANSPORT…`.

use serde::{Deserialize, Serialize};

use super::digest::Digest;

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageReference {
    /// How to fetch it.
    pub transport: Transport,
    /// `host[:port]/name`, a path, or `[STORE]name`: everything before tag and digest.
    pub location: String,
    /// The tag. Never made up: absent means that none was written.
    pub tag: Option<String>,
    /// The digest of a manifest or an index. Wins over the tag.
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
    /// The whole text.
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
            (Some(digest), _) if self.transport != Transport::OciDir && self.transport != Transport::OciArchive => {
                format!("{prefix}{}@{digest}", self.location)
            }
            (_, Some(tag)) => format!("{prefix}{}:{tag}", self.location),
            _ => format!("{prefix}{}", self.location),
        }
    }

    /// `host[:port]` of a registry reference.
    pub fn registry_host(&self) -> Option<&str> {
        (self.transport == Transport::Registry).then(|| self.location.split('/').next().unwrap_or(&self.location))
    }
}
