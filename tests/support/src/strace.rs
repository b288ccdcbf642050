//! Commands under strace: which of their system calls change something, and what becomes of them
//! when they are killed at one of these, or when one of these fails.
//!
//! strace counts calls by name and thread. So a [`Cut`] is a name and a number: it strikes the first
//! thread that comes so far. The call itself is not made: a kill there is a kill just after the change
//! before it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// A program that is dead has had its children end after so long, or nobody lets them.
const PATIENCE: Duration = Duration::from_secs(10);
/// No run takes so long, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(60);
/// Said of a run that did not end by itself.
pub const HANGS: &str = "\nthe run hangs\n";
/// What a shell says of a program that was killed.
const KILLED: i32 = 137;

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

/// `strace` with these options, to stand before a program. Not with `--seccomp-bpf`: signals are not
/// delivered where that stops a process (seen with strace 6.1).
fn strace(log: &Path, options: &[&str]) -> Vec<String> {
    let log = log.to_string_lossy();
    let always = ["strace", "-f", "-qq", "-y", "-s", "200", "-e", "signal=none", "-o", &log];
    always.iter().chain(options).chain(&["--"]).map(|word| (*word).to_owned()).collect()
}

/// What stands before a program so that its calls that may change something are written to `log`.
pub fn recording(log: &Path) -> Vec<String> {
    let names: Vec<&str> = CALLS.iter().chain(&MORE_CALLS).copied().collect();
    strace(log, &["-e", &format!("trace={}", names.join(","))])
}

/// What stands before a program so that it is struck at `cut`. What led to it is written to `log`.
pub fn struck(cut: &Cut, fate: Fate, log: &Path) -> Vec<String> {
    let what = match fate {
        Fate::Kill => "signal=SIGKILL".to_owned(),
        Fate::Fail(error) => format!("error={error}"),
    };
    let inject = format!("inject={}:{what}:when={}", cut.name, cut.number);
    strace(log, &["-e", &format!("trace={}", cut.name), "-e", &inject])
}

/// Runs a command that has [`struck`] in it to its end. What has not ended after [`LONGEST`] is killed, and
/// its last line of errors is [`HANGS`].
///
/// strace 6.1 may stop for ever after the kill: children of the dead program (skopeo's threads) stay in
/// a tracing stop, and it waits for them. That is no fault of what is tested: strace is ended then, and
/// the code is that of a killed program.
pub fn run_struck(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("Starting strace")?;
    let (stdout, stderr) = (reading(child.stdout.take()), reading(child.stderr.take()));
    let started = Instant::now();
    let (mut is_dead, mut hangs) = (false, false);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let tracer = find(child.id(), "strace");
        match tracer {
            Some(tracer) if children(tracer).into_iter().all(is_zombie) => {
                is_dead = true;
                kill(tracer);
            }
            _ if started.elapsed() > LONGEST => {
                hangs = true;
                // The tracer last: what it lets go would go on.
                let traced = tracer.into_iter().flat_map(children);
                traced.chain(tracer).chain([child.id()]).for_each(kill);
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    let text = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    let mut output = Output { status, stdout: text(stdout), stderr: text(stderr) };
    if hangs {
        output.stderr.extend_from_slice(HANGS.as_bytes());
    } else if is_dead {
        output.status = ExitStatus::from_raw(KILLED << 8);
    }
    Ok(output)
}

fn reading(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What was read before an error is what there is to show.
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// The process called `name` among `process` and what descends from it.
fn find(process: u32, name: &str) -> Option<u32> {
    let is_it = fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|comm| comm.trim() == name);
    if is_it { Some(process) } else { children(process).into_iter().find_map(|child| find(child, name)) }
}

fn children(process: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|other| stat(*other).is_some_and(|(_, parent)| parent == process)).collect()
}

fn is_zombie(process: u32) -> bool {
    stat(process).is_none_or(|(state, _)| state == "Z")
}

/// The state of a process and its parent.
fn stat(process: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // They follow the name, which may hold anything but a last bracket.
    let mut words = text.rsplit_once(") ")?.1.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

fn kill(process: u32) {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(process) = process {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
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
        let script = "echo one > \"$1\"; echo two >> \"$1\"; echo three >> \"$1\"";
        let run = |watch: Vec<String>| {
            let mut command = Command::new(&watch[0]);
            command.args(&watch[1..]).args(["sh", "-c", script, "sh"]).arg(&file).output().unwrap()
        };
        assert!(run(recording(&log)).status.success());
        let places: Vec<_> = cuts(&changes(&log).unwrap()).into_iter().map(|(cut, _)| cut).collect();
        let writes: Vec<_> = places.iter().filter(|cut| cut.name == "write").collect();
        assert_eq!(writes.len(), 3, "{places:?}");
        assert!(!run(struck(writes[1], Fate::Kill, &log)).status.success());
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
        let failed = run(struck(writes[1], Fate::Fail("ENOSPC"), &log));
        assert!(String::from_utf8_lossy(&failed.stderr).contains("rror"), "{failed:?}");
    }
}
