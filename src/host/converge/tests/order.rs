//! The order of system calls: what a power cut may find.

use super::*;

/// What the child of [`super::crash`] did, one call a line.
fn calls(scene: &Scene, to: &Applied) -> Vec<String> {
    let log = scene.path.with_extension("calls");
    let output = super::crash::run_traced(scene, to, &log);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
}

fn first(calls: &[String], what: impl Fn(&str) -> bool) -> usize {
    calls.iter().position(|call| what(call)).unwrap_or_else(|| panic!("{calls:#?}"))
}

fn last(calls: &[String], what: impl Fn(&str) -> bool) -> usize {
    calls.iter().rposition(|call| what(call)).unwrap_or_else(|| panic!("{calls:#?}"))
}

#[test]
fn root_nothing_takes_its_place_before_it_is_on_disk() {
    let scene = Scene::new();
    scene.write("/etc/a", "mine");
    scene.lay(&applied("1", vec![scene.file("/etc/gone", "g", 0o644)]));
    let to = applied("2", vec![scene.file("/etc/a", "secret a", 0o640), scene.file("/etc/d/b", "b", 0o644)]);
    let calls = calls(&scene, &to);
    let is_swap = |call: &str| call.contains("renameat2(");
    let announced = first(&calls, |call| call.contains("rename") && call.contains("\"converging.json\""));
    let prepared = first(&calls, |call| call.contains("\".mcd-") && call.contains("O_CREAT"));
    let synced = first(&calls, |call| call.contains("syncfs("));
    let written = last(&calls[..synced], |call| call.contains("write("));
    let (swapped, all_swapped) = (first(&calls, is_swap), last(&calls, is_swap));
    let recorded = first(&calls, |call| call.contains("rename") && call.contains("\"applied.json\""));
    let names_synced = first(&calls[all_swapped..], |call| call.contains("sync")) + all_swapped;
    let removed = first(&calls, |call| call.contains("unlinkat(") && call.contains("\".mcd-"));
    let removed = removed.max(last(&calls, |call| call.contains("unlinkat(") && call.contains("\".mcd-")));
    let closed = last(&calls, |call| call.contains("unlinkat(") && call.contains("converging.json"));
    let order =
        [announced, prepared, written, synced, swapped, all_swapped, names_synced, recorded, removed, closed];
    assert!(order.is_sorted(), "{order:?}: {calls:#?}");
    // Both records are on disk before they have their names, and the names before going on.
    for name in [announced, recorded] {
        assert!(calls[name - 1].contains("fsync("), "{:?}", &calls[name - 2..=name]);
        assert!(calls[name + 1..].iter().take(3).any(|call| call.contains("fsync(")), "{calls:#?}");
    }
    // No rename but of records that is not one of those.
    let early = calls[..synced].iter().filter(|call| call.contains("renameat2(")).count();
    assert_eq!(early, 0);
}

/// A new file is root's alone until it is written and has its owner.
#[test]
fn root_nobody_reads_a_file_early() {
    let scene = Scene::new();
    let mut file = scene.file("/etc/secret", "secret", 0o4755);
    if let Node::File { uid, gid, .. } = &mut file.node {
        (*uid, *gid) = (1000, 1000);
    }
    let calls = calls(&scene, &applied("1", vec![file]));
    let made = first(&calls, |call| call.contains("\".mcd-") && call.contains("O_CREAT"));
    assert!(calls[made].contains("O_EXCL") && calls[made].contains("0600"), "{}", calls[made]);
    let written = first(&calls[made..], |call| call.contains("write(")) + made;
    let owned = first(&calls[made..], |call| call.contains("fchown(")) + made;
    let wide = first(&calls[made..], |call| call.contains("fchmod(") && call.contains("04755")) + made;
    assert!([made, written, owned, wide].is_sorted(), "{calls:#?}");
}

/// A check opens nothing for writing.
#[test]
fn root_nothing_to_do_writes_nothing() {
    let scene = Scene::new();
    let to = applied("1", vec![scene.file("/etc/a", "a", 0o644), scene.file("/var/lib/b", "b", 0o644)]);
    scene.lay(&to);
    let calls = calls(&scene, &to);
    let root = scene.path.to_string_lossy().into_owned();
    let changing = |call: &&String| {
        !call.contains("/dev/null")
            && (["rename", "unlink", "mkdir", "fchmod", "fchown", "sync"]
                .iter()
                .any(|name| call.contains(name))
                || call.contains("O_CREAT") && call.contains(&root))
    };
    assert_eq!(calls.iter().filter(changing).collect::<Vec<_>>(), Vec::<&String>::new());
}
