//! The password of a user in `/etc/shadow`.
//!
//! It is compared without a lock and changed under `/etc/.pwd.lock`, as `passwd` and its kin do. A
//! password is never made empty, and never shown.

use std::fs::File as StdFile;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::compare::{Difference, What};
use super::root::{Root, Way};
use crate::error::Fault;
use crate::host::durable;
use crate::model::applied::Applied;
use crate::model::manifest::{Manifest, Password};

/// The file.
pub(super) const SHADOW: &str = "/etc/shadow";
/// The lock of all who change users.
const LOCK: &str = ".pwd.lock";
/// What no password matches.
const LOCKED: &str = "*";
/// As long as the C library waits for the lock, and how often it is tried.
const LOCK_WAIT: Duration = Duration::from_secs(15);
const LOCK_POLL: Duration = Duration::from_millis(100);
/// Fields of a line.
const FIELDS: usize = 9;
/// `/etc/shadow` counts in days.
const SECONDS_IN_A_DAY: i64 = 86_400;

/// `/etc/shadow`, line by line as it is.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Shadow(Vec<Vec<u8>>);

/// What becomes of the passwords.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Change {
    /// The whole new file, where it changes. A secret.
    pub(super) content: Option<Vec<u8>>,
    /// What the record keeps to return.
    pub(super) original: Option<Password>,
    /// What cannot be done.
    pub(super) warnings: Vec<String>,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change").field("changes", &self.content.is_some()).finish_non_exhaustive()
    }
}

