use super::*;
use crate::model::manifest::{Entry, Manifest};
use crate::plan::config::compare as compare_manifests;
use crate::plan::config::samples::{entry, file, link, manifest, part};

/// The bytes before and after.
struct Bytes(Option<Vec<u8>>, Option<Vec<u8>>);

impl Versions for Bytes {
    fn before(&self, _: &EntryChange) -> Result<Option<Vec<u8>>> {
        Ok(self.0.clone())
    }

    fn after(&self, _: &EntryChange) -> Result<Option<Vec<u8>>> {
        Ok(self.1.clone())
    }
}

fn between(old: Option<Entry>, new: Option<Entry>) -> EntryChange {
    let side = |entry: Option<Entry>| manifest(entry.into_iter().collect());
    compare_manifests(&side(old), &side(new)).pop().expect("they differ")
}

/// How a file changes that everybody may read.
fn changed(before: &str, after: &str) -> ContentChange {
    let change =
        between(Some(entry("/etc/x", file(before, 0o644))), Some(entry("/etc/x", file(after, 0o644))));
    let versions = Bytes(Some(before.into()), Some(after.into()));
    compare(&change, &versions, false).expect("no error").expect("they differ")
}

fn lines(change: ContentChange) -> String {
    let ContentChange::Text(lines) = change else { panic!("{change:?}") };
    let line = |line: &Line| match line {
        Line::Hunk(text) => format!("{text}\n"),
        Line::Same(text) => format!(" {text}\n"),
        Line::Removed(text) => format!("-{text}\n"),
        Line::Added(text) => format!("+{text}\n"),
        Line::NoNewline => "\\\n".to_owned(),
        Line::More(count) => format!("({count} more)\n"),
    };
    lines.iter().map(line).collect()
}

