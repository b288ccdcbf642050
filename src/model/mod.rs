//! Nouns without effects: parsed, validated, printable.

pub mod digest;
pub mod event;
pub mod image_ref;
pub mod oci;
pub mod status;
