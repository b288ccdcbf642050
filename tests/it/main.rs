//! Integration tests on real parts: one binary, a module for each subject. `root_*` needs root.

#![allow(missing_docs)]
// clippy.toml lets tests unwrap, but sees only functions marked as tests, not what they call.
#![allow(clippy::unwrap_used)]

mod cli;
#[cfg(feature = "ostree")]
mod nspawn;
mod shipping;
#[cfg(feature = "ostree")]
mod stories;
mod supply_chain;
#[cfg(feature = "ostree")]
mod trust;
