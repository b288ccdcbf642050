//! One import from plan to image ref.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use cap_std_ext::cap_std::fs::Dir;
use tokio_util::sync::CancellationToken;

use super::complete::check_tree;
use super::derived::{Legacy, MetadataWriter};
use super::encapsulated::BaseCommit;
use super::fetch::Shared;
use super::label::Labels;
use super::legacy::{LegacyLayer, LegacyRepo};
use super::merge::{Merge, plain_dir};
use super::objects::{Checksum, Commit, DirMeta, FileMeta, Kind, S_IFLNK};
use super::partial;
use super::place::Base;
use super::present::{
    CONFIG, MANIFEST, MANIFEST_DIGEST, PlannedLayer, Presence, PullPlan, VERSION, image_in_repo, images,
    plan, resolve_ref,
};
use super::rate::RateLimit;
use super::read::ObjectReader;
use super::relabel::relabel;
use super::resolve::{Sink, source_of, with_runtime};
use super::space::{SpaceGuard, explain_full};
use super::staging::{Group, Staging, repo_dir};
use super::stop::{Stop, cancelled};
use super::writer::{LayerWrites, Writers};
use super::{
    IMPORTER_KEY, IMPORTER_VERSION, PullOptions, PullStats, PulledImage, Resolved, priority, signed,
};
use crate::error::Fault;
use crate::host::repo_lock;
use crate::host::trust::Credentials;
use crate::host::trust::signed::{CopyRequest, copy_verified};
use crate::model::event::{Event, EventSink};
use crate::model::image_ref::{OsImage, Transport, Verification};
use crate::model::oci::{ImageKind, Layer, LayerKind};
use crate::model::repo_refs::{blob_ref, image_ref};