impl Shadow {
    pub(super) fn parse(content: &[u8]) -> Self {
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        if content.is_empty() {
            return Self(Vec::new());
        }
        Self(content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.0.join(&b'\n');
        bytes.push(b'\n');
        bytes
    }

    fn line(&self, user: &str) -> Option<usize> {
        self.0.iter().position(|line| line.split(|byte| *byte == b':').next() == Some(user.as_bytes()))
    }

    fn hash(&self, user: &str) -> Option<String> {
        let line = self.0.get(self.line(user)?)?;
        let field = line.split(|byte| *byte == b':').nth(1).unwrap_or_default();
        Some(String::from_utf8_lossy(field).into_owned())
    }

    /// Sets a password; it was changed today, if it is another one.
    fn set(&mut self, user: &str, hash: &str, today: i64) {
        if self.hash(user).is_some_and(|old| old == hash) {
            return;
        }
        let number = self.line(user).unwrap_or_else(|| {
            self.0.push(user.as_bytes().to_vec());
            self.0.len() - 1
        });
        let Some(line) = self.0.get_mut(number) else { return };
        let mut fields: Vec<Vec<u8>> = line.split(|byte| *byte == b':').map(<[u8]>::to_vec).collect();
        if fields.len() < FIELDS {
            fields.resize(FIELDS, Vec::new());
        }
        fields[1] = hash.as_bytes().to_vec();
        fields[2] = today.to_string().into_bytes();
        *line = fields.join(&b':');
    }
}

/// What becomes of the passwords of `shadow`, between what was laid down (by the record, and by runs
/// that were cut short) and `to`. `exists` tells whether a user without a line is one.
pub(super) fn change(
    shadow: &Shadow,
    from: &[&Applied],
    to: &Manifest,
    exists: impl Fn(&str) -> bool,
    now: i64,
) -> Change {
    let mut after = shadow.clone();
    let mut change = Change { original: original(from, to), ..Change::default() };
    let today = now / SECONDS_IN_A_DAY;
    let ours: Vec<&Password> = from.iter().filter_map(|record| record.manifest.password.as_ref()).collect();
    let is_ours = |user: &str, hash: &str| ours.iter().any(|own| own.user == user && wanted(own) == hash);
    for old in &ours {
        let leaves = to.password.as_ref().is_none_or(|new| new.user != old.user);
        // What is not ours any more is somebody's own password.
        if leaves && after.hash(&old.user).is_some_and(|hash| is_ours(&old.user, &hash)) {
            let mut returns = from.iter().filter_map(|record| record.original_password.as_ref());
            let returns = returns.find(|own| own.user == old.user && !own.hash.is_empty());
            after.set(&old.user, returns.map_or(LOCKED, |own| own.hash.as_str()), today);
        }
    }
    if let Some(new) = &to.password {
        match after.hash(&new.user) {
            Some(hash) if hash == wanted(new) => {}
            None if !exists(&new.user) => {
                change.warnings.push(format!("there is no user {}: no password was set", new.user));
            }
            hash => {
                let was = hash.filter(|hash| !hash.is_empty() && !is_ours(&new.user, hash));
                if change.original.is_none() {
                    change.original = was.map(|hash| Password { user: new.user.clone(), hash });
                }
                after.set(&new.user, wanted(new), today);
            }
        }
    }
    if after != *shadow {
        change.content = Some(after.to_bytes());
    }
    change
}

/// What was kept before to return, and is still to return later.
fn original(from: &[&Applied], to: &Manifest) -> Option<Password> {
    let user = &to.password.as_ref()?.user;
    from.iter().filter_map(|record| record.original_password.as_ref()).find(|own| own.user == *user).cloned()
}

/// An empty one would let everybody in.
fn wanted(password: &Password) -> &str {
    if password.hash.is_empty() { LOCKED } else { &password.hash }
}

/// How the password on disk differs from what the manifest says.
pub(super) fn difference(root: &Root, manifest: &Manifest) -> Option<Difference> {
    let password = manifest.password.as_ref()?;
    let found = match read(root) {
        Ok(Some(shadow)) => match shadow.hash(&password.user) {
            Some(hash) if hash == wanted(password) => return None,
            Some(hash) if hash.is_empty() => "none: everybody gets in".to_owned(),
            Some(_) => "another one".to_owned(),
            None => "no such user".to_owned(),
        },
        Ok(None) => format!("no {SHADOW}"),
        Err(error) => format!("{error:#}"),
    };
    Some(Difference {
        path: SHADOW.into(),
        asked: None,
        part: None,
        what: What::Password,
        expected: format!("the config's password of {}", password.user),
        found,
    })
}

/// Reads `/etc/shadow`.
pub(super) fn read(root: &Root) -> Result<Option<Shadow>> {
    let Way::Open(etc) = root.way_to(Utf8Path::new("/etc"))? else { return Ok(None) };
    Ok(durable::read(&etc, "shadow")?.map(|content| Shadow::parse(&content)))
}

/// Whether there is such a user, in `/etc/passwd` or the image's own.
pub(super) fn user_exists(root: &Root, user: &str) -> bool {
    ["/etc", "/usr/lib"].iter().any(|folder| {
        let Ok(Way::Open(dir)) = root.way_to(Utf8Path::new(folder)) else { return false };
        let passwd = durable::read(&dir, "passwd").ok().flatten().unwrap_or_default();
        Shadow::parse(&passwd).line(user).is_some()
    })
}

/// Keeps everybody else from changing users.
#[derive(Debug)]
pub(super) struct UsersLock(#[expect(dead_code, reason = "held, not read")] StdFile);

/// Takes the lock, waiting for others as long as the C library would.
pub(super) fn lock(root: &Root) -> Result<UsersLock> {
    let Way::Open(etc) = root.way_to(Utf8Path::new("/etc"))? else {
        anyhow::bail!("there is no /etc");
    };
    let file = open_lock(&etc).with_context(|| format!("Opening /etc/{LOCK}"))?;
    let mut waited = Duration::ZERO;
    loop {
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(UsersLock(file.into())),
            Err(Errno::AGAIN | Errno::ACCESS) if waited < LOCK_WAIT => {
                std::thread::sleep(LOCK_POLL);
                waited += LOCK_POLL;
            }
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Err(Fault::failed("the password of a user cannot be set")
                    .why(format!("another program holds /etc/{LOCK}"))
                    .next("wait for passwd, useradd or the like to end, and try again")
                    .into());
            }
            Err(error) => return Err(error).with_context(|| format!("Locking /etc/{LOCK}")),
        }
    }
}

fn open_lock(etc: &Dir) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(etc, LOCK, flags, Mode::RUSR | Mode::WUSR)
}
