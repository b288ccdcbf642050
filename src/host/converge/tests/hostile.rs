//! Roots that somebody prepared to trip us.

use super::*;

/// Everything outside of the root that a link could lead to.
fn outside(scene: &Scene) -> PathBuf {
    let outside = scene.path.parent().unwrap().join("outside");
    std::fs::create_dir_all(outside.join("sub")).unwrap();
    std::fs::write(outside.join("passwd"), "theirs").unwrap();
    outside
}

fn untouched(outside: &Path) {
    assert_eq!(std::fs::read_to_string(outside.join("passwd")).unwrap(), "theirs");
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(outside.join("sub")).unwrap().count(), 0);
}

/// A link at every position of a path, absolute and with `..`, to what is outside of the root.
#[test]
fn links_never_lead_out() {
    for position in ["/etc/a", "/etc/a/b", "/etc/a/b/passwd", "/var/lib/a", "/var/lib/a/b/passwd"] {
        for absolute in [true, false] {
            let scene = Scene::new();
            let outside = outside(&scene);
            let path = if position.starts_with("/etc") { "/etc/a/b/passwd" } else { "/var/lib/a/b/passwd" };
            std::fs::create_dir_all(scene.real(position).parent().unwrap()).unwrap();
            let is_last = position.ends_with("passwd");
            let end = if is_last { "passwd" } else { "" };
            let target = if absolute {
                format!("{}/{end}", outside.display())
            } else {
                format!("../../../../../../../../../../../../..{}/{end}", outside.display())
            };
            link(&target, &scene.real(position));
            let to = applied("1", vec![scene.file(path, "managed", 0o644)]);
            let done = scene.converge(&to, &ALL);
            untouched(&outside);
            if is_last {
                // A link at the path itself is a person's: kept in the record.
                assert_eq!(done.unwrap().set_aside.len(), 1, "{position}");
                scene.settled(&to);
                scene.lay(&applied("2", Vec::new()));
                assert_eq!(std::fs::read_link(scene.real(position)).unwrap(), Path::new(&target));
            } else {
                let fault = fault_of(done);
                assert_eq!(fault.kind.code(), 1, "{position}: {fault}");
                assert!(fault.to_string().contains("is a link"), "{fault}");
            }
            untouched(&outside);
        }
    }
}

/// A link of root's that stays where the path belongs is an administrator's, and followed.
#[test]
fn links_within_are_followed() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.real("/etc/real/sub")).unwrap();
    link("real", &scene.real("/etc/relative"));
    link("/etc/real/sub", &scene.real("/etc/absolute"));
    link("absolute/../sub", &scene.real("/etc/chain"));
    let to = applied(
        "1",
        vec![
            scene.file("/etc/relative/a", "a", 0o644),
            scene.file("/etc/absolute/b", "b", 0o644),
            scene.file("/etc/chain/c", "c", 0o644),
        ],
    );
    scene.lay(&to);
    assert_eq!(scene.read("/etc/real/a"), "a");
    assert_eq!(scene.read("/etc/real/sub/b"), "b");
    assert_eq!(scene.read("/etc/real/sub/c"), "c");
    scene.lay(&applied("2", Vec::new()));
    assert!(!scene.exists("/etc/real/a") && !scene.exists("/etc/real/sub/b"));
    assert!(scene.exists("/etc/relative") && scene.exists("/etc/real/sub"));
}

#[test]
fn links_to_another_scope_and_in_circles() {
    for (at, target) in [
        ("/etc/a", "/var/lib"),
        ("/etc/a", "/usr/lib"),
        ("/var/lib/a", "/etc"),
        ("/var/lib/a", "/usr"),
        ("/var/lib/a", "/"),
        ("/etc/a", "a"),
        ("/etc/a", "nowhere"),
    ] {
        let scene = Scene::new();
        link(target, &scene.real(at));
        let path = format!("{at}/x");
        let to = applied("1", vec![scene.file(&path, "managed", 0o644)]);
        let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
        let problems = preflight(&scene.root(), &request).unwrap();
        assert_eq!(problems.len(), 1, "{at} -> {target}");
        assert_eq!(problems[0].kind, ProblemKind::ParentIsLink);
        assert_eq!(fault_of(scene.converge(&to, &ALL)).kind.code(), 1);
        assert!(!scene.exists("/var/lib/x") && !scene.exists("/usr/lib/x") && !scene.exists("/etc/x"));
    }
}

