//! The daemon against a real Kubernetes control plane.
//!
//! The host is simulated here: what the daemon does to a real one is in `tests/it`. `make cluster-test T=rbac`
//! runs the tests with that in their name.

#![allow(missing_docs)]
// clippy.toml lets tests unwrap, but sees only functions marked as tests, not what they call.
#![allow(clippy::unwrap_used)]
// A story looks at its own scratch folders by plain paths; the program itself may not.
#![allow(clippy::disallowed_methods)]
#![cfg(feature = "cluster")]

mod drains;
mod fleet;
mod hosts;
// The machine that is booted, as the stories of one host have it.
#[path = "../it/nspawn/installation.rs"]
mod installation;
mod killed;
mod metrics;
mod outages;
mod pools;
mod real;
mod refusals;
mod updates;
mod world;
