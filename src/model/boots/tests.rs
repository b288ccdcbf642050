use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::digest::Digest;
use crate::model::status::DeploymentName;

/// Written by the first release; it must be readable for ever.
const GOLDEN: &[u8] = include_bytes!("../../../tests/fixtures/records/boots-v1.bin");

/// With the boots counted.
const GOLDEN_2: &[u8] = include_bytes!("../../../tests/fixtures/records/boots-v2.bin");

fn deployment(number: u8, serial: u32) -> DeploymentName {
    DeploymentName { checksum: hex::encode([number; 32]), serial }
}

fn entry(number: u8, state: BootState) -> BootEntry {
    BootEntry::new(format!("change-{number}"), Some(deployment(number, 0)), state, i64::from(number))
}

/// Every kind of value that a record holds.
fn sample() -> BootRecord {
    let mut booted = entry(5, BootState::Booted);
    booted.boots = 2;
    BootRecord {
        boot_uuid: Some("2c3a7d1e-0b0f-4f54-9a1a-6f1f0b5d7c11".to_owned()),
        kept: Some(deployment(1, 3)),
        entries: vec![
            entry(1, BootState::Good),
            entry(2, BootState::Failed { cause: "unit 'kubelet.service' failed".to_owned() }),
            entry(3, BootState::Unproven),
            entry(4, BootState::RolledBack),
            booted,
            BootEntry::new("change-6", None, BootState::Committed, 1_796_040_000),
        ],
        requests: vec![
            RequestRecord::new(Digest::from_raw([7; 32]), RequestOutcome::CarriedOut, 7),
            RequestRecord::new(Digest::from_raw([8; 32]), RequestOutcome::RolledBack, 8),
        ],
        ..BootRecord::default()
    }
}

#[test]
fn a_verdict_survives_the_file_and_is_bounded() {
    let mut change = entry(1, BootState::Unproven);
    change.cause = Some("x".repeat(9000));
    change.failing_before = vec!["app".to_owned()];
    change.arguments = Some("0123456789abcdef".to_owned());
    let mut record = BootRecord::default();
    record.note(change);
    record.went_back = Some(WentBack {
        from: "change-1".to_owned(),
        deployment: Some(deployment(1, 0)),
        to: None,
        cause: "y".repeat(9000),
        by: WentBackBy::BootCount,
        when: 5,
    });
    let read = BootFile::decode(&next(&[0; FILE_SIZE], &record)).record;
    assert_eq!(read.entries[0].cause.as_ref().unwrap().len(), CAUSE_LENGTH_MAX);
    let back = read.went_back.clone().unwrap();
    assert_eq!((back.cause.len(), back.by), (CAUSE_LENGTH_MAX, WentBackBy::BootCount));

    // What identifies a change stays with it; what failed before goes with the verdict.
    let mut record = read;
    record.note(entry(1, BootState::Booted));
    assert_eq!(record.entries[0].failing_before, ["app"]);
    record.note(entry(1, BootState::Good));
    assert!(record.entries[0].failing_before.is_empty());
    assert_eq!(record.entries[0].arguments.as_deref(), Some("0123456789abcdef"));
}

#[test]
fn the_count_stays_until_there_is_a_verdict() {
    let mut record = BootRecord::default();
    let counted =
        BootEntry { boots: 4, tries: 2, in_order: 2, ended_in_order: true, ..entry(1, BootState::Booted) };
    record.note(counted);
    // Staged again after it was lost: it is the same change.
    record.note(entry(1, BootState::Committed));
    let own = &record.entries[0];
    assert_eq!((own.boots, own.tries, own.in_order, own.ended_in_order), (4, 2, 2, true));
    record.note(BootEntry { boots: 5, tries: 3, ..entry(1, BootState::Booted) });
    let own = &record.entries[0];
    assert_eq!((own.boots, own.tries, own.in_order, own.ended_in_order), (5, 3, 0, false));
    record.note(entry(1, BootState::Unproven));
    assert_eq!((record.entries[0].boots, record.entries[0].tries), (5, 0));
    // Asked for again by a person, it begins anew.
    record.note(entry(1, BootState::Committed));
    assert_eq!(record.entries[0].tries, 0);
}

