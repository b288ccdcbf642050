//! Records of every version, of newer programs, and damaged ones.

use super::*;
use crate::model::applied::{ETC_RECORD, VAR_RECORD};

/// What this version writes. A new version adds a file and keeps this one.
const VERSION_1: &str = include_str!("../../../../tests/fixtures/records/applied-v1.json");
/// What a newer version may write: fields, kinds, sources and parts that nobody knows here.
const NEWER: &str = include_str!("../../../../tests/fixtures/records/applied-future.json");
/// Of the version that began to keep what a config says of disks.
const MANIFEST_DISKS: &str = include_str!("../../../../tests/fixtures/records/manifest-v1-disks.json");
const MANIFEST_1: &str = include_str!("../../../../tests/fixtures/records/manifest-v1.json");

fn golden() -> Applied {
    let scene = Scene::new();
    let fixed = |entry: Entry| {
        let mut entry = entry;
        if let Node::File { uid, gid, .. }
        | Node::Symlink { uid, gid, .. }
        | Node::Directory { uid, gid, .. } = &mut entry.node
        {
            (*uid, *gid) = (0, 0);
        }
        entry
    };
    let mut file = fixed(scene.file("/etc/x.conf", "x", 0o644));
    if let Node::File { label, object, .. } = &mut file.node {
        *label = Some("system_u:object_r:etc_t:s0".to_owned());
        *object = Some("0f".repeat(32));
    }
    let link = Node::Symlink { target: "../vendor".to_owned(), uid: 0, gid: 0, label: None };
    let entries = vec![
        Entry {
            default: Some(link.clone()),
            part: Part::Enablement("y.service".to_owned()),
            ..entry("/etc/systemd/system/y", Node::Absent)
        },
        Entry { default: Some(link), part: Part::Unit("x.service".to_owned()), ..file },
        Entry {
            asked: Some("/root/d".into()),
            source: Source::Local,
            ..fixed(directory("/var/roothome/d", 0o700))
        },
    ];
    let manifest = Manifest {
        version: 1,
        names: vec!["99-worker".to_owned()],
        kernel_arguments: vec!["nosmt".to_owned()],
        entries,
        parents: vec![Parent { uid: 0, gid: 0, ..parent("/etc/systemd", 0o755) }],
        password: Some(crate::model::manifest::Password { user: "core".to_owned(), hash: "$6$x".to_owned() }),
        ..Manifest::default()
    };
    Applied {
        version: 1,
        deployment_id: Some("20261201-023000-abcdef".to_owned()),
        deployment_commit: Some("c1".repeat(32)),
        commit: Some("c2".repeat(32)),
        manifest,
        originals: vec![crate::model::applied::Original {
            path: "/etc/x.conf".into(),
            node: Node::File {
                digest: Digest::of(b"mine"),
                size: 4,
                mode: 0o600,
                uid: 0,
                gid: 0,
                label: None,
                object: None,
            },
            when: 5,
            drift: false,
            extra: serde_json::Map::new(),
        }],
        original_password: None,
        made: vec!["/etc/systemd".into()],
        when: 1_796_092_200,
        extra: serde_json::Map::new(),
    }
}

#[test]
fn version_1() {
    let record = golden();
    assert_eq!(parse_applied(VERSION_1.as_bytes()).unwrap(), record);
    let written = serde_json::to_string_pretty(&record).unwrap();
    assert_eq!(written.trim(), VERSION_1.trim(), "what is written has changed");
    assert_eq!(parse_manifest(MANIFEST_1.as_bytes()).unwrap(), record.manifest);
    let written = serde_json::to_string_pretty(&record.manifest).unwrap();
    assert_eq!(written.trim(), MANIFEST_1.trim());
}

#[test]
fn what_was_said_of_disks() {
    let said = std::collections::BTreeMap::from([("disks".to_owned(), Digest::of(b"said"))]);
    let manifest = Manifest { disks: Some(said), ..golden().manifest };
    assert_eq!(parse_manifest(MANIFEST_DISKS.as_bytes()).unwrap(), manifest);
    let written = serde_json::to_string_pretty(&manifest).unwrap();
    assert_eq!(written.trim(), MANIFEST_DISKS.trim(), "what is written has changed");
}

