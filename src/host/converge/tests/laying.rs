//! Laying down, leaving, and what is adopted.

use super::*;

#[test]
fn everything_is_made_and_everything_goes() {
    let scene = Scene::new();
    let empty = scene.tree_of_others();
    let to = applied(
        "1",
        vec![
            scene.file("/etc/x.conf", "x", 0o644),
            scene.file("/etc/d/e/f.conf", "f", 0o600),
            scene.file("/var/lib/app/secret", "s", 0o400),
            scene.file("/usr/lib/tool", "t", 0o4755),
            directory("/etc/folder", 0o1777),
            entry("/etc/link", link_node("/usr/lib/tool")),
            entry("/etc/gone", Node::Absent),
        ],
    );
    let done = scene.lay(&to);
    assert!(done.recorded && done.warnings.is_empty() && done.set_aside.is_empty());
    let tree = scene.tree_of_others();
    let own = format!("{}:{}", uid(), gid());
    assert_eq!(tree["/etc/d/e/f.conf"], format!("0600 {own} \"f\""));
    assert_eq!(tree["/usr/lib/tool"], format!("4755 {own} \"t\""));
    assert_eq!(tree["/etc/folder"], format!("1777 {own} directory"));
    assert_eq!(tree["/etc/link"], format!("{own} -> /usr/lib/tool"));
    assert_eq!(scene.record(Record::Etc).made, ["/etc/d", "/etc/d/e", "/etc/folder"].map(Utf8PathBuf::from));
    assert_eq!(scene.record(Record::Var).made, ["/var/lib/app"].map(Utf8PathBuf::from));
    let modes = scene.tree();
    assert!(modes["/etc/mcd/applied.json"].starts_with("0600 "));
    assert!(modes["/var/lib/mcd"].starts_with("0700 "));

    let done = scene.lay(&applied("2", Vec::new()));
    assert_eq!(scene.tree_of_others(), empty);
    assert!(hows(&done).iter().all(|(_, how)| *how == How::Removed), "{done:?}");
    assert_eq!(scene.record(Record::Etc).deployment_id.as_deref(), Some("2"));
}

#[test]
fn what_is_so_already_is_adopted() {
    let scene = Scene::new();
    scene.write("/etc/x.conf", "x");
    std::fs::create_dir_all(scene.real("/etc/d")).unwrap();
    let inode = scene.real("/etc/x.conf").metadata().unwrap().ino();
    let to = applied("1", vec![scene.file("/etc/x.conf", "x", 0o644), scene.file("/etc/d/y", "y", 0o644)]);
    let done = scene.lay(&to);
    assert_eq!(hows(&done), [("/etc/d/y".to_owned(), How::Created)]);
    assert_eq!(scene.real("/etc/x.conf").metadata().unwrap().ino(), inode);
    assert_eq!(done.set_aside, []);
    // The directory was not ours: it stays.
    scene.lay(&applied("2", Vec::new()));
    assert!(scene.exists("/etc/d") && !scene.exists("/etc/x.conf"));
}

#[test]
fn only_differences_are_written() {
    let scene = Scene::new();
    let first = applied("1", vec![scene.file("/etc/a", "a", 0o644), scene.file("/etc/b", "b", 0o644)]);
    scene.lay(&first);
    let inode = |scene: &Scene, path: &str| scene.real(path).metadata().unwrap().ino();
    let a = inode(&scene, "/etc/a");
    let second = applied("2", vec![scene.file("/etc/a", "a", 0o644), scene.file("/etc/b", "B", 0o640)]);
    let done = scene.lay(&second);
    assert_eq!(hows(&done), [("/etc/b".to_owned(), How::Replaced)]);
    assert_eq!(inode(&scene, "/etc/a"), a);
    let third = applied("3", vec![scene.file("/etc/a", "a", 0o600), scene.file("/etc/b", "B", 0o640)]);
    assert_eq!(hows(&scene.lay(&third)), [("/etc/a".to_owned(), How::Replaced)]);
}

