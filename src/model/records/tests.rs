use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Written by the first release; they must be readable for ever.
const INTENT_V1: &str = include_str!("../../../tests/fixtures/records/intent-v1.json");
const HISTORY_V1: &str = include_str!("../../../tests/fixtures/records/history-v1.jsonl");
/// As a later release may write them: more fields, more states, another version.
const INTENT_FUTURE: &str = include_str!("../../../tests/fixtures/records/intent-future.json");
const HISTORY_FUTURE: &str = include_str!("../../../tests/fixtures/records/history-future.jsonl");

fn digest(number: u8) -> Digest {
    Digest::from_raw([number; 32])
}

fn intent() -> Intent {
    Intent {
        version: 1,
        id: "20261130T120000-1f3a".to_owned(),
        state: IntentState::Committed,
        asked: Some("quay.io/os/base:1".parse().unwrap()),
        digest: Some(digest(1)),
        asked_digest: Some(digest(2)),
        image_commit: hex::encode([3; 32]),
        commit: hex::encode([4; 32]),
        kernel_arguments: "root=UUID=ab-cd ro dyndbg=\"file a +p\"".to_owned(),
        base: Some(DeploymentName { checksum: hex::encode([5; 32]), serial: 1 }),
        request_digest: Some(digest(6)),
        reboot: true,
        kept_image: None,
        config: None,
        live: false,
        restaged: 0,
        who: "root, by mcd pivot".to_owned(),
        when: 1_796_040_000,
        extra: Map::new(),
    }
}

fn history() -> Vec<HistoryEntry> {
    let outcomes = [
        HistoryOutcome::Prepared,
        HistoryOutcome::Committed,
        HistoryOutcome::Booted,
        HistoryOutcome::RolledBack,
        HistoryOutcome::Cancelled,
        HistoryOutcome::Failed,
    ];
    let entry = |(index, outcome)| {
        let when = 1_796_040_000 + i64::try_from(index).unwrap();
        let mut entry = HistoryEntry::new("20261130T120000-1f3a", "quay.io/os/base:2", outcome, when);
        entry.who = "root, by mcd pivot".to_owned();
        entry.from = (index > 0).then(|| "quay.io/os/base:1".to_owned());
        entry.why = (index == 5).then(|| "a \"full\" disk:\nno space left".to_owned());
        entry
    };
    outcomes.into_iter().enumerate().map(entry).collect()
}

#[test]
fn the_first_intent_stays_readable() {
    assert_eq!(Intent::parse(INTENT_V1.as_bytes()).unwrap(), intent());
    assert_eq!(String::from_utf8(intent().to_bytes()).unwrap(), INTENT_V1);
    assert!(intent().is_committed() && intent().has_digest(&digest(1)) && intent().has_digest(&digest(2)));
    assert!(!intent().has_digest(&digest(3)));
}

#[test]
fn the_first_history_stays_readable() {
    let read = History::parse(HISTORY_V1);
    assert_eq!((&read.entries, read.unreadable), (&history(), 0));
    assert_eq!(read.to_text(), HISTORY_V1);
}

#[test]
fn a_newer_intent_is_read_and_kept() {
    let read = Intent::parse(INTENT_FUTURE.as_bytes()).unwrap();
    assert_eq!((read.version, read.state.clone()), (3, IntentState::Other(json!("suspended"))));
    assert!(!read.is_committed());
    assert_eq!(
        (&read.asked, &read.digest, &read.commit),
        (&intent().asked, &Some(digest(1)), &intent().commit)
    );
    // What this version does not know is still there when it writes.
    let written: Value = serde_json::from_slice(&read.to_bytes()).unwrap();
    let original: Value = serde_json::from_str(INTENT_FUTURE).unwrap();
    for field in ["soft_reboot", "manifest", "state", "version"] {
        assert_eq!(written[field], original[field], "{field}");
    }
}

#[test]
fn a_newer_history_is_read_and_kept() {
    let mut read = History::parse(HISTORY_FUTURE);
    assert_eq!((read.entries.len(), read.unreadable), (2, 0));
    assert_eq!(read.entries[0].outcome, HistoryOutcome::Other(json!({"postponed": 5})));
    read.push(HistoryEntry::new("x", "y", HistoryOutcome::Booted, 1));
    let written = read.to_text();
    let values =
        |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let (written, original) = (values(&written), values(HISTORY_FUTURE));
    assert_eq!(written.len(), 3);
    assert_eq!(written[0]["pool"], original[0]["pool"]);
    assert_eq!(written[1]["seconds"], original[1]["seconds"]);
}

