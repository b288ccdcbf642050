//! Requests and replies as files below `/run/mcd`.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use fn_error_context::context;
use rustix::fs::{FlockOperation, flock};

use crate::error::Fault;
use crate::host::durable;
use crate::model::wire::{Done, Failed, HostRequest, Reply, ReplyBody};

/// Where the spool is, below a root. Gone with a reboot, like the units that serve it.
pub const SPOOL: &str = "run/mcd";
const REQUESTS: &str = "requests";
const REPLIES: &str = "replies";
/// Longest id.
const ID_LENGTH_MAX: usize = 64;
/// Requests that are kept with their answers; the oldest finished ones go first.
const KEPT_MAX: usize = 32;
/// Replies of one request. A pull says a few lines; more than this is noise.
const REPLIES_MAX: u64 = 2000;
/// Bytes of a request: a MachineConfig of the largest size that etcd takes, as text within JSON.
const REQUEST_MAX: u64 = 8 << 20;
/// Characters of a line of progress.
const MESSAGE_MAX: usize = 500;

/// The folder of requests and replies.
#[derive(Debug)]
pub struct Spool {
    folder: Dir,
    requests: Dir,
    replies: Dir,
}

/// The replies of a request, open to be continued by the only process that serves it.
#[derive(Debug)]
pub struct Replies {
    file: File,
    next: u64,
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was never asked.
    Unknown,
    /// It has no last reply yet.
    Open,
    /// This is the last reply.
    Ended(Reply),
}

/// Refuses an id that could be anything but a name: it becomes part of paths and of a unit's name.
///
/// # Errors
///
/// It is empty, too long, or has other characters than letters, digits and `-`.
pub fn require_id(id: &str) -> Result<(), Fault> {
    let is_name = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_name && !id.is_empty() && id.len() <= ID_LENGTH_MAX && !id.starts_with('-') {
        return Ok(());
    }
    let shown: String = id.chars().take(ID_LENGTH_MAX).collect();
    Err(Fault::usage(format!("request id '{shown}' is malformed"))
        .why("it names files and a unit")
        .next(format!("give letters, digits and '-', at most {ID_LENGTH_MAX}")))
}

impl Spool {
    /// Opens the spool in this folder, made if need be.
    ///
    /// # Errors
    ///
    /// The folders cannot be made.
    pub fn open(folder: Dir) -> Result<Self> {
        let requests = durable::private_folder(&folder, REQUESTS)?;
        let replies = durable::private_folder(&folder, REPLIES)?;
        Ok(Self { folder, requests, replies })
    }

    /// Opens the spool of the system whose root this is, made if need be.
    ///
    /// # Errors
    ///
    /// The folders cannot be made.
    pub fn of_root(root: &Dir) -> Result<Self> {
        Self::open(durable::folders(root, SPOOL)?)
    }

    /// The folder itself, where drift is reported too.
    pub fn folder(&self) -> &Dir {
        &self.folder
    }

    /// The folder of the replies, to be watched.
    pub fn replies_folder(&self) -> &Dir {
        &self.replies
    }

    /// Writes a request, if it is not there; tells whether it is new.
    ///
    /// # Errors
    ///
    /// The id is malformed or was used for something else, or the file cannot be written.
    #[context("Handing request {} over", request.id)]
    pub fn submit(&self, request: &HostRequest) -> Result<bool> {
        require_id(&request.id)?;
        if let Some(known) = self.request(&request.id)? {
            if known.verb == request.verb && known.force == request.force {
                return Ok(false);
            }
            return Err(Fault::refused(format!("request {} is known with another content", request.id))
                .why("an id names one request for ever")
                .next("ask under a new id")
                .into());
        }
        self.make_room()?;
        durable::replace(&self.requests, &request_name(&request.id), &serde_json::to_vec(request)?)?;
        Ok(true)
    }

