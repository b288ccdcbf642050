//! Real boots: kernel, initramfs, systemd and OSTree on a disk of their own, in an emulated machine.
//!
//! A story is a test: set up, act, boot, look. What a container can show as well is in `tests/it`.
//! `make vm-test T=rollback` runs the stories with that in their name.

#![allow(missing_docs)]
// clippy.toml lets tests unwrap, but sees only functions marked as tests, not what they call.
#![allow(clippy::unwrap_used)]
// A story looks at its own scratch folders by plain paths; the program itself may not.
#![allow(clippy::disallowed_methods)]
#![cfg(feature = "ostree")]

mod boot_count;
mod pivot;
mod power_cut;
mod world;
