//! Layering on real repos.
