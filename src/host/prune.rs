//! `mcd cleanup`: what nothing needs any more goes, folders of dropped deployments, images, layers,
//! kept commits of old changes, and then the objects that only these named.
//!
//! Needed is what a deployment, a record (of what was laid down in an `/etc` or in `/var`, of what is
//! under way), the newest pull or another tool's own refs name. Pulls hold the repo's lock shared from the first object that they skip to the ref that
//! protects it; so refs go only under the exclusive lock. That is tried first, without waiting, and
//! never while the host lock is held: a pull that runs puts the cleanup off. The long part, pruning
//! objects, holds no host lock at all.

use std::collections::{BTreeSet, HashSet};
use std::process::Command;

use anyhow::{Context, Result};
use fn_error_context::context;
use ostree::{ObjectName, ObjectType, gio, glib};

use super::host_lock::HostLocked;
use super::records::{commit_of_base_ref, commit_of_derived_ref, id_of_keep_ref};
use super::repo_lock::{self, RepoLock};
use super::status::IMAGE_COMMIT;
use super::sysroot::Host;
use super::unexplained;
use crate::model::digest::Digest;
use crate::model::repo_refs::{BASE_IMAGE_PREFIX, BLOB_PREFIX, IMAGE_PREFIX, OWN_PREFIX, blob_of_ref};

/// libostree's refs of the deployments, by boot version.
const DEPLOYMENT_REFS: [&str; 2] = ["ostree/0/", "ostree/1/"];
/// rpm-ostree's ref of the base below its own layers.
const RPM_OSTREE_BASE: &str = "rpmostree/base";
/// Commit metadata: the manifest of the image, JSON.
const MANIFEST: &str = "ostree.manifest";
/// Commit metadata: its digest.
const MANIFEST_DIGEST: &str = "ostree.manifest-digest";
/// CPU priority of an idle cleanup: the lowest there is.
const IDLE_NICE: i32 = 19;

/// Removes what abandoned pulls left beside objects and refs; the flag says to only count. Returns
/// bytes. Called with the repo's exclusive lock held.
pub type RemoveLeftovers<'a> = &'a (dyn Fn(&ostree::Repo, bool) -> Result<u64> + Sync);

/// How to clean up.
pub struct PruneOptions<'a> {
    /// Only say what would go.
    pub dry_run: bool,
    /// Let everything else go first: idle I/O and CPU priority.
    pub idle: bool,
    /// The importer's part.
    pub leftovers: RemoveLeftovers<'a>,
}

impl std::fmt::Debug for PruneOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PruneOptions")
            .field("dry_run", &self.dry_run)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

/// How a cleanup ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pruned {
    /// Done, or counted.
    Done(Freed),
    /// Another process uses the repo or the host: nothing more was done, try later.
    PutOff {
        /// What is in the way.
        holder: String,
    },
}

/// What went, or would go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freed {
    /// Refs of images.
    pub images: Vec<String>,
    /// Layers.
    pub layers: usize,
    /// Commits of changes that no record names.
    pub changes: usize,
    /// Objects in the repo.
    pub objects: u64,
    /// Their bytes, and those of leftovers.
    pub bytes: u64,
}

impl Host {
    /// Removes what nothing needs. Holds the host lock only for a moment.
    #[context("Cleaning up {}", self.path())]
    pub fn prune(&self, options: &PruneOptions<'_>) -> Result<Pruned> {
        if options.dry_run {
            return self.what_would_go(options).map(Pruned::Done);
        }
        let repo_dir = self.root().open_dir("ostree/repo").context("Opening the repo")?;
        if let Err(holder) = repo_lock::try_exclusive(&repo_dir)? {
            return Ok(Pruned::PutOff { holder });
        }
        let Some(locked) = self.try_lock()? else {
            return Ok(Pruned::PutOff { holder: self.lock_holder() });
        };
        locked.remove_dropped_deployments()?;
        locked.remove_unfinished_records()?;
        locked.close_switched()?;
        // A pull may have begun meanwhile: then the rest waits for the next cleanup.
        let exclusive = match repo_lock::try_exclusive(&repo_dir)? {
            Ok(exclusive) => exclusive,
            Err(holder) => return Ok(Pruned::PutOff { holder }),
        };
        let unneeded = Unneeded::find(self)?;
        let mut freed = unneeded.counted();
        unneeded.remove(&self.repo()?)?;
        // Not earlier: records must not change while it is decided which commits they name.
        drop(locked);
        self.prune_objects(options, exclusive, &mut freed)
    }

