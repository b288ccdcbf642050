//! Effects on the machine.

pub mod pull;
pub mod repo_lock;
pub mod trust;
