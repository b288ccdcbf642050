//! Layering: from a configuration and an image to the manifest and the derived commit.
//!
//! The derived commit is always made from the image's own, never from an earlier derived one: the same
//! image and the same configuration are the same tree on every host, whatever came before. Entries of
//! `/etc` stand among the image's defaults, those below `/usr` where they belong, contents for `/var`
//! below `/usr/lib/mcd`, with the manifest. Only objects that are new are written.

mod accounts;
mod commit;
mod compose;
mod keys;
mod places;
mod target;
#[cfg(test)]
mod tests;
mod units;
mod wish;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use ostree::{ObjectType, gio};

use self::accounts::Accounts;
use self::commit::{Objects, Writer};
use self::compose::{Composed, Composer, Held};
use self::target::{CommitTree, FolderTree, Target, read_object};
use self::wish::Wishes;
use crate::error::Fault;
use crate::host::selinux::Policy;
use crate::host::unexplained;
use crate::model::applied::{CONTENT_STORE, Original};
use crate::model::config::{Blob, Config, Invalid, said};
use crate::model::digest::Digest;
use crate::model::manifest::{MANIFEST_PATH, Manifest, Source};

/// What to layer on an image.
#[derive(Debug)]
pub struct LayerRequest<'a> {
    /// The image's own commit, 64 hex digits.
    pub image_commit: &'a str,
    /// What is asked for; none carries over all of `previous`.
    pub config: Option<&'a Config>,
    /// Whose request it is: entries of other sources are carried over from `previous`.
    pub source: Source,
    /// What was managed before.
    pub previous: Option<&'a Manifest>,
    /// The image commit that `previous` was worked out on.
    pub previous_image_commit: Option<&'a str>,
    /// The `/etc` that will be merged into the new deployment's: its users and groups stay.
    pub etc: Option<&'a Dir>,
}

/// A derived commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layered {
    /// Its checksum, 64 hex digits. No ref holds it yet.
    pub commit: String,
    /// What it holds.
    pub manifest: Manifest,
    /// File objects that were not taken over from `previous`.
    pub written: usize,
    /// What is odd and stops nothing.
    pub warnings: Vec<String>,
}

/// Makes the derived commit.
///
/// # Errors
///
/// [`Invalid`] names every field that this image cannot honour.
#[context("Layering the configuration on image commit {}", request.image_commit)]
pub fn layer(repo: &ostree::Repo, request: &LayerRequest<'_>) -> Result<Layered> {
    refuse_signed_composefs(repo, request.image_commit)?;
    let target = CommitTree::open(repo, request.image_commit)?;
    let policy = Policy::of_commit(repo, request.image_commit)?;
    let accounts = Accounts::read(&target, request.etc)?;
    let held = InRepo(repo);
    let same_image = request.previous_image_commit == Some(request.image_commit);
    let composer = Composer {
        target: &target,
        policy: &policy,
        held: &held,
        homes: accounts.homes(&target)?,
        is_commit: true,
        same_image: request.previous.filter(|_| same_image),
    };
    let wishes = wishes(&target, &accounts, request.config, &request.source, request.previous)?;
    let mut made = composer.compose(wishes)?;
    describe(&mut made, request.config, &request.source, request.previous);
    refuse(&mut made)?;
    let objects = Objects::of(request.previous, same_image);
    let mut writer = Writer::new(repo, &target, &policy, &held, objects, request.image_commit)?;
    let transaction = repo.auto_transaction(gio::Cancellable::NONE)?;
    let root = writer.write(&mut made)?;
    unexplained::commit_transaction(repo)?;
    drop(transaction);
    let commit = writer.commit(&root, request.image_commit)?;
    let written = writer.written;
    Ok(Layered { commit, manifest: made.manifest, written, warnings: made.warnings })
}

/// What is managed on a root without OSTree.
#[derive(Debug, Clone, Copy)]
pub struct OnRoot<'a> {
    /// What of it is ours.
    pub manifest: &'a Manifest,
    /// What a person had there before.
    pub originals: &'a [Original],
    /// Whether entries of other sources, or all without a request, stay.
    pub carries: bool,
}

/// Works the manifest of a root without OSTree out. Gives the contents that are new, by digest, and what
/// is odd.
///
/// # Errors
///
/// [`Invalid`] names every field that this root cannot honour.
#[context("Working the configuration out")]
pub fn compose_for_root(
    root: &Dir,
    config: Option<&Config>,
    source: &Source,
    before: OnRoot<'_>,
) -> Result<(Manifest, BTreeMap<Digest, Blob>, Vec<String>)> {
    let target = FolderTree::without(root.try_clone()?, before.manifest, before.originals);
    let policy = Policy::of_folder(root)?;
    let accounts = Accounts::read(&target, None)?;
    let composer = Composer {
        target: &target,
        policy: &policy,
        held: &InStore(root),
        homes: accounts.homes(&target)?,
        is_commit: false,
        same_image: None,
    };
    let previous = before.carries.then_some(before.manifest);
    let wishes = wishes(&target, &accounts, config, source, previous)?;
    let mut made = composer.compose(wishes)?;
    describe(&mut made, config, source, previous);
    refuse(&mut made)?;
    Ok((made.manifest, made.contents, made.warnings))
}

