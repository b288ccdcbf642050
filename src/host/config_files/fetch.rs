//! Contents that are elsewhere.

use std::collections::HashMap;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_util::sync::CancellationToken;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Proxy};

use super::proxy;
use crate::error::Fault;
use crate::model::config::{
    Blob, CONTENT_MAX, CONTENTS_MAX, Config, ContentHash, Contents, Managed, Request, RequestKind, gunzip,
};

/// A server that is there answers within seconds; the same as Ignition's default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole file of 64 MiB at 1 MiB a second, and some rest.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Tries for each file: a restarting server or a lost packet should not fail an apply.
const TRIES: u32 = 4;
/// Before the second try; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How often somebody who asks to stop is heard while nothing else happens.
const LISTEN: Duration = Duration::from_millis(50);
/// Bytes between two looks at whether somebody asked to stop.
const PIECE: usize = 64 << 10;

/// Fetches contents that are elsewhere and puts them in place of their addresses. Several entries of
/// the same address and hash are one download.
///
/// # Errors
///
/// What cannot be fetched, is too large or is not what its hash says: by field and address, without
/// credentials. Nothing is replaced then.
pub fn fetch_remote(config: &mut Config, stop: &CancellationToken) -> Result<()> {
    fetch_all(config, stop, |name| std::env::var(name).ok())
}

fn fetch_all(
    config: &mut Config,
    stop: &CancellationToken,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    let Some(managed) = &mut config.managed else { return Ok(()) };
    let mut fetched: HashMap<String, Vec<(Contents, Blob)>> = HashMap::new();
    let mut total = inline_size(managed);
    let agent = agent();
    for request in managed.entries.values() {
        for contents in all(request) {
            let Contents::Remote { url, hash, gzip } = contents else { continue };
            let same = fetched.entry(url.clone()).or_default();
            if same.iter().any(|(known, _)| known == contents) {
                continue;
            }
            let proxy = proxy::choose(&variable, url);
            let source = Source { url, hash, gzip: *gzip, field: &request.field, proxy };
            let limit = CONTENT_MAX.min(CONTENTS_MAX.saturating_sub(total));
            let blob = source.fetch(&agent, limit, stop)?;
            total += blob.bytes().len() as u64;
            same.push((contents.clone(), blob));
        }
    }
    let find = |contents: &Contents| {
        let Contents::Remote { url, .. } = contents else { return None };
        let same = fetched.get(url)?;
        same.iter().find(|(known, _)| known == contents).map(|(_, blob)| blob.clone())
    };
    for request in managed.entries.values_mut() {
        for contents in all_mut(request) {
            if let Some(blob) = find(contents) {
                *contents = Contents::Inline(blob);
            }
        }
    }
    Ok(())
}

fn all(request: &Request) -> impl Iterator<Item = &Contents> {
    let (contents, append) = match &request.kind {
        RequestKind::File { contents, append, .. } => (contents.as_ref(), append.as_slice()),
        _ => (None, [].as_slice()),
    };
    contents.into_iter().chain(append)
}

fn all_mut(request: &mut Request) -> impl Iterator<Item = &mut Contents> {
    let (contents, append) = match &mut request.kind {
        RequestKind::File { contents, append, .. } => (contents.as_mut(), append.as_mut_slice()),
        _ => (None, [].as_mut_slice()),
    };
    contents.into_iter().chain(append)
}

fn inline_size(managed: &Managed) -> u64 {
    let size = |contents: &Contents| match contents {
        Contents::Inline(blob) => blob.bytes().len() as u64,
        Contents::Remote { .. } => 0,
    };
    managed.entries.values().flat_map(all).map(size).sum()
}

