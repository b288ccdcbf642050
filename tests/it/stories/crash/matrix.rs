//! All places, and the page that tells of them.

// The run of an hour tells what it found as soon as it found it.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcd_test_support::strace::{Call, Cut, Fate};

use super::ERRORS;
use super::case::{Case, Ended};
use super::scene::Scene;
use super::site::{Down, Place};

/// Every so manieth place is struck; all of them unless `MCD_CRASH_STEP` says otherwise.
fn step() -> usize {
    std::env::var("MCD_CRASH_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// After so many cases it says how far it is.
const TOLD_EVERY: usize = 200;

/// Cases at once.
fn jobs() -> usize {
    std::env::var("MCD_CRASH_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// What is done at every place.
fn strikes(scene: &Scene) -> Vec<(Fate, Down)> {
    let mut strikes = vec![(Fate::Kill, Down::InOrder)];
    if scene.place == Place::Running {
        strikes.push((Fate::Kill, Down::PowerCut));
    }
    strikes.extend(ERRORS.map(|fate| (fate, Down::InOrder)));
    strikes
}

/// How cases of one phase ended, by what was done.
type Outcomes = BTreeMap<(Fate, Down), BTreeMap<Ended, usize>>;

/// A phase of a scene.
#[derive(Default)]
struct Row {
    calls: BTreeMap<String, usize>,
    outcomes: Outcomes,
}

/// Strikes at every place. Gives the rows by phase, in the order of phases, and what is wrong.
fn run(scene: &Scene) -> (Vec<(&'static str, Row)>, Vec<String>) {
    let cuts = scene.cuts();
    let phases = scene.phases(&cuts);
    let mut rows: Vec<(&'static str, Row)> = Vec::new();
    let mut work = Vec::new();
    for ((cut, call), phase) in cuts.iter().zip(phases).step_by(step()) {
        if rows.last().is_none_or(|(name, _)| *name != phase) {
            rows.push((phase, Row::default()));
        }
        let row = rows.len() - 1;
        *rows[row].1.calls.entry(call.name.clone()).or_default() += 1;
        work.extend(strikes(scene).into_iter().map(|(fate, down)| (row, cut, call, fate, down)));
    }
    let (rows, wrong) = (Mutex::new(rows), Mutex::new(Vec::new()));
    let next = AtomicUsize::new(0);
    let strike = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((row, cut, call, fate, down)) = work.get(number) else { break };
            if number.is_multiple_of(TOLD_EVERY) {
                println!("{}: {number} of {} cases", scene.name, work.len());
            }
            match (Case { scene, cut, fate: *fate, down: *down }).check() {
                Ok(ended) => {
                    let row = &mut rows.lock().unwrap()[*row].1;
                    *row.outcomes.entry((*fate, *down)).or_default().entry(ended).or_default() += 1;
                }
                Err(error) => {
                    let told = format!("{}\n{error}", place(scene, cut, call, *fate, *down));
                    println!("{told}\n");
                    wrong.lock().unwrap().push(told);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..jobs()).for_each(|_| drop(scope.spawn(strike))));
    println!("{}: {} cases, {} wrong", scene.name, work.len(), wrong.lock().unwrap().len());
    (rows.into_inner().unwrap(), wrong.into_inner().unwrap())
}

/// For messages.
pub(super) fn place(scene: &Scene, cut: &Cut, call: &Call, fate: Fate, down: Down) -> String {
    format!("{}: {fate:?}, {down:?}, at {cut}: {}({}", scene.name, call.name, call.arguments)
}

fn counts(outcomes: Option<&BTreeMap<Ended, usize>>, fate: Fate) -> String {
    let word = |ended: &Ended| match (fate, ended) {
        (Fate::Kill, Ended::Old) => "old",
        (Fate::Kill, Ended::New) => "new",
        (Fate::Fail(_), Ended::Old) => "undone",
        (Fate::Fail(_), Ended::New) => "done",
        (Fate::Kill, Ended::Undecided) => "between",
        (Fate::Fail(_), Ended::Undecided) => "exit 4",
        (_, Ended::Missed) => "missed",
    };
    let told: Vec<String> =
        outcomes.into_iter().flatten().map(|(ended, count)| format!("{count} {}", word(ended))).collect();
    told.join(", ")
}

/// The page, from the text that stands before the tables.
fn page(sections: &[(&Scene, Vec<(&'static str, Row)>)]) -> String {
    let mut text = String::from(HEAD);
    for (scene, rows) in sections {
        let strikes = strikes(scene);
        let name = |(fate, down): &(Fate, Down)| match (fate, down) {
            (Fate::Kill, Down::InOrder) if strikes.len() > 4 => "killed, then shut down".to_owned(),
            (Fate::Kill, Down::PowerCut) => "killed with the power".to_owned(),
            (Fate::Kill, Down::InOrder) => "killed".to_owned(),
            (Fate::Fail(error), _) => (*error).to_owned(),
        };
        let heads: Vec<String> = strikes.iter().map(name).collect();
        let _ = writeln!(text, "\n## {}\n\n{}\n", scene.name, scene.about);
        let _ = writeln!(text, "| phase | calls | {} |", heads.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(heads.len()));
        for (phase, row) in rows {
            let calls: Vec<String> =
                row.calls.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let cells: Vec<String> =
                strikes.iter().map(|strike| counts(row.outcomes.get(strike), strike.0)).collect();
            let _ = writeln!(text, "| {phase} | {} | {} |", calls.join(", "), cells.join(" | "));
        }
    }
    text
}

const HEAD: &str = "\
# Crash matrix

Written by `make crash-matrix`. Each command runs on a real sysroot once for every system call of it that changes something: it is killed at the call (which is then not made), or the call fails with the error named. After each, all of this holds, or there is no page:

* What the next boot starts (boot menu in its order, kernel, arguments, origin, `/usr`, `/etc`, `/var` with all modes, owners and attributes) is the *old* or the *new* state, byte for byte. Where configuration is managed, after `mcd boot`.
* What the command said is true: exit 0 is the new state (*done*: the call was not needed for it), exit 1 or 3 is the old one, with a message (*undone*).
* `ostree fsck` finds nothing.
* The same command again leads to the new state.
* After `mcd cleanup` the names on the disk are those that an undisturbed run leaves.

A root without OSTree has no boot that would choose: there a kill may leave it *between* the two, and the next run goes on.

Calls are counted by name and thread, as strace does; those of child processes are struck where they make more calls of a name than `mcd` itself. *Missed* runs took another way than the recorded one and ended undisturbed.
";

#[test]
#[ignore = "an hour; `make crash-matrix` runs it"]
fn root_crash_matrix_of_all_scenes() {
    let only = std::env::var("MCD_CRASH_ONLY").ok();
    let mut sections: Vec<(Scene, Vec<(&'static str, Row)>)> = Vec::new();
    let mut wrong = Vec::new();
    let scenes = Scene::all();
    for make in scenes {
        let (name, make) = make;
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let scene = make();
        let (rows, told) = run(&scene);
        wrong.extend(told);
        sections.push((scene, rows));
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    let sections: Vec<_> = sections.iter_mut().map(|(scene, rows)| (&*scene, std::mem::take(rows))).collect();
    if let Some(path) = std::env::var_os("MCD_CRASH_PAGE") {
        std::fs::write(path, page(&sections)).unwrap();
    }
}
