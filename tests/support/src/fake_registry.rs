//! A registry that misbehaves on order: refuses, stalls, resets, lies, recovers.
//!
//! It serves an OCI layout over plain HTTP as a registry would (any repository name means that
//! layout) unless a rule says otherwise, and keeps a record of every request, so that a test can
//! say "nothing was fetched again".

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::layout::Layout;
use crate::registry::base64;

/// Which requests a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// Every request.
    Any,
    /// `/v2/`, with which clients begin.
    Ping,
    /// Manifests, by tag or by digest.
    Manifest,
    /// All blobs, the config included.
    Blob,
    /// The blob with this digest.
    BlobOf(String),
}

/// What happens instead of a good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// This status and an error body.
    Status(u16),
    /// The status and `Retry-After: SECONDS`.
    RetryAfter(u16, u32),
    /// So many bytes of the body, then silence until the server stops.
    StallAfter(u64),
    /// So many bytes of the body, then a TCP reset.
    ResetAfter(u64),
    /// So many bytes of the body, then an orderly end: a short body.
    EndAfter(u64),
    /// Right status, length and headers, but every byte is another one.
    WrongBody,
    /// Right answer, this many bytes a second.
    Slow(u64),
    /// No answer at all: the connection is closed.
    Close,
}

/// A rule: `act` on requests that match, the first `times` times only if that is set.
#[derive(Debug, Clone)]
pub struct Rule {
    on: On,
    act: Act,
    left: Option<usize>,
}

impl Rule {
    /// Always.
    pub fn always(on: On, act: Act) -> Self {
        Self { on, act, left: None }
    }

    /// The first `times` times; then the next rule, or a good answer.
    pub fn first(times: usize, on: On, act: Act) -> Self {
        Self { on, act, left: Some(times) }
    }
}

/// One request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET` or `HEAD`.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status that was sent; 0 if none was.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// Whether it brought credentials.
    pub authorized: bool,
    /// The `Range` header.
    pub range: Option<String>,
}

/// A running server. It stops with this value.
#[derive(Debug)]
pub struct FakeRegistry {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    layout: Layout,
    rules: Mutex<VecDeque<Rule>>,
    requests: Mutex<Vec<Request>>,
    password: Option<String>,
    stopped: AtomicBool,
    stop: (Mutex<()>, Condvar),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl FakeRegistry {
    /// Serves the OCI layout `dir` under these rules; the first that matches counts.
    pub fn serve(dir: &Path, rules: Vec<Rule>) -> Result<Self> {
        Self::launch(dir, rules, None)
    }

    /// The same for those who bring this name and password.
    pub fn serve_with_password(dir: &Path, rules: Vec<Rule>, user: &str, password: &str) -> Result<Self> {
        Self::launch(dir, rules, Some(format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))))
    }

    fn launch(dir: &Path, rules: Vec<Rule>, password: Option<String>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("Listening on the loopback")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            layout: Layout::open(dir)?,
            rules: Mutex::new(rules.into()),
            requests: Mutex::new(Vec::new()),
            password,
            stopped: AtomicBool::new(false),
            stop: (Mutex::new(()), Condvar::new()),
        });
        let server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if server.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let server = Arc::clone(&server);
                // An error is a client that went away: its business.
                std::thread::spawn(move || server.connection(stream).ok());
            }
        });
        Ok(Self { address, shared })
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// `127.0.0.1:PORT/NAME`, to which `:TAG` or `@DIGEST` may be added.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Puts other rules in place of those that are left.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        *locked(&self.shared.rules) = rules.into();
    }

    /// All requests so far, in the order of their ends.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.shared.requests).clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        locked(&self.shared.requests).clear();
    }

    /// How many requests for blobs were answered with (some of) their bytes.
    pub fn blobs_served(&self) -> usize {
        self.requests().iter().filter(|request| request.path.contains("/blobs/") && request.bytes > 0).count()
    }

    /// Bytes of all bodies so far.
    pub fn bytes_served(&self) -> u64 {
        self.requests().iter().map(|request| request.bytes).sum()
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        let guard = locked(&self.shared.stop.0);
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.stop.1.notify_all();
        drop(guard);
        // The accepting thread waits in accept(): one more connection lets it see the flag.
        let _ = TcpStream::connect(self.address);
    }
}

/// What skopeo answers a challenge with when it has neither name nor password: the code of `:`.
const NOBODY: &str = "Basic Og==";

/// A request's head.
struct Head {
    method: String,
    path: String,
    authorization: Option<String>,
    range: Option<String>,
}

/// A good answer: what a real registry would say.
struct Good {
    status: u16,
    content_type: String,
    digest: Option<String>,
    body: Vec<u8>,
}

impl Shared {
    fn connection(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        // A TLS hello: clients that may fall back to plain HTTP try it first.
        if reader.fill_buf()?.first() == Some(&0x16) {
            return Ok(());
        }
        let mut stream = stream;
        while let Some(head) = read_head(&mut reader)? {
            let mut request = Request {
                method: head.method.clone(),
                path: head.path.clone(),
                status: 0,
                bytes: 0,
                authorized: head.authorization.as_ref().is_some_and(|text| text != NOBODY),
                range: head.range.clone(),
            };
            let outcome = self.answer(&mut stream, &head, &mut request);
            locked(&self.requests).push(request);
            if !outcome? {
                break;
            }
        }
        Ok(())
    }