/// Directories that a booted OSTree host needs at the top, with their modes.
const TOP_DIRS: [(&str, u32); 8] = [
    ("boot", 0o755),
    ("dev", 0o755),
    ("proc", 0o755),
    ("run", 0o755),
    ("sys", 0o755),
    ("sysroot", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
];
/// What container tools leave in `/etc` of a build: empty, and wrong on a host.
const BUILD_REMAINS: [&str; 2] = ["usr/etc/hostname", "usr/etc/resolv.conf"];

/// Imports an image into the repo. On an error or a cancellation no image ref is set; layers that
/// were finished stay, so that the next try goes on from there.
pub async fn import(
    repo: &ostree::Repo,
    image: &OsImage,
    resolved: Resolved,
    options: &PullOptions,
    sink: Arc<dyn EventSink>,
    cancel: CancellationToken,
) -> Result<PulledImage> {
    let job = Import {
        repo: repo_dir(repo)?,
        image: image.clone(),
        resolved,
        options: options.clone(),
        sink,
        cancel,
    };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A thread of its own: it may lower its priority, and nothing of libostree crosses it.
    std::thread::Builder::new().name("mcd-import".to_owned()).spawn(move || {
        let _ = sender.send(job.run());
    })?;
    receiver.await.map_err(|_| anyhow!("the importing thread is gone"))?
}

struct Import {
    repo: Dir,
    image: OsImage,
    resolved: Resolved,
    options: PullOptions,
    sink: Sink,
    cancel: CancellationToken,
}

/// The base commit, and whether it and its ref are in the repo.
struct BaseState {
    commit: BaseCommit,
    /// What must still be written, with the ref for the layer.
    unpublished: bool,
}

impl BaseState {
    /// Root tree and root attributes.
    fn root(&self) -> Result<(Checksum, Checksum)> {
        let commit = Commit::decode(&self.commit.bytes)?;
        Ok((commit.tree, commit.meta))
    }
}

impl Import {
    fn run(mut self) -> Result<PulledImage> {
        let started = Instant::now();
        if self.options.background {
            priority::lower_this_thread();
        }
        let repo = ostree::Repo::open_at_dir(rustix::fd::AsFd::as_fd(&self.repo), ".")
            .context("Opening the repo")?;
        self.check_mode(&repo)?;
        let lock = repo_lock::shared(&self.repo, self.sink.as_ref(), &|| self.cancel.is_cancelled())
            .map_err(|error| explain_full(&self.repo, error))?;
        let _lock = lock.ok_or_else(cancelled)?;
        let name = image_ref(&self.image.image);
        let staging = Staging::create(&self.repo).map_err(|error| explain_full(&self.repo, error))?;
        if self.options.access.signed {
            // Before the look whether the repo has it: it may have come under a laxer policy.
            self.options.fetch_from = Some(self.copy_verified(&staging)?);
        }
        if let Some(found) = self.present(&repo, &name, &staging)? {
            return Ok(found);
        }
        let plan = plan(&repo, &self.resolved)?;
        for planned in plan.layers.iter().filter(|planned| planned.presence != Presence::Missing) {
            self.sink.event(Event::LayerSkipped {
                digest: planned.layer.digest.clone(),
                size: planned.layer.size,
            });
        }
        let stop = Stop::default();
        let space = SpaceGuard::new(self.repo.try_clone()?, repo.min_free_space_bytes()?);
        space.check()?;
        let writers = Writers::new(staging.objects().try_clone()?, space, stop.clone());
        let commit = std::thread::scope(|scope| {
            let count = super::cpus().clamp(1, 8);
            for me in 0..count {
                let writers = &writers;
                scope.spawn(move || writers.work(me));
            }
            let result = self.import_layers(&repo, &plan, &staging, &writers, count, &stop, &name);
            writers.close();
            // Before the staging folder goes and there is room again.
            result.map_err(|error| explain_full(&self.repo, error))
        })?;
        Ok(PulledImage {
            commit: commit.to_string(),
            digest: self.resolved.digest.clone(),
            asked_digest: self.resolved.asked_digest.clone(),
            version: ObjectReader::new(self.repo.open_dir("objects")?)
                .commit(commit)?
                .strings
                .remove(VERSION),
            stats: PullStats {
                fetched_bytes: plan.bytes_to_fetch(),
                reused_bytes: plan.bytes_present(),
                objects: writers.objects_written.load(Ordering::Relaxed),
                object_bytes: writers.bytes_written.load(Ordering::Relaxed),
                seconds: started.elapsed().as_secs_f64(),
            },
        })
    }

    /// Lets `skopeo copy` fetch the image and check its signatures; gives what to import from.
    fn copy_verified(&self, staging: &Staging) -> Result<String> {
        let to = staging.path_for("signed")?;
        let request = CopyRequest {
            image: &self.image.image,
            resolved: &self.resolved.digest,
            to: &to,
            credentials: &Credentials::from_authfile(self.options.access.authfile.clone()),
            insecure_skip_tls_verification: self.options.access.insecure_skip_tls_verification,
        };
        with_runtime(copy_verified(&request, &self.cancel, self.sink.as_ref()))?;
        Ok(format!("dir:{to}"))
    }

    fn check_mode(&self, repo: &ostree::Repo) -> Result<()> {
        if repo.mode() == ostree::RepoMode::Bare {
            return Ok(());
        }
        Err(Fault::refused("the OSTree repo is not one that a host boots from")
            .why(format!("its mode is {:?}; a sysroot's is 'bare'", repo.mode()))
            .next("name the sysroot with --sysroot")
            .into())
    }

    /// The image, if the repo has it under any name; this name's ref is set then.
    fn present(&self, repo: &ostree::Repo, name: &str, staging: &Staging) -> Result<Option<PulledImage>> {
        let Some(mut found) = image_in_repo(repo, &self.resolved.digest)? else { return Ok(None) };
        if let Verification::OstreeRemote(remote) = &self.image.verification
            && !signed::is_signed_for_remote(repo, &found, remote)
        {
            return Ok(None);
        }
        found.asked_digest.clone_from(&self.resolved.asked_digest);
        found.stats.reused_bytes = self.resolved.facts.compressed_size();
        if resolve_ref(repo, name).as_deref() != Some(found.commit.as_str()) {
            let commit = Checksum::parse(&found.commit)
                .ok_or_else(|| anyhow!("'{}' is not a commit", found.commit))?;
            staging.publish(&Group { objects: Vec::new(), refs: vec![(name.to_owned(), commit)] })?;
            staging.sync()?;
        }
        Ok(Some(found))
    }

    #[allow(clippy::too_many_arguments)]
    fn import_layers(
        &self,
        repo: &ostree::Repo,
        plan: &PullPlan,
        staging: &Staging,
        writers: &Writers,
        writer_count: usize,
        stop: &Stop,
        name: &str,
    ) -> Result<Checksum> {
        let reader = ObjectReader::new(staging.objects().try_clone()?);
        let mut shared = self.shared(staging, writers, writer_count, stop)?;
        let (folder, dirs) = staging.layer("image", 1)?;
        let writes = LayerWrites::new(folder.clone(), dirs);
        let mut out = MetadataWriter::new(writers, &writes);

        let mut base = self.import_base(repo, plan, &shared, &reader)?;
        let mut commits = known_commits(plan)?;
        let derived = missing(plan, |layer| layer.kind == LayerKind::Derived);
        if let Some(state) = &mut base {
            commits.insert(first_layer(plan)?.digest.to_string(), state.commit.checksum);
            if !derived.is_empty() {
                // Its policy labels them.
                publish_base(state, first_layer(plan)?, staging, writers)?;
            }
            shared.base = Some(state.commit.checksum);
        }
        let mut legacy = BTreeMap::new();
        for done in shared.fetch_all(derived)? {
            let digest = done.layer.digest.to_string();
            commits.extend(done.commit.map(|commit| (digest.clone(), commit)));
            legacy.extend(done.legacy.map(|layer| (digest, layer)));
        }
        let is_legacy = self.import_legacy(repo, legacy, &mut base, &reader, stop)?;

        self.check_cached(plan, &reader, stop)?;
        let (tree, meta) = match &base {
            Some(base) if is_legacy => base.root()?,
            base => self.root(base.as_ref(), &commits, &reader, staging, &writes, &mut out, stop)?,
        };
        let timestamp = match (self.resolved.facts.created, &base) {
            (Some(created), _) => u64::try_from(created).unwrap_or(0),
            (None, Some(base)) => Commit::decode(&base.commit.bytes)?.timestamp,
            (None, None) => 0,
        };
        let version = match (&self.resolved.facts.version, &base) {
            (None, Some(base)) => Commit::decode(&base.commit.bytes)?.strings.remove(VERSION),
            (version, _) => version.clone(),
        };
        let commit = out.put(&self.image_commit(tree, meta, timestamp, version)?.encode(), Kind::Commit)?;
        let mut group = Group::default();
        if let Some(base) = base.filter(|base| base.unpublished) {
            put_base(&base.commit, &mut out)?;
            if !is_legacy {
                group.refs.push((blob_ref(&first_layer(plan)?.digest), base.commit.checksum));
            }
        }
        for planned in plan.layers.iter().filter(|planned| planned.presence == Presence::SameContent) {
            if let Some(commit) = commits.get(planned.layer.digest.as_str()) {
                group.refs.push((blob_ref(&planned.layer.digest), *commit));
            }
        }
        if self.cancel.is_cancelled() {
            return Err(cancelled().into());
        }
        // Last, so that a reader who sees the image's ref sees all others.
        group.refs.push((name.to_owned(), commit));
        group.objects.push((folder, out.staged));
        staging.publish(&group)?;
        staging.sync()?;
        partial::forget(&self.repo, &first_layer(plan)?.digest)?;
        Ok(commit)
    }

    fn shared<'a>(
        &'a self,
        staging: &'a Staging,
        writers: &'a Writers,
        writer_count: usize,
        stop: &Stop,
    ) -> Result<Shared<'a>> {
        let is_archive = self.image.image.transport == Transport::OciArchive;
        let temp = if is_archive { Some(staging.make_folder("skopeo")?) } else { None };
        Ok(Shared {
            staging,
            writers,
            writer_count,
            source: source_of(
                &self.image.image.with_digest(self.resolved.digest.clone()),
                &self.options,
                temp,
            ),
            configured: self.options.configured.as_deref(),
            digest: &self.resolved.digest,
            repo: &self.repo,
            base: None,
            layered_on: if self.resolved.facts.kind == ImageKind::Native { Base::Ostree } else { Base::None },
            legacy: match self.resolved.facts.kind {
                ImageKind::Legacy => Legacy::Yes,
                ImageKind::Plain if !self.resolved.facts.bootable_label => Legacy::Maybe,
                ImageKind::Plain | ImageKind::Native => Legacy::No,
            },
            rate: self.options.rate_limit.map(RateLimit::new),
            // Each proxy of an archive unpacks it for itself.
            streams: if is_archive { 1 } else { self.options.proxies.max(1) },
            tries: self.options.tries,
            first_pause: self.options.first_pause,
            sink: &self.sink,
            cancel: self.cancel.clone(),
            stop: stop.clone(),
            folders: AtomicUsize::new(0),
        })
    }

    /// Fetches what is missing of the OSTree base, and proves it complete and, where asked, signed.
    fn import_base(
        &self,
        repo: &ostree::Repo,
        plan: &PullPlan,
        shared: &Shared<'_>,
        reader: &ObjectReader,
    ) -> Result<Option<BaseState>> {
        if self.resolved.facts.kind != ImageKind::Native {
            return Ok(None);
        }
        let first = plan.layers.first().ok_or_else(|| anyhow!("an image without layers"))?;
        let mut state = match &first.commit {
            Some(commit) => Some(BaseState { commit: signed::load(repo, commit)?, unpublished: false }),
            None if first.presence == Presence::Present => {
                partial::load(&self.repo, &first.layer.digest, reader)
                    .map(|commit| BaseState { commit, unpublished: true })
            }
            None => None,
        };
        if let Verification::OstreeRemote(remote) = &self.image.verification {
            // Alone and first: no ref may be set before the signature is found good.
            let state = match &mut state {
                Some(state) => state,
                None => state.insert(fetched_base(shared.fetch_all(vec![first.layer.clone()])?)?),
            };
            signed::check(repo, remote, &state.commit)?;
        }
        let with_first = state.is_none();
        let layers = missing(plan, |layer| {
            layer.kind == LayerKind::Component || (with_first && layer.kind == LayerKind::Commit)
        });
        let done = shared.fetch_all(layers)?;
        let state = match state {
            Some(state) => state,
            None => fetched_base(done)?,
        };
        if let Some(label) = &self.resolved.facts.base_commit {
            let found = state.commit.checksum.to_string();
            if *label != found {
                return Err(Fault::refused(format!("image {} contradicts itself", self.image))
                    .why(format!("its label names the base commit {label}, its first layer carries {found}"))
                    .next("build the image again")
                    .into());
            }
        }
        // Also when all layers were there: another tool may have been killed between two of them.
        let commit = Commit::decode(&state.commit.bytes)?;
        check_tree(reader, commit.tree, commit.meta, &known_roots(repo, reader)?, &shared.stop)?;
        Ok(Some(state))
    }

    /// Puts a legacy image's repo together from its layers: gives whether there is one. Its commit is
    /// the base then, once it is proved complete and, where asked, signed.
    fn import_legacy(
        &self,
        repo: &ostree::Repo,
        mut layers: BTreeMap<String, LegacyLayer>,
        base: &mut Option<BaseState>,
        reader: &ObjectReader,
        stop: &Stop,
    ) -> Result<bool> {
        let mut found = LegacyRepo::default();
        for layer in &self.resolved.facts.layers {
            if let Some(layer) = layers.remove(layer.digest.as_str()) {
                found.apply(layer);
            }
        }
        let facts = &self.resolved.facts;
        if !found.is_there() {
            return match facts.kind {
                ImageKind::Legacy => Err(Fault::refused(format!("image {} holds no OSTree commit", self.image))
                    .why("a label calls it an oscontainer, but there is no archive repo with a commit in /srv/repo")
                    .next("build the image again")
                    .into()),
                ImageKind::Plain if matches!(self.image.verification, Verification::OstreeRemote(_)) => {
                    Err(Fault::refused(format!("image {} carries nothing that an OSTree remote signs", self.image))
                        .why("it is a plain image, without an OSTree commit in it")
                        .next("ask for it without ostree-remote-…:, if policy.json vouches for it")
                        .into())
                }
                ImageKind::Plain | ImageKind::Native => Ok(false),
            };
        }
        let label = facts.base_commit.as_deref().filter(|_| facts.kind == ImageKind::Legacy);
        let commit = found.commit(label, &self.image.to_string())?;
        if let Verification::OstreeRemote(remote) = &self.image.verification {
            signed::check(repo, remote, &commit)?;
        }
        let state = base.insert(BaseState { commit, unpublished: true });
        let (tree, meta) = state.root()?;
        check_tree(reader, tree, meta, &known_roots(repo, reader)?, stop)?;
        Ok(true)
    }

    /// Plain layers that were not fetched now: their refs are believed only as far as their objects
    /// are there.
    fn check_cached(&self, plan: &PullPlan, reader: &ObjectReader, stop: &Stop) -> Result<()> {
        for planned in plan.layers.iter().filter(|planned| planned.layer.kind == LayerKind::Derived) {
            if let Some(commit) = planned.commit.as_deref().and_then(Checksum::parse) {
                let commit = reader.commit(commit)?;
                check_tree(reader, commit.tree, commit.meta, &[], stop)?;
            }
        }
        Ok(())
    }

    /// The root of the image commit.
    #[allow(clippy::too_many_arguments)]
    fn root(
        &self,
        base: Option<&BaseState>,
        commits: &BTreeMap<String, Checksum>,
        reader: &ObjectReader,
        staging: &Staging,
        writes: &LayerWrites,
        out: &mut MetadataWriter<'_>,
        stop: &Stop,
    ) -> Result<(Checksum, Checksum)> {
        let base_root = match base {
            Some(base) => Some(base.root()?),
            None => None,
        };
        if let (Some(root), false) = (base_root, self.resolved.facts.has_derived_layers()) {
            return Ok(root);
        }
        let mut merge = Merge::new(reader, base_root);
        for layer in self.resolved.facts.layers.iter().filter(|layer| layer.kind == LayerKind::Derived) {
            let commit = commits
                .get(layer.digest.as_str())
                .ok_or_else(|| anyhow!("layer {} is not in the repo", layer.digest))?;
            merge.apply(*commit)?;
        }
        for path in BUILD_REMAINS {
            if let Some(file) = merge.file(path)?
                && reader.is_empty_file(file)?
            {
                merge.remove_file(path)?;
            }
        }
        if base_root.is_none() && merge.kernel()?.is_none() {
            return Err(Fault::refused(format!("image {} cannot be booted", self.image))
                .why("it carries no kernel: there is no usr/lib/modules/VERSION/vmlinuz in it")
                .next("name an OS image; an application's container image is none")
                .into());
        }
        // Reads objects in the repo: so before anything is added that is not there yet.
        let mut labels = relabel(&mut merge, base_root, reader, staging, writes, out, stop)?;
        if base_root.is_none() {
            complete_plain(&mut merge, &mut labels, writes, out)?;
        }
        merge.write(out)
    }

    fn image_commit(
        &self,
        tree: Checksum,
        meta: Checksum,
        timestamp: u64,
        version: Option<String>,
    ) -> Result<Commit> {
        let text = |bytes: &[u8], what: &str| {
            String::from_utf8(bytes.to_vec()).with_context(|| format!("the image's {what} is not UTF-8"))
        };
        let mut strings = BTreeMap::from([
            (MANIFEST_DIGEST.to_owned(), self.resolved.digest.to_string()),
            (MANIFEST.to_owned(), text(&self.resolved.manifest, "manifest")?),
            (CONFIG.to_owned(), text(&self.resolved.config, "config")?),
            (IMPORTER_KEY.to_owned(), IMPORTER_VERSION.to_owned()),
        ]);
        strings.extend(version.map(|version| (VERSION.to_owned(), version)));
        Ok(Commit { strings, lists: BTreeMap::new(), timestamp, tree, meta })
    }
}

