//! `mcd` turns "this machine should be that OS image, with these kernel arguments and this
//! configuration" into one atomic change of an OSTree host.
//!
//! The library is the program: `main.rs` only parses, dispatches and picks the exit code.
//!
//! * [`model`]: nouns without effects: image references, kernel arguments, records.
//! * [`plan`]: decisions without effects: what to do, what it costs, what is refused.
//! * `host`: effects on the machine (feature `ostree`).
//! * `cluster`: the pod that follows its Node (feature `cluster`).
//! * `pipeline`: observe ▸ plan ▸ preflight ▸ prepare ▸ commit, the one way to change a host.

pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod commands;
pub mod error;
pub mod host;
#[cfg(feature = "ostree")]
pub mod interrupt;
pub mod logging;
#[cfg(feature = "ostree")]
pub mod memory;
pub mod model;
pub mod options;
#[cfg(feature = "ostree")]
pub mod pipeline;
pub mod plan;
pub mod ui;