#[test]
fn an_older_intent_without_the_later_fields_is_read() {
    let mut value = serde_json::to_value(intent()).unwrap();
    for field in ["version", "asked_digest", "base", "request_digest", "reboot", "who", "when"] {
        value.as_object_mut().unwrap().remove(field);
    }
    let read = Intent::parse(&serde_json::to_vec(&value).unwrap()).unwrap();
    assert_eq!((read.version, read.reboot, read.base), (1, false, None));
}

#[test]
fn a_bad_intent_is_named() {
    let spoiled = |field: &str, value: Value| {
        let mut intent = serde_json::to_value(intent()).unwrap();
        intent[field] = value;
        serde_json::to_vec(&intent).unwrap()
    };
    for (bytes, part) in [
        (Vec::new(), "EOF"),
        (b"{}".to_vec(), "missing field `id`"),
        (INTENT_V1.as_bytes()[..100].to_vec(), "EOF"),
        ([INTENT_V1.as_bytes(), b"{}"].concat(), "trailing characters"),
        (spoiled("asked", json!("os:1")), "asked: image reference 'os:1': host"),
        (spoiled("digest", json!("x")), "digest: digest 'x'"),
        (spoiled("base", json!("x")), "base: deployment 'x'"),
        (spoiled("reboot", json!("yes")), "reboot: invalid type"),
    ] {
        let fault = Intent::parse(&bytes).unwrap_err();
        assert!(fault.to_string().contains(part), "{fault}");
        assert!(fault.what.contains("/var/lib/mcd/intent.json"), "{fault}");
        assert!(fault.next.is_some());
    }
}

#[test]
fn a_cut_history_keeps_its_other_lines() {
    let cut = &HISTORY_V1[..HISTORY_V1.len() - 20];
    let text = format!("\n{cut}\nnonsense\n\u{0}\u{0}\n{}", HISTORY_V1.lines().next().unwrap());
    let read = History::parse(&text);
    assert_eq!((read.entries.len(), read.unreadable), (6, 3));
    assert_eq!(History::parse(""), History::default());
}

#[test]
fn the_history_is_bounded() {
    let mut history = History::default();
    for number in 0..250 {
        let mut entry = HistoryEntry::new(format!("{number}"), "x", HistoryOutcome::Failed, number);
        entry.why = Some("ä".repeat(5000));
        history.push(entry);
    }
    assert_eq!((history.entries.len(), history.entries[0].id.as_str()), (200, "50"));
    assert_eq!(history.entries[199].why.as_ref().unwrap().chars().count(), 2000);
    let long = history.to_text() + &history.to_text();
    assert_eq!(History::parse(&long).entries.len(), 200);
}

proptest! {
    #[test]
    fn intents_are_read_as_written(
        id in "[a-z0-9-]{1,20}",
        text in any::<String>(),
        raw in any::<[u8; 32]>(),
        other in any::<Option<[u8; 32]>>(),
        serial in any::<u32>(),
        when in any::<i64>(),
        extra in proptest::collection::btree_map("new_[a-z]{1,6}", any::<i64>(), 0..4),
    ) {
        let written = Intent {
            id,
            kernel_arguments: text.clone(),
            who: text,
            digest: Some(Digest::from_raw(raw)),
            asked_digest: other.map(Digest::from_raw),
            base: Some(DeploymentName { checksum: hex::encode(raw), serial }),
            when,
            extra: extra.into_iter().map(|(key, value)| (key, json!(value))).collect(),
            ..intent()
        };
        prop_assert_eq!(Intent::parse(&written.to_bytes()), Ok(written));
    }

    #[test]
    fn histories_are_read_as_written(texts in proptest::collection::vec((any::<String>(), proptest::option::of(any::<String>())), 0..8)) {
        let mut history = History::default();
        for (text, why) in texts {
            let mut entry = HistoryEntry::new(text.clone(), text, HistoryOutcome::Failed, 1);
            entry.why = why;
            history.push(entry);
        }
        let text = history.to_text();
        prop_assert_eq!(text.lines().count(), history.entries.len());
        prop_assert_eq!(History::parse(&text), history);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>(), text in any::<String>()) {
        let _ = Intent::parse(&bytes);
        let _ = History::parse(&text);
    }
}
