//! Integration tests on real parts: libostree, skopeo, docker-registry. `root_*` needs root.
#![allow(missing_docs, clippy::unwrap_used)]

#[cfg(feature = "ostree")]
mod trust;
