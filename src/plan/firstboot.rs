//! What a first boot does next. It never gives up: kubelet waits behind it, and would start on a machine
//! that is not what it is to be.

use super::backoff;
use super::{Decision, Desired, decide};
use crate::error::ExitKind;
use crate::model::boots::RequestOutcome;
use crate::model::config::Config;
use crate::model::kargs::KargEdit;
use crate::model::status::HostStatus;

/// Seconds after the first failure; each next pause is twice as long …
const FIRST_PAUSE: u64 = 5;
/// … up to this. A registry that is back after a night is found within minutes.
const LONGEST_PAUSE: u64 = 300;
/// What is refused does not pass by itself. Somebody may correct the file, or the image.
const REFUSED_PAUSE: u64 = 60;

/// What a first boot does about its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Make the machine what it asks for.
    CarryOut,
    /// The next boot is that; no network is needed to know.
    Fulfilled,
    /// It was dealt with before, and the host has moved on or gone back: never again by itself.
    SetAside,
}

/// Judges a request that the boot file knows (`known`) or not. `staged_for_it`: the next boot starts the
/// deployment that an earlier run made for it.
pub fn begin(
    host: &HostStatus,
    config: &Config,
    known: Option<&RequestOutcome>,
    staged_for_it: bool,
    force: bool,
) -> Begin {
    match known {
        _ if staged_for_it => Begin::Fulfilled,
        _ if force => Begin::CarryOut,
        None => Begin::CarryOut,
        Some(RequestOutcome::CarriedOut) if is_fulfilled(host, config) => Begin::Fulfilled,
        Some(_) => Begin::SetAside,
    }
}

/// Whether the next boot starts the image, by digest or by the very reference that it came from, with all
/// the kernel arguments.
fn is_fulfilled(host: &HostStatus, config: &Config) -> bool {
    let Some(next) = host.next_boot() else { return false };
    let kargs = config.kernel_arguments.iter().flatten().cloned().map(KargEdit::AppendIfMissing).collect();
    let mut desired = Desired { image: config.image.clone(), resolved: None, kargs };
    if next.image.is_some() && next.image == desired.image {
        desired.resolved.clone_from(&next.digest);
    }
    matches!(decide(&desired, host), Ok(Some(Decision::NothingToDo)))
}

/// Seconds until the next try after failure number `attempt` (from 1).
pub fn pause(kind: ExitKind, attempt: u32) -> u64 {
    match kind {
        ExitKind::Refused | ExitKind::Usage => REFUSED_PAUSE,
        _ => backoff::doubled(FIRST_PAUSE, LONGEST_PAUSE, attempt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::running_a;

    fn wanted(image: &str, argument: &str) -> Config {
        Config {
            image: Some(image.parse().unwrap()),
            kernel_arguments: Some(vec![argument.to_owned()]),
            ..Config::default()
        }
    }

    #[test]
    fn what_was_carried_out_is_never_run_again() {
        let (same, carried) = (wanted("registry.example/os:1", "quiet"), Some(&RequestOutcome::CarriedOut));
        let rolled_back = Some(&RequestOutcome::RolledBack);
        let other = wanted("registry.example/os:2", "quiet");
        let other_argument = wanted("registry.example/os:1", "nosmt");
        for (config, known, staged, force, expected) in [
            (&same, None, false, false, Begin::CarryOut),
            (&same, None, true, false, Begin::Fulfilled),
            (&same, carried, false, false, Begin::Fulfilled),
            (&other, carried, false, false, Begin::SetAside),
            (&other_argument, carried, false, false, Begin::SetAside),
            (&same, rolled_back, false, false, Begin::SetAside),
            (&other, rolled_back, false, true, Begin::CarryOut),
            (&other, rolled_back, true, false, Begin::Fulfilled),
        ] {
            let found = begin(&running_a(false), config, known, staged, force);
            assert_eq!(found, expected, "{config:?} {known:?} {staged} {force}");
        }
    }

    #[test]
    fn pauses_grow_but_what_is_refused_is_looked_at_each_minute() {
        assert_eq!([1, 2, 3, 40].map(|attempt| pause(ExitKind::Failed, attempt)), [5, 10, 20, 300]);
        assert_eq!([1, 9].map(|attempt| pause(ExitKind::Refused, attempt)), [60, 60]);
        assert_eq!(pause(ExitKind::Busy, 1), 5);
    }
}
