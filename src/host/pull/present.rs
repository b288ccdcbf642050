//! What the repo has already: images by name and digest, layers by digest and by content.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use ostree::gio::Cancellable;
use sha2::{Digest as _, Sha256};

use super::objects::{Checksum, Commit};
use super::partial;
use super::read::ObjectReader;
use super::staging::repo_dir;
use super::{PullStats, PulledImage, Resolved};
use crate::model::digest::Digest;
use crate::model::image_ref::{ImageReference, OsImage};
use crate::model::oci::{ImageFacts, ImageKind, Layer, LayerKind};
use crate::model::repo_refs::{IMAGE_PREFIX, blob_ref, image_ref};

/// Metadata of an image commit; the on-disk contract with other tools.
pub(super) const MANIFEST_DIGEST: &str = "ostree.manifest-digest";
/// The manifest itself.
pub(super) const MANIFEST: &str = "ostree.manifest";
/// The image's configuration.
pub(super) const CONFIG: &str = "ostree.container.image-config";
/// Ours: the digest that was asked for, when it is an index's.
pub(super) const VERSION: &str = "version";

/// Finds an image by its manifest's digest, without network.
#[context("Looking for image {digest} in the repo")]
pub fn image_in_repo(repo: &ostree::Repo, digest: &Digest) -> Result<Option<PulledImage>> {
    for (_, commit) in images(repo)? {
        if let Some(found) = pulled_image(repo, &commit)?
            && found.digest == *digest
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds the image that was pulled last under this reference, or under any if the digest is of its
/// manifest, without network.
#[context("Looking for image {image} in the repo")]
pub fn image_by_reference(repo: &ostree::Repo, image: &OsImage) -> Result<Option<PulledImage>> {
    let digest = image.image.digest.as_ref();
    if let Some(commit) = resolve_ref(repo, &image_ref(&image.image))
        && let Some(found) = pulled_image(repo, &commit)?
    {
        return Ok(Some(PulledImage {
            // The name holds the digest of an index, then.
            asked_digest: digest.filter(|digest| **digest != found.digest).cloned(),
            ..found
        }));
    }
    digest.map_or(Ok(None), |digest| image_in_repo(repo, digest))
}

/// The refs of images and their commits, in the order of their names.
pub(super) fn images(repo: &ostree::Repo) -> Result<BTreeMap<String, String>> {
    let prefix = IMAGE_PREFIX.trim_end_matches('/');
    let flags = ostree::RepoListRefsExtFlags::empty();
    let refs = repo.list_refs_ext(Some(prefix), flags, Cancellable::NONE)?;
    Ok(refs.into_iter().collect())
}

/// The commit that a ref names; nothing where there is no such ref, or one that a power cut left empty:
/// the next import writes it anew.
pub(super) fn resolve_ref(repo: &ostree::Repo, name: &str) -> Option<String> {
    repo.resolve_rev(name, true).ok().flatten().map(|commit| commit.to_string())
}

/// Whether the repo has the commit that a ref names, readable. What a damaged repo lost counts as not
/// there, so that it is fetched again.
fn has_commit(reader: &ObjectReader, commit: &str) -> bool {
    Checksum::parse(commit).is_some_and(|checksum| reader.commit(checksum).is_ok())
}

/// What an image commit says about itself; nothing if it is none, or lost.
fn pulled_image(repo: &ostree::Repo, commit: &str) -> Result<Option<PulledImage>> {
    let Some(checksum) = Checksum::parse(commit) else { return Ok(None) };
    let reader = reader(repo)?;
    let Ok(object) = reader.commit(checksum) else { return Ok(None) };
    Ok(object.strings.get(MANIFEST_DIGEST).and_then(|text| text.parse().ok()).map(|digest| PulledImage {
        commit: commit.to_owned(),
        digest,
        asked_digest: None,
        version: object.strings.get(VERSION).cloned(),
        stats: PullStats::default(),
    }))
}

/// A reader of the repo's objects.
pub(in crate::host) fn reader(repo: &ostree::Repo) -> Result<ObjectReader> {
    Ok(ObjectReader::new(repo_dir(repo)?.open_dir("objects").context("Opening the repo's objects")?))
}

/// Where a layer's content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// The repo has it.
    Present,
    /// The repo has the same content under another compression.
    SameContent,
    /// It must be fetched.
    Missing,
}

/// One layer of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLayer {
    /// The layer.
    pub layer: Layer,
    /// Whether it must be fetched.
    pub presence: Presence,
    /// The commit that the repo has for it.
    pub(super) commit: Option<String>,
}

/// What pulling an image means here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullPlan {
    /// The image itself is in the repo: nothing is to do.
    pub image_present: bool,
    /// Its layers, from the lowest. A blob that occurs twice counts once.
    pub layers: Vec<PlannedLayer>,
}

impl PullPlan {
    /// Compressed bytes that must be fetched.
    pub fn bytes_to_fetch(&self) -> u64 {
        self.sum(|presence| *presence == Presence::Missing)
    }

    /// Compressed bytes that need not be.
    pub fn bytes_present(&self) -> u64 {
        self.sum(|presence| *presence != Presence::Missing)
    }

    /// How many layers must be fetched.
    pub fn fetch_layers(&self) -> usize {
        self.layers.iter().filter(|planned| planned.presence == Presence::Missing).count()
    }

