//! Memory and descriptors: bounded, however large the image.

use std::process::{Command, Stdio};
use std::time::Duration;

use mcd_test_support::compress::Compression;
use mcd_test_support::entry::Entry;
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::tree::{Tree, noise};

use super::{Host, Outcome, puller};

/// A run and the peaks of its memory, in bytes.
pub(super) struct Watched {
    pub(super) outcome: Outcome,
    /// Of `mcd` itself.
    pub(super) peak: u64,
    /// Of its largest child.
    pub(super) child_peak: u64,
}

impl Watched {
    pub(super) fn run(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let waiting = std::thread::spawn(move || Outcome::of(child.wait_with_output().unwrap()));
        let (mut peak, mut child_peak) = (0, 0);
        while !waiting.is_finished() {
            peak = peak.max(high_water_mark(id));
            for id in children(id) {
                child_peak = child_peak.max(high_water_mark(id));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { outcome: waiting.join().unwrap(), peak, child_peak }
    }
}

fn high_water_mark(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()).map_or(0, |kb| kb.parse::<u64>().unwrap() * 1024)
}

/// Children of all threads of a process.
pub(super) fn children(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect()
}

/// A memory cgroup of this test, gone with the value. None where none can be made.
struct Group {
    path: std::path::PathBuf,
    limit: &'static str,
    peak: &'static str,
}

impl Group {
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("mcd-test-{}", std::process::id());
        let roots = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ];
        for (root, limit, peak) in roots {
            let path = std::path::Path::new(root).join(&name);
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self { path, limit, peak };
            if std::fs::write(group.path.join(group.limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// The command, started in the group.
    fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("sh");
        wrapped.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.path);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped
    }

    fn peak(&self) -> String {
        std::fs::read_to_string(self.path.join(self.peak)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..50 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// 300 MB in one file that does not compress, and many small ones beside.
fn large(host: &Host) -> FakeRegistry {
    let mut tree = Tree::v2();
    let block = noise(3, 1 << 20);
    // No window of a fast compressor reaches back to the block before.
    tree = tree.with(Entry::file("usr/lib/fixture/large", block.repeat(300)));
    for number in 0..2000 {
        tree = tree.with(Entry::file(format!("usr/share/many/{number}"), format!("{number}\n").repeat(50)));
    }
    let image = host.image_of(&tree).chunk_by(|path| Some(usize::from(path.ends_with("large")))).chunks(2);
    let image = image.derived(vec![Entry::file("etc/motd", "hello\n")]);
    let written = host.write(image.compression(Compression::Zstd), "v2");
    assert!(written.layer_bytes() > 290 << 20, "{written:?}");
    FakeRegistry::serve(&written.dir, vec![]).unwrap()
}

#[test]
fn root_a_large_image_fits_a_small_cgroup() {
    let host = puller();
    let server = large(&host);
    let command = host.pull_command(&server.image("os:v2"));
    let group = Group::new(192 << 20);
    let mut command = match &group {
        Some(group) => group.wrap(&command),
        None => command,
    };
    let watched = Watched::run(&mut command);
    println!(
        "peak: mcd {} kB, its largest child {} kB, the group {}",
        watched.peak / 1024,
        watched.child_peak / 1024,
        group.as_ref().map_or("(no cgroup)".to_owned(), Group::peak)
    );
    let peak = watched.peak;
    watched.outcome.ok();
    assert!(peak <= 64 << 20, "mcd used {peak} bytes");
    assert!(watched.child_peak <= 128 << 20, "its child used {} bytes", watched.child_peak);
    assert_eq!(host.image_refs().len(), 1);
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_few_descriptors_are_enough() {
    let host = puller();
    let written = host.write(host.layered(60, 200), "v2");
    let server = FakeRegistry::serve(&written.dir, vec![]).unwrap();
    let plain = host.pull_command(&server.image("os:v2"));
    let mut command = Command::new("prlimit");
    command.arg("--nofile=256:256").arg(plain.get_program()).args(plain.get_args());
    Outcome::of(command.output().unwrap()).ok();
    host.assert_whole();
}
