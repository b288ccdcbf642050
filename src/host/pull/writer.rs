//! The threads that hash, create and write objects.
//!
//! Readers of layers hand over small objects whole and many at a time, since waking a thread costs as
//! much as writing a small file, and large ones piece by piece, through one queue that is bounded by
//! bytes. A writer works a large object off by itself; its reader goes on meanwhile.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{AtFlags, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use sha2::Digest as _;

use super::limits::{CHUNK, QUEUE_BYTES};
use super::objects::{Checksum, FileMeta, Kind, decode_xattrs};
use super::space::SpaceGuard;
use super::staging::{LayerFolder, Staged, create_new, has_object, staged_name};
use super::stop::{Secondary, Stop};

/// Small objects are handed over when so many bytes of them are there, or so many. Few enough that
/// the writers of a small layer share them.
const BATCH_BYTES: usize = 2 * CHUNK;
const BATCH_JOBS: usize = 32;
/// Pieces of a large object that may wait for their writer.
const LARGE_PIECES: usize = 4;

/// An object on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) what: What,
    /// The name that the layer gives it; checked.
    pub(super) expected: Option<Checksum>,
    /// Where its checksum is wanted, in the layer's own numbering.
    pub(super) slot: Option<usize>,
}

/// Content or metadata.
#[derive(Debug)]
pub(super) enum What {
    Content(FileMeta),
    Metadata(Kind),
}

#[derive(Debug)]
enum Data {
    Whole(Vec<u8>),
    Pieces(Receiver<Vec<u8>>),
}

#[derive(Debug)]
struct Job {
    pending: Pending,
    data: Data,
}

/// Jobs of one layer that are handed over together.
struct Batch {
    layer: Arc<LayerWrites>,
    jobs: Vec<Job>,
    bytes: usize,
}

/// What the writers did for one layer.
#[derive(Debug)]
pub(super) struct LayerWrites {
    pub(super) folder: LayerFolder,
    folders: Vec<Dir>,
    state: Mutex<LayerState>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct LayerState {
    /// What the next batch will be, and its weight.
    gathered: Vec<Job>,
    gathered_bytes: usize,
    /// Batches handed over and not finished.
    waiting: usize,
    error: Option<Error>,
    written: Written,
}

/// The result of a layer's writes.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// What is in the layer's staging folder.
    pub(super) staged: Vec<Staged>,
    /// Checksums of objects that were handed over with a slot.
    pub(super) slots: Vec<(usize, Checksum)>,
    /// Objects that the repo had.
    pub(super) reused: u64,
    /// Bytes of new objects.
    pub(super) bytes: u64,
}

impl Written {
    fn append(&mut self, mut other: Self) {
        self.staged.append(&mut other.staged);
        self.slots.append(&mut other.slots);
        self.reused += other.reused;
        self.bytes += other.bytes;
    }
}

impl LayerWrites {
    pub(super) fn new(folder: LayerFolder, folders: Vec<Dir>) -> Self {
        Self { folder, folders, state: Mutex::default(), idle: Condvar::new() }
    }

    /// A folder for what the layer's reader must put aside. It goes with the layer's folders.
    pub(super) fn scratch(&self) -> &Dir {
        &self.folders[0]
    }

    fn state(&self) -> MutexGuard<'_, LayerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an object that need not be written.
    pub(super) fn count_reused(&self) {
        self.state().written.reused += 1;
    }

    /// Adds a job to the next batch; gives the batch once it is worth handing over.
    fn gather(&self, job: Job) -> Result<Option<(Vec<Job>, usize)>> {
        let mut state = self.state();
        state.check()?;
        state.gathered_bytes += job.weight();
        state.gathered.push(job);
        if state.gathered_bytes < BATCH_BYTES && state.gathered.len() < BATCH_JOBS {
            return Ok(None);
        }
        Ok(Some(state.take_gathered()))
    }