    /// In a thread of its own: priorities are a thread's, and cannot be raised again.
    fn prune_objects(
        &self,
        options: &PruneOptions<'_>,
        exclusive: RepoLock,
        freed: &mut Freed,
    ) -> Result<Pruned> {
        let run = || -> Result<Pruned> {
            if options.idle {
                become_idle();
            }
            let repo = self.repo()?;
            freed.bytes += (options.leftovers)(&repo, false)?;
            // Should another tool's pull come between, it is libostree that waits for it, holding
            // nothing that anybody else waits for but pulls of our own.
            exclusive.yield_to_libostree()?;
            let (_, objects, bytes) =
                repo.prune(ostree::RepoPruneFlags::REFS_ONLY, 0, gio::Cancellable::NONE)?;
            freed.objects = u64::try_from(objects).unwrap_or(0);
            freed.bytes += bytes;
            Ok(Pruned::Done(freed.clone()))
        };
        std::thread::scope(|scope| scope.spawn(run).join())
            .map_err(|_| anyhow::anyhow!("The cleanup's thread failed"))?
    }

    fn what_would_go(&self, options: &PruneOptions<'_>) -> Result<Freed> {
        let repo = self.repo()?;
        let unneeded = Unneeded::find(self)?;
        let mut freed = unneeded.counted();
        let kept = refs(&repo)?.into_iter().filter(|(name, _)| !unneeded.contains(name));
        let mut commits: BTreeSet<String> = kept.map(|(_, commit)| commit).collect();
        commits.extend(self.load()?.deployments().iter().map(|one| one.csum().to_string()));
        let (objects, bytes) = unreachable_objects(&repo, &commits)?;
        freed.objects = objects;
        freed.bytes = bytes + (options.leftovers)(&repo, true)?;
        Ok(freed)
    }
}

impl HostLocked<'_> {
    /// Removes folders and kernels of deployments that no boot entry names, and brings libostree's
    /// refs of the others up to date.
    #[context("Removing dropped deployments")]
    fn remove_dropped_deployments(&self) -> Result<()> {
        unexplained::prepare_cleanup(&self.sysroot())
    }
}

/// Refs that nothing needs.
struct Unneeded {
    images: Vec<String>,
    layers: Vec<String>,
    changes: Vec<String>,
}

impl Unneeded {
    #[context("Finding out what is needed")]
    fn find(host: &Host) -> Result<Self> {
        let repo = host.repo()?;
        let all = refs(&repo)?;
        let under_way = host.intent()?.map(|intent| intent.id);
        let mut needed = Needed::default();
        for deployment in host.load()?.deployments() {
            needed.add(&repo, &deployment.csum())?;
        }
        let named = host.commits_in_records()?;
        for commit in named.iter().flatten() {
            needed.add(&repo, commit)?;
        }
        let is_old_change = |name: &str| {
            if let Some(commit) = commit_of_derived_ref(name) {
                // Where a record cannot be read, nobody knows what it names.
                return named.as_ref().is_some_and(|named| !named.contains(commit));
            }
            if let Some(commit) = commit_of_base_ref(name) {
                return named.is_some() && !needed.bases.contains(commit);
            }
            id_of_keep_ref(name).is_some_and(|id| Some(id) != under_way.as_deref())
        };
        let old: BTreeSet<String> =
            all.iter().map(|(name, _)| name).filter(|name| is_old_change(name)).cloned().collect();
        let is_old_change = |name: &str| old.contains(name);
        for (name, commit) in all.iter().filter(|(name, _)| protects(name) && !is_old_change(name)) {
            needed.add(&repo, commit).with_context(|| format!("Reading what {name} names"))?;
        }
        let newest = newest_pull(&repo, &all);
        let mut images = Vec::new();
        for (name, commit) in all.iter().filter(|(name, _)| name.starts_with(IMAGE_PREFIX)) {
            if Some(name) == newest || needed.has_image(&repo, commit)? {
                needed.add(&repo, commit)?;
            } else {
                images.push(name.clone());
            }
        }
        let layers = all.iter().filter(|(name, _)| name.starts_with(BLOB_PREFIX)).map(|(name, _)| name);
        let layers =
            layers.filter(|name| blob_of_ref(name).is_some_and(|blob| !needed.layers.contains(&blob)));
        Ok(Self {
            layers: layers.cloned().collect(),
            changes: all.iter().map(|(name, _)| name).filter(|name| is_old_change(name)).cloned().collect(),
            images,
        })
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.images.iter().chain(&self.layers).chain(&self.changes)
    }

    fn contains(&self, name: &str) -> bool {
        self.all().any(|own| own == name)
    }

    fn counted(&self) -> Freed {
        Freed {
            images: self.images.clone(),
            layers: self.layers.len(),
            changes: self.changes.len(),
            ..Freed::default()
        }
    }

    #[context("Removing refs")]
    fn remove(&self, repo: &ostree::Repo) -> Result<()> {
        // Images before their layers: a cut in between leaves layers that the next cleanup finds.
        for name in self.all() {
            repo.set_ref_immediate(None, name, None, gio::Cancellable::NONE)?;
        }
        Ok(())
    }
}

/// Whether a ref is a reason to keep an image and its layers.
fn protects(name: &str) -> bool {
    DEPLOYMENT_REFS.iter().any(|prefix| name.starts_with(prefix))
        || name == RPM_OSTREE_BASE
        || name.starts_with(BASE_IMAGE_PREFIX)
        || name.starts_with(OWN_PREFIX)
}

