//! A person's files are never lost.

use super::*;

fn copies(scene: &Scene, folder: &str) -> Vec<String> {
    let Ok(items) = std::fs::read_dir(scene.real(folder)) else { return Vec::new() };
    let mut found: Vec<String> =
        items.map(|item| std::fs::read_to_string(item.unwrap().path()).unwrap()).collect();
    found.sort();
    found
}

#[test]
fn an_edit_is_set_aside_and_returns() {
    for (path, folder) in
        [("/etc/x.conf", "/etc/mcd/originals"), ("/var/lib/x.conf", "/var/lib/mcd/originals")]
    {
        let scene = Scene::new();
        scene.write(path, "mine");
        std::fs::set_permissions(scene.real(path), std::fs::Permissions::from_mode(0o604)).unwrap();
        let before = scene.tree_of_others();
        let done = scene.lay(&applied("1", vec![scene.file(path, "managed", 0o644)]));
        assert_eq!(done.set_aside.len(), 1);
        let copy = done.set_aside[0].copy.clone().unwrap();
        assert_eq!(scene.read(copy.as_str()), "mine");
        assert!(
            scene.tree()[copy.as_str()].starts_with("0600 ") && scene.tree()[folder].starts_with("0700 ")
        );
        // Changes of the managed file are ours: nothing is set aside twice.
        let done = scene.lay(&applied("2", vec![scene.file(path, "managed 2", 0o644)]));
        assert_eq!(done.set_aside, []);
        let done = scene.lay(&applied("3", Vec::new()));
        assert_eq!(hows(&done), [(path.to_owned(), How::OriginalReturned)]);
        assert_eq!(scene.tree_of_others(), before);
        assert_eq!(copies(&scene, folder), Vec::<String>::new(), "a copy that returned is not kept");
    }
}

#[test]
fn an_original_that_returns_wins_over_the_default() {
    let scene = Scene::new();
    scene.write("/usr/etc/x", "image");
    scene.write("/etc/x", "mine");
    let default = scene.file_node("image", 0o644);
    scene.lay(&applied("1", vec![with_default(scene.file("/etc/x", "managed", 0o644), default)]));
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(scene.read("/etc/x"), "mine");
}

#[test]
fn a_link_of_a_persons_returns() {
    let scene = Scene::new();
    link("/somewhere/else", &scene.real("/etc/x"));
    let done = scene.lay(&applied("1", vec![scene.file("/etc/x", "managed", 0o644)]));
    assert_eq!(done.set_aside.len(), 1);
    assert!(scene.real("/etc/x").symlink_metadata().unwrap().is_file());
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(std::fs::read_link(scene.real("/etc/x")).unwrap(), Path::new("/somewhere/else"));
}

#[test]
fn an_edit_of_a_managed_path_is_kept_and_does_not_return() {
    let scene = Scene::new();
    let to = applied("1", vec![scene.file("/etc/x", "managed", 0o644)]);
    scene.lay(&to);
    scene.write("/etc/x", "drifted");
    let done = scene.lay(&to);
    assert_eq!(done.set_aside.len(), 1);
    assert!(!done.set_aside[0].returns);
    assert_eq!(scene.read("/etc/x"), "managed");
    scene.write("/etc/x", "drifted again");
    let done = scene.lay(&applied("2", Vec::new()));
    assert_eq!(hows(&done), [("/etc/x".to_owned(), How::Removed)]);
    assert_eq!(copies(&scene, "/etc/mcd/originals"), ["drifted", "drifted again"]);
}

#[test]
fn edits_of_managed_paths_are_bounded() {
    let scene = Scene::new();
    scene.write("/etc/x", "the original");
    let to = applied("1", vec![scene.file("/etc/x", "managed", 0o644)]);
    for number in 0..70 {
        scene.converge(&to, &ALL).unwrap();
        scene.write("/etc/x", &format!("drift {number}"));
    }
    scene.lay(&to);
    let kept = copies(&scene, "/etc/mcd/originals");
    assert_eq!(kept.len(), 64 + 1);
    assert!(kept.contains(&"the original".to_owned()) && kept.contains(&"drift 69".to_owned()));
    assert!(!kept.contains(&"drift 0".to_owned()));
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(scene.read("/etc/x"), "the original");
}

/// The same bytes elsewhere do not make a person's file ours.
#[test]
fn ours_is_ours_at_its_path_only() {
    let scene = Scene::new();
    scene.write("/etc/motd", "");
    let to = applied("1", vec![scene.file("/etc/empty", "", 0o644), scene.file("/etc/motd", "m", 0o644)]);
    scene.lay(&to);
    scene.lay(&applied("2", Vec::new()));
    assert!(scene.exists("/etc/motd") && !scene.exists("/etc/empty"));
    assert_eq!(scene.read("/etc/motd"), "");
}

#[test]
fn a_huge_original_is_refused_and_nothing_changes() {
    let scene = Scene::new();
    let to = applied("1", vec![scene.file("/etc/a", "a", 0o644), scene.file("/etc/x", "managed", 0o644)]);
    std::fs::File::create(scene.real("/etc/x")).unwrap().set_len(17 << 20).unwrap();
    let before: Vec<String> = scene.tree().keys().cloned().collect();
    let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
    let problems = preflight(&scene.root(), &request).unwrap();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].kind, ProblemKind::OriginalCannotBeKept);
    let fault = fault_of(scene.converge(&to, &ALL));
    assert_eq!(fault.kind.code(), 1);
    assert!(fault.to_string().contains("/etc/x"), "{fault}");
    assert_eq!(scene.tree().keys().cloned().collect::<Vec<_>>(), before);
}

#[test]
fn content_of_further_manifests_is_no_edit() {
    let scene = Scene::new();
    scene.write("/etc/x", "of the deployment before");
    let known = applied("0", vec![scene.file("/etc/x", "of the deployment before", 0o644)]);
    let to = applied("1", vec![scene.file("/etc/x", "managed", 0o644)]);
    let request = Converge { to: &to, known: &[&known.manifest], scopes: &ALL, now: 1 };
    let done = converge(&scene.root(), &*scene.contents.borrow(), &request).unwrap();
    assert_eq!(done.set_aside, []);
}

/// Nothing holds the content: nothing changes, and the person is told which path and what to do.
#[test]
fn missing_and_wrong_contents() {
    let scene = Scene::new();
    scene.write("/etc/x", "mine");
    let to =
        applied("1", vec![scene.file("/etc/d/a", "a", 0o644), scene.file("/etc/x", "secret word", 0o600)]);
    let before = scene.tree();
    let digest = Digest::of(b"secret word");
    for wrong in [None, Some("another word"), Some("short"), Some("something much longer than it")] {
        scene.contents.borrow_mut().0.remove(&digest);
        if let Some(wrong) = wrong {
            scene.contents.borrow_mut().0.insert(digest.clone(), Blob::from(wrong.as_bytes().to_vec()));
        }
        let fault = fault_of(scene.converge(&to, &ALL));
        assert_eq!(fault.kind.code(), 1);
        let words = format!("{fault:?}");
        assert!(
            words.contains("/etc/x") && !words.contains("word") && !words.contains(digest.hex()),
            "{words}"
        );
        let mut after = scene.tree();
        after.retain(|path, _| path != "/etc/mcd" && path != "/var/lib/mcd" && path != "/etc/mcd/originals");
        assert_eq!(after, before, "{wrong:?}");
    }
}
