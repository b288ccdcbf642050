//! The SELinux policy that a tree brings along, and labels as extended attributes.

use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::fs::Dir;
use ostree::gio::Cancellable;

/// The attribute that holds a label, which ends with a NUL there.
pub(super) const ATTRIBUTE: &[u8] = b"security.selinux";

/// A policy, or none: then nothing has a label.
pub(super) struct Policy(Option<ostree::SePolicy>);

impl Policy {
    /// No policy.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// The one that a commit carries, if it does.
    pub(super) fn of_commit(repo: &ostree::Repo, commit: &str) -> Result<Self> {
        let policy = ostree::SePolicy::from_commit(repo, commit, Cancellable::NONE)
            .with_context(|| format!("Loading the SELinux policy of commit {commit}"))?;
        Ok(Self(policy.name().is_some().then_some(policy)))
    }

    /// The one in a folder that is laid out like a commit or a root, if there is one.
    pub(super) fn of_folder(root: &Dir) -> Result<Self> {
        let policy = ostree::SePolicy::new_at(root.as_fd().as_raw_fd(), Cancellable::NONE)
            .context("Loading the SELinux policy of a tree")?;
        Ok(Self(policy.name().is_some().then_some(policy)))
    }

    /// The label of an absolute path of the running system. `mode` holds the type.
    pub(super) fn label(&self, path: &str, mode: u32) -> Result<Option<String>> {
        let Some(policy) = &self.0 else { return Ok(None) };
        let label = policy
            .label(path, mode, Cancellable::NONE)
            .with_context(|| format!("Looking up the SELinux label of {path}"))?;
        Ok(label.map(Into::into))
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("is_there", &self.0.is_some()).finish()
    }
}

/// A label as an extended attribute: name and value.
pub(super) fn attribute(label: &str) -> (Vec<u8>, Vec<u8>) {
    let mut value = label.as_bytes().to_vec();
    value.push(0);
    (ATTRIBUTE.to_vec(), value)
}

/// The label among extended attributes.
pub(super) fn label_in(xattrs: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
    let (_, value) = xattrs.iter().find(|(name, _)| name == ATTRIBUTE)?;
    String::from_utf8(value.strip_suffix(b"\0").unwrap_or(value).to_vec()).ok()
}
