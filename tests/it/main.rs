//! Integration tests: one binary, a module for each subject.

// clippy.toml lets tests unwrap, but sees only functions marked as tests, not what they call.
#![allow(clippy::unwrap_used)]

mod cli;
mod shipping;
