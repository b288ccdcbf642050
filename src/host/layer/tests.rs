//! Layering on real repos.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use mcd_test_support::entry::Entry as TreeEntry;
use mcd_test_support::tree::{Tree, create_repo};

use super::*;
use crate::model::config::{Blob, Contents, Core, Id, Managed, Owner, Remark, Request, RequestKind, Unit};
use crate::model::manifest::{Entry, Node, Part};

/// A repo with one image's commit in it.
struct Scene {
    scratch: tempfile::TempDir,
    repo: ostree::Repo,
    image: String,
}

fn image_tree() -> Tree {
    Tree::v1()
        .with(TreeEntry::file("usr/etc/chrony.conf", "pool default\n"))
        .with(TreeEntry::file(
            "usr/etc/passwd",
            "root:x:0:0::/root:/bin/bash\ncore:x:1000:1001::/home/core:/bin/bash\n",
        ))
        .with(TreeEntry::file("usr/etc/group", "root:x:0:\ncore:x:1001:\n"))
        .with(TreeEntry::file("usr/lib/passwd", "chrony:x:992:990::/:/sbin/nologin\n"))
        .with(TreeEntry::file("usr/lib/group", "chrony:x:990:\n"))
        .with(TreeEntry::file("usr/lib/systemd/system/multi-user.target", "[Unit]\n"))
        .with(TreeEntry::file("usr/lib/systemd/system/a.service", unit("multi-user.target")))
        .with(TreeEntry::file("usr/lib/systemd/system/b.service", unit("multi-user.target")))
        .with(TreeEntry::file("usr/lib/systemd/system/static.service", "[Service]\nExecStart=/bin/true\n"))
        .with(TreeEntry::file(
            "usr/lib/systemd/system/t@.service",
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nDefaultInstance=one\n",
        ))
        .with(TreeEntry::file(
            "usr/lib/systemd/system-preset/90-default.preset",
            "enable preset-on.service\ndisable *\n",
        ))
        .with(TreeEntry::dir("usr/etc/systemd/system/multi-user.target.wants"))
        .with(TreeEntry::symlink(
            "usr/etc/systemd/system/multi-user.target.wants/b.service",
            "/usr/lib/systemd/system/b.service",
        ))
        .with(TreeEntry::symlink("usr/etc/systemd/system/masked.service", "/dev/null"))
}

fn unit(wanted_by: &str) -> String {
    format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={wanted_by}\n")
}

impl Scene {
    fn new() -> Self {
        Self::of(&image_tree())
    }

    fn of(tree: &Tree) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let repo = create_repo(&scratch.path().join("repo"), ostree::RepoMode::Bare).unwrap();
        let image = tree.commit(&repo, "image/one").unwrap();
        Self { scratch, repo, image }
    }

    fn request<'a>(&'a self, config: &'a Config) -> LayerRequest<'a> {
        LayerRequest {
            image_commit: &self.image,
            config: Some(config),
            source: Source::MachineConfig,
            previous: None,
            previous_image_commit: None,
            etc: None,
        }
    }

    fn layer(&self, config: &Config) -> Layered {
        layer(&self.repo, &self.request(config)).unwrap()
    }

    fn problems(&self, config: &Config) -> Vec<String> {
        let error = layer(&self.repo, &self.request(config)).unwrap_err();
        let invalid = error.downcast_ref::<Invalid>().unwrap_or_else(|| panic!("{error:#}"));
        invalid.problems.iter().map(ToString::to_string).collect()
    }

    fn ostree(&self, words: &[&str]) -> String {
        let repo = format!("--repo={}", self.scratch.path().join("repo").display());
        let output = Command::new("ostree").arg(repo).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn cat(&self, commit: &str, path: &str) -> String {
        self.ostree(&["cat", commit, path])
    }

    /// Mode, owner, group of a path as `ostree ls` says it.
    fn ls(&self, commit: &str, path: &str) -> String {
        let line = self.ostree(&["ls", "-d", commit, path]);
        line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    }
}

fn config(managed: Managed) -> Config {
    Config {
        names: vec!["99-test".to_owned()],
        kernel_arguments: Some(Vec::new()),
        managed: Some(managed),
        ..Config::default()
    }
}

fn file(content: &str) -> Request {
    Request {
        field: "x.yaml: spec.config.storage.files[0]".to_owned(),
        kind: RequestKind::File {
            contents: Some(Contents::Inline(Blob::from(content.as_bytes().to_vec()))),
            append: Vec::new(),
            mode: None,
        },
        owner: Owner::default(),
        overwrite: None,
    }
}

fn files<'a>(files: impl IntoIterator<Item = (&'a str, Request)>) -> Config {
    let entries = files.into_iter().map(|(path, request)| (path.into(), request)).collect();
    config(Managed { entries, ..Managed::default() })
}

fn units<'a>(units: impl IntoIterator<Item = (&'a str, Unit)>) -> Config {
    let units = units.into_iter().map(|(name, unit)| (name.to_owned(), unit)).collect();
    config(Managed { units, ..Managed::default() })
}

fn of_contents(contents: &str, enabled: Option<bool>) -> Unit {
    Unit { contents: Some(Blob::from(contents.as_bytes().to_vec())), enabled, ..Unit::default() }
}

fn enabled(enabled: bool) -> Unit {
    Unit {
        field: "x.yaml: spec.config.systemd.units[0]".to_owned(),
        enabled: Some(enabled),
        ..Unit::default()
    }
}

fn entry<'a>(layered: &'a Layered, path: &str) -> &'a Entry {
    layered.manifest.entry(path.into()).unwrap_or_else(|| panic!("no {path} in {:#?}", layered.manifest))
}

fn links(layered: &Layered) -> Vec<String> {
    let links = layered.manifest.entries.iter().filter(|entry| matches!(entry.part, Part::Enablement(_)));
    links
        .map(|entry| match &entry.node {
            Node::Symlink { target, .. } => format!("{} -> {target}", entry.path),
            node => format!("{} {node:?}", entry.path),
        })
        .collect()
}

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
    let Remark { field, .. } = Remark { field: String::new(), message: String::new() };
    assert!(field.is_empty());
}

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

fn open(path: &Path) -> Dir {
    Dir::open_ambient_dir(path, cap_std_ext::cap_std::ambient_authority()).unwrap()
}
