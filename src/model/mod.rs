//! Nouns without effects: parsed, validated, printable.

pub mod boot_order;
pub mod digest;
pub mod event;
pub mod image_ref;
pub mod kargs;
pub mod oci;
pub mod repo_refs;
pub mod status;