/// Whoever owns a home must not choose where root writes.
#[test]
fn root_links_of_users_are_not_followed() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.real("/var/home/core")).unwrap();
    std::fs::create_dir_all(scene.real("/var/home/victim")).unwrap();
    std::os::unix::fs::chown(scene.real("/var/home/core"), Some(1000), Some(1000)).unwrap();
    link("../victim", &scene.real("/var/home/core/.ssh"));
    let path = "/var/home/core/.ssh/authorized_keys";
    let to = applied("1", vec![scene.file(path, "key", 0o600)]);
    for owner in [1000, 0] {
        // Even one of root's: it stands in a directory where a user decides.
        std::os::unix::fs::lchown(scene.real("/var/home/core/.ssh"), Some(owner), Some(owner)).unwrap();
        let fault = fault_of(scene.converge(&to, &ALL));
        assert!(fault.to_string().contains("belongs to a user"), "{fault}");
        assert!(!scene.exists("/var/home/victim/authorized_keys"));
    }
}

#[test]
fn special_files_at_the_path() {
    let scene = Scene::new();
    let make = |path: &str, kind: rustix::fs::FileType| {
        let (mode, at) = (rustix::fs::Mode::from_raw_mode(0o644), scene.real(path));
        rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
    };
    make("/etc/pipe", rustix::fs::FileType::Fifo);
    make("/etc/socket", rustix::fs::FileType::Socket);
    let to = applied("1", vec![scene.file("/etc/pipe", "p", 0o644), scene.file("/etc/socket", "s", 0o644)]);
    let done = scene.lay(&to);
    assert_eq!(done.warnings.len(), 2, "{:?}", done.warnings);
    assert_eq!(hows(&done).len(), 2);
    // What leaves and is a pipe by now is somebody's.
    std::fs::remove_file(scene.real("/etc/pipe")).unwrap();
    make("/etc/pipe", rustix::fs::FileType::Fifo);
    let done = scene.converge(&applied("2", Vec::new()), &ALL).unwrap();
    assert_eq!(done.warnings.len(), 1);
    assert!(scene.exists("/etc/pipe") && !scene.exists("/etc/socket"));
    // A pipe above a path.
    let below = applied("3", vec![scene.file("/etc/pipe/x", "x", 0o644)]);
    assert!(fault_of(scene.converge(&below, &ALL)).to_string().contains("no directory"));
}

#[test]
fn root_devices_are_refused() {
    let scene = Scene::new();
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, scene.real("/etc/null"), kind, mode, rustix::fs::makedev(1, 3))
        .unwrap();
    let to = applied("1", vec![scene.file("/etc/null", "x", 0o644)]);
    let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
    assert_eq!(preflight(&scene.root(), &request).unwrap()[0].kind, ProblemKind::IsDevice);
    scene.converge(&to, &ALL).unwrap_err();
}

#[test]
fn a_directory_where_a_file_goes() {
    let scene = Scene::new();
    scene.write("/etc/x/mine", "a person's");
    let before = scene.tree();
    for node in [scene.file_node("managed", 0o644), link_node("there"), Node::Absent] {
        let to = applied("1", vec![scene.file("/etc/a", "a", 0o644), entry("/etc/x", node)]);
        let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
        let problems = preflight(&scene.root(), &request).unwrap();
        assert_eq!(problems.iter().map(|p| p.kind).collect::<Vec<_>>(), [ProblemKind::IsDirectory]);
        assert_eq!(fault_of(scene.converge(&to, &ALL)).kind.code(), 1);
        assert_eq!(scene.tree(), before, "nothing changed, not even what could have been");
    }
}

