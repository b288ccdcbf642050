//! One look at a disk after a power cut, and the page that tells of many.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use mcd_test_support::process::run;
use mcd_test_support::vm::block_log::{BlockLog, Entry};
use mcd_test_support::vm::disk::Disk;
use mcd_test_support::vm::power_loss::Cut;
use mcd_test_support::vm::verdict::{Change, RawView, Side};

use super::{ARGUMENT, CHANCES, LIE};

/// Of every so many disks each object's content is read, and `mcd` is asked for the new image again.
const THOROUGH: usize = 10;

/// What was found, to be counted and told.
#[derive(Default)]
pub(super) struct Findings {
    disks: usize,
    thorough: usize,
    objects: usize,
    /// The raw view of a boot loader, and what boots once the journals are replayed.
    pub(super) views: BTreeMap<(RawView, Side), usize>,
    pub(super) failures: Vec<String>,
}

impl Findings {
    /// Looks at the disk of a cut.
    pub(super) fn look(&mut self, disk: &Disk, cut: &Cut, change: &Change, image: &str) {
        self.disks += 1;
        let raw = change.raw_view(disk);
        let thorough = self.disks.is_multiple_of(THOROUGH);
        match check(disk, change, thorough.then_some(image)) {
            Ok((side, objects)) => {
                self.objects = self.objects.max(objects);
                self.thorough += usize::from(thorough);
                *self.views.entry((raw, side)).or_default() += 1;
            }
            Err(error) => {
                let Cut { flushes, lost, .. } = cut;
                self.failures.push(format!("after flush {flushes}, {lost} pieces lost: {error:#}"));
            }
        }
    }

    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.disks += other.disks;
        self.thorough += other.thorough;
        self.objects = self.objects.max(other.objects);
        for (view, count) in other.views {
            *self.views.entry(view).or_default() += count;
        }
        self.failures.extend(other.failures);
        self
    }

    /// The page.
    pub(super) fn page(&self, log: &BlockLog, all: usize, took: Duration) -> String {
        let lengths: Vec<u64> = log
            .entries()
            .iter()
            .filter_map(|entry| if let Entry::Write { length, .. } = entry { Some(*length) } else { None })
            .collect();
        let (writes, flushes, megabytes) =
            (lengths.len(), log.flushes().len(), lengths.iter().sum::<u64>() / 1_000_000);
        let Self { disks, objects, thorough, .. } = self;
        let seconds = took.as_secs();
        let mut page = format!(
            "# Power cuts

`make vm-powercut` writes this page.

An emulated machine boots, `mcd pivot` moves it to another image (import, staging), and the shutdown finalises that. What it \
             wrote was recorded: {writes} writes, {flushes} flushes, {megabytes} MB. A power cut leaves everything up to a flush \
             and any choice of the 4 KiB pieces that were written after it. Every flush boundary and {CHANCES} random choice(s) \
             after each are {all} disks.

{disks} of them were looked at, in {seconds} s:

* the raw blocks, as a boot loader sees them that replays no journal: the first boot entry, its kernel and initramfs;
* after the replay, what boots next: wholly the old or wholly the new system (kernel pair, arguments, every file of `/usr`);
* whether every ref of the repo leads to objects (up to {objects}) that are there and not short; `mcd status`; `e2fsck`;
* of {thorough}, also `ostree fsck`, and `mcd pivot` to the image again: then the new system must boot.

| raw view of a boot loader | boots after replay | disks |
|---|---|---|
"
        );
        for ((raw, side), count) in &self.views {
            let raw = match raw {
                RawView::Boots(side) => format!("{side:?}"),
                RawView::Nothing(why) => format!("nothing: {why}"),
            };
            page += &format!("| {raw} | {side:?} | {count} |\n");
        }
        page += &format!("\nAnything else: {}.\n", self.failures.len());
        page
    }

    /// What the page says of disks that lie.
    pub(super) fn control(&self) -> String {
        let (disks, bad) = (self.disks, self.failures.len());
        let mut text = format!(
            "\nThe control: of {disks} disks that keep the promise of every {LIE}th flush only, {bad} were found bad.\n\n"
        );
        for failure in &self.failures {
            let first = failure.lines().next().unwrap_or_default();
            text += &format!("* {}\n", first.chars().take(160).collect::<String>());
        }
        text
    }
}

/// What the disk boots once its journals are replayed, and how many objects its refs lead to.
fn check(disk: &Disk, change: &Change, again: Option<&str>) -> anyhow::Result<(Side, usize)> {
    let mounted = disk.mount()?;
    let side = change.next_boot(&mounted)?;
    let objects = change.check_refs(&mounted)?;
    let sysroot = mounted.path();
    run(Command::new(env!("CARGO_BIN_EXE_mcd")).args(["status", "--json", "--sysroot"]).arg(&sysroot))?;
    if let Some(image) = again {
        mounted.sysroot()?.fsck()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcd"));
        command.args(["pivot", image, "--insecure-skip-tls-verification"]);
        if side == Side::Old {
            command.args(["--karg-append", ARGUMENT]);
        }
        run(command.arg("--sysroot").arg(&sysroot))?;
        anyhow::ensure!(change.next_boot(&mounted)? == Side::New, "asked again, it is not the new system");
    }
    mounted.unmount()?;
    disk.check_file_systems()?;
    Ok((side, objects))
}
