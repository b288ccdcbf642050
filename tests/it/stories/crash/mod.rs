//! Death and failure at every system call that changes something.
//!
//! A [`Scene`] is a host and a command. The command runs once under strace, which tells where it can
//! be struck. Then, for each such place, on a fresh copy of the host: it is killed there, or the call
//! fails as on a full, broken or read-only disk. What then boots must be the old or the new state,
//! byte for byte; the repo passes fsck; the same command again leads to the new state; and after a
//! cleanup nothing is left that an undisturbed run would not have left.
//!
//! `make test` takes a sample of the places; `make crash-matrix` takes all of them and writes
//! `docs/crash-matrix.md`.

mod case;
mod configs;
mod matrix;
mod scene;
mod site;
mod state;

use mcd_test_support::strace::Fate;

use case::Case;
use scene::Scene;
use site::Down;

/// What a disk can do to a write.
const ERRORS: [Fate; 3] = [Fate::Fail("ENOSPC"), Fate::Fail("EIO"), Fate::Fail("EROFS")];

/// Strikes `scene` at so many places, spread evenly, kills and errors in turn.
#[track_caller]
fn sample(scene: &Scene, count: usize) {
    let cuts = scene.cuts();
    let count = count.min(cuts.len());
    let mut wrong = Vec::new();
    for number in 0..count {
        // The middle of each part: neither the first nor the last place every time.
        let (cut, call) = &cuts[(2 * number + 1) * cuts.len() / (2 * count)];
        // Kills are half of it.
        let fate = if number % 2 == 0 { Fate::Kill } else { ERRORS[number / 2 % ERRORS.len()] };
        let down = if number % 4 == 0 { Down::PowerCut } else { Down::InOrder };
        if let Err(error) = (Case { scene, cut, fate, down }).check() {
            let place =
                format!("{} {fate:?} {down:?} at {cut}, {}({}", scene.name, call.name, call.arguments);
            wrong.push(format!("{place}\n{error}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} cases:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn root_crash_sample_of_a_pivot() {
    sample(&Scene::pivot(), 6);
}

#[test]
fn root_crash_sample_of_a_pull() {
    sample(&Scene::pull(), 6);
}

#[test]
fn root_crash_sample_of_a_booted_pivot() {
    sample(&Scene::booted_pivot(), 5);
}

#[test]
fn root_crash_sample_of_a_rollback() {
    sample(&Scene::rollback(), 4);
}

#[test]
fn root_crash_sample_of_an_apply() {
    sample(&Scene::apply(), 8);
}

#[test]
fn root_crash_sample_of_a_booted_apply() {
    sample(&Scene::booted_apply(), 4);
}

#[test]
fn root_crash_sample_of_a_live_apply() {
    sample(&Scene::live_apply(), 6);
}

#[test]
fn root_crash_sample_of_a_resume() {
    sample(&Scene::resume(), 3);
}

#[test]
fn root_crash_sample_of_the_boot() {
    sample(&Scene::early_boot(), 5);
    sample(&Scene::late_boot(), 4);
}

#[test]
fn root_crash_sample_of_a_forget() {
    sample(&Scene::forget(), 3);
}

#[test]
fn root_crash_sample_of_a_root_without_ostree() {
    sample(&Scene::plain_root(), 4);
}