    fn wait(&self) -> Result<Written> {
        let mut state = self.state();
        while state.waiting > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.written)),
        }
    }

    /// Writes a metadata object at once, in the caller's thread. Only while no writer works for the
    /// layer, that is, after [`Writers::finish`].
    pub(super) fn put_metadata(&self, bytes: &[u8], kind: Kind, name: Checksum) -> Result<Option<Staged>> {
        let staged = Staged { checksum: name, kind, folder: 0 };
        Ok(write_metadata(&self.folders[0], &staged_name(name, kind), bytes)?.then_some(staged))
    }

    /// The same for a regular file, whose content is copied.
    pub(super) fn put_copy(
        &self,
        meta: &FileMeta,
        content: &mut impl Read,
    ) -> Result<(Checksum, Option<Staged>)> {
        const NAME: &str = "copy";
        let dir = &self.folders[0];
        let mut hasher = meta.hasher();
        let file = create_new(dir, NAME).context("Creating a file")?;
        let mut piece = vec![0; CHUNK];
        loop {
            let count = content.read(&mut piece).context("Reading an object")?;
            if count == 0 {
                break;
            }
            hasher.update(&piece[..count]);
            write_all(&file, &piece[..count])?;
        }
        apply_meta(&file, meta)?;
        let checksum = Checksum(hasher.finalize().into());
        // Replacing is fine: it is the same by its name.
        dir.rename(NAME, dir, staged_name(checksum, Kind::File))?;
        Ok((checksum, Some(Staged { checksum, kind: Kind::File, folder: 0 })))
    }

    /// The same for a symbolic link.
    pub(super) fn put_link(&self, meta: &FileMeta) -> Result<(Checksum, Option<Staged>)> {
        let checksum = Checksum(meta.hasher().finalize().into());
        let new = write_link(&self.folders[0], &staged_name(checksum, Kind::File), meta)?;
        Ok((checksum, new.then_some(Staged { checksum, kind: Kind::File, folder: 0 })))
    }
}

impl LayerState {
    fn check(&self) -> Result<()> {
        match self.error {
            Some(_) => Err(Secondary("an earlier object of the layer failed").into()),
            None => Ok(()),
        }
    }

    fn take_gathered(&mut self) -> (Vec<Job>, usize) {
        (std::mem::take(&mut self.gathered), std::mem::take(&mut self.gathered_bytes))
    }
}

#[derive(Default)]
struct QueueState {
    batches: VecDeque<Batch>,
    bytes: usize,
    closed: bool,
    /// Writers that wait for a batch, and readers that wait for room: notifying nobody is a system
    /// call too.
    idle: usize,
    blocked: usize,
}

/// The queue and what every writer shares.
pub(super) struct Writers {
    queue: Mutex<QueueState>,
    filled: Condvar,
    drained: Condvar,
    objects: Dir,
    space: SpaceGuard,
    stop: Stop,
    /// Objects and bytes written, for the statistics.
    pub(super) objects_written: AtomicU64,
    pub(super) bytes_written: AtomicU64,
}

impl std::fmt::Debug for Writers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writers").finish_non_exhaustive()
    }
}

impl Writers {
    pub(super) fn new(objects: Dir, space: SpaceGuard, stop: Stop) -> Self {
        Self {
            queue: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            objects,
            space,
            stop,
            objects_written: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        }
    }

    fn queue(&self) -> MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the repo has an object already.
    pub(super) fn has(&self, checksum: Checksum, kind: Kind) -> Result<bool> {
        has_object(&self.objects, checksum, kind)
    }

    /// Hands over a whole object, soon; waits while too much is waiting.
    pub(super) fn put(&self, layer: &Arc<LayerWrites>, pending: Pending, data: Vec<u8>) -> Result<()> {
        if let Some((jobs, bytes)) = layer.gather(Job { pending, data: Data::Whole(data) })? {
            self.push(Batch { layer: Arc::clone(layer), jobs, bytes });
        }
        Ok(())
    }

    /// Hands over a large object; its pieces go through what this returns, at most [`CHUNK`] each.
    pub(super) fn put_pieces(
        &self,
        layer: &Arc<LayerWrites>,
        pending: Pending,
    ) -> Result<SyncSender<Vec<u8>>> {
        layer.state().check()?;
        let (sender, receiver) = sync_channel(LARGE_PIECES);
        let job = Job { pending, data: Data::Pieces(receiver) };
        let bytes = job.weight();
        self.push(Batch { layer: Arc::clone(layer), jobs: vec![job], bytes });
        Ok(sender)
    }

    /// Hands over what is left of a layer and waits for all its writes; gives what they made, or the
    /// first error.
    pub(super) fn finish(&self, layer: &Arc<LayerWrites>) -> Result<Written> {
        let (jobs, bytes) = layer.state().take_gathered();
        if !jobs.is_empty() {
            self.push(Batch { layer: Arc::clone(layer), jobs, bytes });
        }
        layer.wait()
    }

