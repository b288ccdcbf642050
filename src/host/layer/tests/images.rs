//! What is carried to another image or left to another source, and where keys go.

use super::*;

#[test]
fn root_keys_go_where_sshd_reads_them() {
    let core = |keys: &[&str]| {
        config(Managed {
            core: Some(Core {
                field: "x.yaml: spec.config.passwd.users[0]".to_owned(),
                keys: keys.iter().map(|key| (*key).to_owned()).collect(),
                password_hash: None,
            }),
            ..Managed::default()
        })
    };
    let plain = Scene::new().layer(&core(&["ssh-ed25519 AAAA one", "ssh-rsa BBBB two"]));
    let keys = entry(&plain, "/var/home/core/.ssh/authorized_keys");
    assert!(matches!(keys.node, Node::File { mode: 0o600, uid: 1000, gid: 1001, .. }), "{keys:?}");
    let parents: Vec<(&str, u32, u32)> =
        plain.manifest.parents.iter().map(|parent| (parent.path.as_str(), parent.mode, parent.uid)).collect();
    assert_eq!(
        parents,
        [("/var/home", 0o755, 0), ("/var/home/core", 0o700, 1000), ("/var/home/core/.ssh", 0o700, 1000)]
    );
    assert_eq!(plain.manifest.password.as_ref().map(|one| one.hash.as_str()), Some("*"));

    let fragments = image_tree().with(TreeEntry::file(
        "usr/etc/ssh/sshd_config.d/40-ssh-key-dir.conf",
        "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\n",
    ));
    let layered = Scene::of(&fragments).layer(&core(&["ssh-ed25519 AAAA one"]));
    entry(&layered, "/var/home/core/.ssh/authorized_keys.d/ignition");

    let nobody = Scene::of(&image_tree().without("usr/etc/passwd")).layer(&core(&["ssh-ed25519 AAAA"]));
    assert_eq!(nobody.manifest.entries, []);
    assert!(nobody.warnings[0].contains("there is no user core"), "{:?}", nobody.warnings);
}

#[test]
fn root_a_new_image_keeps_the_configuration_and_works_it_out_anew() {
    let scene = Scene::new();
    let appended = Request {
        kind: RequestKind::File {
            contents: None,
            append: vec![Contents::Inline(Blob::from(b"server mine\n".to_vec()))],
            mode: None,
        },
        ..file("")
    };
    let mut wanted = files([("/etc/chrony.conf", appended), ("/root/x", file("x")), ("/etc/y", file("y"))]);
    wanted.managed.as_mut().unwrap().units =
        [("a.service".to_owned(), enabled(true)), ("b.service".to_owned(), enabled(true))].into();
    wanted.kernel_arguments = Some(vec!["nosmt".to_owned()]);
    let before = scene.layer(&wanted);
    assert_eq!(scene.cat(&before.commit, "/usr/etc/chrony.conf"), "pool default\nserver mine\n");
    let newer = image_tree()
        .with(TreeEntry::file("usr/etc/chrony.conf", "pool newer\n"))
        .with(TreeEntry::symlink("root", "var/superhome"))
        .with(TreeEntry::file("usr/lib/systemd/system/a.service", unit("graphical.target")))
        .commit(&scene.repo, "image/two")
        .unwrap();
    let after = layer(
        &scene.repo,
        &LayerRequest {
            image_commit: &newer,
            config: None,
            source: Source::MachineConfig,
            previous: Some(&before.manifest),
            previous_image_commit: Some(&scene.image),
            etc: None,
        },
    )
    .unwrap();
    assert_eq!(scene.cat(&after.commit, "/usr/etc/chrony.conf"), "pool newer\nserver mine\n");
    assert_eq!(entry(&after, "/var/superhome/x").asked.as_deref(), Some(Utf8Path::new("/root/x")));
    assert!(
        links(&after).iter().any(|link| link.contains("graphical.target.wants/a.service")),
        "{:?}",
        links(&after)
    );
    assert_eq!(after.manifest.kernel_arguments, ["nosmt"]);
    assert_eq!(after.manifest.names, ["99-test"]);
    let subject = scene.ostree(&["show", "--print-metadata-key=mcd.image-commit", &after.commit]);
    assert!(subject.contains(&newer), "{subject}");
}

#[test]
fn root_sources_replace_only_their_own() {
    let scene = Scene::new();
    let machine = scene.layer(&files([("/etc/a", file("a"))]));
    let with = |config: &Config, source: Source| {
        layer(
            &scene.repo,
            &LayerRequest {
                source,
                previous: Some(&machine.manifest),
                previous_image_commit: Some(&scene.image),
                ..scene.request(config)
            },
        )
    };
    let both = with(&files([("/etc/ca.crt", file("c"))]), Source::ControllerConfig).unwrap();
    let paths: Vec<&str> = both.manifest.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/etc/a", "/etc/ca.crt"]);
    assert_eq!(both.manifest.names, ["99-test"]);
    let error = with(&files([("/etc/a", file("other"))]), Source::ControllerConfig).unwrap_err();
    assert!(format!("{error:#}").contains("/etc/a is asked for twice"), "{error:#}");
}

#[test]
fn root_carried_keys_follow_the_images_sshd() {
    let scene = Scene::new();
    let wanted = config(Managed {
        core: Some(Core {
            field: "x.yaml: spec.config.passwd.users[0]".to_owned(),
            keys: vec!["ssh-ed25519 AAAA one".to_owned()],
            password_hash: None,
        }),
        ..Managed::default()
    });
    let before = scene.layer(&wanted);
    let newer = image_tree()
        .with(TreeEntry::file(
            "usr/etc/ssh/sshd_config",
            "AuthorizedKeysFile .ssh/authorized_keys.d/ignition\n",
        ))
        .commit(&scene.repo, "image/two")
        .unwrap();
    let request = LayerRequest {
        image_commit: &newer,
        config: None,
        previous: Some(&before.manifest),
        previous_image_commit: Some(&scene.image),
        ..scene.request(&wanted)
    };
    let after = layer(&scene.repo, &request).unwrap();
    entry(&after, "/var/home/core/.ssh/authorized_keys.d/ignition");
    assert!(after.manifest.entry("/var/home/core/.ssh/authorized_keys".into()).is_none());
}
