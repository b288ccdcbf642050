use proptest::prelude::*;

use super::samples::{entry, file, link, manifest, part};
use super::*;

fn one(old: Option<Node>, new: Option<Node>, default: Option<Node>) -> Option<EntryChange> {
    let side = |node: Option<Node>| {
        manifest(
            node.into_iter()
                .map(|node| Entry { default: default.clone(), ..entry("/etc/x", node) })
                .collect(),
        )
    };
    let mut changes = compare(&side(old), &side(new));
    assert!(changes.len() <= 1);
    changes.pop()
}

fn directory(mode: u32, uid: u32) -> Node {
    Node::Directory { mode, uid, gid: 0, label: None }
}

#[test]
fn equal_in_meaning_is_no_change() {
    let Node::File { digest, size, mode, uid, gid, .. } = file("a", 0o644) else { unreachable!() };
    let elsewhere = Node::File {
        digest,
        size,
        mode,
        uid,
        gid,
        label: Some("system_u:object_r:etc_t:s0".to_owned()),
        object: Some("0".repeat(64)),
    };
    assert!(is_same(&file("a", 0o644), &elsewhere));
    assert_eq!(one(Some(file("a", 0o644)), Some(elsewhere), None), None);
    assert_eq!(one(Some(Node::Absent), Some(Node::Absent), Some(file("b", 0o600))), None);
}

#[test]
fn what_changes_is_told_apart() {
    let none = Aspects::default();
    for (from, to, expected) in [
        (file("a", 0o644), file("b", 0o644), Aspects { content: true, ..none }),
        (file("a", 0o644), file("a", 0o600), Aspects { mode: true, ..none }),
        (file("a", 0o644), file("b", 0o4755), Aspects { content: true, mode: true, ..none }),
        (directory(0o755, 0), directory(0o700, 5), Aspects { mode: true, owner: true, ..none }),
        (link("a"), link("b"), Aspects { target: true, ..none }),
        (link("a"), file("a", 0o644), Aspects { kind: true, ..none }),
        (file("a", 0o644), directory(0o755, 0), Aspects { kind: true, ..none }),
        (link("a"), Node::Absent, Aspects { kind: true, ..none }),
    ] {
        let change = one(Some(from.clone()), Some(to.clone()), None).expect("it differs");
        assert_eq!(change.kind, ChangeKind::Changed(expected), "{from:?} {to:?}");
        assert_eq!((change.from, change.to), (Some(from), (to != Node::Absent).then_some(to)));
    }
}

#[test]
fn what_the_image_has_counts_at_the_ends() {
    let (a, b) = (|| file("a", 0o644), || file("b", 0o644));
    for (old, new, default, kind, from, to) in [
        (None, Some(a()), None, ChangeKind::Added, None, Some(a())),
        (None, Some(a()), Some(b()), ChangeKind::Added, Some(b()), Some(a())),
        (None, Some(a()), Some(a()), ChangeKind::Adopted, Some(a()), Some(a())),
        (Some(a()), None, None, ChangeKind::Removed, Some(a()), None),
        (Some(a()), None, Some(b()), ChangeKind::Removed, Some(a()), Some(b())),
        (Some(a()), None, Some(a()), ChangeKind::Released, Some(a()), Some(a())),
        (None, Some(Node::Absent), Some(a()), ChangeKind::Added, Some(a()), None),
        (Some(Node::Absent), None, Some(a()), ChangeKind::Removed, None, Some(a())),
        (None, Some(Node::Absent), None, ChangeKind::Adopted, None, None),
    ] {
        let change = one(old, new, default).expect("it differs");
        assert_eq!((change.kind, change.from, change.to), (kind, from, to));
    }
}

#[test]
fn what_the_host_has_counts_before_what_the_image_has() {
    let new = manifest(vec![entry("/etc/x", file("a", 0o644)), entry("/etc/y", file("a", 0o644))]);
    let found = |entry: &Entry| (entry.path == "/etc/x").then(|| file("a", 0o644));
    let kinds = |changes: Vec<EntryChange>| changes.iter().map(|change| change.kind).collect::<Vec<_>>();
    let empty = Manifest::default();
    assert_eq!(kinds(compare_found(&empty, &new, &found)), [ChangeKind::Adopted, ChangeKind::Added]);
    assert_eq!(kinds(compare_found(&new, &empty, &found)), [ChangeKind::Removed, ChangeKind::Removed]);
    let gone = |_: &Entry| Some(Node::Absent);
    let with_default =
        manifest(vec![Entry { default: Some(file("a", 0o644)), ..entry("/etc/x", file("a", 0o644)) }]);
    assert_eq!(kinds(compare_found(&empty, &with_default, &gone)), [ChangeKind::Added]);
}

