//! The host's side of the call from the pod: requests and replies as files, what the host says of itself.
//!
//! ```text
//!   pod ── requests/ID.json ──►  unit mcd-request-ID: `mcd serve-request --id ID`
//!    ◄── replies/ID.jsonl ──────────────┘ numbered lines, each synced; the last one has the outcome
//! ```
//!
//! A pipe would die with the pod; the files stay until the next boot. See `docs/host-call.md`.

mod hold;
mod report;
mod spool;

pub use hold::{HOLD_FILE, hold_of, lift_hold, place_hold};
pub use report::{report, taken_over};
pub use spool::{Answer, Replies, SPOOL, Spool, require_id};
