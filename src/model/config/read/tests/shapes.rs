//! Everything that is taken, in each of its spellings.

use camino::Utf8Path;

use super::*;
use crate::model::config::{Core, Id, Owner, Request, Unit};

fn text_of(source: &str) -> Vec<u8> {
    content(
        &managed(
            "3.4.0",
            &format!("storage: {{files: [{{path: /etc/x, contents: {{source: {source:?}}}}}]}}"),
        ),
        "/etc/x",
    )
}

#[test]
fn every_form_of_data_url_is_decoded() {
    for (source, bytes) in [
        ("data:,hello", &b"hello"[..]),
        ("data:,", b""),
        ("", b""),
        ("data:,hello%20world%0A", b"hello world\n"),
        ("data:text/plain,a b", b"a b"),
        ("data:text/plain;charset=utf-8,%C3%A9", "é".as_bytes()),
        ("data:text/plain;charset=utf-8;base64,aGVsbG8=", b"hello"),
        ("data:;base64,aGVsbG8=", b"hello"),
        ("data:;base64,aGVsbG8", b"hello"),
        ("DATA:;BASE64,aGVsbG8=", b"hello"),
        ("data:text/plain;base64,aGVs%62G8%3D", b"hello"),
        ("data:;base64,aGVs bG8=", b"hello"),
        ("data:;base64,", b""),
        ("data:,a+b%2Bc", b"a+b+c"),
        ("data:,a,b;base64,c", b"a,b;base64,c"),
        ("data:,#!/bin/sh%0Aecho%20$#?x=1%0A", b"#!/bin/sh\necho $#?x=1\n"),
        ("data:,nul%00byte%FF", b"nul\0byte\xff"),
        ("data:text/plain;base64;charset=x,plain", b"plain"),
    ] {
        assert_eq!(text_of(source), bytes, "{source}");
    }
}

#[test]
fn gzip_is_unpacked_plain_and_in_members() {
    // `printf hello | gzip -n`, once and twice.
    let once = "H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA==";
    let twice = "H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAB+LCAAAAAAAAAPLSM3JyQcAhqYQNgUAAAA=";
    for (packed, bytes) in [(once, "hello"), (twice, "hellohello")] {
        let rest = format!(
            "storage: {{files: [{{path: /etc/x, contents: {{source: 'data:;base64,{packed}', compression: gzip}}}}]}}"
        );
        assert_eq!(content(&managed("3.1.0", &rest), "/etc/x"), bytes.as_bytes());
    }
    let plain = "storage: {files: [{path: /etc/x, contents: {source: 'data:,a', compression: ''}}]}";
    assert_eq!(content(&managed("3.1.0", plain), "/etc/x"), b"a");
    let empty = "storage: {files: [{path: /etc/x, contents: {source: '', compression: gzip}}]}";
    assert_eq!(content(&managed("3.1.0", empty), "/etc/x"), b"");
}

#[test]
fn the_hash_is_that_of_what_was_unpacked() {
    let sha256 = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let sha512 = "sha512-9b71d224bd62f3785d96d46ad3ea3d73319bfbc2890caadae2dff72519673ca7\
                  2323c3d99ba5c11d7c7acc6e14b8c5da0c4663475c2e5c3adef46f73bcdec043";
    for hash in [sha256, sha512] {
        for contents in [
            "source: 'data:,hello'",
            "source: 'data:;base64,H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA==', compression: gzip",
        ] {
            let rest = format!(
                "storage: {{files: [{{path: /etc/x, contents: {{{contents}, verification: {{hash: {hash}}}}}}}]}}"
            );
            assert_eq!(content(&managed("3.1.0", &rest), "/etc/x"), b"hello");
        }
    }
}