#[test]
fn changes_are_sorted_into_what_policies_speak_of() {
    let unit = |path: &str, node| part(path, node, Part::Unit("a.service".to_owned()));
    let enabled = |path: &str, node| part(path, node, Part::Enablement("a.service".to_owned()));
    let mut new = manifest(vec![
        entry("/etc/x", file("x", 0o644)),
        unit("/etc/systemd/system/a.service", file("[Unit]\n", 0o644)),
        unit("/etc/systemd/system/a.service.d/10-x.conf", file("", 0o644)),
        enabled("/etc/systemd/system/multi-user.target.wants/a.service", link("../a.service")),
        part("/etc/systemd/system-preset/20-mcd.preset", file("enable a.service\n", 0o644), Part::Preset),
        part("/var/home/core/.ssh/authorized_keys", file("ssh k\n", 0o600), Part::Keys("core".to_owned())),
    ]);
    new.password = Some(Password { user: "core".to_owned(), hash: "$6$s$h".to_owned() });
    new.kernel_arguments = vec!["nosmt".to_owned()];
    let changes = Changes::between(&Manifest::default(), &new, &|_| None);
    assert_eq!(changes.files.len(), 1);
    assert_eq!(changes.units["a.service"].len(), 3);
    assert_eq!((changes.keys.len(), changes.derived.len()), (1, 1));
    let password = PasswordChange { user: "core".to_owned(), to: PasswordState::Set };
    assert_eq!(changes.password, Some(password));
    assert_eq!(changes.kernel_arguments.as_ref().map(|arguments| arguments.after.len()), Some(1));
    assert_eq!(changes.entries().count(), 6);
    assert!(!changes.is_empty());
    assert!(!format!("{changes:?}").contains("$6$"), "the hash is a secret");
    assert!(Changes::between(&new, &new, &|_| None).is_empty());
    assert!(Changes { usr_is_writable: true, ..Changes::default() }.is_empty());
}

#[test]
fn passwords() {
    let with = |hash: &str| Some(Password { user: "core".to_owned(), hash: hash.to_owned() });
    for (old, new, expected) in [
        (None, None, None),
        (with("$6$a"), with("$6$a"), None),
        (with("$6$a"), with("$6$b"), Some(PasswordState::Set)),
        (with("$6$a"), with("*"), Some(PasswordState::Locked)),
        (None, with("!$6$a"), Some(PasswordState::Locked)),
        (with("$6$a"), None, Some(PasswordState::Released)),
    ] {
        assert_eq!(password(old.as_ref(), new.as_ref()).map(|change| change.to), expected);
    }
}

#[test]
fn arguments_are_counted_not_only_named() {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (before, after, removed, added) in [
        ("a b", "a c", "b", "c"),
        ("y=0 y=1 y=0", "y=0 y=1", "y=0", ""),
        ("a b", "b a", "", ""),
        ("", "a a", "", "a a"),
    ] {
        let change = ArgumentsChange { before: words(before), after: words(after) };
        let (gone, come) = change.removed_and_added();
        assert_eq!((gone, come), (removed.split_whitespace().collect(), added.split_whitespace().collect()));
    }
}

pub(crate) fn any_node() -> impl Strategy<Value = Node> {
    prop_oneof![
        ("[ab]{0,2}", prop_oneof![Just(0o644), Just(0o600)]).prop_map(|(text, mode)| file(&text, mode)),
        (prop_oneof![Just(0o755), Just(0o700)], 0..2u32).prop_map(|(mode, uid)| directory(mode, uid)),
        "[ab]".prop_map(|target| link(&target)),
        Just(Node::Absent),
    ]
}

pub(crate) fn any_manifest() -> impl Strategy<Value = Manifest> {
    let any_part = prop_oneof![
        Just(Part::Storage),
        "[ab]".prop_map(|name| Part::Unit(format!("{name}.service"))),
        "[ab]".prop_map(|name| Part::Enablement(format!("{name}.service"))),
        Just(Part::Keys("core".to_owned())),
    ];
    let any_entry = (any_node(), proptest::option::of(any_node()), any_part);
    let paths = prop_oneof![
        "/etc/[a-d]",
        "/usr/[a-d]",
        Just("/etc/containers/policy.json".to_owned()),
        Just("/etc/containers/registries.conf".to_owned()),
        Just("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt".to_owned()),
    ];
    proptest::collection::btree_map(paths, any_entry, 0..8).prop_map(|entries| {
        manifest(
            entries
                .into_iter()
                .map(|(path, (node, default, of))| Entry { default, ..part(&path, node, of) })
                .collect(),
        )
    })
}

proptest! {
    #[test]
    fn nothing_differs_from_itself(one in any_manifest()) {
        prop_assert_eq!(compare(&one, &one), vec![]);
        prop_assert!(Changes::between(&one, &one, &|_| None).is_empty());
    }

    #[test]
    fn back_and_forth_are_mirrors(old in any_manifest(), new in any_manifest()) {
        let (there, back) = (compare(&old, &new), compare(&new, &old));
        prop_assert_eq!(there.len(), back.len());
        for (there, back) in there.iter().zip(&back) {
            prop_assert_eq!((&there.path, &there.from, &there.to), (&back.path, &back.to, &back.from));
            prop_assert_eq!(there.is_visible(), back.is_visible());
            prop_assert_eq!(there.is_visible(), there.aspects() != Aspects::default());
        }
    }

    #[test]
    fn the_order_of_entries_does_not_count(old in any_manifest(), new in any_manifest()) {
        let turned = |manifest: &Manifest| {
            let mut manifest = manifest.clone();
            manifest.entries.reverse();
            manifest
        };
        prop_assert_eq!(compare(&turned(&old), &turned(&new)), compare(&old, &new));
    }
}