#[test]
fn a_persons_file_in_a_directory_of_ours_that_becomes_a_file() {
    let scene = Scene::new();
    scene.lay(&applied("1", vec![scene.file("/etc/d/a", "a", 0o644)]));
    scene.write("/etc/d/mine", "a person's");
    let to = applied("2", vec![scene.file("/etc/d", "file", 0o644)]);
    assert!(fault_of(scene.converge(&to, &ALL)).to_string().contains("a directory is there"));
    assert_eq!(scene.read("/etc/d/mine"), "a person's");
    std::fs::remove_file(scene.real("/etc/d/mine")).unwrap();
    scene.write("/etc/d/a", "edited");
    let done = scene.lay(&to);
    assert_eq!(done.set_aside.len(), 1, "the edit in it is kept");
}

#[test]
fn a_file_above_the_path() {
    let scene = Scene::new();
    scene.write("/etc/d", "a person's");
    let to = applied("1", vec![scene.file("/etc/d/x", "x", 0o644)]);
    let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
    assert_eq!(preflight(&scene.root(), &request).unwrap()[0].kind, ProblemKind::ParentIsNoDirectory);
    scene.converge(&to, &ALL).unwrap_err();
    assert_eq!(scene.read("/etc/d"), "a person's");
    // If the config asks for the directory, it wins, and the file is set aside.
    let to = applied("1", vec![directory("/etc/d", 0o755), scene.file("/etc/d/x", "x", 0o644)]);
    assert_eq!(scene.lay(&to).set_aside.len(), 1);
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(scene.read("/etc/d"), "a person's");
}

/// The name of a temporary file can be foreseen by whoever owns the directory.
#[test]
fn names_of_ours_that_are_taken() {
    let scene = Scene::new();
    let outside = outside(&scene);
    let ours = super::super::place::temporary(Utf8Path::new("/etc/x"));
    link(&outside.join("passwd").to_string_lossy(), &scene.real(&format!("/etc/{ours}")));
    let to = applied("1", vec![scene.file("/etc/x", "managed", 0o644)]);
    scene.lay(&to);
    untouched(&outside);
    std::fs::remove_file(scene.real("/etc/x")).unwrap();
    std::fs::create_dir(scene.real(&format!("/etc/{ours}"))).unwrap();
    let fault = fault_of(scene.converge(&to, &ALL));
    assert_eq!(fault.kind.code(), 1, "{fault}");
}

fn attribute(path: &Path, flag: &str) -> bool {
    std::process::Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|status| status.success())
}

#[test]
fn root_immutable_targets_and_directories() {
    // Not every file system of scratch folders has attributes.
    for (flag, at) in [("i", "/etc/d/x"), ("a", "/etc/d/x"), ("i", "/etc/d")] {
        let scene = Scene::new();
        scene.write("/etc/d/x", "old");
        if !attribute(&scene.real(at), &format!("+{flag}")) {
            return;
        }
        let to = applied("1", vec![scene.file("/etc/d/x", "managed", 0o644)]);
        let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
        let problems = preflight(&scene.root(), &request);
        let fault = fault_of(scene.converge(&to, &ALL));
        assert!(attribute(&scene.real(at), &format!("-{flag}")));
        let problems = problems.unwrap();
        assert_eq!(problems[0].kind, ProblemKind::Immutable, "{at}");
        assert_eq!(problems[0].path, at);
        assert!(fault.next.unwrap().contains("chattr"), "{at}");
        assert_eq!(scene.read("/etc/d/x"), "old");
        scene.lay(&to);
    }
}

struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Self {
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status()
            .unwrap();
        assert!(mount.success());
        Self(at.to_owned())
    }

    fn again(&self, options: &str) {
        let mount = std::process::Command::new("mount").args(["-o", options]).arg(&self.0).status().unwrap();
        assert!(mount.success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn root_read_only() {
    let scene = Scene::new();
    let mounted = Mounted::tmpfs(&scene.real("/etc"), "size=1m");
    let to = applied("1", vec![scene.file("/etc/x", "managed", 0o644), scene.file("/var/lib/y", "y", 0o644)]);
    mounted.again("remount,ro");
    let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
    let problems = preflight(&scene.root(), &request).unwrap();
    assert_eq!(problems[0].kind, ProblemKind::ReadOnly);
    scene.converge(&to, &ALL).unwrap_err();
    assert!(!scene.exists("/var/lib/y"), "not half of it");
    mounted.again("remount,rw");
    scene.lay(&to);
    mounted.again("remount,ro");
    // Nothing to do needs no writing.
    scene.settled(&to);
}

#[test]
fn root_full_file_systems() {
    // No room for the bytes, no room for the names, and too little of both to see before.
    for (options, size, count) in
        [("size=600k", 900_000, 1), ("size=4m,nr_inodes=12", 10, 40), ("size=800k", 4_000, 230)]
    {
        let scene = Scene::new();
        let _mounted = Mounted::tmpfs(&scene.real("/etc"), options);
        scene.write("/etc/0", "mine");
        let files: Vec<Entry> = (0..count)
            .map(|number| scene.file(&format!("/etc/{number}"), &"x".repeat(size - number % 3), 0o644))
            .collect();
        let mut to = applied("1", files);
        to.manifest.entries.push(scene.file("/var/lib/y", "y", 0o644));
        let before = scene.tree_of_others();
        let request = Converge { to: &to, known: &[], scopes: &ALL, now: 1 };
        let problems = preflight(&scene.root(), &request).unwrap();
        let fault = fault_of(scene.converge(&to, &ALL));
        assert_eq!(fault.kind.code(), 1, "{options}: {fault}");
        assert_eq!(scene.tree_of_others(), before, "{options}");
        assert_eq!(scene.leftovers(), Vec::<String>::new(), "{options}");
        if let Some(problem) = problems.first() {
            assert_eq!(problem.kind, ProblemKind::NoSpace);
        }
    }
}

/// `/home` and the like may be file systems of their own.
#[test]
fn root_several_file_systems() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.real("/var/home")).unwrap();
    let _home = Mounted::tmpfs(&scene.real("/var/home"), "size=1m");
    let _etc = Mounted::tmpfs(&scene.real("/etc"), "size=1m");
    scene.write("/var/home/x", "mine");
    let to = applied(
        "1",
        vec![
            scene.file("/var/home/x", "x", 0o644),
            scene.file("/var/lib/y", "y", 0o644),
            scene.file("/etc/z", "z", 0o644),
        ],
    );
    scene.lay(&to);
    scene.lay(&applied("2", Vec::new()));
    assert_eq!(scene.read("/var/home/x"), "mine");
}

#[test]
fn root_labels_are_set_where_there_are_labels() {
    let scene = Scene::new();
    let label = |path: &str, label: &str| {
        let value = format!("{label}\0");
        rustix::fs::lsetxattr(
            scene.real(path),
            "security.selinux",
            value.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        )
    };
    let read = |path: &str| {
        let mut value = vec![0; 100];
        let length =
            rustix::fs::lgetxattr(scene.real(path), "security.selinux", value.as_mut_slice()).unwrap();
        String::from_utf8(value[..length].to_vec()).unwrap()
    };
    let labelled = |mut entry: Entry, new: &str| {
        if let Node::File { label, .. } | Node::Symlink { label, .. } | Node::Directory { label, .. } =
            &mut entry.node
        {
            *label = Some(new.to_owned());
        }
        entry
    };
    let to = applied(
        "1",
        vec![
            labelled(scene.file("/etc/x", "x", 0o644), "system_u:object_r:x_t:s0"),
            labelled(entry("/etc/link", link_node("x")), "system_u:object_r:link_t:s0"),
            labelled(directory("/etc/d", 0o755), "system_u:object_r:d_t:s0"),
        ],
    );
    // A tree without labels: set all the same, never compared.
    scene.lay(&to);
    std::fs::remove_file(scene.real("/etc/x")).unwrap();
    scene.write("/etc/x", "x");
    scene.settled(&to);
    label("/etc", "system_u:object_r:etc_t:s0").unwrap();
    let found = differences(&scene.root(), &to.manifest, &ALL).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].what, found[0].found.as_str()), (What::Label, "none"));
    label("/etc/mcd", "system_u:object_r:etc_t:s0").unwrap();
    scene.lay(&Applied { deployment_id: Some("2".to_owned()), ..to });
    assert_eq!(read("/etc/x"), "system_u:object_r:x_t:s0\0");
    assert_eq!(read("/etc/link"), "system_u:object_r:link_t:s0\0");
    assert_eq!(read("/etc/d"), "system_u:object_r:d_t:s0\0");
    assert_eq!(read("/etc/mcd/applied.json"), read("/etc/mcd"));
}
