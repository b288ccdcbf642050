//! Commands under strace: which of their system calls change something, and what becomes of them
//! when they are killed at one of these, or when one of these fails.
//!
//! strace counts calls by name and thread. So a [`Cut`] is a name and a number: it strikes the first
//! thread that comes so far. The call itself is not made: a kill there is a kill just after the change
//! before it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// What changes a file system, or makes a change durable. Names that an architecture lacks are
/// marked as optional for strace.
const CALLS: [&str; 37] = [
    "openat",
    "openat2",
    "?open",
    "?creat",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "copy_file_range",
    "sendfile",
    "?rename",
    "renameat",
    "renameat2",
    "?link",
    "linkat",
    "?symlink",
    "symlinkat",
    "?unlink",
    "unlinkat",
    "?mkdir",
    "mkdirat",
    "?rmdir",
    "?chmod",
    "fchmod",
    "fchmodat",
    "?chown",
    "fchown",
    "fchownat",
    "?lchown",
    "fsetxattr",
    "setxattr",
    "lsetxattr",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "syncfs",
];

/// More of them, which copy-on-write file systems and attribute changes use.
const MORE_CALLS: [&str; 5] = ["ioctl", "utimensat", "removexattr", "lremovexattr", "fremovexattr"];

/// One call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who made it.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// The how manieth of this name in its thread, counted from one.
    pub number: usize,
    /// Its arguments, as strace shows them, with the paths of descriptors.
    pub arguments: String,
}

/// What happens at a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// The process is killed instead.
    Kill,
    /// The call fails with this error.
    Fail(&'static str),
}

/// A place to strike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    /// The call's name.
    pub name: String,
    /// The how manieth of this name in its thread.
    pub number: usize,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.number)
    }
}

/// `strace` before `command`'s program and arguments. Environment and folder are kept. Not with
/// `--seccomp-bpf`: signals are not delivered where that stops a process (seen with strace 6.1).
fn before(command: &Command, options: &[String]) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-y", "-s", "200", "-e", "signal=none"]).args(options).arg("--");
    traced.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        traced.current_dir(folder);
    }
    traced
}

/// The command, with every call that may change something written to `log`.
pub fn recording(command: &Command, log: &Path) -> Command {
    let names: Vec<&str> = CALLS.iter().chain(&MORE_CALLS).copied().collect();
    before(
        command,
        &["-o".into(), log.display().to_string(), "-e".into(), format!("trace={}", names.join(","))],
    )
}

/// The command, struck at `cut`. What led to it is written to `log`.
pub fn struck(command: &Command, cut: &Cut, fate: Fate, log: &Path) -> Command {
    let what = match fate {
        Fate::Kill => "signal=SIGKILL".to_owned(),
        Fate::Fail(error) => format!("error={error}"),
    };
    let inject = format!("inject={}:{what}:when={}", cut.name, cut.number);
    let options = ["-o".into(), log.display().to_string(), "-e".into(), format!("trace={}", cut.name)];
    before(command, &[&options[..], &["-e".into(), inject]].concat())
}

/// The calls of a recording that change a file, in their order.
pub fn changes(log: &Path) -> Result<Vec<Call>> {
    let text = fs::read(log).with_context(|| format!("Reading {}", log.display()))?;
    let mut counts = std::collections::HashMap::new();
    let mut calls = Vec::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let Some(mut call) = parse(line) else { continue };
        let count = counts.entry((call.thread, call.name.clone())).or_insert(0);
        *count += 1;
        call.number = *count;
        if changes_something(&call) {
            calls.push(call);
        }
    }
    Ok(calls)
}

/// `THREAD NAME(ARGUMENTS…`. The end of a call that was interrupted in the log is not another call.
fn parse(line: &str) -> Option<Call> {
    let (thread, rest) = line.trim_start().split_once(char::is_whitespace)?;
    let (name, arguments) = rest.trim_start().split_once('(')?;
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return None;
    }
    Some(Call {
        thread: thread.parse().ok()?,
        name: name.to_owned(),
        number: 0,
        arguments: arguments.to_owned(),
    })
}

fn changes_something(call: &Call) -> bool {
    let arguments = &call.arguments;
    match call.name.as_str() {
        "openat" | "openat2" | "open" => {
            ["O_CREAT", "O_TMPFILE", "O_TRUNC"].iter().any(|flag| arguments.contains(flag))
                && !arguments.contains("\"/dev/")
                && !arguments.contains("\"/proc/")
        }
        "ioctl" => {
            ["FICLONE", "FS_IOC_SETFLAGS", "FS_IOC_FSSETXATTR"].iter().any(|code| arguments.contains(code))
        }
        "write" | "writev" | "pwrite64" | "pwritev" | "sendfile" => {
            // Only files: `3</path>`; pipes, sockets and the terminal have other names there.
            let descriptor = arguments.split([',', ')']).next().unwrap_or_default();
            descriptor.contains("</") && !descriptor.contains("</dev/") && !descriptor.contains("</proc/")
        }
        _ => true,
    }
}

/// Where such a run can be struck: each once, in the order in which the run comes to them.
pub fn cuts(calls: &[Call]) -> Vec<(Cut, Call)> {
    let mut seen = BTreeSet::new();
    let mut cuts = Vec::new();
    for call in calls {
        let cut = Cut { name: call.name.clone(), number: call.number };
        if seen.insert(cut.clone()) {
            cuts.push((cut, call.clone()));
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_name_and_thread() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(
            &log,
            "7 openat(AT_FDCWD</>, \"a\", O_RDONLY) = 3</a>\n\
             7 openat(AT_FDCWD</>, \"b\", O_WRONLY|O_CREAT, 0666) = 3</b>\n\
             8 openat(AT_FDCWD</>, \"c\", O_WRONLY|O_CREAT, 0666 <unfinished ...>\n\
             7 write(1<pipe:[5]>, \"x\", 1) = 1\n\
             8 <... openat resumed>) = 3</c>\n\
             7 write(3</b>, \"x\", 1)    = 1\n\
             7 +++ exited with 0 +++\n",
        )
        .unwrap();
        let calls = changes(&log).unwrap();
        let told: Vec<_> = calls.iter().map(|call| (call.thread, call.name.as_str(), call.number)).collect();
        assert_eq!(told, [(7, "openat", 2), (8, "openat", 1), (7, "write", 2)]);
    }

    #[test]
    fn a_command_is_killed_where_it_was_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let (log, file) = (folder.path().join("log"), folder.path().join("file"));
        let mut command = Command::new("sh");
        command.args(["-c", "echo one > \"$1\"; echo two >> \"$1\"; echo three >> \"$1\"", "sh"]).arg(&file);
        assert!(recording(&command, &log).status().unwrap().success());
        let places: Vec<_> = cuts(&changes(&log).unwrap()).into_iter().map(|(cut, _)| cut).collect();
        let writes = places.iter().filter(|cut| cut.name == "write").count();
        assert_eq!(writes, 3, "{places:?}");
        let second = places.iter().filter(|cut| cut.name == "write").nth(1).unwrap();
        assert!(!struck(&command, second, Fate::Kill, &log).status().unwrap().success());
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
        let failed = struck(&command, second, Fate::Fail("ENOSPC"), &log).output().unwrap();
        assert!(String::from_utf8_lossy(&failed.stderr).contains("rror"), "{failed:?}");
    }
}