    /// The request with this id; none if it was never handed over.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no request.
    #[context("Reading request {id}")]
    pub fn request(&self, id: &str) -> Result<Option<HostRequest>> {
        require_id(id)?;
        let name = request_name(id);
        let size = match self.requests.symlink_metadata(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            found => found?.len(),
        };
        anyhow::ensure!(size <= REQUEST_MAX, "it is larger than {} MiB", REQUEST_MAX >> 20);
        let Some(bytes) = durable::read(&self.requests, &name)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&bytes).map_err(|error| {
            Fault::refused(format!("request {id} cannot be read"))
                .why(error.to_string())
                .next("the pod is of a version that this mcd does not know; bring the host forward first")
        })?))
    }

    /// Requests without a last reply.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn open_requests(&self) -> Result<Vec<HostRequest>> {
        let mut open = Vec::new();
        for id in self.ids()? {
            if !matches!(self.answer(&id)?, Answer::Ended(_)) {
                // One that nobody can read is no reason to say nothing of the others.
                open.extend(self.request(&id).ok().flatten());
            }
        }
        Ok(open)
    }

    /// Whether this request was handed over in this boot.
    ///
    /// # Errors
    ///
    /// The id is malformed.
    pub fn is_known(&self, id: &str) -> Result<bool> {
        require_id(id)?;
        Ok(self.requests.exists(request_name(id)))
    }

    /// What is known of a request.
    ///
    /// # Errors
    ///
    /// Its files cannot be read.
    pub fn answer(&self, id: &str) -> Result<Answer> {
        require_id(id)?;
        if let Some(last) = self.replies(id)?.pop()
            && last.body.is_end()
        {
            return Ok(Answer::Ended(last));
        }
        Ok(if self.is_known(id)? { Answer::Open } else { Answer::Unknown })
    }

    /// The replies so far, in order. A line that is still being written is left out.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    #[context("Reading the replies to request {id}")]
    pub fn replies(&self, id: &str) -> Result<Vec<Reply>> {
        require_id(id)?;
        let bytes = durable::read(&self.replies, &replies_name(id))?.unwrap_or_default();
        Ok(lines(&bytes).collect())
    }

    /// Opens the replies to be continued; waits for another process that serves the same request. None if
    /// it has its last reply.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    #[context("Opening the replies to request {id}")]
    pub fn serve(&self, id: &str) -> Result<Option<Replies>> {
        require_id(id)?;
        let name = replies_name(id);
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let file = self.replies.open_with(&name, &options)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let bytes = durable::read(&self.replies, &name)?.unwrap_or_default();
        // What a killed process left half written.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        let last = lines(&bytes).last();
        if last.as_ref().is_some_and(|last| last.body.is_end()) {
            return Ok(None);
        }
        Ok(Some(Replies { file, next: last.map_or(1, |last| last.seq + 1) }))
    }

    fn ids(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in self.requests.entries()? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            ids.extend(id.filter(|id| require_id(id).is_ok()).map(str::to_owned));
        }
        Ok(ids)
    }

    /// Drops the oldest requests that have their last reply.
    fn make_room(&self) -> Result<()> {
        let mut aged = Vec::new();
        for id in self.ids()? {
            let when = self.requests.symlink_metadata(request_name(&id))?.modified()?;
            aged.push((when, id));
        }
        if aged.len() < KEPT_MAX {
            return Ok(());
        }
        aged.sort();
        // One that is open stays, however old; the next oldest goes instead.
        let mut too_many = aged.len() + 1 - KEPT_MAX;
        for (_, id) in &aged {
            if too_many == 0 {
                break;
            }
            if matches!(self.answer(id)?, Answer::Ended(_)) {
                durable::remove(&self.requests, &request_name(id))?;
                durable::remove(&self.replies, &replies_name(id))?;
                too_many -= 1;
            }
        }
        Ok(())
    }
}

impl Replies {
    /// Says that it goes on. What is too much is left out: the end always has room.
    ///
    /// # Errors
    ///
    /// The line cannot be written.
    pub fn progress(&mut self, message: &str) -> Result<()> {
        if self.next > REPLIES_MAX {
            return Ok(());
        }
        let message = message.chars().take(MESSAGE_MAX).collect();
        self.append(ReplyBody::Progress { message })
    }

