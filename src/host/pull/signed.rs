//! `ostree-remote-…`: the base commit must be signed by a key of an OSTree remote.

use anyhow::{Result, anyhow};
use ostree::glib::Bytes;

use super::PulledImage;
use super::encapsulated::BaseCommit;
use super::objects::Checksum;
use super::present::{image_facts, reader};
use crate::error::Fault;
use crate::model::repo_refs::blob_ref;

/// Checks a commit's signatures, before anything of it may be trusted.
pub(super) fn check(repo: &ostree::Repo, remote: &str, commit: &BaseCommit) -> Result<()> {
    let refuse = |why: String| -> anyhow::Error {
        Fault::refused(format!("OSTree commit {} of the image is not signed for remote {remote}", commit.checksum))
            .why(why)
            .next(format!("pull an image that is signed by a key of {remote}, or add the key with `ostree remote gpg-import`"))
            .into()
    };
    let detached = commit.detached.as_deref().ok_or_else(|| refuse("it carries no signature".to_owned()))?;
    repo.signature_verify_commit_data(
        remote,
        &Bytes::from(&commit.bytes),
        &Bytes::from(detached),
        ostree::RepoVerifyFlags::NONE,
    )
    .map(drop)
    .map_err(|error| refuse(error.to_string()))
}

/// Reads a commit and its signatures from the repo.
pub(super) fn load(repo: &ostree::Repo, commit: &str) -> Result<BaseCommit> {
    let checksum = Checksum::parse(commit).ok_or_else(|| anyhow!("'{commit}' is not a commit"))?;
    let bytes = reader(repo)?.bytes(checksum, super::objects::Kind::Commit)?;
    let detached = repo.read_commit_detached_metadata(commit, ostree::gio::Cancellable::NONE)?;
    Ok(BaseCommit { checksum, bytes, detached: detached.map(|variant| variant.data().to_vec()) })
}

/// Whether the base commit of an image in the repo is signed by a key of this remote.
pub fn is_signed_for_remote(repo: &ostree::Repo, pulled: &PulledImage, remote: &str) -> bool {
    let verify = || -> Result<()> {
        let image =
            Checksum::parse(&pulled.commit).ok_or_else(|| anyhow!("'{}' is not a commit", pulled.commit))?;
        let facts = image_facts(&reader(repo)?.commit(image)?).ok_or_else(|| anyhow!("no image commit"))?;
        let first = facts.layers.first().ok_or_else(|| anyhow!("an image without layers"))?;
        let base = repo
            .resolve_rev(&blob_ref(&first.digest), true)?
            .ok_or_else(|| anyhow!("the base's layer is not in the repo"))?;
        check(repo, remote, &load(repo, &base)?)
    };
    match verify() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("{} is not signed for {remote}: {error:#}", pulled.commit);
            false
        }
    }
}
