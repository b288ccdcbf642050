//! Who holds a lock on a file: what a person who must wait wants to know.
//!
//! libostree locks its sysroot and its repo with open-file-description locks. `/proc/locks` names no
//! process for those (the pid is -1), but `/proc/PID/fdinfo/FD` lists the locks of each open file,
//! whatever their kind. So every process's descriptors are compared with the locked file.

use std::fmt;
use std::os::fd::AsFd;

use anyhow::Result;
use cap_std_ext::cap_std::{ambient_authority, fs::Dir};
use fn_error_context::context;
use rustix::fs::{AtFlags, Stat};

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, as this process sees it.
    pub pid: u32,
    /// Its program and the verbs after it, never an argument that may carry a secret.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// What to call a holder that cannot be found: one in another PID namespace, or one that just left.
pub const UNKNOWN_HOLDER: &str = "a process that cannot be seen from here";

/// The first process that holds a lock on `file`, if `/proc` shows one.
#[context("Looking up who holds a lock")]
pub fn holder_of(file: impl AsFd) -> Result<Option<Holder>> {
    let locked = rustix::fs::fstat(file)?;
    let proc = Dir::open_ambient_dir("/proc", ambient_authority())?;
    for entry in proc.entries()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end at any time, and a hardened one may not be readable: neither is an error.
        let Ok(process) = entry.open_dir() else { continue };
        if holds(&process, &locked) {
            return Ok(Some(Holder { pid, command: command_of(&process) }));
        }
    }
    Ok(None)
}

/// `holder_of` as text, for messages.
pub fn describe_holder(file: impl AsFd) -> String {
    holder_of(file).ok().flatten().map_or_else(|| UNKNOWN_HOLDER.to_owned(), |holder| holder.to_string())
}

fn holds(process: &Dir, locked: &Stat) -> bool {
    let Ok(descriptors) = process.open_dir("fd") else { return false };
    let Ok(entries) = descriptors.entries() else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        // Through the magic link: the open file itself, whatever namespace its path is in.
        let Ok(stat) = rustix::fs::statat(&descriptors, &name, AtFlags::empty()) else { return false };
        if (stat.st_dev, stat.st_ino) != (locked.st_dev, locked.st_ino) {
            return false;
        }
        let info = std::path::Path::new("fdinfo").join(&name);
        process.read_to_string(info).is_ok_and(|text| shows_lock(&text))
    })
}

/// Whether an fdinfo file lists a lock that is held. A waiting one is marked by an arrow.
fn shows_lock(fdinfo: &str) -> bool {
    fdinfo.lines().any(|line| line.starts_with("lock:") && !line.contains("->"))
}

fn command_of(process: &Dir) -> String {
    let Ok(line) = process.read("cmdline") else { return "unknown".to_owned() };
    let words: Vec<String> =
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let name = name_of(&words);
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The program's file name and the verbs that follow it: plain words only, so that no option's value,
/// which may be a password, is ever shown.
fn name_of(words: &[String]) -> String {
    const VERBS: usize = 2;
    let Some((program, rest)) = words.split_first() else { return String::new() };
    let program = program.rsplit('/').next().unwrap_or(program);
    let is_verb =
        |word: &&String| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    let verbs = rest.iter().take(VERBS).take_while(|word| is_verb(word) && !word.starts_with('-'));
    std::iter::once(program).chain(verbs.map(String::as_str)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_secrets() {
        for (line, name) in [
            ("/usr/bin/ostree admin deploy", "ostree admin deploy"),
            ("/usr/libexec/rpm-ostreed start-daemon", "rpm-ostreed start-daemon"),
            ("skopeo --creds user:pw copy", "skopeo"),
            ("mcd pivot host/os:1", "mcd pivot"),
            ("", ""),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of(&words), name, "{line}");
        }
    }

    #[test]
    fn only_a_held_lock_counts() {
        assert!(shows_lock("pos:\t0\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:12 0 EOF\n"));
        assert!(!shows_lock("pos:\t0\nlock:\t1: -> FLOCK ADVISORY  WRITE 7 fe:00:12 0 EOF\n"));
        assert!(!shows_lock("pos:\t0\nflags:\t02\n"));
    }

    #[test]
    fn finds_this_process() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(holder_of(&file).unwrap(), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let holder = holder_of(&file).unwrap().unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.command.is_empty());
    }
}