#[test]
fn a_source_elsewhere_with_a_hash_is_kept_for_later() {
    let rest = "storage: {files: [{path: /etc/x, contents: {source: 'https://host.example/x?a=b', compression: gzip, \
                verification: {hash: sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824}}}]}";
    let managed = managed("3.1.0", rest);
    match &managed.entries[Utf8Path::new("/etc/x")].kind {
        RequestKind::File { contents: Some(Contents::Remote { url, gzip: true, .. }), .. } => {
            assert_eq!(url, "https://host.example/x?a=b");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_of_every_kind() {
    let managed = managed(
        "3.5.0",
        r#"
storage:
  files:
    - path: /etc/plain
    - path: /etc/full
      mode: 0o4750
      overwrite: false
      user: {id: 12}
      group: {name: wheel}
      contents: {source: "data:,a"}
    - path: /etc/more
      append:
        - source: data:,b
        - {source: "data:,c", compression: null}
    - path: /etc/kept
      overwrite: false
      mode: 0600
  directories:
    - {path: /var/lib/x, mode: 01777, user: {name: core}}
    - {path: /var/lib/y, user: {}, group: {id: null}}
  links:
    - {path: /etc/link, target: ../usr/x, overwrite: true}
    - {path: /etc/second, target: /etc/full, hard: true}
"#,
    );
    let get = |path: &str| managed.entries[Utf8Path::new(path)].clone();
    let file = |contents: Option<&str>, append: &[&str], mode| RequestKind::File {
        contents: contents.map(|text| Contents::Inline(text.as_bytes().to_vec().into())),
        append: append.iter().map(|text| Contents::Inline(text.as_bytes().to_vec().into())).collect(),
        mode,
    };
    assert_eq!(
        get("/etc/plain"),
        Request {
            field: "x.yaml: storage.files[0]".to_owned(),
            kind: file(Some(""), &[], None),
            owner: Owner::default(),
            overwrite: None,
        }
    );
    let full = get("/etc/full");
    assert_eq!(full.kind, file(Some("a"), &[], Some(0o4750)));
    assert_eq!(full.owner, Owner { user: Some(Id::Number(12)), group: Some(Id::Name("wheel".to_owned())) });
    assert_eq!(full.overwrite, Some(false));
    assert_eq!(get("/etc/more").kind, file(None, &["b", "c"], None));
    assert_eq!(get("/etc/kept").kind, file(None, &[], Some(0o600)), "what the image has is kept");
    assert_eq!(get("/var/lib/x").kind, RequestKind::Directory { mode: Some(0o1777) });
    assert_eq!(get("/var/lib/y").owner, Owner::default());
    assert_eq!(get("/etc/link").kind, RequestKind::Link { target: "../usr/x".to_owned(), hard: false });
    assert_eq!(get("/etc/second").kind, RequestKind::Link { target: "/etc/full".to_owned(), hard: true });
}

#[test]
fn units_of_every_kind() {
    let managed = managed(
        "3.2.0",
        r#"
systemd:
  units:
    - {name: a.service, enabled: true, contents: "[Install]\nWantedBy=x.target\n"}
    - {name: "b@.service", enabled: false, contents: ""}
    - {name: "b@1.timer", enabled: yes}
    - {name: 'c\x2dd.mount', mask: true}
    - name: e.socket
      dropins:
        - {name: 10-a.conf, contents: "[Socket]\n"}
        - {name: 20-b.conf}
        - {name: 30-c.conf, contents: ""}
"#,
    );
    let blob = |text: &str| text.as_bytes().to_vec().into();
    let unit = |index: usize| Unit { field: format!("x.yaml: systemd.units[{index}]"), ..Unit::default() };
    let expected = [
        (
            "a.service",
            Unit { enabled: Some(true), contents: Some(blob("[Install]\nWantedBy=x.target\n")), ..unit(0) },
        ),
        ("b@.service", Unit { enabled: Some(false), ..unit(1) }),
        ("b@1.timer", Unit { enabled: Some(true), ..unit(2) }),
        ("c\\x2dd.mount", Unit { mask: Some(true), ..unit(3) }),
        (
            "e.socket",
            Unit {
                dropins: [("10-a.conf", "[Socket]\n"), ("20-b.conf", ""), ("30-c.conf", "")]
                    .map(|(name, text)| (name.to_owned(), blob(text)))
                    .into(),
                ..unit(4)
            },
        ),
    ];
    assert_eq!(managed.units, expected.map(|(name, unit)| (name.to_owned(), unit)).into());
}

#[test]
fn keys_and_password_of_core() {
    let hash = "$6$saltsalt$abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./";
    let core =
        |rest: &str| managed("3.2.0", &format!("passwd:\n  users:\n    - name: core\n{rest}")).core.unwrap();
    let keys = core(
        "      sshAuthorizedKeys:\n        - ssh-ed25519 AAAA me\n        - |\n          ssh-rsa BBBB\n",
    );
    assert_eq!(
        keys,
        Core {
            field: "x.yaml: passwd.users[0]".to_owned(),
            keys: vec!["ssh-ed25519 AAAA me".to_owned(), "ssh-rsa BBBB".to_owned()],
            password_hash: None,
        }
    );
    for given in [hash, "*", "!", "!!", "$y$j9T$salt$hash", "$2b$10$abcdefghijklmnopqrstuv", "abcdefghij./1"]
    {
        let with = core(&format!("      passwordHash: '{given}'"));
        assert_eq!(with.password_hash.unwrap().bytes(), given.as_bytes());
    }
    assert_eq!(core("      sshAuthorizedKeys: []").keys, Vec::<String>::new());
    assert_eq!(
        core("      shouldExist: true\n      groups: []\n      noCreateHome: false").keys,
        Vec::<String>::new()
    );
    assert_eq!(managed("3.2.0", "passwd: {users: []}").core, None);
}

#[test]
fn every_version_of_the_spec_is_read() {
    for version in ["2.0.0", "2.1.0", "2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"]
    {
        let filesystem = if version.starts_with('2') { "filesystem: root, " } else { "" };
        let rest =
            format!("storage: {{files: [{{{filesystem}path: /etc/x, contents: {{source: 'data:,a'}}}}]}}");
        assert_eq!(content(&managed(version, &rest), "/etc/x"), b"a", "{version}");
    }
}

#[test]
fn version_two_has_its_own_ways() {
    let text = ignition(
        "2.2.0",
        r#"
storage:
  files:
    - {filesystem: root, path: /etc/a, mode: 384, contents: {source: "data:,first"}}
    - {filesystem: root, path: /etc/b, append: true, contents: {source: "data:,b"}}
    - {filesystem: root, path: /etc/a, contents: {source: "data:,last"}}
systemd:
  units:
    - {name: u.service, enable: true, contents: "[Install]\n", dropins: [{name: one.conf, contents: old}, {name: two.conf, contents: old}]}
    - {name: u.service, contents: "[Unit]\n", dropins: [{name: two.conf, contents: new}]}
passwd:
  users:
    - {name: core, sshAuthorizedKeys: [ssh-rsa A, ssh-rsa B]}
    - {name: core, sshAuthorizedKeys: [ssh-rsa C, ssh-rsa A]}
"#,
    );
    let config = one(&text).unwrap();
    let warned: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warned,
        [
            "x.yaml: storage.files[2].path: /etc/a: it replaces x.yaml: storage.files[0], which has the same path",
            "x.yaml: systemd.units[1].name: u.service: it replaces x.yaml: systemd.units[0], which has the same name",
        ]
    );
    let managed = config.managed.unwrap();
    assert_eq!(content(&managed, "/etc/a"), b"last");
    match &managed.entries[Utf8Path::new("/etc/a")].kind {
        RequestKind::File { mode: None, .. } => {}
        other => panic!("the last file wins as a whole: {other:?}"),
    }
    match &managed.entries[Utf8Path::new("/etc/b")].kind {
        RequestKind::File { contents: None, append, .. } => assert_eq!(append.len(), 1),
        other => panic!("{other:?}"),
    }
    let unit = &managed.units["u.service"];
    assert_eq!(unit.enabled, None);
    let dropins: Vec<(&str, &[u8])> =
        unit.dropins.iter().map(|(name, contents)| (name.as_str(), contents.bytes())).collect();
    assert_eq!(dropins, [("one.conf", &b"old"[..]), ("two.conf", b"new")]);
    assert_eq!(managed.core.unwrap().keys, ["ssh-rsa C", "ssh-rsa A", "ssh-rsa B"]);
}

#[test]
fn a_machine_config_has_more_than_files() {
    let text = machine_config(
        "99-x",
        "worker",
        r#"  osImageURL: registry.example/os@sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
  baseOSExtensionsContainerImage: registry.example/extensions:1
  kernelArguments:
    - hugepagesz=1G hugepages=4
    - ' dyndbg="file a.c +p" '
    - ""
    - quiet
    - quiet
  fips: false
  kernelType: realtime
  extensions: [usbguard, usbguard, kernel-devel]
  config: {ignition: {version: 3.4.0}}"#,
    );
    let config = one(&text).unwrap();
    assert_eq!(config.names, ["99-x"]);
    assert_eq!(
        config.image.unwrap().to_string().split('@').next(),
        Some("ostree-unverified-registry:registry.example/os")
    );
    assert_eq!(
        config.extensions_image.as_deref(),
        Some("ostree-unverified-registry:registry.example/extensions:1")
    );
    assert_eq!(
        config.kernel_arguments.unwrap(),
        ["hugepagesz=1G", "hugepages=4", "dyndbg=\"file a.c +p\"", "quiet", "quiet"]
    );
    assert_eq!(config.fips, Some(false));
    assert_eq!(config.kernel_type.as_deref(), Some("realtime"));
    assert_eq!(config.extensions, ["usbguard", "kernel-devel"]);
    assert_eq!(config.managed, Some(Managed::default()));
}

#[test]
fn what_is_not_said_is_not_managed() {
    let bare =
        one(&machine_config("a", "worker", "  osImageURL: ''\n  kernelType: default\n  extensions: []"))
            .unwrap();
    assert_eq!((bare.managed, bare.image, bare.kernel_type), (None, None, None));
    assert_eq!(bare.kernel_arguments, Some(vec![]), "a MachineConfig without arguments wants none");
    assert_eq!(one(&machine_config("a", "worker", "  config: null\n  fips: null")).unwrap().managed, None);
    assert_eq!(
        one(&machine_config("a", "worker", "  config: {}")).unwrap().managed,
        Some(Managed::default())
    );
    let ignition = one(&ignition("3.0.0", "")).unwrap();
    assert_eq!((ignition.managed, ignition.kernel_arguments), (Some(Managed::default()), None));
}

#[test]
fn json_lists_and_several_documents_are_read() {
    let item = |name: &str| {
        format!(
            r#"{{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
               "metadata": {{"name": "{name}"}}, "spec": {{"kernelArguments": ["{name}"]}}}}"#
        )
    };
    let list = format!(r#"{{"kind": "List", "apiVersion": "v1", "items": [{}, {}]}}"#, item("a"), item("b"));
    assert_eq!(one(&list).unwrap().names, ["a", "b"]);
    let typed = list.replace("\"List\"", "\"MachineConfigList\"");
    assert_eq!(one(&typed).unwrap().names, ["a", "b"]);
    let documents = format!(
        "---\n# nothing\n---\n{}---\n{}...\n",
        machine_config("c", "worker", "  fips: true"),
        machine_config("d", "worker", "  fips: false")
    );
    assert_eq!(one(&documents).unwrap().names, ["c", "d"]);
    assert_eq!(one(&documents).unwrap().fips, Some(true));
    let flow = "{ignition: {version: 3.0.0}, systemd: {units: [{name: a.service, enabled: true}]}}";
    assert_eq!(one(flow).unwrap().managed.unwrap().units.len(), 1);
    let bom = format!("\u{feff}{}", ignition("3.0.0", ""));
    assert!(one(&bom).is_ok());
    let windows = ignition("3.0.0", "storage:\n  files:\n    - path: /etc/x").replace('\n', "\r\n");
    assert_eq!(one(&windows).unwrap().managed.unwrap().entries.len(), 1);
}

#[test]
fn anchors_are_what_they_stand_for() {
    let text = ignition(
        "3.0.0",
        "storage:\n  files:\n    - {path: /etc/a, contents: &c {source: 'data:,a'}}\n    - {path: /etc/b, contents: *c}",
    );
    let managed = one(&text).unwrap().managed.unwrap();
    assert_eq!(content(&managed, "/etc/b"), b"a");
}

#[test]
fn contents_never_show() {
    let secret = "storage: {files: [{path: /etc/x, contents: {source: 'data:,topsecret', \
                  verification: {hash: sha256-53336a676c64c1396553b2b7c92f38126768827c93b64d9142069c10eda7a721}}}]}\n\
                  passwd: {users: [{name: core, passwordHash: '$6$topsecret$x'}]}\n\
                  systemd: {units: [{name: a.service, contents: topsecret}]}";
    let config = one(&ignition("3.4.0", secret)).unwrap();
    let shown = format!("{config:?}");
    assert!(
        !shown.contains("topsecret") && !shown.contains("53336a67") && shown.contains("9 bytes"),
        "{shown}"
    );
    let address = "storage: {files: [{path: /etc/x, contents: {source: 'https://me:topsecret@h.example/', \
                   verification: {hash: sha256-53336a676c64c1396553b2b7c92f38126768827c93b64d9142069c10eda7a721}}}]}";
    let shown = format!("{:?}", one(&ignition("3.4.0", address)).unwrap());
    assert!(!shown.contains("topsecret") && !shown.contains("53336a67"), "{shown}");
    let input = input("x", "topsecret");
    assert_eq!(format!("{input:?}"), "x: 9 bytes");
}
