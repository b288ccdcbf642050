//! The pod side: follows its Node, decides with [`crate::plan::cluster`], calls the host's program.
//!
//! ```text
//!   API server ──watch Node, ControllerConfig──► daemon ──HostCall──► the host's mcd
//!        ▲                                          │
//!        └──── annotations, MachineConfigNode, events (outbox: written when it answers)
//! ```
//!
//! The daemon: one thread, one task. It watches single objects only and gets one MachineConfig when it needs it. Only the
//! pool [`controller`], a program of its own, watches all nodes, pools and MachineConfigs.

pub mod api;
pub mod controller;
mod controller_config;
pub mod daemon;
pub mod drain;
pub mod drainer;
mod events;
mod hear;
pub mod host_call;
mod listen;
mod machine_config_node;
pub mod metrics;
mod node;
mod outbox;
mod readers;
mod request;
pub mod simulated;
mod start;

pub use listen::{Listening, Tls};
pub use start::{DaemonOptions, connect, run, spread};

use crate::plan::backoff::jitter;

/// Now, in seconds, as the API writes times.
fn stamp() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
