//! Nouns without effects: parsed, validated, printable.

pub mod applied;
pub mod boot_note;
pub mod boot_order;
pub mod boots;
pub mod config;
pub mod digest;
pub mod event;
pub mod firstboot;
pub mod health;
pub mod hold;
pub mod host_request;
pub mod image_ref;
pub mod kargs;
pub mod live;
pub mod manifest;
pub mod oci;
pub mod origin;
#[cfg(feature = "ostree")]
pub mod policy;
pub mod records;
#[cfg(feature = "ostree")]
pub mod redact;
pub mod repo_refs;
pub mod status;
#[cfg(feature = "ostree")]
pub mod wire;