/// What deployments, records and the newest pull are made of.
#[derive(Default)]
struct Needed {
    commits: HashSet<String>,
    manifests: HashSet<String>,
    layers: HashSet<Digest>,
    /// Image commits that derived ones were made from, and are made from again.
    bases: HashSet<String>,
}

impl Needed {
    /// Adds a commit and, where it is an image's or derived from one, the image's manifest and layers.
    fn add(&mut self, repo: &ostree::Repo, commit: &str) -> Result<()> {
        if !self.commits.insert(commit.to_owned()) {
            return Ok(());
        }
        let Some(metadata) = metadata(repo, commit)? else { return Ok(()) };
        self.manifests.extend(text(&metadata, MANIFEST_DIGEST));
        self.bases.extend(text(&metadata, IMAGE_COMMIT));
        if let Some(manifest) = text(&metadata, MANIFEST) {
            self.layers
                .extend(layers_of(&manifest).with_context(|| format!("Reading the manifest in {commit}"))?);
        }
        Ok(())
    }

    fn has_image(&self, repo: &ostree::Repo, commit: &str) -> Result<bool> {
        if self.commits.contains(commit) {
            return Ok(true);
        }
        let digest = metadata(repo, commit)?.and_then(|metadata| text(&metadata, MANIFEST_DIGEST));
        Ok(digest.is_some_and(|digest| self.manifests.contains(&digest)))
    }
}

/// A commit that is gone has no metadata: its ref may go too.
fn metadata(repo: &ostree::Repo, commit: &str) -> Result<Option<glib::VariantDict>> {
    let variant = repo.load_variant_if_exists(ObjectType::Commit, commit)?;
    Ok(variant.map(|variant| glib::VariantDict::new(Some(&variant.child_value(0)))))
}

fn text(metadata: &glib::VariantDict, key: &str) -> Option<String> {
    metadata.lookup(key).ok().flatten()
}

/// Digests of the layers in a manifest. One that cannot be read stops the cleanup: it would lose what
/// it cannot see.
fn layers_of(manifest: &str) -> Result<Vec<Digest>> {
    #[derive(serde::Deserialize)]
    struct Manifest {
        layers: Vec<Layer>,
    }
    #[derive(serde::Deserialize)]
    struct Layer {
        digest: Digest,
    }
    let manifest: Manifest = serde_json::from_str(manifest)?;
    Ok(manifest.layers.into_iter().map(|layer| layer.digest).collect())
}

/// The image ref that was written last: it may have been pulled ahead for a change to come.
fn newest_pull<'a>(repo: &ostree::Repo, all: &'a [(String, String)]) -> Option<&'a String> {
    let written = |name: &str| {
        let path = format!("refs/heads/{name}");
        let stat =
            rustix::fs::statat(repo.dfd_borrow(), &path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_mtime, stat.st_mtime_nsec))
    };
    let images = all.iter().map(|(name, _)| name).filter(|name| name.starts_with(IMAGE_PREFIX));
    images.max_by_key(|name| written(name))
}

/// All refs of the repo itself and their commits, sorted.
fn refs(repo: &ostree::Repo) -> Result<Vec<(String, String)>> {
    let flags = ostree::RepoListRefsExtFlags::EXCLUDE_REMOTES;
    let mut all: Vec<_> = repo.list_refs_ext(None, flags, gio::Cancellable::NONE)?.into_iter().collect();
    all.sort();
    Ok(all)
}

/// Number and bytes of the objects that these commits do not reach.
#[context("Counting objects")]
fn unreachable_objects(repo: &ostree::Repo, commits: &BTreeSet<String>) -> Result<(u64, u64)> {
    let mut reachable: HashSet<ObjectName> = HashSet::new();
    for commit in commits {
        if repo.has_object(ObjectType::Commit, commit, gio::Cancellable::NONE)? {
            reachable.extend(repo.traverse_commit(commit, 0, gio::Cancellable::NONE)?);
        }
    }
    let all = repo.list_objects(ostree::RepoListObjectsFlags::ALL.bits(), gio::Cancellable::NONE)?;
    let (mut count, mut bytes) = (0, 0);
    for object in all.keys().filter(|object| !reachable.contains(*object)) {
        count += 1;
        bytes +=
            repo.query_object_storage_size(object.object_type(), object.checksum(), gio::Cancellable::NONE)?;
    }
    Ok((count, bytes))
}

/// Lets everything else go first. Without the means, it is only slower for others.
fn become_idle() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let done = Command::new("ionice").args(["-c", "3", "-p", &thread]).status();
    if !done.is_ok_and(|status| status.success()) {
        tracing::debug!("ionice failed; the cleanup runs at normal I/O priority");
    }
    if let Err(error) = rustix::process::nice(IDLE_NICE) {
        tracing::debug!(%error, "the cleanup runs at normal CPU priority");
    }
}
