//! The order of the system calls: what makes a power cut at any point harmless.
//!
//! The trace is that of a real pull. For each object the *last* call that gave it bytes, attributes
//! or its name in the staging folder must end before a `syncfs` begins which ends before the rename
//! into `objects/`; and so on up to the image's ref.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::image::Image;
use mcd_test_support::process::run;
use mcd_test_support::sysroot::ostree;
use rustix::process::{Pid, Signal, kill_process};

use super::{Host, puller};

const CALLS: &str = "openat,mkdirat,symlinkat,write,pwrite64,writev,ftruncate,fallocate,fchmod,fchown,fchownat,\
    fsetxattr,lsetxattr,setxattr,utimensat,rename,renameat,renameat2,linkat,link,\
    sync,syncfs,fsync,fdatasync,flock,fcntl,close";

/// One finished call: when it began and ended, as numbers of lines.
#[derive(Debug, Clone)]
struct Call {
    began: usize,
    ended: usize,
    text: String,
}

impl Call {
    fn name(&self) -> &str {
        self.text.split('(').next().unwrap()
    }

    fn succeeded(&self) -> bool {
        self.text.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with('-'))
    }

    /// The path of the first descriptor, as `strace -y` shows it.
    fn descriptor(&self) -> &str {
        self.text.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path)
    }

    /// `FD</path>, "name"` pairs as paths; a name that is absolute or alone is itself.
    fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folder = String::new();
        let mut rest = self.text.as_str();
        while let Some(at) = rest.find(['<', '"']) {
            let end = if rest.as_bytes()[at] == b'<' { '>' } else { '"' };
            let Some((inner, after)) = rest[at + 1..].split_once(end) else { break };
            if end == '>' {
                folder = inner.to_owned();
            } else {
                found.push(format!("{folder}/{inner}"));
            }
            rest = after;
        }
        found
    }
}

/// What a pull did, and below which repo.
struct Trace {
    calls: Vec<Call>,
    repo: String,
}

impl Trace {
    fn of_pull(host: &Host, image: &str) -> Self {
        let log = host.scratch.join("trace");
        let plain = host.pull_command(image);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", "256", "--seccomp-bpf", "-qq", "-e", &format!("trace={CALLS}")]);
        command.args(["-e", "signal=none", "-o"]).arg(&log);
        command.arg(plain.get_program()).args(plain.get_args());
        super::Outcome::of(command.output().unwrap()).ok();
        let repo = format!("{}/ostree/repo", host.sysroot.path().display());
        Self { calls: parse(&String::from_utf8_lossy(&std::fs::read(log).unwrap())), repo }
    }

    fn named<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Call> {
        self.calls.iter().filter(|call| names.contains(&call.name()) && call.succeeded())
    }

    /// Syncs of the host's file system. skopeo keeps a cache of its own elsewhere, with its own syncs.
    fn syncs(&self) -> Vec<&str> {
        let syncs = self.named(&["sync", "syncfs", "fsync", "fdatasync"]);
        let ours = syncs.filter(|call| call.name() == "sync" || call.descriptor().starts_with(&self.repo));
        ours.map(Call::name).collect()
    }

    /// Whether a `syncfs` of the repo's file system lies wholly between two moments.
    fn is_synced_between(&self, from: usize, to: usize) -> bool {
        self.named(&["syncfs"])
            .any(|call| call.descriptor() == self.repo && call.began > from && call.ended < to)
    }

    /// Renames: from, to, the call.
    fn renames(&self) -> Vec<(String, String, &Call)> {
        let renames = self.named(&["rename", "renameat", "renameat2"]);
        renames
            .filter_map(|call| {
                let mut paths = call.paths();
                let to = paths.pop()?;
                Some((paths.pop()?, to, call))
            })
            .collect()
    }

