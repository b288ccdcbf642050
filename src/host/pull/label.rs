//! SELinux labels for files that come without one: those of plain tar layers.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

use super::objects::{Xattrs, encode_xattrs};
use crate::host::selinux::{ATTRIBUTE, Policy, attribute};

/// Labels by one policy, or by none.
#[derive(Debug)]
pub(super) struct Labels {
    policy: Policy,
    /// Serialised attributes by what is in them: an image has a few hundred different ones.
    encoded: HashMap<Xattrs, Arc<[u8]>>,
}

impl Labels {
    fn by(policy: Policy) -> Self {
        Self { policy, encoded: HashMap::new() }
    }

    /// No policy: no labels.
    pub(super) fn none() -> Self {
        Self::by(Policy::none())
    }

    /// By the policy that a commit carries, if it does.
    pub(super) fn of_commit(repo: &ostree::Repo, commit: &str) -> Result<Self> {
        Policy::of_commit(repo, commit).map(Self::by)
    }

    /// By the policy in a folder that is laid out like a commit, if there is one.
    pub(super) fn of_folder(root: &Dir) -> Result<Self> {
        Policy::of_folder(root).map(Self::by)
    }

    /// The attributes of a file at `path` (in the commit, without leading slash), serialised.
    pub(super) fn apply(&mut self, path: &str, mode: u32, mut xattrs: Xattrs) -> Result<Arc<[u8]>> {
        // What a builder's host called it says nothing here.
        xattrs.retain(|(name, _)| name != ATTRIBUTE);
        xattrs.extend(self.policy.label(&final_path(path), mode)?.as_deref().map(attribute));
        xattrs.sort();
        if let Some(bytes) = self.encoded.get(&xattrs) {
            return Ok(Arc::clone(bytes));
        }
        let bytes = encode_xattrs(&xattrs);
        self.encoded.insert(xattrs, Arc::clone(&bytes));
        Ok(bytes)
    }
}

/// Where a file will be on the running host: `/usr/etc/x` becomes `/etc/x`. libostree before 2024
/// labels by the path in the commit and so gets the wrong label for all of `/etc`.
fn final_path(path: &str) -> String {
    match path.strip_prefix("usr/etc") {
        Some("") => "/etc".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("/etc{rest}"),
        _ => format!("/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_for_the_final_path() {
        for (path, expected) in [
            ("usr/etc", "/etc"),
            ("usr/etc/a/b", "/etc/a/b"),
            ("usr/etcetera", "/usr/etcetera"),
            ("usr/bin/x", "/usr/bin/x"),
        ] {
            assert_eq!(final_path(path), expected);
        }
    }
}
