//! All places, and the page that tells of them.