    fn below<'a>(&self, path: &'a str, folder: &str) -> Option<&'a str> {
        path.strip_prefix(&self.repo)?.strip_prefix('/')?.strip_prefix(folder)?.strip_prefix('/')
    }

    /// When each path in the staging folder was changed.
    fn changes(&self) -> Changes {
        let mut changes: HashMap<String, Vec<usize>> = HashMap::new();
        let staging = format!("{}/tmp/mcd-import-", self.repo);
        for call in self.calls.iter().filter(|call| call.succeeded()) {
            let path = match call.name() {
                "write" | "pwrite64" | "writev" | "ftruncate" | "fallocate" | "fchmod" | "fchown"
                | "fsetxattr" => call.descriptor().to_owned(),
                "openat" if !call.text.contains("O_CREAT") => continue,
                "utimensat" if call.paths().is_empty() => call.descriptor().to_owned(),
                "openat" | "fchownat" | "lsetxattr" | "setxattr" | "utimensat" => {
                    call.paths().pop().unwrap_or_default()
                }
                // Its first string is the link's target.
                "symlinkat" => call.paths().pop().unwrap_or_default(),
                "renameat" | "renameat2" | "rename" => call.paths().pop().unwrap_or_default(),
                _ => continue,
            };
            // `lsetxattr` goes by /proc/self/fd/N/NAME: the name is what counts.
            let path = match path.strip_prefix("//proc/self/fd/").and_then(|rest| rest.split_once('/')) {
                Some((_, name)) => name.to_owned(),
                None if path.starts_with(&staging) => path,
                None => continue,
            };
            changes.entry(path).or_default().push(call.ended);
        }
        Changes(changes)
    }
}

/// Moments by path.
struct Changes(HashMap<String, Vec<usize>>);

impl Changes {
    /// The last change before a moment. Names are used again, by each group anew.
    fn last_before(&self, path: &str, moment: usize) -> Option<usize> {
        self.0.get(path)?.iter().copied().filter(|change| *change < moment).max()
    }
}

