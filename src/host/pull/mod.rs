//! Importing OS images into the host's OSTree repo.
//!
//! An image comes in layers: tar streams, compressed. The first ones of an OSTree-native image carry
//! an OSTree commit object by object ([`encapsulated`]); others are plain trees ([`derived`]). Each
//! layer becomes a commit in the repo, held by a ref named after its blob, so that it is never
//! fetched twice; the image becomes a commit whose tree is the base with the plain layers laid over
//! it ([`merge`]), held by a ref named after the image. Refs and metadata are those of ostree-ext,
//! rpm-ostree and bootc: each takes up what another pulled.
//!
//! Several layers are under way at once, each through these threads:
//!
//! ```text
//! skopeo ─► fetch ([`source`]) ─► decode ([`decode`], [`tarball`]) ─► write ([`writer`]) ─► publish ([`staging`])
//!           one per proxy         one per layer                      one per CPU, shared   bounded groups
//! ```
//!
//! Nothing that a layer says is believed: [`limits`], checksums of every object, digest and diff id
//! of every layer, and the completeness of the whole tree ([`complete`]) stand before the refs.
//!
//! Not here: what policy says about signatures, and what is deployed.

mod complete;
mod decode;
mod derived;
mod encapsulated;
mod explain;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod import;
mod kernel;
mod label;
mod legacy;
mod limits;
mod merge;
pub(in crate::host) mod objects;
mod partial;
mod place;
mod present;
mod priority;
mod rate;
pub(in crate::host) mod read;
mod relabel;
mod resolve;
mod retry;
mod signed;
mod source;
mod space;
mod staging;
mod stop;
mod tarball;
#[cfg(test)]
mod tests;
mod unpack;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use cap_std_ext::cap_std::fs::Dir;

use crate::model::digest::Digest;
use crate::model::oci::ImageFacts;

pub use import::import;
pub use kernel::kernel_of;
pub(in crate::host) use present::reader;
pub use present::{
    PlannedLayer, Presence, PullPlan, image_by_reference, image_in_repo, is_verified_under, note_verified,
    plan,
};
pub use resolve::{is_unreachable, machine_architecture, resolve};
pub use signed::is_signed_for_remote;
pub use source::Access;
pub use staging::{Leftovers, leftovers, remove_leftovers};

/// Metadata of commits that an importer made; other tools look for it.
const IMPORTER_KEY: &str = "ostree.importer.version";
/// Ours. Not the program's version: the same image must give the same commit on every host.
const IMPORTER_VERSION: &str = "mcd-1";

/// How to fetch an image.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Credentials and trust.
    pub access: Access,
    /// Idle I/O and CPU priority, for a pull that nobody waits for.
    pub background: bool,
    /// Compressed bytes a second.
    pub rate_limit: Option<u64>,
    /// How many layers are fetched at once, each through a proxy of its own.
    pub proxies: usize,
    /// How often what may pass is tried, the first time included.
    pub tries: usize,
    /// The pause after the first failed try; each next one is longer, with jitter.
    pub first_pause: Duration,
    /// How long to wait for a byte. There is no limit for the whole: a slow network is no fault.
    pub idle_timeout: Duration,
    /// What this machine's configuration says about where the image comes from, for messages:
    /// mirrors, proxies.
    pub configured: Option<String>,
    /// The repo: skopeo unpacks archives in a folder there, not in `/var/tmp`.
    pub scratch: Option<Arc<Dir>>,
    /// Fetch from here instead: a reference as skopeo takes it, with the same manifest.
    pub fetch_from: Option<String>,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            background: false,
            rate_limit: None,
            proxies: cpus().clamp(2, 4),
            tries: 6,
            first_pause: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(60),
            configured: None,
            scratch: None,
            fetch_from: None,
        }
    }
}

/// An image whose manifest and configuration are known.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The digest that was asked for, when it is not the manifest's: that of an index.
    pub asked_digest: Option<Digest>,
    /// The manifest's digest.
    pub digest: Digest,
    /// The manifest in OCI form.
    pub manifest: Vec<u8>,
    /// The configuration.
    pub config: Vec<u8>,
    /// What both tell.
    pub facts: ImageFacts,
}

/// An image in the repo.
#[derive(Debug, Clone, PartialEq)]
pub struct PulledImage {
    /// The image commit.
    pub commit: String,
    /// The manifest's digest.
    pub digest: Digest,
    /// The digest that was asked for, when it is that of an index.
    pub asked_digest: Option<Digest>,
    /// The OS version.
    pub version: Option<String>,
    /// What it cost.
    pub stats: PullStats,
}

/// What a pull did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PullStats {
    /// Compressed bytes that were fetched.
    pub fetched_bytes: u64,
    /// Compressed bytes of layers that the repo had.
    pub reused_bytes: u64,
    /// Objects written.
    pub objects: u64,
    /// Bytes in them.
    pub object_bytes: u64,
    /// Seconds from the first byte to the last ref.
    pub seconds: f64,
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}
