//! One strike, and all that must hold afterwards.

use mcd_test_support::strace::{Cut, Fate, HANGS};
use mcd_test_support::sysroot::Sysroot;

use super::super::Outcome;
use super::scene::{Scene, clean};
use super::site::{Down, Watch};
use super::state::{State, remains};

/// A run of the scene's command on a fresh copy, struck at one place.
pub(super) struct Case<'a> {
    pub(super) scene: &'a Scene,
    pub(super) cut: &'a Cut,
    pub(super) fate: Fate,
    /// How the host goes down after that.
    pub(super) down: Down,
}

/// How a case ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ended {
    /// Killed, or failed and said so: what booted before boots.
    Old,
    /// Killed, or done all the same: what was asked for boots.
    New,
    /// Failed and said that a person is needed, or killed half-way on a root that nothing boots.
    Undecided,
    /// The run came to its end without being struck: it took another way than the recorded one.
    Missed,
}

impl Case<'_> {
    /// Strikes. An error tells what does not hold.
    pub(super) fn check(&self) -> Result<Ended, String> {
        let sysroot = self.scene.copy();
        let log = self.scene.log(&sysroot);
        let site = self.scene.site(&sysroot);
        let outcome = site.run(&self.scene.arguments, &Watch::Struck(self.cut, self.fate, &log));
        let whole = || {
            let site = site.next_boot(self.down)?;
            let seen = self.seen(&sysroot)?;
            let ended = self.judge(&outcome, seen)?;
            whole(&sysroot)?;
            let again = site.run(self.scene.again(), &Watch::Not);
            if again.code != Some(0) {
                return Err(format!("the same command again: {again}"));
            }
            let site = site.next_boot(Down::InOrder)?;
            let told = self.scene.expected.new.differences(&State::of(&sysroot));
            none_of(told, "the same command again does not lead to the new state")?;
            clean(&site)?;
            none_of(self.left_over(&sysroot), "a cleanup leaves other things than after an undisturbed run")?;
            whole(&sysroot)?;
            Ok(ended)
        };
        whole().map_err(|error| {
            format!("{error}\nthe struck run: exit {:?}\n{}", outcome.code, why(&outcome.stderr))
        })
    }

    /// Whether the old state would boot, or the new one.
    fn seen(&self, sysroot: &Sysroot) -> Result<Ended, String> {
        let expected = &self.scene.expected;
        let seen = State::of(sysroot);
        if seen == expected.old {
            return Ok(Ended::Old);
        }
        if seen == expected.new {
            return Ok(Ended::New);
        }
        // No boot stands between a root without OSTree and its next run, which goes on.
        if self.scene.arguments.iter().any(|word| word == "{plain}") && self.fate == Fate::Kill {
            return Ok(Ended::Undecided);
        }
        let (old, new) = (expected.old.differences(&seen), expected.new.differences(&seen));
        let nearer = if old.len() < new.len() { old } else { new };
        Err(format!("neither the old nor the new state boots:\n  {}", nearer.join("\n  ")))
    }

    /// Whether what the run said agrees with what boots.
    fn judge(&self, outcome: &Outcome, seen: Ended) -> Result<Ended, String> {
        // strace fails the call of that number in every thread, a runtime's wake-ups too.
        let panicked = outcome.stderr.matches("panicked at").count();
        let woken = outcome.stderr.matches("failed to wake I/O driver").count();
        let says_why = outcome.stderr.contains("error:") && panicked == woken;
        // Nothing wakes it any more: what it left is judged, as after a kill.
        if outcome.stderr.ends_with(HANGS) {
            return match self.fate {
                Fate::Fail(_) if woken > 0 => Ok(Ended::Missed),
                _ => Err(format!("the run hangs, and the {seen:?} state boots")),
            };
        }
        // Staged is done, but lost with the power.
        let may_be_lost = self.down == Down::PowerCut && seen == Ended::Old;
        match (self.fate, outcome.code) {
            (Fate::Kill, Some(137)) => Ok(seen),
            (Fate::Kill, Some(0)) => Ok(Ended::Missed),
            // A child of its was the first to make so many calls, and died.
            (Fate::Kill, Some(1)) if seen == Ended::Old && says_why => Ok(seen),
            (Fate::Fail(_), Some(0)) if may_be_lost || self.scene.is_new(seen) => Ok(seen),
            // A full disk that an import meets is refused, as one that preflight finds.
            (Fate::Fail(_), Some(1 | 3)) if seen == Ended::Old && says_why => Ok(seen),
            (Fate::Fail(_), Some(4)) if says_why => Ok(Ended::Undecided),
            (_, code) => Err(format!("exit {code:?}, and the {seen:?} state boots")),
        }
    }

    fn left_over(&self, sysroot: &Sysroot) -> Vec<String> {
        let (left, wanted) = (remains(sysroot), &self.scene.expected.remains);
        // On a root without OSTree, what could not be removed waits for the next change.
        let waits = |name: &str| {
            self.fate != Fate::Kill
                && name.starts_with("plain/")
                && (name.contains("/.mcd-") || name.ends_with("converging.json"))
        };
        let more =
            left.iter().filter(|name| !wanted.contains(name) && !waits(name)).map(|name| format!("+ {name}"));
        let less = wanted.iter().filter(|name| !left.contains(name)).map(|name| format!("- {name}"));
        more.chain(less).collect()
    }
}

/// From the error on.
fn why(stderr: &str) -> &str {
    stderr.find("error:").map_or("", |start| &stderr[start..])
}

fn none_of(told: Vec<String>, what: &str) -> Result<(), String> {
    if told.is_empty() { Ok(()) } else { Err(format!("{what}:\n  {}", told.join("\n  "))) }
}

fn whole(sysroot: &Sysroot) -> Result<(), String> {
    sysroot.fsck().map_err(|error| format!("{error:#}"))
}