    /// The layers that must be fetched.
    pub fn missing<'a>(&self, resolved: &'a Resolved) -> Vec<&'a Layer> {
        let is_missing = |layer: &Layer| {
            self.layers.iter().any(|planned| planned.presence == Presence::Missing && planned.layer == *layer)
        };
        let mut missing: Vec<&Layer> = Vec::new();
        for layer in resolved.facts.layers.iter().filter(|layer| is_missing(layer)) {
            if !missing.contains(&layer) {
                missing.push(layer);
            }
        }
        missing
    }

    fn sum(&self, choose: impl Fn(&Presence) -> bool) -> u64 {
        self.layers.iter().filter(|planned| choose(&planned.presence)).map(|planned| planned.layer.size).sum()
    }
}

/// Compares an image with the repo, without network.
#[context("Looking for the image's layers in the repo")]
pub fn plan(repo: &ostree::Repo, resolved: &Resolved) -> Result<PullPlan> {
    let image_present = image_in_repo(repo, &resolved.digest)?.is_some();
    let objects = reader(repo)?;
    let mut layers: Vec<PlannedLayer> = Vec::new();
    let mut contents = None;
    let is_partial = |layer: &Digest| -> Result<bool> {
        Ok(partial::load(&repo_dir(repo)?, layer, &reader(repo)?).is_some())
    };
    for layer in &resolved.facts.layers {
        if layers.iter().any(|planned| planned.layer.digest == layer.digest) {
            continue;
        }
        if resolved.facts.kind == ImageKind::Legacy {
            // Another image may have it as a plain layer, without the repo in it.
            layers.push(PlannedLayer { layer: layer.clone(), presence: Presence::Missing, commit: None });
            continue;
        }
        let commit = resolve_ref(repo, &blob_ref(&layer.digest));
        let commit = commit.filter(|commit| has_commit(&objects, commit));
        let (presence, commit) = match commit {
            Some(commit) => (Presence::Present, Some(commit)),
            None if layer.kind == LayerKind::Commit && is_partial(&layer.digest)? => {
                (Presence::Present, None)
            }
            None => {
                if contents.is_none() {
                    contents = Some(layers_by_content(repo)?);
                }
                match contents.as_ref().and_then(|known| known.get(&(layer.diff_id.clone(), kind_key(layer))))
                {
                    Some(commit) => (Presence::SameContent, Some(commit.clone())),
                    None => (Presence::Missing, None),
                }
            }
        };
        layers.push(PlannedLayer { layer: layer.clone(), presence, commit });
    }
    Ok(PullPlan { image_present, layers })
}

/// Layers of different kinds are stored differently, whatever they hold.
fn kind_key(layer: &Layer) -> u8 {
    match layer.kind {
        LayerKind::Commit => 0,
        LayerKind::Component => 1,
        LayerKind::Derived => 2,
    }
}

/// Commits of stored layers by diff id, from the manifests of all images in the repo.
fn layers_by_content(repo: &ostree::Repo) -> Result<BTreeMap<(Digest, u8), String>> {
    let reader = reader(repo)?;
    let mut known = BTreeMap::new();
    for commit in images(repo)?.values() {
        let Some(checksum) = Checksum::parse(commit) else { continue };
        let Ok(object) = reader.commit(checksum) else { continue };
        let Some(facts) = image_facts(&object) else { continue };
        for layer in facts.layers {
            if let Some(commit) = resolve_ref(repo, &blob_ref(&layer.digest))
                && has_commit(&reader, &commit)
            {
                known.insert((layer.diff_id.clone(), kind_key(&layer)), commit);
            }
        }
    }
    Ok(known)
}

/// The facts of an image from its commit; nothing if another tool wrote what we cannot read.
pub(super) fn image_facts(commit: &Commit) -> Option<ImageFacts> {
    let manifest = commit.strings.get(MANIFEST)?;
    let config = commit.strings.get(CONFIG)?;
    ImageFacts::parse(manifest.as_bytes(), config.as_bytes()).ok()
}

/// Where proofs of signatures are noted: libostree leaves `extensions` to others.
const VERIFIED: &str = "extensions/mcd/verified";

/// The name counts too: scopes of a policy may want different keys for different names, and the same
/// image under another one is not proved by it.
fn proof_name(policy: &Digest, image: &ImageReference, digest: &Digest) -> String {
    let image = Sha256::digest(format!("{} {digest}", image.ref_key()));
    format!("{}-{}", policy.hex(), hex::encode(image))
}

/// Whether this manifest, under this name, was found properly signed under this policy.
pub fn is_verified_under(
    repo: &ostree::Repo,
    policy: &Digest,
    image: &ImageReference,
    digest: &Digest,
) -> bool {
    repo_dir(repo).is_ok_and(|dir| dir.exists(format!("{VERIFIED}/{}", proof_name(policy, image, digest))))
}

/// Notes that an image was found properly signed under this policy.
#[context("Noting that the image's signature was verified")]
pub fn note_verified(
    repo: &ostree::Repo,
    policy: &Digest,
    image: &ImageReference,
    pulled: &PulledImage,
) -> Result<()> {
    let dir: Dir = repo_dir(repo)?;
    dir.create_dir_all(VERIFIED)?;
    Ok(dir.write(format!("{VERIFIED}/{}", proof_name(policy, image, &pulled.digest)), "")?)
}