/// The file after this write.
fn written(file: &[u8], write: &SlotWrite) -> Vec<u8> {
    let mut file = file.to_vec();
    let at = usize::try_from(write.slot.offset()).unwrap();
    file[at..at + SLOT_SIZE].copy_from_slice(&write.bytes);
    file
}

fn next(file: &[u8], record: &BootRecord) -> Vec<u8> {
    written(file, &BootFile::decode(file).encode_next(record).unwrap())
}

#[test]
fn the_first_format_stays_readable() {
    assert_eq!(GOLDEN.len(), FILE_SIZE);
    let file = BootFile::decode(GOLDEN);
    assert_eq!((file.record, file.warning), (sample(), None));
    // And is still what is written: first an empty record, then the sample.
    let ours = next(&next(&[0; FILE_SIZE], &BootRecord::default()), &sample());
    assert!(ours == GOLDEN, "the format changed");
}

/// As [`sample`], with what the second format added.
fn counted_sample() -> BootRecord {
    let mut record = sample();
    record.entries[4].tries = 1;
    record.entries[4].in_order = 1;
    record.entries[4].ended_in_order = true;
    record.entries[2].cause = Some("2 boots ended without a verdict".to_owned());
    record.went_back = Some(WentBack {
        from: "change-3".to_owned(),
        deployment: Some(deployment(3, 0)),
        to: Some(deployment(1, 0)),
        cause: "2 boots ended without a verdict".to_owned(),
        by: WentBackBy::BootCount,
        when: 1_796_050_000,
    });
    record
}

#[test]
fn the_second_format_stays_readable() {
    let file = BootFile::decode(GOLDEN_2);
    assert_eq!((file.record, file.warning), (counted_sample(), None));
    let ours = next(&next(&[0; FILE_SIZE], &BootRecord::default()), &counted_sample());
    assert!(ours == GOLDEN_2, "the format changed");
}

#[test]
fn slots_are_written_in_turn() {
    let mut file = vec![0; FILE_SIZE];
    for round in 1..=5 {
        let mut record = BootRecord::default();
        record.note(entry(round, BootState::Booted));
        let write = BootFile::decode(&file).encode_next(&record).unwrap();
        assert_eq!(write.slot, if round % 2 == 1 { Slot::A } else { Slot::B });
        file = written(&file, &write);
        let read = BootFile::decode(&file);
        assert_eq!((read.record, read.warning), (record, None));
    }
}

#[test]
fn a_file_that_is_new_is_empty_without_a_warning() {
    for bytes in [vec![], vec![0; FILE_SIZE], vec![0; 100], vec![0; 2 * FILE_SIZE]] {
        let file = BootFile::decode(&bytes);
        assert_eq!((file.record, file.warning), (BootRecord::default(), None));
    }
}

#[test]
fn a_write_that_was_cut_leaves_the_record_before() {
    let old = next(&[0; FILE_SIZE], &sample());
    let write = BootFile::decode(&old).encode_next(&BootRecord::default()).unwrap();
    let at = usize::try_from(write.slot.offset()).unwrap();
    for cut in (1..SLOT_SIZE).step_by(7) {
        let mut file = old.clone();
        file[at..at + cut].copy_from_slice(&write.bytes[..cut]);
        let read = BootFile::decode(&file);
        // The last bytes of a slot are zeros: then the write is whole.
        let expected = if read.warning.is_some() { sample() } else { BootRecord::default() };
        assert_eq!(read.record, expected, "cut at {cut}");
        // The next write goes to the damaged slot, not to the only good one.
        if read.warning.is_some() {
            assert_eq!(read.encode_next(&sample()).unwrap().slot, write.slot);
        }
    }
}