    /// The act of the first rule that matches, used up by one.
    fn rule_for(&self, path: &str) -> Option<Act> {
        let mut rules = locked(&self.rules);
        for rule in rules.iter_mut() {
            let matches = match &rule.on {
                On::Any => true,
                On::Ping => path == "/v2/" || path == "/v2",
                On::Manifest => path.contains("/manifests/"),
                On::Blob => path.contains("/blobs/"),
                On::BlobOf(digest) => path.ends_with(digest.as_str()) && path.contains("/blobs/"),
            };
            if matches && rule.left != Some(0) {
                rule.left = rule.left.map(|left| left - 1);
                return Some(rule.act.clone());
            }
        }
        None
    }

    /// Answers; gives whether the connection goes on.
    fn answer(&self, stream: &mut TcpStream, head: &Head, request: &mut Request) -> Result<bool> {
        let act = self.rule_for(&head.path);
        match act {
            Some(Act::Close) => return Ok(false),
            Some(Act::Status(status)) => {
                request.status = status;
                send_error(stream, head, status, "")?;
                return Ok(true);
            }
            Some(Act::RetryAfter(status, seconds)) => {
                request.status = status;
                send_error(stream, head, status, &format!("Retry-After: {seconds}\r\n"))?;
                return Ok(true);
            }
            _ => {}
        }
        if self.password.is_some() && head.authorization != self.password {
            request.status = 401;
            send_error(stream, head, 401, "WWW-Authenticate: Basic realm=\"test\"\r\n")?;
            return Ok(true);
        }
        let good = self.good_answer(&head.path);
        request.status = good.status;
        let digest =
            good.digest.map(|digest| format!("Docker-Content-Digest: {digest}\r\n")).unwrap_or_default();
        write!(
            stream,
            "HTTP/1.1 {} -\r\nDocker-Distribution-Api-Version: registry/2.0\r\nContent-Type: {}\r\nContent-Length: {}\r\n{digest}\r\n",
            good.status,
            good.content_type,
            good.body.len()
        )?;
        if head.method == "HEAD" {
            return Ok(true);
        }
        self.send_body(stream, good.body, act, &mut request.bytes)
    }

    fn good_answer(&self, path: &str) -> Good {
        let json = |status, body: &str| Good {
            status,
            content_type: "application/json".to_owned(),
            digest: None,
            body: body.as_bytes().to_vec(),
        };
        if let Some((_, reference)) = path.rsplit_once("/manifests/") {
            if let Ok(Some((media_type, digest))) = self.layout.resolve(reference)
                && let Ok(body) = std::fs::read(self.layout.blob_path(&digest))
            {
                return Good { status: 200, content_type: media_type, digest: Some(digest), body };
            }
            return json(
                404,
                "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"manifest unknown\"}]}",
            );
        }
        if let Some((_, digest)) = path.rsplit_once("/blobs/") {
            if let Ok(body) = std::fs::read(self.layout.blob_path(digest)) {
                let content_type = "application/octet-stream".to_owned();
                return Good { status: 200, content_type, digest: Some(digest.to_owned()), body };
            }
            return json(
                404,
                "{\"errors\":[{\"code\":\"BLOB_UNKNOWN\",\"message\":\"blob unknown to registry\"}]}",
            );
        }
        json(200, "{}")
    }

    fn send_body(
        &self,
        stream: &mut TcpStream,
        mut body: Vec<u8>,
        act: Option<Act>,
        sent: &mut u64,
    ) -> Result<bool> {
        if act == Some(Act::WrongBody) {
            body.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        let limit = match act {
            Some(Act::StallAfter(bytes) | Act::ResetAfter(bytes) | Act::EndAfter(bytes)) => {
                bytes.min(body.len() as u64)
            }
            _ => body.len() as u64,
        };
        let piece = match act {
            Some(Act::Slow(rate)) => (rate / 10).max(1) as usize,
            _ => 64 * 1024,
        };
        for part in body[..limit as usize].chunks(piece) {
            stream.write_all(part)?;
            *sent += part.len() as u64;
            if matches!(act, Some(Act::Slow(_))) && self.sleep(Duration::from_millis(100)) {
                return Ok(false);
            }
        }
        match act {
            Some(Act::StallAfter(_)) => {
                while !self.sleep(Duration::from_secs(1)) {}
                Ok(false)
            }
            Some(Act::ResetAfter(_)) => {
                // Closing with a zero linger time throws the connection away: the peer sees a reset.
                rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
                Ok(false)
            }
            Some(Act::EndAfter(_)) => {
                stream.shutdown(Shutdown::Both)?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Waits; gives whether the server stops.
    fn sleep(&self, time: Duration) -> bool {
        let guard = locked(&self.stop.0);
        if !self.stopped.load(Ordering::SeqCst) {
            let _ = self.stop.1.wait_timeout(guard, time);
        }
        self.stopped.load(Ordering::SeqCst)
    }
}

fn read_head(reader: &mut BufReader<TcpStream>) -> Result<Option<Head>> {
    let mut line = String::new();
    // A head of a few kilobytes: no client of ours sends more.
    if reader.by_ref().take(8192).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut head =
        Head { method: method.to_owned(), path: path.to_owned(), authorization: None, range: None };
    loop {
        let mut line = String::new();
        if reader.by_ref().take(8192).read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Some(head));
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "authorization" => head.authorization = Some(value.trim().to_owned()),
                "range" => head.range = Some(value.trim().to_owned()),
                _ => {}
            }
        }
    }
}

fn send_error(stream: &mut TcpStream, head: &Head, status: u16, headers: &str) -> Result<()> {
    let code = match status {
        401 => "UNAUTHORIZED",
        403 => "DENIED",
        404 => "NAME_UNKNOWN",
        429 => "TOOMANYREQUESTS",
        _ => "UNKNOWN",
    };
    let body = format!("{{\"errors\":[{{\"code\":\"{code}\",\"message\":\"status {status} on order\"}}]}}");
    write!(
        stream,
        "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    )?;
    if head.method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}