#[test]
fn the_images_default_comes_back() {
    let scene = Scene::new();
    scene.write("/usr/etc/motd", "image");
    scene.write("/usr/etc/changed", "image 2");
    link("../image", &scene.real("/usr/etc/wants"));
    scene.write("/etc/motd", "image");
    scene.write("/etc/changed", "image 1");
    link("../image", &scene.real("/etc/wants"));
    let before = |scene: &Scene, text: &str| scene.file_node(text, 0o644);
    let to = applied(
        "1",
        vec![
            with_default(scene.file("/etc/motd", "ours", 0o600), before(&scene, "image")),
            with_default(scene.file("/etc/changed", "ours", 0o600), before(&scene, "image 1")),
            with_default(entry("/etc/wants", Node::Absent), link_node("../image")),
        ],
    );
    let done = scene.lay(&to);
    assert_eq!(done.set_aside, [], "the image's own is nobody's edit");
    assert!(!scene.exists("/etc/wants"));
    let done = scene.lay(&applied("2", Vec::new()));
    assert!(hows(&done).iter().all(|(_, how)| *how == How::DefaultReturned), "{done:?}");
    assert_eq!(scene.read("/etc/motd"), "image");
    assert_eq!(scene.read("/etc/changed"), "image 2", "what this image has, not the one before");
    assert!(scene.tree()["/etc/motd"].starts_with("0644 "));
    assert_eq!(std::fs::read_link(scene.real("/etc/wants")).unwrap(), Path::new("../image"));
}

/// `usr/etc` holds what the config put there; what the image had, the commit's manifest tells.
#[test]
fn the_default_of_a_path_that_the_commit_manages() {
    let scene = Scene::new();
    let managed = with_default(scene.file("/etc/motd", "ours", 0o644), scene.file_node("image", 0o644));
    let new = scene.file("/etc/new", "ours too", 0o644);
    let to = applied("1", vec![managed, new]);
    scene.write("/usr/lib/mcd/config.json", &serde_json::to_string(&to.manifest).unwrap());
    for path in ["/usr/etc/motd", "/etc/motd"] {
        scene.write(path, "ours");
    }
    scene.write("/usr/etc/new", "ours too");
    scene.lay(&to);
    scene.lay(&applied("1", Vec::new()));
    assert_eq!(scene.read("/etc/motd"), "image");
    assert!(!scene.exists("/etc/new"));
}

#[test]
fn without_an_image_the_manifests_default_comes_back() {
    let scene = Scene::new();
    scene.write("/etc/motd", "stock");
    let default = scene.file_node("stock", 0o644);
    let to = applied("1", vec![with_default(scene.file("/etc/motd", "ours", 0o644), default)]);
    let done = scene.lay(&to);
    assert_eq!(done.set_aside, []);
    let done = scene.lay(&applied("2", Vec::new()));
    assert_eq!(hows(&done), [("/etc/motd".to_owned(), How::DefaultReturned)]);
    assert_eq!(scene.read("/etc/motd"), "stock");
}

#[test]
fn directories_of_ours_stay_while_something_is_in_them() {
    let scene = Scene::new();
    scene.lay(&applied("1", vec![scene.file("/etc/d/e/f", "f", 0o644)]));
    scene.write("/etc/d/mine", "a person's");
    scene.lay(&applied("2", Vec::new()));
    assert!(!scene.exists("/etc/d/e") && scene.exists("/etc/d/mine"));
    std::fs::remove_file(scene.real("/etc/d/mine")).unwrap();
    scene.lay(&applied("3", Vec::new()));
    assert!(!scene.exists("/etc/d"), "ours, and empty at last");
}

#[test]
fn a_directory_gets_its_old_mode_back() {
    let scene = Scene::new();
    std::fs::create_dir(scene.real("/etc/d")).unwrap();
    std::fs::set_permissions(scene.real("/etc/d"), std::fs::Permissions::from_mode(0o750)).unwrap();
    let done = scene.lay(&applied("1", vec![directory("/etc/d", 0o711)]));
    assert_eq!(hows(&done), [("/etc/d".to_owned(), How::Mended)]);
    scene.lay(&applied("2", vec![directory("/etc/d", 0o700)]));
    let done = scene.lay(&applied("3", Vec::new()));
    assert_eq!(hows(&done), [("/etc/d".to_owned(), How::OriginalReturned)]);
    assert!(scene.tree()["/etc/d"].starts_with("0750 "));
}

#[test]
fn a_file_becomes_a_directory_and_back() {
    let scene = Scene::new();
    let file = applied("1", vec![scene.file("/etc/d", "file", 0o644)]);
    let below = applied("2", vec![scene.file("/etc/d/a", "a", 0o644), scene.file("/etc/d/b/c", "c", 0o600)]);
    let explicit = applied("3", vec![directory("/etc/d", 0o700), scene.file("/etc/d/a", "A", 0o644)]);
    let a_link = applied("4", vec![entry("/etc/d", link_node("elsewhere"))]);
    let states = [file, below, explicit, a_link];
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        let fresh = Scene::new();
        fresh.contents.borrow_mut().0.clone_from(&scene.contents.borrow().0);
        fresh.lay(&states[to]);
        scene.lay(&states[from]);
        scene.lay(&states[to]);
        assert_eq!(scene.tree_of_others(), fresh.tree_of_others(), "{from} to {to}");
    }
    scene.lay(&applied("5", Vec::new()));
    assert!(!scene.exists("/etc/d"));
}