#[test]
fn damage_is_told_and_stops_nothing() {
    let both = next(&next(&[0; FILE_SIZE], &BootRecord::default()), &sample());
    let spoil = |at: usize, byte: u8| {
        let mut file = both.clone();
        file[at] ^= byte;
        BootFile::decode(&file)
    };
    let read = spoil(SLOT_SIZE + HEADER + 3, 1);
    assert_eq!(read.record, BootRecord::default());
    assert_eq!(
        read.warning.as_deref(),
        Some("the boot file is damaged (slot B: its checksum is wrong): the record before it is used")
    );
    assert!(spoil(SLOT_SIZE, 1).warning.unwrap().contains("slot B: its magic is wrong"));
    assert!(spoil(SLOT_SIZE + 19, 0xff).warning.unwrap().contains("slot B: its length is wrong"));
    assert!(BootFile::decode(&both[..SLOT_SIZE + 30]).warning.unwrap().contains("slot B: it is cut short"));
    // Damage after the payload harms nobody.
    assert_eq!(spoil(FILE_SIZE - 1, 1).warning, None);

    let noise = BootFile::decode(&[0x5a; FILE_SIZE]);
    assert_eq!(noise.record, BootRecord::default());
    assert!(noise.warning.as_ref().unwrap().ends_with("it starts empty"));
    assert_eq!(
        BootFile::decode(&written(&[0x5a; FILE_SIZE], &noise.encode_next(&sample()).unwrap())).record,
        sample()
    );

    let foreign = [seal(9, b"[]"), vec![0; SLOT_SIZE]].concat();
    assert!(BootFile::decode(&foreign).warning.unwrap().contains("format that is unknown"));
}

#[test]
fn what_a_newer_version_added_survives() {
    let future = json!({
        "version": 7,
        "boot_uuid": "u",
        "checks": {"kubelet": "ok"},
        "entries": [
            {"id": "a", "state": "quarantined", "boots": 1, "when": 5, "slot": 3},
            {"id": "b", "state": {"failed": {"cause": "x"}}},
            {"id": "c", "state": {"paused": {"until": 9}}},
        ],
        "requests": [{"digest": Digest::from_raw([1; 32]), "outcome": "postponed", "when": 1, "by": "me"}],
        "kept": null,
    });
    let file = [seal(1, &serde_json::to_vec(&future).unwrap()), vec![0; SLOT_SIZE]].concat();
    let mut record = BootFile::decode(&file).record;
    assert_eq!(record.entries[0].state, BootState::Other(json!("quarantined")));
    record.note(entry(9, BootState::Committed));
    record.note(BootEntry::new("a", None, BootState::Good, 6));

    let after = next(&file, &record);
    assert_eq!(BootFile::decode(&after).record, record);
    let value: Value = serde_json::to_value(&record).unwrap();
    assert_eq!((&value["version"], &value["checks"]), (&future["version"], &future["checks"]));
    assert_eq!(value["entries"][0]["slot"], json!(3));
    assert_eq!(value["entries"][0]["state"], json!("good"));
    assert_eq!(value["entries"][2]["state"], future["entries"][2]["state"]);
    assert_eq!(value["requests"], future["requests"]);
}

#[test]
fn the_oldest_go_but_not_what_is_needed() {
    let mut record = BootRecord { kept: Some(deployment(2, 0)), ..BootRecord::default() };
    record.note(entry(1, BootState::Good));
    record.note(entry(2, BootState::RolledBack));
    record.note(entry(3, BootState::Good));
    for number in 4..40 {
        record.note(entry(number, BootState::Unproven));
    }
    let ids: Vec<&str> = record.entries.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids.len(), ENTRIES_MAX);
    assert_eq!(ids[..3], ["change-2", "change-3", "change-26"]);
    assert_eq!(ids[15], "change-39");
    assert_eq!(record.last_good().unwrap().id, "change-3");
    assert_eq!(record.entry_of(&deployment(39, 0)).unwrap().id, "change-39");
    assert!(record.entry("change-4").is_none());

    record.note(entry(30, BootState::Good));
    assert_eq!(record.entry("change-30").unwrap().state, BootState::Good);
    assert_eq!((record.entries.len(), record.last_good().unwrap().id.as_str()), (ENTRIES_MAX, "change-30"));
}

