//! Effects on the machine. Everything that changes an OSTree host is a method of `HostLocked`, the proof
//! that this process holds the host lock. What the small binary of the initramfs has of it does
//! without libostree.

#[cfg(feature = "ostree")]
pub mod actions;
#[cfg(feature = "ostree")]
pub mod config_files;
pub mod converge;
#[cfg(feature = "ostree")]
pub mod health;
#[cfg(feature = "ostree")]
pub mod layer;
#[cfg(feature = "ostree")]
pub mod lock_holder;
#[cfg(feature = "ostree")]
pub mod pull;
#[cfg(feature = "ostree")]
pub mod reboot;
#[cfg(feature = "ostree")]
pub mod repo_lock;
#[cfg(feature = "ostree")]
pub mod service;
#[cfg(feature = "ostree")]
pub mod trust;

#[cfg(feature = "ostree")]
mod boot_file;
pub mod boot_hook;
pub mod boot_note;
mod boot_slots;
#[cfg(feature = "ostree")]
mod cancel;
#[cfg(feature = "ostree")]
mod child;
#[cfg(feature = "ostree")]
mod configured;
#[cfg(feature = "ostree")]
mod confirm;
#[cfg(feature = "ostree")]
mod deploy;
#[cfg(feature = "ostree")]
mod doctor;
#[cfg(feature = "ostree")]
pub(crate) mod drift;
pub(crate) mod durable;
#[cfg(feature = "ostree")]
mod early_boot;
#[cfg(feature = "ostree")]
mod etc_merge;
#[cfg(feature = "ostree")]
mod firstboot;
#[cfg(feature = "ostree")]
mod host_lock;
#[cfg(feature = "ostree")]
mod pin;
#[cfg(feature = "ostree")]
pub mod policies;
#[cfg(feature = "ostree")]
mod preflight;
#[cfg(feature = "ostree")]
mod prune;
#[cfg(feature = "ostree")]
mod records;
#[cfg(feature = "ostree")]
mod report;
#[cfg(feature = "ostree")]
mod requests;
#[cfg(feature = "ostree")]
mod rollback;
#[cfg(feature = "ostree")]
mod selinux;
#[cfg(feature = "ostree")]
mod settle;
#[cfg(feature = "ostree")]
mod soft_reboot;
#[cfg(feature = "ostree")]
mod staged_before;
#[cfg(feature = "ostree")]
mod status;
#[cfg(feature = "ostree")]
mod sysroot;
#[cfg(feature = "ostree")]
mod unexplained;
#[cfg(feature = "ostree")]
pub(crate) mod watch;

#[cfg(feature = "ostree")]
pub use {
    cancel::Cancelled,
    configured::{Configured, ToldBy},
    confirm::{GaveUp, Judging},
    deploy::{DeployRequest, Deployed},
    early_boot::is_shutting_down,
    etc_merge::EtcConflict,
    firstboot::FirstBoot,
    host_lock::{HostLocked, Wait},
    pin::Pinned,
    preflight::{CommitFacts, EtcLayout, commit_facts},
    prune::{Freed, PruneOptions, Pruned, RemoveLeftovers},
    records::{RecordsFolder, entry as history_entry, entry_of_live as history_of_live, new_id},
    report::{Report, report},
    requests::HostRequest,
    rollback::{RollBack, RolledBack},
    settle::Settled,
    staged_before::why_not_finalised,
    sysroot::Host,
};

#[cfg(all(test, feature = "ostree"))]
mod tests;

/// Seconds since the epoch, for records.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
