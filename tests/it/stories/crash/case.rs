//! One strike, and all that must hold afterwards.

use mcd_test_support::strace::{Cut, Fate};

use super::scene::{Scene, Watch};
use super::state::{State, remains};

/// A run of the scene's command on a fresh copy, struck at one place.
pub(super) struct Case<'a> {
    scene: &'a Scene,
    cut: &'a Cut,
    fate: Fate,
}

/// What would boot after a strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ended {
    /// The run came to its end without being struck: it took another way than the recorded one.
    Missed,
    /// What booted before.
    Old,
    /// What was asked for.
    New,
}

impl<'a> Case<'a> {
    pub(super) fn new(scene: &'a Scene, cut: &'a Cut, fate: Fate) -> Self {
        Self { scene, cut, fate }
    }

    /// Strikes. An error tells what does not hold.
    pub(super) fn check(&self) -> Result<Ended, String> {
        let expected = &self.scene.expected;
        let sysroot = self.scene.copy();
        // Tests run side by side; each has a log of its own.
        let log = sysroot.scratch().join("struck.strace");
        let outcome = self.scene.run(&sysroot, &Watch::Struck(self.cut, self.fate, &log));
        let fail = |what: &str, told: Vec<String>| {
            Err(format!("{what}:\n  {}\nthe struck run: {outcome}", told.join("\n  ")))
        };
        let seen = State::of(&sysroot);
        let from_old = expected.old.differences(&seen);
        let ended = match () {
            () if from_old.is_empty() => Ended::Old,
            () if seen == expected.new => Ended::New,
            () => {
                let from_new = expected.new.differences(&seen);
                let nearer = if from_old.len() < from_new.len() { from_old } else { from_new };
                return fail("neither the old nor the new state would boot", nearer);
            }
        };
        let ended = match (self.fate, outcome.code) {
            (Fate::Kill, Some(137)) => ended,
            (Fate::Kill, Some(0)) => Ended::Missed,
            (Fate::Fail(_), Some(0)) if seen == expected.new => Ended::New,
            // A full disk that an import meets is refused, as one that preflight finds.
            (Fate::Fail(_), Some(1 | 3)) if ended == Ended::Old && says_something(&outcome.stderr) => ended,
            (Fate::Fail(_), Some(4)) if says_something(&outcome.stderr) => ended,
            _ => return fail(&format!("exit {:?} with the {ended:?} state", outcome.code), vec![]),
        };
        if let Err(error) = sysroot.fsck() {
            return fail("fsck", vec![format!("{error:#}")]);
        }
        let again = self.scene.run(&sysroot, &Watch::Not);
        if again.code != Some(0) {
            return fail("the same command again", vec![again.to_string()]);
        }
        let told = expected.new.differences(&State::of(&sysroot));
        if !told.is_empty() {
            return fail("the same command again does not lead to the new state", told);
        }
        self.scene.clean(&sysroot);
        let left = remains(&sysroot);
        let more =
            left.iter().filter(|name| !expected.remains.contains(name)).map(|name| format!("+ {name}"));
        let less =
            expected.remains.iter().filter(|name| !left.contains(name)).map(|name| format!("- {name}"));
        let told: Vec<String> = more.chain(less).collect();
        if !told.is_empty() {
            return fail("a cleanup leaves other things than after an undisturbed run", told);
        }
        if let Err(error) = sysroot.fsck() {
            return fail("fsck at the end", vec![format!("{error:#}")]);
        }
        Ok(ended)
    }
}

fn says_something(stderr: &str) -> bool {
    stderr.contains("error:") && !stderr.contains("panicked")
}