    /// Says how it ended; nothing can follow.
    ///
    /// # Errors
    ///
    /// The line cannot be written.
    pub fn end(mut self, end: Result<Done, Failed>) -> Result<()> {
        self.append(match end {
            Ok(done) => ReplyBody::Done(Box::new(done)),
            Err(failed) => ReplyBody::Failed(failed),
        })
    }

    fn append(&mut self, body: ReplyBody) -> Result<()> {
        let mut line = serde_json::to_vec(&Reply { seq: self.next, body })?;
        line.push(b'\n');
        self.file.write_all(&line).context("Writing a reply")?;
        self.file.sync_data().context("Writing a reply")?;
        self.next += 1;
        Ok(())
    }
}

impl ReplyBody {
    /// Whether nothing follows.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed(_))
    }
}

/// Whole lines. One that is no reply ends it: what follows cannot be numbered.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Reply> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .map_while(|line| serde_json::from_slice(line).ok())
}

fn request_name(id: &str) -> String {
    format!("{id}.json")
}

fn replies_name(id: &str) -> String {
    format!("{id}.jsonl")
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;
    use cap_std_ext::cap_std::fs::PermissionsExt as _;

    use super::*;
    use crate::model::wire::{Outcome, Verb, WIRE_VERSION};

    fn spool() -> (tempfile::TempDir, Spool) {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        let spool = Spool::of_root(&root).unwrap();
        (scratch, spool)
    }

    fn request(id: &str, verb: Verb) -> HostRequest {
        HostRequest { version: WIRE_VERSION, id: id.to_owned(), who: "test".to_owned(), force: false, verb }
    }

    #[test]
    fn asking_twice_attaches_and_an_id_names_one_request() {
        let (_scratch, spool) = spool();
        assert_eq!(spool.answer("a-1").unwrap(), Answer::Unknown);
        assert!(spool.submit(&request("a-1", Verb::Status)).unwrap());
        assert!(!spool.submit(&request("a-1", Verb::Status)).unwrap());
        assert_eq!(spool.answer("a-1").unwrap(), Answer::Open);
        let mode = spool.requests.metadata("a-1.json").unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        let error = spool.submit(&request("a-1", Verb::Cancel)).unwrap_err();
        assert!(format!("{error:#}").contains("a-1 is known with another content"), "{error:#}");
        for bad in ["", "../x", "a b", "a/b", "-x", &"x".repeat(65)] {
            spool.submit(&request(bad, Verb::Status)).unwrap_err();
        }
    }

    #[test]
    fn replies_are_numbered_without_gaps_across_a_kill() {
        let (_scratch, spool) = spool();
        spool.submit(&request("a", Verb::Status)).unwrap();
        let mut replies = spool.serve("a").unwrap().unwrap();
        replies.progress("one").unwrap();
        replies.progress("two").unwrap();
        // Killed within the third.
        replies.file.write_all(br#"{"seq":3,"kind":"prog"#).unwrap();
        drop(replies);
        assert_eq!(spool.replies("a").unwrap().len(), 2);

        let mut replies = spool.serve("a").unwrap().unwrap();
        replies.progress("three").unwrap();
        replies.end(Ok(Done { outcome: Outcome::Ok, ..Done::default() })).unwrap();
        let all = spool.replies("a").unwrap();
        assert_eq!(all.iter().map(|reply| reply.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(matches!(spool.answer("a").unwrap(), Answer::Ended(last) if last.seq == 4));
        assert!(spool.serve("a").unwrap().is_none(), "a finished id answers from its file");
        assert!(spool.open_requests().unwrap().is_empty());
    }

    #[test]
    fn the_spool_is_bounded_and_keeps_what_is_open() {
        let (_scratch, spool) = spool();
        spool.submit(&request("open", Verb::Status)).unwrap();
        for number in 0..KEPT_MAX + 5 {
            let id = format!("r{number}");
            spool.submit(&request(&id, Verb::Status)).unwrap();
            spool.serve(&id).unwrap().unwrap().end(Ok(Done::default())).unwrap();
        }
        assert!(spool.ids().unwrap().len() <= KEPT_MAX, "{:?}", spool.ids().unwrap());
        assert_eq!(spool.answer("open").unwrap(), Answer::Open);
    }
}
