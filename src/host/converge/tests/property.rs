//! Random configurations: going there and back, whatever a person had.

use proptest::prelude::*;

use super::*;

/// Few paths, so that they meet: files and links where others have directories, too.
const PATHS: [&str; 9] = [
    "/etc/a",
    "/etc/b",
    "/etc/d",
    "/etc/d/x",
    "/etc/d/e/y",
    "/etc/d/e",
    "/var/lib/a",
    "/var/lib/d/x",
    "/usr/lib/z",
];

#[derive(Debug, Clone)]
enum Wish {
    File(u8, u32),
    Link(u8),
    Directory(u32),
    Absent,
}

fn wishes() -> impl Strategy<Value = BTreeMap<usize, Wish>> {
    let mode = prop_oneof![Just(0o644_u32), Just(0o600), Just(0o755)];
    let wish = prop_oneof![
        5 => (0_u8..4, mode.clone()).prop_map(|(text, mode)| Wish::File(text, mode)),
        1 => (0_u8..2).prop_map(Wish::Link),
        1 => mode.prop_map(Wish::Directory),
        1 => Just(Wish::Absent),
    ];
    proptest::collection::btree_map(0..PATHS.len(), wish, 0..7)
}

/// A manifest of them; what stands below a path that is no directory is left out.
fn manifest(scene: &Scene, id: &str, wishes: &BTreeMap<usize, Wish>) -> Applied {
    let entries: Vec<Entry> = wishes
        .iter()
        .map(|(path, wish)| match wish {
            Wish::File(text, mode) => scene.file(PATHS[*path], &format!("text {text}"), *mode),
            Wish::Link(target) => entry(PATHS[*path], link_node(&format!("target-{target}"))),
            Wish::Directory(mode) => directory(PATHS[*path], *mode),
            Wish::Absent => entry(PATHS[*path], Node::Absent),
        })
        .collect();
    let is_blocked = |entry: &Entry| {
        entries.iter().any(|above| {
            entry.path.starts_with(&above.path)
                && entry.path != above.path
                && !matches!(above.node, Node::Directory { .. })
        })
    };
    let kept = entries.iter().filter(|entry| !is_blocked(entry)).cloned().collect();
    applied(id, kept)
}

/// What a person has there before: files only, at paths that exclude each other.
fn own_files(scene: &Scene, own: &[(usize, u8)]) {
    for (path, text) in own {
        let path = ["/etc/a", "/etc/b", "/etc/d/x", "/var/lib/a", "/etc/d/e/y", "/etc/d", "/etc/d/e"][*path];
        if !own_paths(path).any(|above| scene.real(&above).is_file()) && !scene.real(path).is_dir() {
            scene.write(path, &format!("mine {text}"));
        }
    }
}

fn own_paths(path: &str) -> impl Iterator<Item = String> {
    Utf8Path::new(path).ancestors().skip(1).map(Utf8Path::to_string)
}

/// Whether a directory of a person's is in the way: refused, as it must be.
fn is_refused(result: &Result<Converged>) -> bool {
    result.as_ref().is_err_and(|error| {
        let words = format!("{error:#}");
        words.contains("a directory is there") || words.contains("is no directory")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("MCD_CASES").map_or(32, |cases| cases.parse().unwrap()), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn there_and_back(
        old in wishes(),
        new in wishes(),
        own in proptest::collection::vec((0_usize..7, 0_u8..3), 0..4),
    ) {
        let scene = Scene::new();
        own_files(&scene, &own);
        let start = scene.tree_of_others();
        let (old, new) = (manifest(&scene, "old", &old), manifest(&scene, "new", &new));
        let first = scene.converge(&old, &ALL);
        if is_refused(&first) {
            prop_assert_eq!(scene.tree_of_others(), start);
            return Ok(());
        }
        first.unwrap();
        scene.settled(&old);
        let before = scene.tree_of_others();

        let second = scene.converge(&new, &ALL);
        if is_refused(&second) {
            prop_assert_eq!(scene.tree_of_others(), before);
        } else {
            second.unwrap();
            scene.settled(&new);
            scene.converge(&old, &ALL).unwrap();
            scene.settled(&old);
            prop_assert_eq!(scene.tree_of_others(), before);
        }
        scene.converge(&applied("none", Vec::new()), &ALL).unwrap();
        scene.settled(&applied("none", Vec::new()));
        prop_assert_eq!(scene.tree_of_others(), start);
        prop_assert!(scene.record(Record::Etc).made.is_empty());
    }
}
