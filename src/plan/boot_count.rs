//! How often a deployment may begin to boot without a verdict, and what comes then. Decisions only.
//!
//! Every boot of a change that is not judged yet is counted before the root starts. A verdict ends that:
//! what was found good, or was left, is never counted again. So each change is left once at most, and
//! what is gone back to stays.

use crate::model::boots::{BootEntry, BootRecord, BootState};
use crate::model::status::DeploymentName;

/// So many boots may begin without a verdict. One may end by a power cut, which says nothing; a third
/// that ends like two before it is no chance, and each may cost the time of a watchdog. A constant: the
/// hook runs before any settings can be trusted.
pub const TRIES: u32 = 3;
/// So many boots in a row may be ended in order before the verdict without being counted: a person or a
/// controller reboots when it wants to. A system that ends each boot in order by itself (a unit with
/// `FailureAction=reboot`) is caught all the same.
pub const EXCUSED: u32 = 3;

/// A deployment on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDisk {
    /// Its name.
    pub name: DeploymentName,
    /// Our id in its origin.
    pub id: Option<String>,
}

/// What is done about a boot that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// Nothing is noted: it is judged already, or others made it.
    No,
    /// It is noted, and boots.
    Boot(BootEntry),
    /// It is left.
    GoBack(GoingBack),
    /// It ought to be left, and nothing proved good: it is noted, and boots.
    Stays {
        /// What is noted.
        entry: BootEntry,
        /// Why it ought to be left, for people.
        cause: String,
    },
}

/// Where to, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoingBack {
    /// What the next boot starts instead.
    pub to: DeploymentName,
    /// For people.
    pub cause: String,
}

impl OnDisk {
    /// The id of its entry: ours, or its own name if others made it.
    pub fn entry_id(&self) -> String {
        self.id.clone().unwrap_or_else(|| self.name.to_string())
    }

    /// Its entry. An origin that another tool copied still has our id, so the name counts.
    pub fn entry<'a>(&self, boots: &'a BootRecord) -> Option<&'a BootEntry> {
        let own = boots.entry(&self.entry_id());
        own.filter(|entry| entry.deployment.as_ref().is_none_or(|name| *name == self.name))
    }

    /// Whether it may still be left: a change of ours without a verdict. With the copy of an id, which
    /// has the entry of another deployment, it is somebody else's.
    pub fn may_be_left(&self, boots: &BootRecord) -> bool {
        match self.entry(boots) {
            Some(entry) => !entry.state.is_verdict(),
            None => self.id.as_ref().is_some_and(|id| boots.entry(id).is_none()),
        }
    }
}

/// Counts the boot of `starting` that begins at `now`. `all` are the deployments on disk.
pub fn count(boots: &BootRecord, starting: &OnDisk, all: &[OnDisk], now: i64) -> Count {
    if !starting.may_be_left(boots) {
        return Count::No;
    }
    let before = starting.entry(boots).cloned().unwrap_or_else(|| {
        BootEntry::new(starting.entry_id(), Some(starting.name.clone()), BootState::Committed, now)
    });
    let (tries, in_order) = match (before.ended_in_order, before.in_order < EXCUSED) {
        (true, true) => (before.tries.saturating_sub(1), before.in_order + 1),
        (true, false) => (before.tries, before.in_order),
        (false, _) => (before.tries, 0),
    };
    let cause = format!(
        "{tries} boots ended without a verdict: each hung, crashed, was cut off or was rebooted before it was judged"
    );
    let entry = BootEntry {
        deployment: Some(starting.name.clone()),
        state: BootState::Booted,
        boots: before.boots.saturating_add(1),
        tries: tries.saturating_add(1),
        in_order,
        ended_in_order: false,
        when: now,
        ..before
    };
    match (tries >= TRIES, good_to_go_back_to(boots, starting, all)) {
        (false, _) => Count::Boot(entry),
        (true, Some(to)) => Count::GoBack(GoingBack { to: to.name.clone(), cause }),
        (true, None) => Count::Stays { entry, cause },
    }
}

/// The deployment that an automatic rollback from `starting` goes to: one that proved good. The one with
/// our pin first, then the newest.
pub fn good_to_go_back_to<'a>(
    boots: &BootRecord,
    starting: &OnDisk,
    all: &'a [OnDisk],
) -> Option<&'a OnDisk> {
    let good = all.iter().filter(|one| one.name != starting.name).filter_map(|one| {
        let entry = one.entry(boots).filter(|entry| entry.state == BootState::Good)?;
        Some((boots.kept.as_ref() == Some(&one.name), entry.when, one))
    });
    good.max_by_key(|(is_kept, when, _)| (*is_kept, *when)).map(|(_, _, one)| one)
}

