//! SELinux labels for the paths that entries will have.

use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::{Context as _, Result};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;
use ostree::gio::Cancellable;

/// A regular file.
pub(super) const S_IFREG: u32 = 0o100_000;
/// A directory.
pub(super) const S_IFDIR: u32 = 0o040_000;
/// A symbolic link.
pub(super) const S_IFLNK: u32 = 0o120_000;

/// Labels by one policy, or by none.
pub(super) struct Labels(Option<ostree::SePolicy>);

impl Labels {
    /// By the policy that a commit carries, if it does.
    pub(super) fn of_commit(repo: &ostree::Repo, commit: &str) -> Result<Self> {
        let policy = ostree::SePolicy::from_commit(repo, commit, Cancellable::NONE)
            .with_context(|| format!("Loading the SELinux policy of commit {commit}"))?;
        Ok(Self(policy.name().is_some().then_some(policy)))
    }

    /// By the policy of a root, if it has one.
    pub(super) fn of_root(root: &Dir) -> Result<Self> {
        let policy = ostree::SePolicy::new_at(root.as_fd().as_raw_fd(), Cancellable::NONE)
            .context("Loading the SELinux policy of the root")?;
        Ok(Self(policy.name().is_some().then_some(policy)))
    }

    /// The label of a path of the running system. `mode` holds the type.
    pub(super) fn of(&self, path: &Utf8Path, mode: u32) -> Result<Option<String>> {
        let Some(policy) = &self.0 else { return Ok(None) };
        let label = policy
            .label(path.as_str(), mode, Cancellable::NONE)
            .with_context(|| format!("Looking up the SELinux label of {path}"))?;
        Ok(label.map(Into::into))
    }
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Labels").field("policy", &self.0.is_some()).finish()
    }
}