/// The manifest in a commit; none where it is no derived commit of ours, or gone.
#[context("Reading the manifest of commit {commit}")]
pub fn manifest_of_commit(repo: &ostree::Repo, commit: &str) -> Result<Option<Manifest>> {
    if !repo.has_object(ObjectType::Commit, commit, gio::Cancellable::NONE)? {
        return Ok(None);
    }
    let tree = CommitTree::open(repo, commit)?;
    let path = format!("/{MANIFEST_PATH}");
    let path = Utf8Path::new(&path);
    if tree.look(path)?.is_none() {
        return Ok(None);
    }
    let bytes = tree.read(path)?;
    let json = &mut serde_json::Deserializer::from_slice(&bytes);
    Ok(Some(serde_path_to_error::deserialize(json)?))
}

fn wishes(
    target: &dyn Target,
    accounts: &Accounts,
    config: Option<&Config>,
    source: &Source,
    previous: Option<&Manifest>,
) -> Result<Wishes> {
    let mut wishes = Wishes::default();
    let managed = config.and_then(|config| config.managed.as_ref());
    let keys = keys::place(target, accounts, managed)?;
    if let Some(managed) = managed {
        wishes.add_config(managed, source, accounts, &keys);
    }
    if let Some(previous) = previous {
        wishes.carry(previous, managed.map(|_| source), &keys);
    }
    Ok(wishes)
}

/// What the manifest says beside its entries: of a MachineConfig what it asks for, else what was.
fn describe(made: &mut Composed, config: Option<&Config>, source: &Source, previous: Option<&Manifest>) {
    let manifest = &mut made.manifest;
    manifest.released = config.is_none() && previous.is_some_and(|previous| previous.released);
    if let Some(previous) = previous {
        manifest.names.clone_from(&previous.names);
        manifest.kernel_arguments.clone_from(&previous.kernel_arguments);
        manifest.kernel_type.clone_from(&previous.kernel_type);
        manifest.extensions.clone_from(&previous.extensions);
        manifest.extensions_image.clone_from(&previous.extensions_image);
        manifest.disks.clone_from(&previous.disks);
    }
    let Some(config) = config.filter(|_| *source == Source::MachineConfig) else { return };
    manifest.names.clone_from(&config.names);
    if let Some(managed) = &config.managed {
        // A request for nothing has no name, and leaves no word of the disks: the next is the first.
        manifest.disks = (!config.names.is_empty()).then(|| said(&managed.disks));
    }
    if let Some(arguments) = &config.kernel_arguments {
        manifest.kernel_arguments.clone_from(arguments);
        // A MachineConfig, which speaks of packages too.
        manifest.kernel_type.clone_from(&config.kernel_type);
        manifest.extensions.clone_from(&config.extensions);
        manifest.extensions_image.clone_from(&config.extensions_image);
    }
}

fn refuse(made: &mut Composed) -> Result<()> {
    if made.problems.is_empty() {
        return Ok(());
    }
    let mut problems = std::mem::take(&mut made.problems);
    problems.sort();
    Err(Invalid { problems, warnings: Vec::new() }.into())
}

fn refuse_signed_composefs(repo: &ostree::Repo, commit: &str) -> Result<()> {
    if !super::commit_facts(repo, commit)?.demands_signed_composefs {
        return Ok(());
    }
    Err(Fault::refused("this image cannot carry a configuration of the host")
        .why("it boots only from a composefs that its builder signed, and a commit made here is not signed")
        .next("use an image whose prepare-root.conf says composefs.enabled = true or false, or build the configuration into the image")
        .into())
}

/// Contents that a manifest names by their objects.
struct InRepo<'a>(&'a ostree::Repo);

impl Held for InRepo<'_> {
    fn read(&self, digest: &Digest, object: Option<&str>) -> Result<Vec<u8>> {
        let object = object.with_context(|| format!("No object is known that holds content {digest}"))?;
        read_object(self.0, object)
    }
}

/// Contents that a root keeps by digest.
struct InStore<'a>(&'a Dir);

impl Held for InStore<'_> {
    fn read(&self, digest: &Digest, _object: Option<&str>) -> Result<Vec<u8>> {
        let path = format!("{CONTENT_STORE}/{}", digest.hex());
        self.0.read(&path).with_context(|| format!("Reading /{path}"))
    }
}
