//! Files: where they stand, whose they are, and which are refused.

use super::*;

#[test]
fn root_a_file_stands_among_the_defaults_and_its_default_is_kept() {
    let scene = Scene::new();
    let layered =
        scene.layer(&files([("/etc/chrony.conf", file("pool mine\n")), ("/etc/new/deep/x", file("x"))]));
    assert_eq!(scene.cat(&layered.commit, "/usr/etc/chrony.conf"), "pool mine\n");
    assert_eq!(scene.cat(&layered.commit, "/usr/etc/new/deep/x"), "x");
    assert_eq!(scene.cat(&layered.commit, "/usr/lib/mcd/default/etc/chrony.conf"), "pool default\n");
    assert_eq!(scene.ls(&layered.commit, "/usr/lib/mcd"), "d00700 0 0");
    assert_eq!(scene.ls(&layered.commit, "/usr/lib/mcd/config.json"), "-00600 0 0");
    let Some(Node::File { digest, .. }) = &entry(&layered, "/etc/chrony.conf").default else { panic!() };
    assert_eq!(*digest, Digest::of(b"pool default\n"));
    let parents: Vec<&str> = layered.manifest.parents.iter().map(|parent| parent.path.as_str()).collect();
    assert_eq!(parents, ["/etc/new", "/etc/new/deep"]);
    assert_eq!(manifest_of_commit(&scene.repo, &layered.commit).unwrap().as_ref(), Some(&layered.manifest));
    assert_eq!(manifest_of_commit(&scene.repo, &scene.image).unwrap(), None);
    scene.ostree(&["fsck", "--quiet"]);
}

#[test]
fn root_the_same_image_and_config_are_the_same_commit_whatever_came_before() {
    let (one, other) = (Scene::new(), Scene::new());
    let config = files([("/etc/a", file("a")), ("/var/lib/b", file("b")), ("/usr/share/c", file("c"))]);
    let first = files([("/etc/z", file("z")), ("/etc/a", file("old"))]);
    let straight = one.layer(&config);
    let before = other.layer(&first);
    let after = layer(
        &other.repo,
        &LayerRequest {
            previous: Some(&before.manifest),
            previous_image_commit: Some(&other.image),
            ..other.request(&config)
        },
    )
    .unwrap();
    assert_eq!(straight, Layered { written: straight.written, ..after.clone() });
    let again = layer(
        &other.repo,
        &LayerRequest {
            previous: Some(&after.manifest),
            previous_image_commit: Some(&other.image),
            ..other.request(&config)
        },
    )
    .unwrap();
    assert_eq!(again.commit, after.commit);
    assert_eq!(again.written, 1, "only the manifest is written again");
}

#[test]
fn root_links_of_the_image_are_followed_and_owners_are_its_numbers() {
    let scene = Scene::new();
    let owned = |user: &str, group: &str| Request {
        owner: Owner { user: Some(Id::Name(user.to_owned())), group: Some(Id::Name(group.to_owned())) },
        ..file("x")
    };
    let layered = scene.layer(&files([
        ("/root/.profile", file("p")),
        ("/opt/tool", file("t")),
        ("/usr/local/bin/x", file("x")),
        ("/home/core/a", owned("core", "core")),
        ("/etc/c", owned("chrony", "chrony")),
    ]));
    for (path, asked) in [
        ("/var/roothome/.profile", "/root/.profile"),
        ("/var/opt/tool", "/opt/tool"),
        ("/var/usrlocal/bin/x", "/usr/local/bin/x"),
        ("/var/home/core/a", "/home/core/a"),
    ] {
        assert_eq!(entry(&layered, path).asked.as_deref(), Some(Utf8Path::new(asked)));
    }
    assert!(matches!(entry(&layered, "/var/home/core/a").node, Node::File { uid: 1000, gid: 1001, .. }));
    assert_eq!(scene.ls(&layered.commit, "/usr/etc/c"), "-00644 992 990");
    let digest = Digest::of(b"p");
    let carried = format!("/usr/lib/mcd/content/{}", digest.hex());
    assert_eq!(scene.ls(&layered.commit, &carried), "-00600 0 0");
    assert_eq!(scene.cat(&layered.commit, &carried), "p");
}

