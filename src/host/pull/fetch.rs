//! Several layers at once: the threads of an import and what they tell each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow};
use cap_std_ext::cap_std::fs::Dir;
use tokio_util::sync::CancellationToken;

use super::decode::{Compressed, ZstdState};
use super::derived::{LayerReader, Legacy, MetadataWriter, object_set_commit};
use super::encapsulated::{BaseCommit, ObjectLayer, Objects};
use super::explain::{Corrupt, Invalid, explain};
use super::label::Labels;
use super::legacy::LegacyLayer;
use super::objects::Checksum;
use super::partial;
use super::place::Base;
use super::rate::RateLimit;
use super::resolve::Sink;
use super::retry::{Verdict, delays, judge};
use super::source::{Opened, Source};
use super::space::explain_full;
use super::staging::{Group, LayerFolder, Staged, Staging};
use super::stop::{Stop, cancelled, cause, is_secondary};
use super::tarball::Tarball;
use super::unpack::{Unpacked, unpack};
use super::writer::{LayerWrites, Writers};
use crate::error::Fault;
use crate::host::trust::redact;
use crate::model::digest::Digest;
use crate::model::event::Event;
use crate::model::oci::{Layer, LayerKind};
use crate::model::repo_refs::blob_ref;

/// A group of layers becomes durable when it holds this much …
const GROUP_BYTES: u64 = 256 * 1024 * 1024;
/// … or is this old: what a killed run must fetch again is bounded by both.
const GROUP_AGE: Duration = Duration::from_secs(30);
/// When so much was written, the disk is set to work. Left alone the kernel keeps gigabytes, and the
/// sync at the end of a large layer waits for all of them while both processors have nothing to do.
const FLUSH_BYTES: u64 = 128 * 1024 * 1024;
/// How often the collecting thread looks at the clock and at cancellation.
const TICK: Duration = Duration::from_millis(100);
/// Compressed pieces that may wait for a decoder.
const PIECES: usize = 16;

/// What the threads of an import share.
pub(super) struct Shared<'a> {
    pub(super) staging: &'a Staging,
    pub(super) writers: &'a Writers,
    /// How many writers there are.
    pub(super) writer_count: usize,
    pub(super) source: Source,
    pub(super) digest: &'a Digest,
    pub(super) repo: &'a Dir,
    /// Whose policy labels plain layers.
    pub(super) base: Option<Checksum>,
    pub(super) layered_on: Base,
    pub(super) legacy: Legacy,
    pub(super) rate: Option<RateLimit>,
    pub(super) streams: usize,
    pub(super) tries: usize,
    pub(super) first_pause: Duration,
    /// For messages: see [`super::PullOptions::configured`].
    pub(super) configured: Option<&'a str>,
    pub(super) sink: &'a Sink,
    pub(super) cancel: CancellationToken,
    pub(super) stop: Stop,
    /// Numbers the layers' staging folders over all attempts.
    pub(super) folders: AtomicUsize,
}

/// A layer that is read, verified and written.
#[derive(Debug)]
pub(super) struct LayerDone {
    pub(super) layer: Layer,
    /// What its ref will hold. None for the base: that must be known complete first.
    pub(super) commit: Option<Checksum>,
    pub(super) base: Option<BaseCommit>,
    pub(super) legacy: Option<LegacyLayer>,
    /// Content objects of a first layer.
    content: Vec<Checksum>,
    folder: LayerFolder,
    staged: Vec<Staged>,
    bytes: u64,
}

struct Task {
    layer: Layer,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
    attempt: u32,
}

/// What was read of a layer.
enum Read {
    Plain(super::derived::Layer, Labels),
    Commit(Objects),
    Component(Objects),
}

/// Whether this machine failed, not the image: a system call, a full disk.
fn is_ours(error: &Error) -> bool {
    error.chain().any(|cause| cause.is::<Fault>() || cause.is::<rustix::io::Errno>())
}

fn invalid_unless_ours(error: Error) -> Error {
    if is_secondary(&error) || is_ours(&error) { error } else { error.context(Invalid) }
}

type Queue = Mutex<VecDeque<Task>>;