/// TLS is the system's, with the certificates that it trusts.
fn agent() -> Agent {
    let tls =
        TlsConfig::builder().provider(TlsProvider::NativeTls).root_certs(RootCerts::PlatformVerifier).build();
    Agent::config_builder()
        .tls_config(tls)
        .timeout_resolve(Some(ANSWER_TIMEOUT))
        .timeout_connect(Some(ANSWER_TIMEOUT))
        .timeout_recv_response(Some(ANSWER_TIMEOUT))
        .timeout_global(Some(WHOLE_TIMEOUT))
        .user_agent(concat!("mcd/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// One address, and what must be there.
struct Source<'c> {
    url: &'c str,
    hash: &'c ContentHash,
    gzip: bool,
    field: &'c str,
    /// What the environment says; refused when it is wrong, not before it is needed.
    proxy: Result<Option<Proxy>, String>,
}

/// Why a try failed.
enum Failure {
    /// Another try may help.
    MayPass(String),
    /// It will not.
    Final(String),
}

impl Source<'_> {
    fn fetch(&self, agent: &Agent, limit: u64, stop: &CancellationToken) -> Result<Blob, Fault> {
        let mut pause = FIRST_PAUSE;
        let mut tries = TRIES;
        let reason = loop {
            tries -= 1;
            match self.try_once(agent, limit, stop) {
                Ok(blob) => return Ok(blob),
                Err(_) if stop.is_cancelled() => break "it was asked to stop".to_owned(),
                Err(Failure::MayPass(_)) if tries > 0 => {
                    wait(pause, stop);
                    pause *= 2;
                }
                Err(Failure::MayPass(reason) | Failure::Final(reason)) => break reason,
            }
        };
        Err(Fault::failed(format!("{}: {} cannot be fetched", self.field, shown(self.url)))
            .why(reason)
            .next("see that the address is right and can be reached, or put the content into the config"))
    }

    fn try_once(&self, agent: &Agent, limit: u64, stop: &CancellationToken) -> Result<Blob, Failure> {
        let proxy = self.proxy.clone().map_err(Failure::Final)?;
        let request = agent.get(self.url).config().proxy(proxy).build();
        let mut reply = request.call().map_err(|error| judge(&error))?;
        let mut reader = reply.body_mut().with_config().limit(u64::MAX).reader();
        let bytes = self.receive(&mut reader, limit, stop)?;
        let bytes = match self.gzip {
            true => gunzip(&bytes, limit).map_err(Failure::Final)?,
            false => bytes,
        };
        match self.hash.fits(&bytes) {
            true => Ok(bytes.into()),
            false => {
                Err(Failure::Final("what is there does not have the hash in verification.hash".to_owned()))
            }
        }
    }

    fn receive(
        &self,
        reader: &mut impl Read,
        limit: u64,
        stop: &CancellationToken,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            if stop.is_cancelled() {
                return Err(Failure::Final("it was asked to stop".to_owned()));
            }
            let read = match reader.read(&mut piece) {
                Ok(0) => return Ok(bytes),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(judge(&ureq::Error::from(error))),
            };
            bytes.extend_from_slice(&piece[..read]);
            if bytes.len() as u64 > limit {
                return Err(Failure::Final(format!("it is larger than {} MiB", limit >> 20)));
            }
        }
    }
}

/// Waits, unless somebody asks to stop.
fn wait(pause: Duration, stop: &CancellationToken) {
    let end = Instant::now() + pause;
    while Instant::now() < end && !stop.is_cancelled() {
        std::thread::sleep(LISTEN);
    }
}

/// Whether another try may help. ureq's words may hold the address, so they are not repeated where
/// they could.
fn judge(error: &ureq::Error) -> Failure {
    use ureq::Error;
    match error {
        Error::StatusCode(code @ (408 | 425 | 429 | 500..)) => {
            Failure::MayPass(format!("the server says {code}"))
        }
        Error::StatusCode(code) => Failure::Final(format!("the server says {code}")),
        Error::Timeout(_) => Failure::MayPass("the server does not answer in time".to_owned()),
        Error::HostNotFound => Failure::MayPass("the name of the server is not known".to_owned()),
        Error::ConnectionFailed => Failure::MayPass("the server cannot be reached".to_owned()),
        Error::Io(error) => Failure::MayPass(format!("the connection broke: {}", error.kind())),
        Error::NativeTls(error) => Failure::Final(format!("TLS: {error}")),
        Error::Tls(reason) => Failure::Final(format!("TLS: {reason}")),
        Error::TooManyRedirects | Error::RedirectFailed => {
            Failure::Final("it leads from address to address".to_owned())
        }
        Error::BadUri(_) | Error::Http(_) => Failure::Final("it is no address".to_owned()),
        Error::InvalidProxyUrl => Failure::Final("the proxy in the environment is no address".to_owned()),
        _ => Failure::Final("the server does not speak HTTP as expected".to_owned()),
    }
}

/// Host and path. A user, a password and a query, which may be a signature, are left out.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let plain = rest.split(['?', '#']).next().unwrap_or_default();
    let plain = plain.rsplit('@').next().unwrap_or_default();
    format!("{}://{plain}", scheme.to_ascii_lowercase())
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
