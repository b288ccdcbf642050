//! The pod side: follows its Node, decides with [`crate::plan::cluster`], calls the host's program.

pub mod host_call;