impl Shared<'_> {
    /// Fetches all these layers and makes them durable in groups; gives what was made of each.
    pub(super) fn fetch_all(&self, mut layers: Vec<Layer>) -> Result<Vec<LayerDone>> {
        // The largest first: the last one to finish should be a small one.
        layers.sort_by_key(|layer| std::cmp::Reverse(layer.size));
        let streams = self.streams.min(layers.len());
        let queue: Queue = Mutex::new(layers.into_iter().map(|layer| self.task(layer)).collect());
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            for _ in 0..streams {
                let (sender, queue) = (sender.clone(), &queue);
                scope.spawn(move || self.stream(queue, &sender));
            }
            drop(sender);
            let mut groups = Groups::new(self.staging, self.repo);
            let mut flushed = self.writers.bytes_written.load(Ordering::Relaxed);
            let mut failure: Option<Error> = None;
            loop {
                match receiver.recv_timeout(TICK) {
                    Ok(Ok(done)) => groups.add(done),
                    Ok(Err(error)) => {
                        failure = cause(failure.into_iter().chain([error]));
                        self.halt();
                    }
                    Err(RecvTimeoutError::Timeout) if self.cancel.is_cancelled() => self.halt(),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if failure.is_some() || self.stop.is_set() {
                    continue;
                }
                let result = if groups.are_due() { groups.publish() } else { self.flush(&mut flushed) };
                if let Err(error) = result {
                    failure = Some(error);
                    self.halt();
                }
            }
            if self.cancel.is_cancelled() {
                return Err(cancelled().into());
            }
            // Also after a failure: what is finished need not be fetched again.
            let published = groups.publish();
            match failure {
                Some(error) => Err(error),
                None => published.map(|()| groups.done),
            }
        })
    }

    /// Has the disk write what was made since the last time, if that is much. Nothing relies on it:
    /// publishing syncs for itself.
    fn flush(&self, flushed: &mut u64) -> Result<()> {
        let written = self.writers.bytes_written.load(Ordering::Relaxed);
        if written - *flushed < FLUSH_BYTES {
            return Ok(());
        }
        *flushed = written;
        self.staging.sync()
    }

    fn task(&self, layer: Layer) -> Task {
        Task { layer, pauses: Box::new(delays(self.first_pause, self.tries)), attempt: 0 }
    }

    fn halt(&self) {
        self.stop.set();
        self.writers.wake();
    }

    /// One stream's life: session after session, each with a proxy of its own, until no layer waits.
    fn stream(&self, queue: &Queue, sender: &Sender<Result<LayerDone>>) {
        loop {
            let ended = thread::scope(|scope| {
                // The proxy's process ends with this inner thread, even when it hangs.
                scope.spawn(|| self.session(queue, sender)).join()
            });
            let (mut task, error) = match ended {
                Ok(None) => return,
                Ok(Some(failed)) => failed,
                Err(_) => {
                    let _ = sender.send(Err(anyhow!("a thread of the import panicked")));
                    return;
                }
            };
            let pause = if judge(&error) == Verdict::MayPass { task.pauses.next() } else { None };
            let Some(pause) = pause else {
                let _ = sender.send(Err(self.explain(error, &task)));
                return;
            };
            self.sink.event(Event::Retry {
                what: format!("fetching layer {}", task.layer.digest.short()),
                why: redact(&format!("{error:#}")),
                delay_seconds: pause.as_secs(),
                attempt: task.attempt,
            });
            if !self.sleep(pause) {
                return;
            }
            lock(queue).push_front(task);
        }
    }

    /// Sleeps unless the import stops; tells whether it goes on.
    fn sleep(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        while Instant::now() < end {
            if self.stop.is_set() {
                return false;
            }
            thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
        true
    }

    /// Works off layers with one proxy. Gives back the layer that failed, if one did.
    fn session(&self, queue: &Queue, sender: &Sender<Result<LayerDone>>) -> Option<(Task, Error)> {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = sender.send(Err(Error::new(error).context("Starting a runtime")));
                return None;
            }
        };
        let mut opened = None;
        let mut zstd = ZstdState::default();
        let mut failed = None;
        while failed.is_none() && !self.stop.is_set() {
            let Some(mut task) = lock(queue).pop_front() else { break };
            task.attempt += 1;
            match self.one(&runtime, &mut opened, &mut zstd, &task) {
                Ok(done) => {
                    let _ = sender.send(Ok(done));
                }
                Err(error) => failed = Some((task, error)),
            }
        }
        // Not waiting for what is blocked in it: that ends with the proxy.
        drop(opened);
        runtime.shutdown_background();
        failed
    }

    fn one(
        &self,
        runtime: &tokio::runtime::Runtime,
        opened: &mut Option<Opened>,
        zstd: &mut ZstdState,
        task: &Task,
    ) -> Result<LayerDone> {
        let opened = match opened {
            Some(opened) => opened,
            None => opened.insert(self.open(runtime)?),
        };
        let layer = &task.layer;
        self.sink.event(Event::LayerStarted {
            digest: layer.digest.clone(),
            size: layer.size,
            title: layer.title.clone(),
        });
        let number = self.folders.fetch_add(1, Ordering::Relaxed);
        let (folder, dirs) = self.staging.layer(&format!("layer-{number}"), self.writer_count)?;
        let writes = Arc::new(LayerWrites::new(folder.clone(), dirs));
        let (sender, receiver) = tokio::sync::mpsc::channel(PIECES);
        let (decoded, fetched) = thread::scope(|scope| {
            let compressed = Compressed::new(receiver, layer.size, self.stop.clone());
            let unpacked = unpack(scope, compressed, layer, zstd);
            let reader = scope.spawn(|| self.decode(unpacked, layer, &writes));
            let progress = |bytes| {
                self.sink.event(Event::LayerProgress { digest: layer.digest.clone(), bytes });
            };
            let fetched =
                runtime.block_on(opened.fetch(layer, sender, self.rate.as_ref(), &self.cancel, progress));
            (reader.join(), fetched)
        });
        let decoded = decoded.map_err(|_| anyhow!("the layer's reader panicked"));
        let result = match (decoded, fetched) {
            (Ok(Ok(done)), Ok(())) => Ok(done),
            (decoded, fetched) => {
                let decoded = decoded.and_then(|inner| inner).err();
                // Writers may still work on what the decoder handed over.
                let written = self.writers.finish(&writes).err();
                // skopeo looks at digests too, but in words that old ones do not keep apart.
                let (corrupt, decoded) = match decoded {
                    Some(error) if error.chain().any(|cause| cause.is::<Corrupt>()) => (Some(error), None),
                    decoded => (None, decoded),
                };
                let errors = corrupt.into_iter().chain(fetched.err()).chain(decoded).chain(written);
                Err(cause(errors).unwrap_or_else(|| anyhow!("the layer was not read to its end")))
            }
        };
        if result.is_err() {
            self.staging.discard(&folder)?;
        }
        result
    }

    fn open(&self, runtime: &tokio::runtime::Runtime) -> Result<Opened> {
        let opened = runtime.block_on(self.source.open())?;
        if opened.digest != *self.digest {
            return Err(Fault::failed("the image was replaced while it was pulled")
                .why(format!("its manifest was {} and is {} now", self.digest, opened.digest))
                .next("run the same command again")
                .into());
        }
        Ok(opened)
    }

    /// Everything from tar bytes to a commit in the staging folder.
    fn decode(&self, unpacked: Unpacked, layer: &Layer, writes: &Arc<LayerWrites>) -> Result<LayerDone> {
        let mut tar = Tarball::new(unpacked);
        let read = match self.read(&mut tar, layer, writes) {
            Ok(read) => read,
            Err(error) => return Err(self.blame(error, tar.into_inner(), writes)),
        };
        tar.into_inner().finish(layer)?;
        let written = self.writers.finish(writes).map_err(invalid_unless_ours)?;
        let mut out = MetadataWriter::new(self.writers, writes);
        let (mut legacy, mut content) = (None, Vec::new());
        let (commit, base) = match read {
            Read::Plain(tree, _) if tree.legacy.is_some() => {
                legacy = tree.legacy;
                (None, None)
            }
            Read::Plain(tree, mut labels) => {
                self.warn_of_dropped(layer, &tree);
                (Some(tree.commit(&written, &mut labels, &mut out)?), None)
            }
            Read::Commit(objects) => {
                content = objects.content;
                (None, objects.commit)
            }
            Read::Component(objects) => (Some(object_set_commit(&objects.content, &mut out)?), None),
        };
        self.sink.event(Event::LayerFinished {
            digest: layer.digest.clone(),
            objects: written.staged.len() as u64,
            reused: written.reused,
        });
        let mut staged = written.staged;
        staged.append(&mut out.staged);
        Ok(LayerDone {
            layer: layer.clone(),
            commit,
            base,
            legacy,
            content,
            folder: writes.folder.clone(),
            staged,
            bytes: written.bytes,
        })
    }

    fn read(&self, tar: &mut Tarball<Unpacked>, layer: &Layer, writes: &Arc<LayerWrites>) -> Result<Read> {
        let objects = |tar, with_commit| ObjectLayer::new(self.writers, writes, with_commit).read(tar);
        Ok(match layer.kind {
            LayerKind::Commit => Read::Commit(objects(tar, true)?),
            LayerKind::Component => Read::Component(objects(tar, false)?),
            LayerKind::Derived => {
                let reader =
                    LayerReader::new(self.writers, writes, self.labels()?, self.layered_on, self.legacy);
                let (tree, labels) = reader.read(tar)?;
                Read::Plain(tree, labels)
            }
        })
    }

    /// Finds out whose fault it is that a layer cannot be read: wrong bytes, the image, or ours.
    fn blame(&self, error: Error, unpacked: Unpacked, writes: &Arc<LayerWrites>) -> Error {
        let error = cause(std::iter::once(error).chain(self.writers.finish(writes).err()))
            .unwrap_or_else(|| anyhow!("the layer was not read to its end"));
        if is_secondary(&error) || is_ours(&error) {
            return error;
        }
        match unpacked.verify() {
            // Also a stream that ended early: the source's error is the cause then.
            Err(corrupt) => corrupt,
            Ok(()) => error.context(Invalid),
        }
    }

    fn labels(&self) -> Result<Labels> {
        let Some(base) = self.base else { return Ok(Labels::none()) };
        // A handle of this thread's own: libostree's may not be shared.
        let repo = ostree::Repo::open_at_dir(rustix::fd::AsFd::as_fd(self.repo), ".")?;
        Labels::of_commit(&repo, &base.to_string())
    }

    fn warn_of_dropped(&self, layer: &Layer, tree: &super::derived::Layer) {
        for (what, count) in &tree.dropped {
            self.sink.event(Event::Warning {
                message: format!(
                    "layer {}: {count} entries left out, which an OSTree commit cannot hold or does not deliver: {what}",
                    layer.digest.short()
                ),
            });
        }
    }

    fn explain(&self, error: Error, task: &Task) -> Error {
        let error = explain_full(self.repo, error);
        if error.chain().any(|cause| cause.is::<Fault>()) {
            return error;
        }
        let tried = match task.attempt {
            0 | 1 => String::new(),
            count => format!(" after {count} tries"),
        };
        let title =
            if task.layer.title.is_empty() { String::new() } else { format!(" ({})", task.layer.title) };
        let what = format!(
            "layer {}{title} of {} cannot be imported{tried}",
            task.layer.digest.short(),
            self.source.reference
        );
        let mut fault = explain(what, &error, self.configured);
        fault.next = fault.next.map(|next| format!("{next}; finished layers are kept"));
        fault.into()
    }
}

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, VecDeque<Task>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finished layers on their way to be durable.
struct Groups<'a> {
    staging: &'a Staging,
    repo: &'a Dir,
    /// First layers among those that wait.
    first: Vec<(Digest, BaseCommit, Vec<Checksum>)>,
    waiting: Group,
    bytes: u64,
    since: Option<Instant>,
    done: Vec<LayerDone>,
}

