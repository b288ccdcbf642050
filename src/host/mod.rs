//! Effects on the machine. Everything that changes a host is a method of [`HostLocked`], the proof
//! that this process holds the host lock.

pub mod lock_holder;
pub mod pull;
pub mod reboot;
pub mod repo_lock;
pub mod trust;

mod boot_file;
mod cancel;
mod deploy;
mod durable;
mod etc_merge;
mod host_lock;
mod pin;
mod preflight;
mod prune;
mod records;
mod requests;
mod rollback;
mod settle;
mod status;
mod sysroot;

pub use {
    cancel::Cancelled,
    deploy::{DeployRequest, Deployed},
    etc_merge::EtcConflict,
    host_lock::{HostLocked, Wait},
    pin::Pinned,
    preflight::{CommitFacts, EtcLayout, commit_facts},
    prune::{Freed, PruneOptions, Pruned, RemoveLeftovers},
    records::entry as history_entry,
    requests::HostRequest,
    rollback::{RollBack, RolledBack},
    settle::Settled,
    sysroot::Host,
};

#[cfg(all(test, feature = "ostree"))]
mod tests;

/// Seconds since the epoch, for records.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
