//! Noticing that a host is not what it was told to be: what to watch, and how often to look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};

use crate::model::applied::{ETC_RECORD, VAR_RECORD};
use crate::model::live::LIVE;
use crate::model::manifest::Manifest;
use crate::model::records::DIRECTORY;
use crate::model::wire::Drift;

/// Differences that are told; more help nobody.
pub const TOLD_MAX: usize = 32;
/// Folders that are watched: each costs the kernel about a kilobyte. What is beyond is found by the full
/// checks only.
pub const FOLDERS_MAX: usize = 4096;
/// So many looks in [`BUSY_SPAN`] may follow events at once; something that writes a managed file all the
/// time must not keep a processor busy.
const LOOKS_MAX: usize = 10;
/// See [`LOOKS_MAX`].
const BUSY_SPAN: Duration = Duration::from_secs(60);
/// Where passwords stand.
const SHADOW: &str = "/etc/shadow";

/// What to watch: folders, with the names in them that matter. All folders above a managed path are among
/// them, so that a rename or a removal of any is seen; our own records too, so that a change is.
pub fn places<'a>(
    manifests: impl IntoIterator<Item = &'a Manifest>,
) -> BTreeMap<Utf8PathBuf, BTreeSet<String>> {
    let mut places: BTreeMap<Utf8PathBuf, BTreeSet<String>> = BTreeMap::new();
    let mut watch = |path: &Utf8Path| {
        for path in path.ancestors() {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { break };
            if !places.entry(folder.to_owned()).or_default().insert(name.to_owned()) {
                break;
            }
        }
    };
    for record in [ETC_RECORD, VAR_RECORD] {
        watch(&Utf8Path::new("/").join(record));
    }
    watch(&Utf8Path::new("/var").join(DIRECTORY).join(LIVE));
    for manifest in manifests {
        for entry in &manifest.entries {
            watch(&entry.path);
        }
        if manifest.password.is_some() {
            watch(Utf8Path::new(SHADOW));
        }
    }
    places
}

/// What is to be said after a look, given what was said before it.
pub fn said(before: Option<&Drift>, differs: Vec<String>, now: i64) -> Option<Drift> {
    let since = before.map_or(now, |before| before.since);
    (!differs.is_empty()).then_some(Drift { differs, since })
}

/// How long to wait before the next look, given how long ago the last ones were, newest last.
pub fn pause(looks: &[Duration]) -> Duration {
    let recent: Vec<&Duration> = looks.iter().filter(|ago| **ago < BUSY_SPAN).collect();
    match recent.len().checked_sub(LOOKS_MAX) {
        Some(surplus) => BUSY_SPAN.saturating_sub(*recent[surplus]),
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::manifest::{Entry, Node, Part, Source};

    fn manifest(paths: &[&str]) -> Manifest {
        let entry = |path: &&str| Entry {
            path: (*path).into(),
            asked: None,
            source: Source::MachineConfig,
            part: Part::Storage,
            node: Node::Absent,
            default: None,
            extra: serde_json::Map::new(),
        };
        Manifest { entries: paths.iter().map(entry).collect(), ..Manifest::default() }
    }

    #[test]
    fn every_folder_above_is_watched_for_the_name_that_leads_there() {
        let places = places([&manifest(&["/etc/a/b/x", "/etc/a/y", "/var/lib/mcd/z"])]);
        let names =
            |folder: &str| places[Utf8Path::new(folder)].iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(names("/"), "etc var");
        assert_eq!(names("/etc"), "a mcd");
        assert_eq!(names("/etc/a"), "b y");
        assert_eq!(names("/etc/a/b"), "x");
        assert_eq!(names("/var/lib/mcd"), "applied.json live.json z");
        assert_eq!(places.len(), 8, "{places:?}");
    }

    #[test]
    fn drift_keeps_when_it_was_first_seen() {
        let first = said(None, vec!["/etc/x: content".to_owned()], 100).unwrap();
        let more = said(Some(&first), vec!["/etc/y: mode".to_owned()], 200).unwrap();
        assert_eq!((more.since, more.differs.len()), (100, 1));
        assert_eq!(said(Some(&more), Vec::new(), 300), None);
    }

    #[test]
    fn a_busy_file_is_looked_at_ten_times_a_minute() {
        let ago = |seconds: &[u64]| seconds.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        assert_eq!(pause(&[]), Duration::ZERO);
        assert_eq!(pause(&ago(&[9, 8, 7, 6, 5, 4, 3, 2, 1])), Duration::ZERO);
        assert_eq!(pause(&ago(&[50, 8, 7, 6, 5, 4, 3, 2, 1, 0])), Duration::from_secs(10));
        assert_eq!(pause(&ago(&[61, 8, 7, 6, 5, 4, 3, 2, 1, 0])), Duration::ZERO);
        assert_eq!(pause(&ago(&[55, 50, 8, 7, 6, 5, 4, 3, 2, 1, 0])), Duration::from_secs(10));
    }
}
