//! SELinux labels for files that come without one: those of plain tar layers.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::fs::Dir;
use ostree::gio::Cancellable;

use super::objects::{Xattrs, encode_xattrs};

const ATTRIBUTE: &[u8] = b"security.selinux";

/// Labels by one policy, or by none.
pub(super) struct Labels {
    policy: Option<ostree::SePolicy>,
    /// Serialised attributes by what is in them: an image has a few hundred different ones.
    encoded: HashMap<Xattrs, Arc<[u8]>>,
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Labels").field("policy", &self.policy.is_some()).finish_non_exhaustive()
    }
}

impl Labels {
    /// No policy: no labels.
    pub(super) fn none() -> Self {
        Self { policy: None, encoded: HashMap::new() }
    }

    /// By the policy that a commit carries, if it does.
    pub(super) fn of_commit(repo: &ostree::Repo, commit: &str) -> Result<Self> {
        let policy = ostree::SePolicy::from_commit(repo, commit, Cancellable::NONE)
            .with_context(|| format!("Loading the SELinux policy of commit {commit}"))?;
        Ok(Self { policy: policy.name().is_some().then_some(policy), encoded: HashMap::new() })
    }

    /// By the policy in a folder that is laid out like a commit, if there is one.
    pub(super) fn of_folder(root: &Dir) -> Result<Self> {
        let policy = ostree::SePolicy::new_at(root.as_fd().as_raw_fd(), Cancellable::NONE)
            .context("Loading the image's SELinux policy")?;
        Ok(Self { policy: policy.name().is_some().then_some(policy), encoded: HashMap::new() })
    }

    /// The attributes of a file at `path` (in the commit, without leading slash), serialised.
    pub(super) fn apply(&mut self, path: &str, mode: u32, mut xattrs: Xattrs) -> Result<Arc<[u8]>> {
        // What a builder's host called it says nothing here.
        xattrs.retain(|(name, _)| name != ATTRIBUTE);
        if let Some(policy) = &self.policy {
            let label = policy
                .label(&final_path(path), mode, Cancellable::NONE)
                .with_context(|| format!("Looking up the SELinux label of /{path}"))?;
            if let Some(label) = label {
                let mut value = label.as_bytes().to_vec();
                value.push(0);
                xattrs.push((ATTRIBUTE.to_vec(), value));
            }
        }
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
