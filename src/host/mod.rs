//! Effects on the machine. Everything that changes a host is a method of [`HostLocked`], the proof
//! that this process holds the host lock.

mod durable;
pub mod lock_holder;
pub mod reboot;

#[cfg(feature = "ostree")]
mod deploy;
#[cfg(feature = "ostree")]
mod etc_merge;
#[cfg(feature = "ostree")]
mod host_lock;
#[cfg(feature = "ostree")]
pub mod preflight;
#[cfg(feature = "ostree")]
mod sysroot;

#[cfg(feature = "ostree")]
pub use host_lock::{HostLocked, Wait};
#[cfg(feature = "ostree")]
pub use sysroot::Host;
