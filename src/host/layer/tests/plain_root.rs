//! A root without OSTree.

use std::path::Path;

use super::*;

#[test]
fn root_a_plain_root_is_worked_out_without_a_repo() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |path: &str| scratch.path().join(path);
    for folder in ["etc", "var/home", "usr/lib/systemd/system"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    std::os::unix::fs::symlink("var/home", at("home")).unwrap();
    std::fs::write(at("etc/passwd"), "core:x:7:8::/home/core:/bin/sh\n").unwrap();
    std::fs::write(at("usr/lib/systemd/system/a.service"), unit("multi-user.target")).unwrap();
    let root = open(scratch.path());
    let mut wanted = files([("/etc/x", file("x")), ("/home/core/y", file("y"))]);
    wanted.managed.as_mut().unwrap().units = [("a.service".to_owned(), enabled(true))].into();
    let (manifest, contents, _) = on_root(&root, &wanted, &Manifest::default());
    let paths: Vec<&str> = manifest.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/etc/systemd/system/multi-user.target.wants/a.service",
            "/etc/systemd/system-preset/20-mcd.preset",
            "/etc/x",
            "/var/home/core/y",
        ]
    );
    assert!(contents.contains_key(&Digest::of(b"y")));
}

fn on_root(
    root: &Dir,
    wanted: &Config,
    before: &Manifest,
) -> (Manifest, BTreeMap<Digest, Blob>, Vec<String>) {
    let before = OnRoot { manifest: before, originals: &[], carries: true };
    compose_for_root(root, Some(wanted), &Source::MachineConfig, before).unwrap()
}

#[test]
fn root_what_is_managed_on_a_plain_root_is_not_what_it_is_compared_with() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |path: &str| scratch.path().join(path);
    std::fs::create_dir_all(at("etc/systemd/system/multi-user.target.wants")).unwrap();
    std::fs::create_dir_all(at("usr/lib/systemd/system")).unwrap();
    std::fs::write(at("usr/lib/systemd/system/b.service"), unit("multi-user.target")).unwrap();
    let link = at("etc/systemd/system/multi-user.target.wants/b.service");
    std::os::unix::fs::symlink("/usr/lib/systemd/system/b.service", &link).unwrap();
    let root = open(scratch.path());
    let mut once = file("once");
    once.overwrite = Some(false);
    let appended = Request {
        kind: RequestKind::File {
            contents: None,
            append: vec![Contents::Inline(Blob::from(b"more\n".to_vec()))],
            mode: None,
        },
        ..file("")
    };
    let mut wanted = files([("/etc/motd", appended), ("/etc/once", once)]);
    wanted.managed.as_mut().unwrap().units = [("b.service".to_owned(), enabled(false))].into();
    let (first, ..) = on_root(&root, &wanted, &Manifest::default());
    // As it would be laid down.
    std::fs::write(at("etc/motd"), "more\n").unwrap();
    std::fs::write(at("etc/once"), "once").unwrap();
    std::fs::remove_file(&link).unwrap();
    let originals = [crate::model::applied::Original {
        path: "/etc/systemd/system/multi-user.target.wants/b.service".into(),
        node: Node::Symlink {
            target: "/usr/lib/systemd/system/b.service".to_owned(),
            uid: 0,
            gid: 0,
            label: None,
        },
        drift: false,
        when: 0,
        extra: Default::default(),
    }];
    let before = OnRoot { manifest: &first, originals: &originals, carries: true };
    let (second, ..) = compose_for_root(&root, Some(&wanted), &Source::MachineConfig, before).unwrap();
    assert_eq!(first, second);
    assert!(first.entry("/etc/systemd/system/multi-user.target.wants/b.service".into()).is_some());
}

fn open(path: &Path) -> Dir {
    Dir::open_ambient_dir(path, cap_std_ext::cap_std::ambient_authority()).unwrap()
}
