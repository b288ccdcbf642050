//! Integration tests on real parts: one binary, a module for each subject. `root_*` needs root.
#![allow(missing_docs, clippy::unwrap_used)]

mod cli;
mod shipping;
#[cfg(feature = "ostree")]
mod trust;