    fn push(&self, batch: Batch) {
        batch.layer.state().waiting += 1;
        let mut queue = self.queue();
        while queue.bytes > QUEUE_BYTES && !self.stop.is_set() {
            queue.blocked += 1;
            queue = self.drained.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.blocked -= 1;
        }
        queue.bytes += batch.bytes;
        queue.batches.push_back(batch);
        if queue.idle > 0 {
            self.filled.notify_one();
        }
    }

    /// No more jobs will come.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.filled.notify_all();
    }

    /// Wakes everybody who waits, after the stop flag was set.
    pub(super) fn wake(&self) {
        drop(self.queue());
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// A writer's life: number `me` of those that were planned with the layers' folders.
    pub(super) fn work(&self, me: usize) {
        while let Some(batch) = self.next() {
            let mut written = Written::default();
            let result = self.write_all(me, &batch.layer, batch.jobs, &mut written);
            let mut state = batch.layer.state();
            state.written.append(written);
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            state.waiting -= 1;
            if state.waiting == 0 {
                batch.layer.idle.notify_all();
            }
        }
    }

    fn next(&self) -> Option<Batch> {
        let mut queue = self.queue();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                queue.bytes -= batch.bytes;
                // Not at each batch: a reader that is woken should find room for a while.
                if queue.blocked > 0 && queue.bytes <= QUEUE_BYTES / 2 {
                    self.drained.notify_all();
                }
                return Some(batch);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn write_all(&self, me: usize, layer: &LayerWrites, jobs: Vec<Job>, written: &mut Written) -> Result<()> {
        if layer.state().error.is_some() {
            return Ok(()); // The layer has failed: its other objects are of no use.
        }
        for job in jobs {
            self.stop.check()?;
            self.write(me, &layer.folders[me], job, written)?;
        }
        Ok(())
    }

    fn write(&self, me: usize, dir: &Dir, job: Job, written: &mut Written) -> Result<()> {
        let Job { pending, data } = job;
        let (checksum, new, bytes) = match (&pending.what, &data) {
            (What::Metadata(kind), Data::Whole(data)) => {
                let checksum = pending.expected.unwrap_or_else(|| Checksum::of(data));
                let new = write_metadata(dir, &staged_name(checksum, *kind), data)?;
                (checksum, new, data.len())
            }
            (What::Metadata(_), Data::Pieces(_)) => bail!("a metadata object cannot come in pieces"),
            (What::Content(meta), Data::Whole(data)) => self.write_small(dir, meta, &pending, data)?,
            (What::Content(meta), Data::Pieces(pieces)) => self.write_large(dir, meta, &pending, pieces)?,
        };
        let kind = match pending.what {
            What::Metadata(kind) => kind,
            What::Content(_) => Kind::File,
        };
        if let Some(slot) = pending.slot {
            written.slots.push((slot, checksum));
        }
        if !new {
            written.reused += 1;
            return Ok(());
        }
        written.staged.push(Staged { checksum, kind, folder: me });
        written.bytes += bytes as u64;
        self.objects_written.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
        self.space.wrote(bytes as u64)
    }

    fn write_small(
        &self,
        dir: &Dir,
        meta: &FileMeta,
        pending: &Pending,
        data: &[u8],
    ) -> Result<(Checksum, bool, usize)> {
        let mut hasher = meta.hasher();
        hasher.update(data);
        let checksum = Checksum(hasher.finalize().into());
        check_name(checksum, pending.expected)?;
        // With a name from the layer the decoder has looked already.
        if pending.expected.is_none() && self.has(checksum, Kind::File)? {
            return Ok((checksum, false, 0));
        }
        let name = staged_name(checksum, Kind::File);
        let new =
            if meta.is_link() { write_link(dir, &name, meta)? } else { write_file(dir, &name, meta, data)? };
        Ok((checksum, new, data.len()))
    }

    fn write_large(
        &self,
        dir: &Dir,
        meta: &FileMeta,
        pending: &Pending,
        pieces: &Receiver<Vec<u8>>,
    ) -> Result<(Checksum, bool, usize)> {
        let mut hasher = meta.hasher();
        let file = create_new(dir, "large").context("Creating a file")?;
        let mut total = 0;
        // An empty piece is the end: a sender that is gone without it has failed.
        let mut complete = false;
        while let Ok(piece) = pieces.recv() {
            self.stop.check()?;
            if piece.is_empty() {
                complete = true;
                break;
            }
            hasher.update(&piece);
            write_all(&file, &piece)?;
            total += piece.len();
            self.space.wrote(piece.len() as u64)?;
        }
        if !complete {
            return Err(Secondary("the layer ended inside an object").into());
        }
        let checksum = Checksum(hasher.finalize().into());
        check_name(checksum, pending.expected)?;
        if self.has(checksum, Kind::File)? {
            dir.remove_file("large")?;
            return Ok((checksum, false, 0));
        }
        apply_meta(&file, meta)?;
        let name = staged_name(checksum, Kind::File);
        match rustix::fs::renameat_with(dir.as_fd(), "large", dir.as_fd(), &name, RenameFlags::NOREPLACE) {
            Ok(()) => Ok((checksum, true, total)),
            // The layer has the same file twice, and this writer wrote the other one too.
            Err(Errno::EXIST) => {
                dir.remove_file("large")?;
                Ok((checksum, false, 0))
            }
            Err(error) => Err(error).context("Naming an object in the staging folder"),
        }
    }
}

impl Job {
    fn weight(&self) -> usize {
        // Never zero, so that a flood of empty files is bounded too.
        256 + match &self.data {
            Data::Whole(data) => data.len(),
            Data::Pieces(_) => LARGE_PIECES * CHUNK,
        }
    }
}

fn check_name(found: Checksum, expected: Option<Checksum>) -> Result<()> {
    match expected {
        Some(expected) if expected != found => {
            Err(anyhow!("object {expected} is corrupt: its content has the checksum {found}"))
        }
        _ => Ok(()),
    }
}

/// Writes a metadata object; false if this writer has written it before.
fn write_metadata(dir: &Dir, name: &str, bytes: &[u8]) -> Result<bool> {
    let Some(file) = create_unless_there(dir, name)? else { return Ok(false) };
    write_all(&file, bytes)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    Ok(true)
}

fn write_file(dir: &Dir, name: &str, meta: &FileMeta, data: &[u8]) -> Result<bool> {
    let Some(file) = create_unless_there(dir, name)? else { return Ok(false) };
    write_all(&file, data)?;
    apply_meta(&file, meta)?;
    Ok(true)
}

fn create_unless_there(dir: &Dir, name: &str) -> Result<Option<rustix::fd::OwnedFd>> {
    match create_new(dir, name) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(error).context("Creating a file in the staging folder"),
    }
}

