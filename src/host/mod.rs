//! Effects on the machine. Everything that changes a host is a method of [`HostLocked`], the proof
//! that this process holds the host lock.

mod durable;
pub mod lock_holder;
pub mod reboot;

#[cfg(feature = "ostree")]
mod boot_file;
#[cfg(feature = "ostree")]
mod deploy;
#[cfg(feature = "ostree")]
mod etc_merge;
#[cfg(feature = "ostree")]
mod host_lock;
#[cfg(feature = "ostree")]
mod pin;
#[cfg(feature = "ostree")]
mod preflight;
#[cfg(feature = "ostree")]
mod records;
#[cfg(feature = "ostree")]
mod requests;
#[cfg(feature = "ostree")]
mod rollback;
#[cfg(feature = "ostree")]
mod settle;
#[cfg(feature = "ostree")]
mod status;
#[cfg(feature = "ostree")]
mod sysroot;

#[cfg(feature = "ostree")]
pub use {
    deploy::{DeployRequest, Deployed},
    etc_merge::EtcConflict,
    host_lock::{HostLocked, Wait},
    pin::Pinned,
    preflight::{CommitFacts, EtcLayout, commit_facts},
    requests::HostRequest,
    rollback::{RollBack, RolledBack},
    settle::Settled,
    sysroot::Host,
};

/// Seconds since the epoch, for records.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