impl<'a> Groups<'a> {
    fn new(staging: &'a Staging, repo: &'a Dir) -> Self {
        Self {
            staging,
            repo,
            first: Vec::new(),
            waiting: Group::default(),
            bytes: 0,
            since: None,
            done: Vec::new(),
        }
    }

    fn add(&mut self, mut done: LayerDone) {
        self.bytes += done.bytes;
        self.since.get_or_insert_with(Instant::now);
        self.waiting.objects.push((done.folder.clone(), std::mem::take(&mut done.staged)));
        if let Some(commit) = done.commit {
            self.waiting.refs.push((blob_ref(&done.layer.digest), commit));
        }
        if let Some(base) = &done.base {
            let content = std::mem::take(&mut done.content);
            self.first.push((done.layer.digest.clone(), base.clone(), content));
        }
        self.done.push(done);
    }

    fn are_due(&self) -> bool {
        self.bytes >= GROUP_BYTES || self.since.is_some_and(|since| since.elapsed() >= GROUP_AGE)
    }

    fn publish(&mut self) -> Result<()> {
        if self.waiting.objects.is_empty() {
            return Ok(());
        }
        let group = std::mem::take(&mut self.waiting);
        (self.bytes, self.since) = (0, None);
        self.staging.publish(&group).context("Making finished layers durable")?;
        for (layer, base, content) in self.first.drain(..) {
            partial::note(self.repo, &layer, &base, &content)?;
        }
        Ok(())
    }
}