#[test]
fn requests_are_bounded_and_known_by_digest() {
    let mut record = BootRecord::default();
    for number in 0..20 {
        let digest = Digest::from_raw([number; 32]);
        record.note_request(RequestRecord::new(digest, RequestOutcome::CarriedOut, 1));
    }
    let last = Digest::from_raw([19; 32]);
    record.note_request(RequestRecord::new(last.clone(), RequestOutcome::RolledBack, 2));
    assert_eq!(record.requests.len(), REQUESTS_MAX);
    assert_eq!(record.request(&last).unwrap().outcome, RequestOutcome::RolledBack);
    assert!(record.request(&Digest::from_raw([3; 32])).is_none());
}

#[test]
fn a_record_always_fits_or_says_why() {
    let mut record = BootRecord::default();
    for number in 0..16 {
        // Escaped in JSON, each of these takes six bytes.
        record.note(entry(number, BootState::Failed { cause: "\u{1}".repeat(10_000) }));
    }
    let file = next(&[0; FILE_SIZE], &record);
    let read = BootFile::decode(&file).record;
    assert_eq!(read.entries.len(), 16);

    record.extra.insert("more".to_owned(), json!("x".repeat(SLOT_SIZE)));
    let fault = BootFile::decode(&file).encode_next(&record).unwrap_err().to_string();
    assert!(fault.contains("a slot holds 16328"), "{fault}");
}

fn state() -> impl Strategy<Value = BootState> {
    prop_oneof![
        Just(BootState::Committed),
        Just(BootState::Booted),
        Just(BootState::Good),
        Just(BootState::Unproven),
        Just(BootState::RolledBack),
        ".{0,40}".prop_map(|cause| BootState::Failed { cause }),
    ]
}

fn any_record() -> impl Strategy<Value = BootRecord> {
    let deployment = (0..20_u8, 0..3_u32).prop_map(|(number, serial)| deployment(number, serial));
    let deployment = proptest::option::of(deployment);
    let entry = ("[a-z]{1,12}", deployment.clone(), state(), any::<u32>(), any::<i64>());
    let entry = entry.prop_map(|(id, deployment, state, boots, when)| BootEntry {
        boots,
        ..BootEntry::new(id, deployment, state, when)
    });
    let outcome = prop_oneof![Just(RequestOutcome::CarriedOut), Just(RequestOutcome::RolledBack)];
    let request = (any::<[u8; 32]>(), outcome, any::<i64>())
        .prop_map(|(raw, outcome, when)| RequestRecord::new(Digest::from_raw(raw), outcome, when));
    let entries = proptest::collection::vec(entry, 0..=ENTRIES_MAX);
    let requests = proptest::collection::vec(request, 0..=REQUESTS_MAX);
    (proptest::option::of("[0-9a-f-]{1,36}"), deployment, entries, requests).prop_map(
        |(boot_uuid, kept, entries, requests)| BootRecord {
            boot_uuid,
            kept,
            entries,
            requests,
            ..BootRecord::default()
        },
    )
}

proptest! {
    #[test]
    fn decode_is_the_inverse(first in any_record(), second in any_record()) {
        let once = next(&[0; FILE_SIZE], &first);
        prop_assert_eq!(&BootFile::decode(&once).record, &first);
        let twice = next(&once, &second);
        prop_assert_eq!(&BootFile::decode(&twice).record, &second);
        // The record before is still there.
        prop_assert_eq!(&twice[..SLOT_SIZE], &once[..SLOT_SIZE]);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        if magic {
            bytes.splice(0..0, MAGIC.iter().copied());
        }
        let file = BootFile::decode(&bytes);
        prop_assert!(file.encode_next(&file.record).is_ok());
    }

    #[test]
    fn one_flipped_bit_never_passes(record in any_record(), at in 0..SLOT_SIZE, bit in 0..8) {
        let mut file = next(&[0; FILE_SIZE], &record);
        file[at] ^= 1_u8 << bit;
        let read = BootFile::decode(&file);
        prop_assert!(read.record == record || read.warning.is_some());
    }
}