#[test]
fn text_is_a_unified_diff() {
    assert_eq!(lines(changed("a\nb\nc\n", "a\nB\nc\n")), "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    assert_eq!(lines(changed("a\n", "a\nb")), "@@ -1 +1,2 @@\n a\n+b\n\\\n");
    assert_eq!(lines(changed("pem\n", "pem")), "@@ -1 +1 @@\n-pem\n+pem\n\\\n");
    assert_eq!(lines(changed("", "a\n")), "@@ -0,0 +1 @@\n+a\n");
    assert_eq!(lines(changed("a\r\n", "a\n")), "@@ -1 +1 @@\n-a^M\n+a\n");
    assert_eq!(lines(changed("", "\x1b[2J\u{9b}\x7f\tx\n")), "@@ -0,0 +1 @@\n+^[[2J\\u{9b}\\u{7f}\tx\n");
}

#[test]
fn ends_of_a_file_show_all_of_it() {
    let node = || entry("/etc/x", file("a\n", 0o644));
    let added = compare(&between(None, Some(node())), &Bytes(None, Some(b"a\n".to_vec())), false);
    assert_eq!(lines(added.expect("no error").expect("it differs")), "@@ -0,0 +1 @@\n+a\n");
    let removed = compare(&between(Some(node()), None), &Bytes(Some(b"a\n".to_vec()), None), false);
    assert_eq!(lines(removed.expect("no error").expect("it differs")), "@@ -1 +0,0 @@\n-a\n");
    let to_link = between(Some(node()), Some(entry("/etc/x", link("y"))));
    let shown = compare(&to_link, &Bytes(Some(b"a\n".to_vec()), None), false);
    assert_eq!(lines(shown.expect("no error").expect("it differs")), "@@ -1 +0,0 @@\n-a\n");
}

#[test]
fn what_is_no_text_is_named() {
    assert_eq!(changed("a", "a\0b"), ContentChange::Binary);
    let change = between(None, Some(entry("/etc/x", file("x", 0o644))));
    let shown = |versions: Bytes| compare(&change, &versions, false).expect("no error").expect("it differs");
    assert_eq!(shown(Bytes(None, Some(vec![0xff, 0xfe]))), ContentChange::Binary);
    assert_eq!(shown(Bytes(None, None)), ContentChange::Unknown);
}

#[test]
fn a_diff_is_bounded() {
    let many: String = (0..5000).map(|number| format!("{number}\n")).collect();
    let ContentChange::Text(all) = changed("", &many) else { panic!("it is text") };
    assert_eq!((all.len(), all.last()), (MOST_LINES + 1, Some(&Line::More(5001 - MOST_LINES))));
    let long = "ü".repeat(200_000);
    let ContentChange::Text(all) = changed("", &long) else { panic!("it is text") };
    let Some(Line::Added(line)) = all.get(1) else { panic!("{all:?}") };
    assert!(line.chars().count() < LONGEST_LINE + 40 && line.ends_with("… (400000 bytes in this line)"));
    let huge = "x\n".repeat(600_000);
    assert_eq!(changed("", &huge), ContentChange::Large);
}

#[test]
fn two_files_without_a_line_in_common_do_not_take_minutes() {
    let one: String = (0..60_000).map(|number| format!("{number}\n")).collect();
    let other: String = (0..60_000).map(|number| format!("{}\n", number * 7 % 60_000)).collect();
    let start = std::time::Instant::now();
    assert!(matches!(changed(&one, &other), ContentChange::Text(_)));
    assert!(start.elapsed() < PATIENCE * 20, "{:?}", start.elapsed());
}

#[test]
fn secrets_are_hidden_unless_they_are_asked_for() {
    let versions = || Bytes(Some(b"old-secret".to_vec()), Some(b"new-secret".to_vec()));
    let hidden = |path: &str, before: u32, after: u32| {
        let change = between(
            Some(entry(path, file("old-secret", before))),
            Some(entry(path, file("new-secret", after))),
        );
        let shown = compare(&change, &versions(), true).expect("no error");
        assert!(matches!(shown, Some(ContentChange::Text(_))), "{path}");
        compare(&change, &versions(), false).expect("no error") == Some(ContentChange::Secret)
    };
    assert!(!hidden("/etc/x", 0o644, 0o644));
    assert!(hidden("/etc/x", 0o600, 0o600));
    assert!(hidden("/etc/x", 0o640, 0o640));
    assert!(hidden("/etc/x", 0o600, 0o644), "what was a secret still is one");
    assert!(hidden("/etc/x", 0o644, 0o600));
    assert!(hidden("/var/lib/kubelet/config.json", 0o644, 0o644));
    assert!(hidden("/etc/NetworkManager/system-connections/wifi.nmconnection", 0o644, 0o644));
    assert!(hidden("/etc/pki/tls/private/x.key", 0o644, 0o644));

    let pem = "-----BEGIN EC PRIVATE KEY-----\n";
    assert_eq!(changed("", pem), ContentChange::Secret);
    let key = |text: &str| {
        part("/var/home/core/.ssh/authorized_keys", file(text, 0o600), Part::Keys("core".to_owned()))
    };
    let change = between(None, Some(key("ssh-ed25519 AAAA core\n")));
    let shown = compare(&change, &Bytes(None, Some(b"ssh-ed25519 AAAA core\n".to_vec())), false);
    assert!(matches!(shown.expect("no error"), Some(ContentChange::Text(_))), "keys are public");
}

#[test]
fn debug_does_not_tell() {
    let text = format!("{:?}", changed("a\n", "the-secret\n"));
    assert!(!text.contains("the-secret"), "{text}");
}

#[test]
fn what_does_not_change_has_no_diff() {
    let with = |mode| manifest(vec![entry("/etc/x", file("a", mode))]);
    let change = compare_manifests(&with(0o644), &with(0o600)).pop().expect("the mode differs");
    assert_eq!(compare(&change, &Bytes(None, None), false).expect("no error"), None);
    let there = |entry: &Entry| Some(entry.node.clone());
    let adopted = crate::plan::config::compare_found(&Manifest::default(), &with(0o600), &there)
        .pop()
        .expect("adopted");
    assert_eq!(compare(&adopted, &Bytes(None, None), false).expect("no error"), None);
}

#[test]
fn registries_are_read_through_the_same_door() {
    use crate::plan::config::Changes;
    use crate::plan::disruption::{REGISTRIES_CONF, registries};
    use crate::plan::registries::Meaning;

    let new = manifest(vec![entry(REGISTRIES_CONF, file("a = 1", 0o644))]);
    let changes = Changes::between(&Manifest::default(), &new, &|_| None);
    let of = |after: &str| registries(&changes, &Bytes(None, Some(after.into())));
    assert_eq!(of("# nothing"), Some(Meaning::Same));
    assert_eq!(of("unqualified-search-registries = ['a']"), Some(Meaning::Safe));
    assert!(matches!(of("a = ["), Some(Meaning::Unsafe(_))));
    assert_eq!(registries(&changes, &Bytes(None, None)), None);
    assert_eq!(registries(&Changes::default(), &Bytes(None, None)), None);
}
