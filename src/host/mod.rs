//! Effects on the machine.

pub mod trust;