/// The layers of a plan that must be fetched and that `choose` wants.
fn missing(plan: &PullPlan, choose: impl Fn(&Layer) -> bool) -> Vec<Layer> {
    let is_wanted = |planned: &&PlannedLayer| planned.presence == Presence::Missing && choose(&planned.layer);
    plan.layers.iter().filter(is_wanted).map(|planned| planned.layer.clone()).collect()
}

/// Commits of layers that the repo has, by blob digest.
fn known_commits(plan: &PullPlan) -> Result<BTreeMap<String, Checksum>> {
    let mut known = BTreeMap::new();
    for planned in &plan.layers {
        if let Some(commit) = &planned.commit {
            let checksum = Checksum::parse(commit).ok_or_else(|| anyhow!("'{commit}' is not a commit"))?;
            known.insert(planned.layer.digest.to_string(), checksum);
        }
    }
    Ok(known)
}

fn first_layer(plan: &PullPlan) -> Result<&Layer> {
    plan.layers.first().map(|planned| &planned.layer).ok_or_else(|| anyhow!("an image without layers"))
}

fn fetched_base(done: Vec<super::fetch::LayerDone>) -> Result<BaseState> {
    let commit = done
        .into_iter()
        .find_map(|done| done.base)
        .ok_or_else(|| anyhow!("no layer carried the base commit"))?;
    Ok(BaseState { commit, unpublished: true })
}