#[test]
fn root_what_cannot_be_is_refused_by_field_all_at_once() {
    let scene = Scene::new();
    let mut no_overwrite = file("x");
    no_overwrite.overwrite = Some(false);
    let folder = Request { kind: RequestKind::Directory { mode: None }, ..file("") };
    let nobody =
        Request { owner: Owner { user: Some(Id::Name("ghost".to_owned())), group: None }, ..file("x") };
    let hard =
        Request { kind: RequestKind::Link { target: "/etc/elsewhere".to_owned(), hard: true }, ..file("") };
    let problems = scene.problems(&files([
        ("/boot/x", file("x")),
        ("/etc/chrony.conf", no_overwrite),
        ("/etc/chrony.conf/below", file("x")),
        ("/etc/fixture.conf", folder),
        ("/etc/ghost", nobody),
        ("/etc/hard", hard),
        ("/etc/passwd", file("x")),
        ("/etc/systemd", file("x")),
        ("/root/x", file("x")),
        ("/run/machine-config-daemon-force", file("x")),
        ("/usr/lib/mcd/x", file("x")),
        ("/var/roothome/x", file("x")),
    ]));
    let told = problems.join("\n");
    for part in [
        "/boot/x: only files below /etc, /usr and /var",
        "/etc/chrony.conf: overwrite is false",
        "/etc/chrony.conf is no directory",
        "/etc/fixture.conf: the target has something there that is no directory",
        ".user.name: no user \"ghost\"",
        "the hard link leads to /etc/elsewhere",
        "/etc/passwd: many programs write",
        "/etc/systemd: the target has a directory there",
        "/run/machine-config-daemon-force: only files below",
        "/usr/lib/mcd/x: mcd keeps its own records",
        "/var/roothome/x is asked for twice",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    assert_eq!(problems.len(), 11, "{told}");
}

#[test]
fn root_labels_are_those_of_the_final_paths() {
    let contexts = "/.*\tsystem_u:object_r:default_t:s0\n\
                    /etc(/.*)?\tsystem_u:object_r:etc_t:s0\n\
                    /usr(/.*)?\tsystem_u:object_r:usr_t:s0\n\
                    /var(/.*)?\tsystem_u:object_r:var_t:s0\n\
                    /etc/secret\t--\tsystem_u:object_r:secret_t:s0\n";
    let tree = image_tree()
        .with(TreeEntry::file("usr/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=test\n"))
        .with(TreeEntry::file("usr/etc/selinux/test/contexts/files/file_contexts", contexts))
        .with(TreeEntry::file("usr/etc/selinux/test/policy/policy.33", "a policy of no rules"));
    let scene = Scene::of(&tree);
    let layered =
        scene.layer(&files([("/etc/secret", file("s")), ("/etc/new/x", file("x")), ("/opt/y", file("y"))]));
    let listing = scene.ostree(&["ls", "-R", "-X", &layered.commit, "/usr"]);
    let label = |path: &str| {
        let line = listing.lines().find(|line| line.ends_with(&format!(" {path}"))).unwrap();
        line.split("object_r:").nth(1).unwrap().split(':').next().unwrap().to_owned()
    };
    assert_eq!(label("/usr/etc/secret"), "secret_t");
    assert_eq!(label("/usr/etc/new"), "etc_t");
    assert_eq!(label("/usr/etc/new/x"), "etc_t");
    let Node::File { label, .. } = &entry(&layered, "/var/opt/y").node else { panic!() };
    assert_eq!(label.as_deref(), Some("system_u:object_r:var_t:s0"));
}

#[test]
fn root_what_a_person_keeps_in_a_home_is_his() {
    let scene = Scene::new();
    let owned =
        Request { owner: Owner { user: Some(Id::Number(1000)), group: Some(Id::Number(1001)) }, ..file("x") };
    let layered =
        scene.layer(&files([("/home/core/.config/app/x", owned), ("/root/.ssh/known_hosts", file("x"))]));
    let parents: Vec<String> = layered
        .manifest
        .parents
        .iter()
        .map(|parent| format!("{} {:o} {}:{}", parent.path, parent.mode, parent.uid, parent.gid))
        .collect();
    assert_eq!(
        parents,
        [
            "/var/home 755 0:0",
            "/var/home/core 700 1000:1001",
            "/var/home/core/.config 755 1000:1001",
            "/var/home/core/.config/app 755 1000:1001",
            "/var/roothome 700 0:0",
            "/var/roothome/.ssh 700 0:0",
        ]
    );
}

#[test]
fn root_objects_of_every_kind_are_whole() {
    let scene = Scene::new();
    let link = Request { kind: RequestKind::Link { target: "x".to_owned(), hard: false }, ..file("") };
    let folder = Request { kind: RequestKind::Directory { mode: Some(0o2750) }, ..file("") };
    scene.layer(&files([
        ("/etc/a/x", file("x")),
        ("/etc/a/empty", file("")),
        ("/etc/a/link", link.clone()),
        ("/etc/a/folder", folder.clone()),
        ("/usr/share/a/link", link),
        ("/usr/share/a/folder", folder),
        ("/var/lib/a/x", file("y")),
    ]));
    scene.ostree(&["fsck", "--quiet"]);
}