/// Notes that the boot of `running` ends in order. Tells whether that is worth noting: there is no
/// verdict, and its boot was counted.
pub fn end_in_order(boots: &BootRecord, running: &OnDisk) -> Option<BootEntry> {
    let entry = running.entry(boots).filter(|entry| !entry.state.is_verdict() && entry.tries > 0)?;
    (!entry.ended_in_order).then(|| BootEntry { ended_in_order: true, ..entry.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(number: u8) -> OnDisk {
        let name = DeploymentName { checksum: hex::encode([number; 32]), serial: 0 };
        OnDisk { name, id: Some(format!("change-{number}")) }
    }

    fn entry(number: u8, state: BootState) -> BootEntry {
        let OnDisk { name, id } = disk(number);
        BootEntry::new(id.unwrap(), Some(name), state, i64::from(number))
    }

    /// Deployment 1 is good, 2 is new.
    fn record() -> BootRecord {
        let mut boots = BootRecord::default();
        boots.note(entry(1, BootState::Good));
        boots.note(entry(2, BootState::Committed));
        boots
    }

    /// How a boot ends.
    #[derive(Clone, Copy)]
    enum End {
        Hang,
        InOrder,
    }
    use End::{Hang, InOrder};

    /// How many boots begin before it is left, if each ends like that, in turn.
    fn boots_until_left(ends: &[End]) -> Option<usize> {
        let (mut boots, all) = (record(), [disk(1), disk(2)]);
        for (number, end) in ends.iter().cycle().take(60).enumerate() {
            match count(&boots, &disk(2), &all, 100) {
                Count::Boot(entry) => boots.note(entry),
                Count::GoBack(back) => {
                    assert_eq!(back.to, disk(1).name);
                    return Some(number);
                }
                other => panic!("{other:?}"),
            }
            if let (InOrder, Some(entry)) = (*end, end_in_order(&boots, &disk(2))) {
                boots.note(entry);
            }
        }
        None
    }

    #[test]
    fn three_tries_and_orderly_ends_are_excused_three_times_in_a_row() {
        assert_eq!(boots_until_left(&[Hang]), Some(3));
        assert_eq!(boots_until_left(&[InOrder, Hang, Hang, Hang, Hang]), Some(4));
        assert_eq!(boots_until_left(&[Hang, InOrder]), Some(5));
        // The fourth orderly end in a row counts, and so does each after it.
        assert_eq!(boots_until_left(&[InOrder]), Some(6));
        // One that is not ends the row.
        assert_eq!(boots_until_left(&[InOrder, InOrder, InOrder, Hang]), Some(12));
    }

    #[test]
    fn a_count_is_noted_with_the_boot() {
        let mut boots = record();
        let Count::Boot(first) = count(&boots, &disk(2), &[disk(1), disk(2)], 7) else { panic!() };
        assert_eq!((first.boots, first.tries, &first.state, first.when), (1, 1, &BootState::Booted, 7));
        boots.note(first);
        boots.note(end_in_order(&boots, &disk(2)).unwrap());
        assert_eq!(end_in_order(&boots, &disk(2)), None, "once is enough");
        let Count::Boot(second) = count(&boots, &disk(2), &[disk(1), disk(2)], 8) else { panic!() };
        assert_eq!((second.boots, second.tries, second.in_order, second.ended_in_order), (2, 1, 1, false));
    }

    #[test]
    fn what_is_judged_is_not_counted() {
        let all = [disk(1), disk(2), disk(3)];
        for state in [
            BootState::Good,
            BootState::Unproven,
            BootState::Failed { cause: "x".into() },
            BootState::RolledBack,
            BootState::Other("later".into()),
        ] {
            let mut boots = record();
            boots.note(BootEntry { boots: 9, tries: 9, ..entry(2, state) });
            assert_eq!(count(&boots, &disk(2), &all, 1), Count::No);
            assert_eq!(end_in_order(&boots, &disk(2)), None);
        }
    }

    #[test]
    fn only_our_own_changes_are_counted() {
        let boots = record();
        let others = OnDisk { id: None, ..disk(7) };
        assert_eq!(count(&boots, &others, &[disk(1), others.clone()], 1), Count::No);
        // rpm-ostree copies the origin, and with it our id.
        let copy = OnDisk { name: disk(8).name, ..disk(2) };
        assert_eq!(count(&boots, &copy, &[disk(1), copy.clone()], 1), Count::No);
        assert!(!copy.may_be_left(&boots));
        // Ours, whose entry had to make room or was damaged.
        let Count::Boot(entry) = count(&boots, &disk(5), &[disk(1), disk(5)], 1) else { panic!() };
        assert_eq!((entry.id.as_str(), entry.tries), ("change-5", 1));
    }

    #[test]
    fn without_a_good_one_it_boots_on_and_says_so() {
        let mut boots = record();
        boots.note(BootEntry { boots: 3, tries: 3, ..entry(2, BootState::Booted) });
        let Count::Stays { entry: noted, cause } = count(&boots, &disk(2), &[disk(2)], 1) else { panic!() };
        assert_eq!((noted.tries, cause.starts_with("3 boots ended")), (4, true));
        // Good, but not on disk any more, or on disk and left itself.
        boots.note(entry(1, BootState::Unproven));
        assert!(matches!(count(&boots, &disk(2), &[disk(1), disk(2)], 1), Count::Stays { .. }));
    }

    #[test]
    fn the_pinned_good_one_is_gone_back_to_else_the_newest() {
        let mut boots = record();
        boots.note(entry(3, BootState::Good));
        let all = [disk(1), disk(2), disk(3)];
        let to = |boots: &BootRecord| good_to_go_back_to(boots, &disk(2), &all).unwrap().clone();
        assert_eq!(to(&boots), disk(3));
        boots.kept = Some(disk(1).name);
        assert_eq!(to(&boots), disk(1));
    }
}