/// Joins calls that other threads interrupted.
fn parse(log: &str) -> Vec<Call> {
    let mut open: HashMap<&str, (usize, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (number, line) in log.lines().enumerate() {
        let Some((process, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix("<unfinished ...>") {
            open.insert(process, (number, start.trim_end().to_owned()));
        } else if let Some((_, end)) = text.split_once(" resumed>").filter(|_| text.starts_with("<... ")) {
            if let Some((began, start)) = open.remove(process) {
                calls.push(Call { began, ended: number, text: start + end });
            }
        } else if text.contains('(') {
            calls.push(Call { began: number, ended: number, text: text.to_owned() });
        }
    }
    calls.sort_by_key(|call| call.ended);
    calls
}

fn served(host: &Host, image: Image, tag: &str) -> (FakeRegistry, String) {
    let written = host.write(image, tag);
    let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
    let name = server.image(&format!("os:{tag}"));
    (server, name)
}

#[test]
fn root_every_name_appears_only_after_what_it_leads_to_is_durable() {
    let host = puller();
    let (_server, name) = served(&host, host.layered(4, 12), "v2");
    let trace = Trace::of_pull(&host, &name);
    let changes = trace.changes();
    let renames = trace.renames();
    let (mut objects, mut commits, mut refs) = (0, 0, Vec::new());
    // When an object got its name last, of all and of those that are no commits.
    let (mut any_named, mut leaf_named) = (None, None);
    for (from, to, call) in &renames {
        if let Some(object) = trace.below(to, "objects") {
            objects += 1;
            let by_name = from.rsplit('/').next().unwrap();
            let written = [from, by_name].map(|path| changes.last_before(path, call.began));
            let written = written.into_iter().flatten().max();
            let written = written.unwrap_or_else(|| panic!("{from} was never written"));
            assert!(
                trace.is_synced_between(written, call.began),
                "{object} is named before its bytes are safe"
            );
            if object.ends_with(".commit") || object.ends_with(".commitmeta") {
                commits += 1;
                if let Some(named) = leaf_named {
                    assert!(trace.is_synced_between(named, call.began), "{object} before what it leads to");
                }
            } else {
                leaf_named = Some(call.ended);
            }
            any_named = Some(call.ended);
        } else if let Some(name) = trace.below(to, "refs/heads") {
            refs.push(name.to_owned());
            let written = changes.last_before(from, call.began);
            let written = written.unwrap_or_else(|| panic!("{from} was never written"));
            assert!(trace.is_synced_between(written, call.began), "{name} is set before its bytes are safe");
            let named = any_named.unwrap_or_else(|| panic!("{name} is set before any object is named"));
            assert!(trace.is_synced_between(named, call.began), "{name} before its commit");
        }
    }
    assert!(objects > 60 && commits >= 6, "{objects} objects, {commits} commits: is the trace whole?");
    // Nothing comes into objects/ another way.
    for call in trace.named(&["openat", "symlinkat", "link", "linkat"]) {
        let creates = call.name() != "openat" || call.text.contains("O_CREAT");
        let path = call.paths().pop().unwrap_or_default();
        assert!(!creates || trace.below(&path, "objects").is_none(), "{}", call.text);
    }
    // Several groups, every layer's ref, the image's last, and that one durable before the end.
    assert_eq!(refs.iter().filter(|name| name.contains("/blob/")).count(), 7, "{refs:?}");
    assert!(refs.last().unwrap().starts_with("ostree/container/image/"), "{refs:?}");
    assert_eq!(refs.len(), 8, "{refs:?}");
    let (_, _, last_ref) =
        renames.iter().rfind(|(_, to, _)| trace.below(to, "refs/heads").is_some()).unwrap();
    assert!(trace.is_synced_between(last_ref.ended, usize::MAX), "the image's ref is not synced");
}

#[test]
fn root_the_repos_lock_is_held_from_the_first_look_to_the_last_ref() {
    let host = puller();
    let (_server, name) = served(&host, host.layered(4, 12), "v2");
    let trace = Trace::of_pull(&host, &name);
    let lock = format!("{}/.lock>", trace.repo);
    // libostree's prune takes a lock of the open file description; a `flock` would not meet it.
    let taken = trace
        .named(&["fcntl"])
        .find(|call| call.text.contains(&lock) && call.text.contains("OFD") && call.text.contains("F_RDLCK"))
        .expect("the lock that libostree knows is not taken");
    let begin = trace.named(&["mkdirat"]).find(|call| call.text.contains("\"mcd-import-")).unwrap();
    assert!(taken.ended < begin.began, "the staging folder is made before the lock is held");
    let is_kept = |call: &&Call| {
        let text = &call.text;
        text.contains(&lock)
            && (text.starts_with("close(") || text.contains("F_UNLCK") || text.contains("LOCK_UN"))
    };
    let descriptor = |call: &Call| call.text.split(['(', '<']).nth(1).unwrap().to_owned();
    let released = trace
        .calls
        .iter()
        .filter(is_kept)
        .find(|call| call.began > taken.ended && descriptor(call) == descriptor(taken))
        .map_or(usize::MAX, |call| call.began);
    let renames = trace.renames();
    let (_, _, last) = renames.iter().rfind(|(_, to, _)| trace.below(to, "refs/heads").is_some()).unwrap();
    assert!(last.ended < released, "the lock is gone before the last ref is set");
}

#[test]
fn root_more_layers_and_objects_cost_no_more_syncs() {
    let syncs = |chunks: usize, files: usize| {
        let host = puller();
        let (_server, name) = served(&host, host.layered(chunks, files), "v2");
        let trace = Trace::of_pull(&host, &name);
        trace.syncs().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let few = syncs(4, 4);
    assert_eq!(syncs(40, 120), few);
    assert!(few.len() < 20, "{few:?}");
}

#[test]
fn root_nobody_prunes_while_an_import_is_at_work() {
    let host = puller();
    let written = host.write(host.layered(3, 4), "v2");
    let last = written.layers.last().unwrap().digest.clone();
    let server = FakeRegistry::serve(&written.dir, vec![Rule::always(On::BlobOf(last), Act::StallAfter(9))]);
    let server = server.unwrap();
    let repo = format!("--repo={}", host.sysroot.path().join("ostree/repo").display());
    host.sysroot.configure("core.lock-timeout-secs", "0").unwrap();
    let mut command = host.pull_command(&server.image("os:v2"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    // The components' refs are set and the rest hangs.
    while !host.sysroot.refs().unwrap().keys().any(|name| name.contains("/blob/")) {
        assert!(start.elapsed() < Duration::from_secs(60), "no layer is finished");
        std::thread::sleep(Duration::from_millis(50));
    }
    let pruned = run(ostree().args(["prune", "--refs-only", &repo]));
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait_with_output().unwrap();
    assert!(pruned.is_err(), "ostree prunes beside a running import");
    run(ostree().args(["prune", "--refs-only", &repo])).unwrap();
    host.assert_whole();
}