/// Writes the base commit and its ref, once its tree is complete.
fn publish_base(state: &mut BaseState, first: &Layer, staging: &Staging, writers: &Writers) -> Result<()> {
    if !std::mem::take(&mut state.unpublished) {
        return Ok(());
    }
    let (folder, dirs) = staging.layer("base", 1)?;
    let writes = LayerWrites::new(folder.clone(), dirs);
    let mut out = MetadataWriter::new(writers, &writes);
    put_base(&state.commit, &mut out)?;
    let refs = vec![(blob_ref(&first.digest), state.commit.checksum)];
    staging.publish(&Group { objects: vec![(folder, out.staged)], refs })
}

fn put_base(commit: &BaseCommit, out: &mut MetadataWriter<'_>) -> Result<()> {
    if let Some(detached) = &commit.detached {
        out.put_named(detached, Kind::CommitMeta, commit.checksum)?;
    }
    out.put_named(&commit.bytes, Kind::Commit, commit.checksum)
}

/// Root trees of images that the repo has: complete ones. Each costs about what it saves, so a few
/// will do.
fn known_roots(repo: &ostree::Repo, reader: &ObjectReader) -> Result<Vec<Checksum>> {
    let mut roots = Vec::new();
    for commit in images(repo)?.values().filter_map(|commit| Checksum::parse(commit)) {
        // An image that a damaged repo lost is no root: this import may be what brings it back.
        let Ok(Commit { tree, .. }) = reader.commit(commit) else { continue };
        if !roots.contains(&tree) {
            roots.push(tree);
        }
    }
    roots.truncate(3);
    Ok(roots)
}

/// What a plain image lacks to be an OSTree root: mount points, and the link to OSTree's folder.
fn complete_plain(
    merge: &mut Merge<'_>,
    labels: &mut Labels,
    writes: &LayerWrites,
    out: &mut MetadataWriter<'_>,
) -> Result<()> {
    for (name, mode) in TOP_DIRS {
        if !merge.has_top(name)? {
            let plain = plain_dir(mode);
            let xattrs = labels.apply(name, plain.mode, Vec::new())?;
            let meta = out.put(&DirMeta { xattrs, ..plain }.encode(), Kind::DirMeta)?;
            let tree = out.put(&super::objects::DirTree::default().encode(), Kind::DirTree)?;
            merge.put_top_dir(name, tree, meta)?;
        }
    }
    if !merge.has_top("ostree")? {
        let meta = FileMeta {
            uid: 0,
            gid: 0,
            mode: S_IFLNK | 0o777,
            target: "sysroot/ostree".to_owned(),
            xattrs: labels.apply("ostree", S_IFLNK | 0o777, Vec::new())?,
        };
        let (checksum, staged) = writes.put_link(&meta)?;
        out.staged.extend(staged);
        merge.put_top_file("ostree", checksum)?;
    }
    Ok(())
}
