//! Nouns without effects: parsed, validated, printable.

pub mod boot_order;
pub mod digest;
pub mod event;
pub mod image_ref;
pub mod observed;
pub mod status;
