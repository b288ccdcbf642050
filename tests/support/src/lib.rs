//! What `mcd`'s tests and its demo stand on.
//!
//! * [`tree`], [`os`], [`machine_config`]: small OS trees, committed into a repo; what a
//!   configuration needs of them; `MachineConfig`s.
//! * [`image`]: OS images in OCI layouts, honest ones of every format and lying ones.
//! * [`registry`], [`fake_registry`]: a real registry, and one that misbehaves on order.
//! * [`sysroot`], [`booted`]: sysroots with a deployment, and "booting" them in a namespace.
//! * [`machine`]: booting them for real, by systemd in a container.
//! * [`strace`], [`listing`]: striking a command at a system call, and comparing what is on disk.
//! * [`kube`]: a real Kubernetes control plane, with a played kubelet.
//! * [`vm`]: booting a disk in an emulated machine, and cutting its power.
//! * [`shipped`], [`cache`]: the program in a tree of an OS, and a folder to keep that in.
//!
//! Nothing here is mocked: repos are libostree's.

// This crate makes files for tests by plain paths; the program itself may not.
#![allow(clippy::disallowed_methods)]

pub mod booted;
pub mod cache;
pub mod compress;
pub mod encapsulate;
pub mod entry;
pub mod fake_registry;
pub mod image;
pub mod kube;
pub mod layer;
pub mod layout;
pub mod legacy;
pub mod listing;
pub mod machine;
pub mod machine_config;
pub mod os;
pub mod process;
pub mod registry;
pub mod scratch;
pub mod shipped;
pub mod strace;
pub mod sysroot;
pub mod tree;
pub mod vm;
