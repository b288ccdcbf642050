//! What a running verb says while it works. One event is one line of `--json` progress.
//!
//! Nothing here prints: the user interface is one receiver of events, tests are another.

use serde::Serialize;

use super::digest::Digest;

/// Something that a person watching, or a program following, wants to know now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A step of the plan begins.
    Step {
        /// What is done, as a gerund phrase: "importing host/os:1".
        what: String,
    },
    /// A layer starts to be read.
    LayerStarted {
        /// The blob's digest.
        digest: Digest,
        /// Compressed size in bytes, from the manifest.
        size: u64,
        /// What the layer holds: package names or the line that made it.
        title: String,
    },
    /// More of a running layer arrived.
    LayerProgress {
        /// The blob's digest.
        digest: Digest,
        /// Compressed bytes read so far.
        bytes: u64,
    },
    /// A layer is read, verified and written.
    LayerFinished {
        /// The blob's digest.
        digest: Digest,
        /// Objects that were new.
        objects: u64,
        /// Objects that the repo had.
        reused: u64,
    },
    /// A layer needs no fetching.
    LayerSkipped {
        /// The blob's digest.
        digest: Digest,
        /// Compressed size in bytes.
        size: u64,
    },
    /// Somebody else holds what is needed.
    Waiting {
        /// The lock.
        what: String,
        /// Who holds it, as far as the kernel says.
        holder: String,
    },
    /// Something failed that may pass; it will be tried again.
    Retry {
        /// What failed.
        what: String,
        /// The cause.
        why: String,
        /// Seconds until the next try.
        delay_seconds: u64,
        /// This was try number … (from 1).
        attempt: u32,
    },
    /// Something worth knowing that stops nothing.
    Warning {
        /// The message.
        message: String,
    },
    /// Something that was done or decided.
    Note {
        /// The message.
        message: String,
    },
}

/// Receives events. Shared by threads.
pub trait EventSink: Send + Sync {
    /// Takes one event. Must not block for long: the importer calls it from its hot path.
    fn event(&self, event: Event);
}

/// A sink that drops everything.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl EventSink for Silent {
    fn event(&self, _event: Event) {}
}
