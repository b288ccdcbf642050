//! What builders put into plain layers.

use super::*;

impl Scene {
    /// The object of a path in version 1.
    fn object(&self, path: &str) -> String {
        let listing = self.listing("source", "fixture/1");
        let line = listing.lines().find(|line| line.ends_with(path)).unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    }

    fn cat(&self, commit: &str, path: &str) -> String {
        ostree(&["cat", &format!("--repo={}", self.path("repo").display()), commit, path])
    }

    fn line(&self, commit: &str, path: &str) -> String {
        let listing = self.listing("repo", commit);
        let found = listing.lines().find(|line| line.ends_with(&format!(" {path}")));
        found.unwrap_or_else(|| panic!("no {path} in\n{listing}")).to_owned()
    }
}

fn object_path(checksum: &str) -> String {
    format!("sysroot/ostree/repo/objects/{}/{}.file", &checksum[..2], &checksum[2..])
}

#[test]
fn root_files_changed_through_their_link_to_the_repo_are_files_again() {
    let scene = Scene::new();
    let tool = object_path(&scene.object("/usr/lib/fixture/tool"));
    let words = object_path(&scene.object("/usr/lib/fixture/words"));
    let large = "changed ".repeat(100_000);
    let written = scene.write(
        scene.v1().derived(vec![
            // As podman writes it: the object first, with the time of the change, then its names.
            Entry::file(&tool, &large).mode(0o4711).owner(3, 4).mtime(1_700_000_001).xattr("user.x", "1"),
            Entry::file(&words, "the object itself, as in the base"),
            Entry::hard_link("usr/lib/fixture/tool", &tool),
            Entry::hard_link("usr/lib/fixture/tool-too", &tool),
            Entry::hard_link("usr/lib/fixture/words-too", &words),
        ]),
        "links",
    );
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    for path in ["/usr/lib/fixture/tool", "/usr/lib/fixture/tool-too"] {
        assert_eq!(scene.cat(&pulled.commit, path), large);
        let line = scene.line(&pulled.commit, path);
        assert!(line.starts_with("-04711 3 4 ") && line.contains("user.x"), "{line}");
    }
    // One that was not changed is still the base's.
    let line = scene.line(&pulled.commit, "/usr/lib/fixture/words-too");
    assert!(line.contains(&scene.object("/usr/lib/fixture/words")), "{line}");
}

#[test]
fn root_a_hard_link_to_what_is_left_out_is_refused() {
    let scene = Scene::new();
    for (name, target) in [("opt", "opt/x"), ("outside", "/tmp/canary")] {
        let entries = vec![Entry::file("opt/x", "x"), Entry::hard_link("usr/lib/fixture/x", target)];
        let written = scene.write(scene.v1().derived(entries), name);
        let fault = to_fault(&scene.pull(&written.reference()).expect_err(name));
        assert_eq!(fault.kind, ExitKind::Refused, "{fault:?}");
        assert!(fault.why.unwrap().contains("left out"), "{name}");
    }
}

#[test]
fn root_every_shape_that_builders_write() {
    let scene = Scene::new();
    let long = format!("usr/lib/fixture/{}/{}", "d".repeat(200), "f".repeat(255));
    let image = scene
        .v1()
        .chunks(2)
        .derived(vec![
            Entry::dir("./usr/lib/fixture/dotted"),
            Entry::file("./usr/lib/fixture/dotted/x", "x"),
            Entry::file(&long, "long"),
            Entry::program("usr/lib/fixture/suid", "x").mode(0o6755).owner(0, 7),
            Entry::file("usr/lib/fixture/attributes", "x")
                .xattr("user.kept", "1")
                .xattr(
                    "security.capability",
                    b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                )
                .xattr("security.selinux", "builder_t\0"),
            Entry::symlink(format!("usr/lib/fixture/{}", "l".repeat(150)), "t".repeat(200)),
            // A file becomes a directory, a directory a file.
            Entry::dir("usr/lib/fixture/tool"),
            Entry::file("usr/lib/fixture/tool/inside", "x"),
            Entry::file("usr/lib/fixture/empty-folder", "now a file"),
            Entry::char_device("usr/lib/fixture/null", 1, 3),
            Entry::file("usr/lib/fixture/many/one", "1"),
        ])
        .derived(Vec::new())
        .derived(vec![
            Entry::file("usr/lib/fixture/many/two", "2"),
            Entry::whiteout("etc/fixture.conf"),
            Entry::whiteout("etc/ssh"),
        ])
        .derived(vec![
            Entry::dir("usr/lib/fixture/many"),
            Entry::opaque("usr/lib/fixture/many"),
            Entry::file("usr/lib/fixture/many/three", "3"),
        ]);
    let written = scene.write(image, "shapes");
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    let listing = scene.listing("repo", &pulled.commit);
    for (path, there) in [
        ("/usr/lib/fixture/dotted/x", true),
        (&format!("/{long}"), true),
        ("/usr/lib/fixture/tool/inside", true),
        ("/usr/lib/fixture/empty-folder", true),
        ("/usr/lib/fixture/null", false),
        ("/usr/lib/fixture/many/one", false),
        ("/usr/lib/fixture/many/two", false),
        ("/usr/lib/fixture/many/three", true),
        ("/usr/etc/fixture.conf", false),
        ("/usr/etc/ssh", false),
        ("/usr/etc/ssh/sshd_config", false),
        ("/usr/etc/hosts", true),
    ] {
        assert_eq!(has(&listing, path), there, "{path}\n{listing}");
    }
    assert!(scene.line(&pulled.commit, "/usr/lib/fixture/suid").starts_with("-06755 0 7 "));
    let line = scene.line(&pulled.commit, "/usr/lib/fixture/attributes");
    assert!(line.contains("user.kept") && line.contains("security.capability"), "{line}");
    assert!(!line.contains("security.selinux"), "a builder's label is no host's: {line}");
    assert!(scene.line(&pulled.commit, "/usr/lib/fixture/tool").starts_with("d00755"));
    assert!(scene.line(&pulled.commit, "/usr/lib/fixture/empty-folder").starts_with("-00644"));
}

#[test]
fn root_the_same_layer_twice_is_fetched_once() {
    let scene = Scene::new();
    let image = scene
        .v1()
        .derived(vec![Entry::file("usr/lib/fixture/a", "1")])
        .derived(vec![Entry::whiteout("usr/lib/fixture/a")])
        .repeat_layer(1);
    let written = scene.write(image, "twice");
    let (pulled, seen) = scene.pull(&written.reference()).unwrap();
    assert_eq!(seen.started(), 3);
    assert_eq!(scene.cat(&pulled.commit, "/usr/lib/fixture/a"), "1");
}
