//! One update, recorded write by write, and every disk that a power cut in it may leave.
//!
//! Each run looks at a sample. With `MCD_VM_POWERCUT=PAGE` it looks at all of them, and at disks that
//! lie about flushes besides, to see that such a look finds what is wrong; PAGE tells what was found.

mod findings;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use findings::Findings;
use mcd_test_support::vm::block_log::BlockLog;
use mcd_test_support::vm::disk::Disk;
use mcd_test_support::vm::power_loss::{Cut, Replay, cuts};
use mcd_test_support::vm::verdict::{Change, Side};

use crate::world::World;

const PAGE: &str = "MCD_VM_POWERCUT";
/// The folder of a recording that `MCD_TEST_KEEP=1` left, to be looked at again without a boot.
const RECORDING: &str = "MCD_VM_RECORDING";
/// Random choices after each flush.
const CHANCES: usize = 1;
/// How many disks a sample has.
const SAMPLE: usize = 40;
/// A lying disk keeps the promise of every eighth flush only.
const LIE: usize = 8;
/// How often a long run says that it goes on: about once a minute.
const PROGRESS: usize = 50;
/// What the choices are made from, the same at every run.
const SEED: u64 = 20_261_201;
/// What the update changes beside the image.
const ARGUMENT: &str = "mcd.story=cut";

/// A recorded update: the disk before it, what was written, the disk after it.
struct Recording {
    before: Disk,
    log: BlockLog,
    after: Disk,
}

impl Recording {
    fn make(world: &mut World) -> Self {
        // The first boot settles what an installation leaves; it is not what is looked at.
        world.machine.boot().unwrap();
        world.machine.power_off().unwrap();
        world.machine.disk().copy_to(&world.machine.scratch().join("before")).unwrap();
        world.machine.record();
        world.machine.boot().unwrap();
        world.pivot("os:v2", &format!("--karg-append {ARGUMENT}"));
        world.machine.power_off().unwrap();
        Self::open(world.machine.scratch().path(), world)
    }

    fn open(folder: &Path, world: &World) -> Self {
        let layout = world.machine.disk().layout();
        let disk = |name: &str| Disk::open(&folder.join(name), layout);
        let log = BlockLog::open(&folder.join("block-log")).unwrap();
        Self { before: disk("before"), log, after: disk("disk") }
    }

    /// Looks at the disks of these cuts, on every processor.
    fn look(&self, chosen: &[&Cut], change: &Change, image: &str) -> Findings {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let share = chosen.len().div_ceil(processors).max(1);
        let looked_at = AtomicUsize::new(0);
        let look = |part: &[&Cut]| {
            let mut replay = Replay::new(&self.log, &self.before).unwrap();
            let mut findings = Findings::default();
            for cut in part {
                findings.look(&replay.disk(cut).unwrap(), cut, change, image);
                let number = looked_at.fetch_add(1, Ordering::Relaxed) + 1;
                if number.is_multiple_of(PROGRESS) {
                    let _ = writeln!(std::io::stderr(), "looked at {number} of {} disks", chosen.len());
                }
            }
            findings
        };
        std::thread::scope(|scope| {
            let look = &look;
            let parts: Vec<_> = chosen.chunks(share).map(|part| scope.spawn(move || look(part))).collect();
            parts.into_iter().fold(Findings::default(), |all, part| all.and(part.join().unwrap()))
        })
    }
}

#[test]
fn power_cut_anywhere_in_an_update_boots_old_or_new() {
    let mut world = World::new();
    let recording = match std::env::var_os(RECORDING) {
        Some(folder) => Recording::open(folder.as_ref(), &world),
        None => Recording::make(&mut world),
    };
    let change = Change::between(&recording.before, &recording.after).unwrap();
    let all = cuts(&recording.log, 1, CHANCES, SEED);
    let image = world.local_image("os:v2");
    let page = std::env::var_os(PAGE);
    let chosen = if page.is_some() { all.iter().collect() } else { sample(&all) };
    let begun = Instant::now();
    let findings = recording.look(&chosen, &change, &image);
    let mut text = findings.page(&recording.log, all.len(), begun.elapsed());
    if let Some(page) = page {
        let lies = cuts(&recording.log, LIE, 2 * LIE, SEED);
        let found = recording.look(&sample(&lies), &change, &image);
        text += &found.control();
        fs::write(page, &text).unwrap();
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
    findings.assert_both_sides_and_nothing_else();
}

/// The switch is at the end, in the shutdown: the last third of the run gets half of the looks, the
/// rest is spread over what comes before.
fn sample(all: &[Cut]) -> Vec<&Cut> {
    let (before, switch) = all.split_at(all.len() * 2 / 3);
    let step = |cuts: &[Cut]| cuts.len().div_ceil(SAMPLE / 2).max(1);
    before.iter().step_by(step(before)).chain(switch.iter().step_by(step(switch))).collect()
}

impl Findings {
    #[track_caller]
    fn assert_both_sides_and_nothing_else(&self) {
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
        let sides: Vec<Side> = self.views.keys().map(|(_, side)| *side).collect();
        assert!(sides.contains(&Side::Old) && sides.contains(&Side::New), "the switch was missed: {sides:?}");
    }
}
