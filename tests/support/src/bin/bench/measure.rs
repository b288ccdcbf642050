//! One command: wall time, CPU time with all descendants, peak memory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// Short enough for what a process reaches at its end, long enough to cost nothing.
const EVERY: Duration = Duration::from_millis(10);

pub fn measure(results: &Path, case: &str, who: &str, command: &[&str]) -> Result<()> {
    // Descendants that outlive the command come here, so that their CPU time is counted too.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let before = cpu_seconds()?;
    let start = Instant::now();
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("Starting {}", command[0]))?;
    let pid = child.id();
    let ended = AtomicBool::new(false);
    let (status, wall, (own, beside)) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(pid, &ended));
        let status = child.wait();
        let wall = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        (status, wall, watcher.join().unwrap_or_default())
    });
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::empty()) {}
    ensure!(status?.success(), "{command:?} failed");
    let cpu = cpu_seconds()? - before;
    let mib = |kib: u64| kib as f64 / 1024.0;
    let line =
        format!("{case}\t{who}\t{:.3}\t{cpu:.2}\t{:.1}\t{:.1}\n", wall.as_secs_f64(), mib(own), mib(beside));
    eprint!("{line}");
    Ok(fs::OpenOptions::new().create(true).append(true).open(results)?.write_all(line.as_bytes())?)
}

/// CPU seconds of children that were waited for, and of theirs.
fn cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").context("/proc/self/stat has no name")?;
    let ticks: u64 = fields.split(' ').skip(13).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Peak KiB of the process itself, and of its descendants together: each one's own peak, summed
/// over those that live at once.
fn watch(pid: u32, ended: &AtomicBool) -> (u64, u64) {
    let (mut own, mut beside) = (0, 0);
    while !ended.load(Ordering::Relaxed) {
        own = own.max(peak(pid).unwrap_or(0));
        let mut alive = BTreeMap::new();
        descendants(pid, &mut alive);
        beside = beside.max(alive.values().sum());
        std::thread::sleep(EVERY);
    }
    (own, beside)
}

fn descendants(pid: u32, found: &mut BTreeMap<u32, u64>) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|text| text.parse().ok()) {
            if let Some(peak) = peak(child) {
                found.insert(child, peak);
                descendants(child, found);
            }
        }
    }
}

fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