/// An older `mcd`, met after a rollback, finds paths, digests and owners in a newer record, and keeps
/// what it does not know.
#[test]
fn a_newer_version() {
    let record = parse_applied(NEWER.as_bytes()).unwrap();
    let paths: Vec<&str> = record.manifest.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/etc/a.conf", "/etc/b.conf"], "sorted, without the kind that nobody knows");
    let entry = record.manifest.entry(Utf8Path::new("/etc/a.conf")).unwrap();
    assert!(matches!(&entry.node, Node::File { digest, uid: 7, .. } if *digest == Digest::of(b"a")));
    assert_eq!(entry.source, Source::Other("fleet-manager".to_owned()));
    assert!(matches!(&entry.part, Part::Other(_)));
    assert_eq!(entry.extra["acl"], "user::rw-");
    assert_eq!(record.extra["attempts"], 3);
    assert_eq!(record.manifest.extra["sysctls"][0], "a=b");
    assert_eq!(record.originals.len(), 1);
    assert_eq!(record.originals[0].extra["reason"], "edited");
    let again = parse_applied(&serde_json::to_vec(&record).unwrap()).unwrap();
    assert_eq!(again, record);
}

#[test]
fn a_rewritten_record_keeps_what_nobody_knows() {
    let scene = Scene::new();
    scene.write(&format!("/{ETC_RECORD}"), NEWER);
    let to = applied("2", vec![scene.file("/etc/b.conf", "b", 0o644)]);
    scene.converge(&to, &[Scope::Etc]).unwrap();
    assert_eq!(scene.record(Record::Etc).extra["attempts"], 3);
}

#[test]
fn damaged_records() {
    let cases =
        ["", "{", "[]", "null", "{\"manifest\": 3}", "\u{0}\u{0}\u{0}", "{\"manifest\":{\"entries\":{}}}"];
    for text in cases {
        let scene = Scene::new();
        scene.write(&format!("/{ETC_RECORD}"), text);
        scene.write(&format!("/{VAR_RECORD}"), text);
        scene.write("/etc/mcd/originals/0123", "somebody's");
        for record in [Record::Etc, Record::Var] {
            assert!(matches!(read_record(&scene.root(), record).unwrap(), Stand::Damaged(_)), "{text:?}");
        }
        let to = applied("1", vec![scene.file("/etc/x", "x", 0o644)]);
        scene.lay(&to);
        assert_eq!(scene.read("/etc/mcd/applied.json.damaged"), text, "kept for a person to look at");
        assert_eq!(scene.read("/etc/mcd/originals/0123"), "somebody's", "nothing says that it may go");
    }
}

/// Whatever a record says, nothing outside of the scopes is touched.
#[test]
fn hostile_records() {
    let scene = Scene::new();
    let paths = [
        "/etc/../../out",
        "/boot/x",
        "etc/x",
        "/etc",
        "/etc//x",
        "/etc/./x",
        "/",
        "",
        "/etc/x/",
        "/usr/../x",
    ];
    let mut record = applied("1", Vec::new());
    record.manifest.entries = paths.iter().map(|path| scene.file(path, "x", 0o644)).collect();
    record.made = paths.iter().map(Utf8PathBuf::from).collect();
    let bytes = serde_json::to_vec(&record).unwrap();
    let read = parse_applied(&bytes).unwrap();
    assert_eq!((read.manifest.entries.len(), read.made.len()), (0, 0));
    scene.write(&format!("/{ETC_RECORD}"), std::str::from_utf8(&bytes).unwrap());
    scene.write("/boot/x", "x");
    scene.lay(&applied("2", Vec::new()));
    assert!(scene.exists("/boot/x") && scene.exists("/etc"));
}

#[test]
fn a_cut_announcement_is_no_obstacle() {
    for text in ["", "{", "{}", "{\"to\":5,\"made\":7}", "[1]"] {
        let scene = Scene::new();
        scene.write("/etc/mcd/converging.json", text);
        scene.write("/etc/mcd/.converging.json.new", "half");
        scene.write("/etc/mcd/.applied.json.new", "half");
        scene.lay(&applied("1", vec![scene.file("/etc/x", "x", 0o644)]));
    }
}
