//! When a deployment is good, and what is done when it is not. Decisions only.

use std::time::Duration;

use crate::model::boots::BootState;
use crate::model::health::Check;

/// Characters of a cause: it stands in a motd and in the boot file.
const CAUSE_MAX: usize = 240;

/// What a boot does about the running deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Repeat the checks until they pass or the time is up, then go back if one fails.
    Judge,
    /// The same, but it stays whatever comes: it was gone back from before, and a person booted it
    /// all the same. One automatic rollback for each change.
    JudgeOnly,
    /// It proved good before: the checks are run once, to be shown.
    Good,
    /// Others made it.
    NotOurs,
}

/// What comes after a round of checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It is good.
    Good,
    /// Another round.
    Again,
    /// The time is up.
    Failed {
        /// Which check failed and what it said.
        cause: String,
    },
}

/// What to do about a deployment whose entry in the boot file has this state. `is_ours`: its origin
/// carries an id of ours; `was_left`: the last automatic rollback left it.
pub fn begin(state: Option<&BootState>, is_ours: bool, was_left: bool) -> Begin {
    match state {
        Some(BootState::Good) => Begin::Good,
        Some(BootState::Failed { .. } | BootState::Unproven | BootState::RolledBack) => Begin::JudgeOnly,
        // What a newer version noted is not ours to overrule.
        Some(BootState::Other(_)) => Begin::NotOurs,
        Some(_) | None if was_left => Begin::JudgeOnly,
        Some(_) => Begin::Judge,
        None if is_ours => Begin::Judge,
        None => Begin::NotOurs,
    }
}

/// Judges a round. A required check that failed on the system before too is not held against the
/// deployment: going back would not mend it.
pub fn next(checks: &[Check], elapsed: Duration, deadline: Duration) -> Next {
    let failed: Vec<&Check> = checks.iter().filter(|check| check.is_held_against()).collect();
    if failed.is_empty() {
        return Next::Good;
    }
    if elapsed < deadline {
        return Next::Again;
    }
    let told: Vec<String> = failed.iter().map(|check| told(check)).collect();
    let cause: String = format!("health check failed: {}", told.join("; ")).chars().take(CAUSE_MAX).collect();
    Next::Failed { cause }
}

fn told(check: &Check) -> String {
    match &check.why {
        Some(why) => format!("{} ({})", check.name, why.lines().next().unwrap_or_default()),
        None => check.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::health::Weight;

    fn check(name: &str, weight: Weight, passed: bool) -> Check {
        Check { name: name.to_owned(), weight, passed, millis: 1, why: None, failed_before: false }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn only_required_checks_count_and_only_at_the_deadline() {
        let wanted = check("route", Weight::Wanted, false);
        let required = Check { why: Some("no\nmore".into()), ..check("app", Weight::Required, false) };
        assert_eq!(next(&[], Duration::ZERO, LONG), Next::Good);
        assert_eq!(next(std::slice::from_ref(&wanted), LONG, LONG), Next::Good);
        assert_eq!(next(std::slice::from_ref(&required), LONG - Duration::from_secs(1), LONG), Next::Again);
        let failed = Next::Failed { cause: "health check failed: app (no)".to_owned() };
        assert_eq!(next(&[wanted, required], LONG, LONG), failed);
    }

    #[test]
    fn what_failed_before_is_not_held_against_it() {
        let old = Check { failed_before: true, ..check("app", Weight::Required, false) };
        assert_eq!(next(std::slice::from_ref(&old), LONG, LONG), Next::Good);
        let new = check("other", Weight::Required, false);
        let Next::Failed { cause } = next(&[old, new], LONG, LONG) else { panic!("it is held against it") };
        assert!(cause.contains("other") && !cause.contains("app"), "{cause}");
    }

    #[test]
    fn each_change_is_left_once() {
        let failed = BootState::Failed { cause: "x".into() };
        for (state, is_ours, was_left, expected) in [
            (Some(BootState::Committed), true, false, Begin::Judge),
            (Some(BootState::Booted), true, false, Begin::Judge),
            (Some(BootState::Booted), true, true, Begin::JudgeOnly),
            (Some(BootState::Good), true, true, Begin::Good),
            (Some(failed), true, false, Begin::JudgeOnly),
            (Some(BootState::Unproven), true, false, Begin::JudgeOnly),
            (Some(BootState::RolledBack), true, false, Begin::JudgeOnly),
            (Some(BootState::Other("paused".into())), true, false, Begin::NotOurs),
            (None, true, false, Begin::Judge),
            (None, false, false, Begin::NotOurs),
        ] {
            assert_eq!(begin(state.as_ref(), is_ours, was_left), expected, "{state:?} {is_ours} {was_left}");
        }
    }
}