#[test]
fn names_with_newlines_and_spaces() {
    let scene = Scene::new();
    let names = ["/etc/a b", "/etc/new\nline/x\ty", "/etc/-rf", "/etc/ünï", "/etc/%s{}\\"];
    let entries = names.iter().map(|name| scene.file(name, name, 0o644)).collect();
    scene.lay(&applied("1", entries));
    for name in names {
        assert_eq!(scene.read(name), name);
    }
    scene.lay(&applied("2", Vec::new()));
    assert!(names.iter().all(|name| !scene.exists(name)));
}

#[test]
fn var_elsewhere() {
    let scene = Scene::new();
    let elsewhere = scene.path.join("../real-var");
    std::fs::create_dir_all(elsewhere.join("lib")).unwrap();
    let var = super::super::root::Root::open(&elsewhere).unwrap();
    let root = scene.root().with_var(var.dir().try_clone().unwrap());
    let to = applied("1", vec![scene.file("/var/lib/app/x", "x", 0o644), scene.file("/etc/y", "y", 0o644)]);
    let request = Converge { to: &to, known: &[], scopes: &BOTH, now: 1 };
    converge(&root, &*scene.contents.borrow(), &request).unwrap();
    assert_eq!(std::fs::read_to_string(elsewhere.join("lib/app/x")).unwrap(), "x");
    assert!(elsewhere.join("lib/mcd/applied.json").exists() && !scene.exists("/var/lib/app"));
    assert_eq!(differences(&root, &to.manifest, &BOTH).unwrap(), []);
}

#[test]
fn nothing_at_all_leaves_nothing_at_all() {
    let scene = Scene::new();
    let before = scene.tree();
    let done = scene.converge(&Applied::default(), &ALL).unwrap();
    assert!(!done.recorded);
    assert_eq!(scene.tree(), before);
}

#[test]
fn the_comparer_names_each_difference() {
    let scene = Scene::new();
    let to = applied(
        "1",
        vec![
            scene.file("/etc/content", "12345", 0o644),
            scene.file("/etc/size", "12345", 0o644),
            scene.file("/etc/mode", "m", 0o640),
            scene.file("/etc/missing", "m", 0o644),
            scene.file("/etc/kind", "k", 0o644),
            scene.file("/etc/blocked/x", "k", 0o644),
            entry("/etc/link", link_node("right")),
            entry("/etc/absent", Node::Absent),
            Entry { asked: Some("/x".into()), ..directory("/var/d", 0o755) },
        ],
    );
    scene.lay(&to);
    let edit = |path: &str, text: &str| std::fs::write(scene.real(path), text).unwrap();
    edit("/etc/content", "54321");
    edit("/etc/size", "123456");
    edit("/etc/absent", "here");
    std::fs::set_permissions(scene.real("/etc/mode"), std::fs::Permissions::from_mode(0o777)).unwrap();
    for path in ["/etc/missing", "/etc/kind", "/etc/link", "/etc/blocked/x"] {
        std::fs::remove_file(scene.real(path)).unwrap();
    }
    std::fs::remove_dir(scene.real("/etc/blocked")).unwrap();
    edit("/etc/blocked", "a file");
    std::fs::create_dir(scene.real("/etc/kind")).unwrap();
    link("wrong", &scene.real("/etc/link"));
    std::fs::remove_dir(scene.real("/var/d")).unwrap();
    let found = differences(&scene.root(), &to.manifest, &ALL).unwrap();
    let found: Vec<String> =
        found.iter().map(|d| format!("{} {:?}: {} / {}", d.path, d.what, d.expected, d.found)).collect();
    assert_eq!(
        found,
        [
            "/etc/absent Unexpected: nothing / a file",
            "/etc/blocked/x Missing: a file / /etc/blocked is no directory",
            "/etc/content Content: 5 bytes / 5 other bytes",
            "/etc/kind Kind: a file / a directory",
            "/etc/link Target: right / wrong",
            "/etc/missing Missing: a file / nothing",
            "/etc/mode Mode: 0640 / 0777",
            "/etc/size Content: 5 bytes / 6 bytes",
            "/var/d Missing: a directory / nothing",
        ]
    );
    let of_var = differences(&scene.root(), &to.manifest, &[Scope::Var]).unwrap();
    assert_eq!(of_var.len(), 1);
    assert_eq!(of_var[0].asked.as_deref(), Some(Utf8Path::new("/x")));
}