fn write_all(file: &rustix::fd::OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("Writing an object"),
        }
    }
    Ok(())
}

/// Owner first: changing it clears capabilities and set-user-id. Time stamp last: objects have the
/// epoch, as libostree makes them.
fn apply_meta(file: &rustix::fd::OwnedFd, meta: &FileMeta) -> Result<()> {
    if meta.uid != 0 || meta.gid != 0 {
        rustix::fs::fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))
            .context("Setting the owner of an object")?;
    }
    for (name, value) in decode_xattrs(&meta.xattrs)? {
        rustix::fs::fsetxattr(file, name.as_slice(), &value, XattrFlags::empty())
            .with_context(|| format!("Setting the extended attribute {}", String::from_utf8_lossy(&name)))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode & 0o7777))
        .context("Setting the mode of an object")?;
    Ok(rustix::fs::futimens(file, &epoch())?)
}

fn write_link(dir: &Dir, name: &str, meta: &FileMeta) -> Result<bool> {
    match rustix::fs::symlinkat(meta.target.as_str(), dir.as_fd(), name) {
        Err(Errno::EXIST) => return Ok(false),
        other => other.context("Creating a symbolic link")?,
    }
    if meta.uid != 0 || meta.gid != 0 {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        rustix::fs::chownat(dir.as_fd(), name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let xattrs = decode_xattrs(&meta.xattrs)?;
    if !xattrs.is_empty() {
        // There is no call that takes a folder and the name of a link.
        use std::os::fd::AsRawFd as _;
        let path = format!("/proc/self/fd/{}/{name}", dir.as_fd().as_raw_fd());
        for (name, value) in xattrs {
            rustix::fs::lsetxattr(path.as_str(), name.as_slice(), &value, XattrFlags::empty()).with_context(
                || format!("Setting the extended attribute {}", String::from_utf8_lossy(&name)),
            )?;
        }
    }
    rustix::fs::utimensat(dir.as_fd(), name, &epoch(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(true)
}

fn epoch() -> Timestamps {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    Timestamps { last_access: zero, last_modification: zero }
}
