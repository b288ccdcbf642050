//! Units: the links that enable them, and the preset file that says the same.

use super::*;

#[test]
fn root_units_get_the_links_that_systemctl_makes() {
    let scene = Scene::new();
    let layered = scene.layer(&units([
        ("mine.service", of_contents(&unit("multi-user.target"), Some(true))),
        (
            "loud.service",
            of_contents(
                "[Service]\nExecStart=/bin/true\n[Install]\nRequiredBy=mine.service\nAlias=noisy.service\nAlso=a.service\n",
                Some(true),
            ),
        ),
        ("preset-on.service", of_contents(&unit("multi-user.target"), None)),
        ("preset-off.service", of_contents(&unit("multi-user.target"), None)),
        ("b.service", enabled(false)),
        ("t@two.service", enabled(true)),
        ("t@.service", enabled(true)),
    ]));
    assert_eq!(
        links(&layered),
        [
            "/etc/systemd/system/mine.service.requires/loud.service -> /etc/systemd/system/loud.service",
            "/etc/systemd/system/multi-user.target.wants/a.service -> /lib/systemd/system/a.service",
            "/etc/systemd/system/multi-user.target.wants/b.service Absent",
            "/etc/systemd/system/multi-user.target.wants/mine.service -> /etc/systemd/system/mine.service",
            "/etc/systemd/system/multi-user.target.wants/preset-on.service -> /etc/systemd/system/preset-on.service",
            "/etc/systemd/system/multi-user.target.wants/t@one.service -> /lib/systemd/system/t@.service",
            "/etc/systemd/system/multi-user.target.wants/t@two.service -> /lib/systemd/system/t@.service",
            "/etc/systemd/system/noisy.service -> /etc/systemd/system/loud.service",
        ]
        .map(|line| line.replace("-> /lib/", "-> /usr/lib/"))
    );
    let b = entry(&layered, "/etc/systemd/system/multi-user.target.wants/b.service");
    assert!(matches!(&b.default, Some(Node::Symlink { .. })), "{b:?}");
    let listing = scene.ostree(&["ls", "-R", &layered.commit, "/usr/etc/systemd/system"]);
    assert!(!listing.contains("wants/b.service"), "{listing}");
    assert!(listing.contains("mine.service.requires/loud.service -> /etc/systemd/system/loud.service"));
    let preset = scene.cat(&layered.commit, "/usr/etc/systemd/system-preset/20-mcd.preset");
    assert_eq!(
        preset,
        "disable b.service\nenable loud.service\nenable mine.service\nenable t@.service one two\n"
    );
}

#[test]
fn root_dropins_masks_and_odd_units() {
    let scene = Scene::new();
    let dropins = |content: &str| Unit {
        dropins: [("10-x.conf".to_owned(), Blob::from(content.as_bytes().to_vec()))].into(),
        ..Unit::default()
    };
    let mask = |mask| Unit { mask: Some(mask), ..Unit::default() };
    let layered = scene.layer(&units([
        ("a.service", dropins("[Service]\nNice=5\n")),
        ("b.service", dropins("")),
        ("quiet.service", mask(true)),
        ("masked.service", mask(false)),
        ("static.service", enabled(true)),
        ("nowhere.service", enabled(false)),
    ]));
    assert_eq!(
        scene.cat(&layered.commit, "/usr/etc/systemd/system/a.service.d/10-x.conf"),
        "[Service]\nNice=5\n"
    );
    assert_eq!(scene.cat(&layered.commit, "/usr/etc/systemd/system/b.service.d/10-x.conf"), "");
    let Node::Symlink { target, .. } = &entry(&layered, "/etc/systemd/system/quiet.service").node else {
        panic!()
    };
    assert_eq!(target, "/dev/null");
    assert_eq!(entry(&layered, "/etc/systemd/system/masked.service").node, Node::Absent);
    assert_eq!(links(&layered), Vec::<String>::new(), "units that only have drop-ins keep their links");
    assert_eq!(
        layered.warnings,
        [
            "unit nowhere.service is disabled, and is nowhere",
            "unit static.service has no [Install] section that says where it belongs: enabling it does nothing",
        ]
    );
    let problems = scene.problems(&units([("ghost.service", enabled(true))]));
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with(
            "x.yaml: spec.config.systemd.units[0].enabled: ghost.service: there is no such unit"
        ),
        "{problems:?}"
    );
}

#[test]
fn root_links_that_the_images_builder_added_stay() {
    let custom = "usr/etc/systemd/system/custom.target.wants/a.service";
    let tree = image_tree()
        .with(TreeEntry::dir("usr/etc/systemd/system/custom.target.wants"))
        .with(TreeEntry::symlink(custom, "/usr/lib/systemd/system/a.service"));
    let scene = Scene::of(&tree);
    let layered = scene.layer(&units([("a.service", enabled(true)), ("b.service", enabled(true))]));
    let wants = "/etc/systemd/system/multi-user.target.wants";
    assert_eq!(
        links(&layered),
        [
            format!("{wants}/a.service -> /usr/lib/systemd/system/a.service"),
            // The image has it already: it is checked all the same.
            format!("{wants}/b.service -> /usr/lib/systemd/system/b.service"),
        ]
    );
}

#[test]
fn root_units_that_cannot_be_enabled_are_named() {
    let tree = image_tree().with(TreeEntry::file(
        "usr/lib/systemd/system/n@.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    ));
    let scene = Scene::of(&tree.with(TreeEntry::symlink("usr/etc/systemd/system/a.service", "/dev/null")));
    let problems = scene.problems(&units([
        ("a.service", enabled(true)),
        ("b.service", enabled(true)),
        ("n@.service", enabled(true)),
    ]));
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("a.service") && problems[0].contains("masked"), "{problems:#?}");
    assert!(problems[1].contains("n@.service"), "{problems:#?}");

    let layered = scene.layer(&units([("n@x.service", enabled(true)), ("n@y.service", enabled(false))]));
    let preset = scene.cat(&layered.commit, "/usr/etc/systemd/system-preset/20-mcd.preset");
    assert_eq!(preset, "disable n@y.service\nenable n@.service x\n");
}
