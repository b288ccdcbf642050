//! Several files are one config.

use camino::Utf8Path;

use super::*;

fn all(files: &[(&str, String)]) -> Result<Config, Invalid> {
    read(files.iter().map(|(name, text)| input(name, text)).collect())
}

fn files(version: &str, files: &str) -> String {
    format!("  config:\n    ignition: {{version: {version}}}\n    storage: {{files: [{files}]}}")
}

#[test]
fn the_worker_role_comes_first_then_the_name() {
    let inputs = [
        ("1", machine_config("99-a", "infra", "  kernelArguments: [d]")),
        ("2", machine_config("50-x", "master", "  kernelArguments: [c]")),
        ("3", machine_config("99-b", "worker", "  kernelArguments: [b, a]")),
        ("4", machine_config("01-z", "worker", "  kernelArguments: [a]")),
    ];
    let config = all(&inputs).unwrap();
    assert_eq!(config.names, ["01-z", "99-b", "50-x", "99-a"]);
    assert_eq!(config.kernel_arguments.unwrap(), ["a", "b", "a", "c", "d"], "repetitions stay");
}

#[test]
fn later_ones_win_field_by_field() {
    let inputs = [
        (
            "a",
            machine_config(
                "a",
                "worker",
                &format!(
                    "  osImageURL: registry.example/os:1\n  fips: true\n  kernelType: realtime\n  extensions: [b, a]\n{}",
                    files(
                        "2.2.0",
                        "{path: /etc/x, mode: 384, user: {id: 3}, contents: {source: 'data:,old', compression: gzip}}, \
                         {path: /etc/y, contents: {source: 'data:,y'}}, {path: /etc/z}"
                    )
                    .replace(", compression: gzip", "")
                ),
            ),
        ),
        (
            "b",
            machine_config(
                "b",
                "worker",
                &format!(
                    "  osImageURL: registry.example/os:2\n  fips: false\n  kernelType: default\n  extensions: [c, a]\n{}",
                    files(
                        "3.4.0",
                        "{path: /etc/x, group: {id: 4}, contents: {source: 'data:,new'}}, {path: /etc/y, mode: 256}"
                    )
                ),
            ),
        ),
    ];
    let config = all(&inputs).unwrap();
    assert_eq!(config.image.unwrap().image.tag.as_deref(), Some("2"));
    assert_eq!((config.fips, config.kernel_type.as_deref()), (Some(true), Some("realtime")));
    assert_eq!(config.extensions, ["b", "a", "c"]);
    let managed = config.managed.unwrap();
    assert_eq!(content(&managed, "/etc/x"), b"new");
    let x = &managed.entries[Utf8Path::new("/etc/x")];
    assert!(matches!(x.kind, RequestKind::File { mode: Some(0o600), .. }), "{x:?}");
    assert_eq!((x.owner.user.is_some(), x.owner.group.is_some()), (true, true));
    assert_eq!(x.field, "b: spec.config.storage.files[0]");
    assert_eq!(content(&managed, "/etc/y"), b"y");
    assert!(matches!(
        managed.entries[Utf8Path::new("/etc/y")].kind,
        RequestKind::File { mode: Some(0o400), .. }
    ));
    assert_eq!(content(&managed, "/etc/z"), b"");
}

#[test]
fn another_kind_of_entry_replaces_what_was_there() {
    let with = |name: &str, storage: &str| {
        (
            name.to_owned(),
            machine_config(
                name,
                "worker",
                &format!("  config: {{ignition: {{version: 3.4.0}}, storage: {storage}}}"),
            ),
        )
    };
    let inputs = [
        with(
            "a",
            "{files: [{path: /etc/x, mode: 384, append: [{source: 'data:,a'}]}, {path: /etc/y, append: [{source: 'data:,a'}]}]}",
        ),
        with("b", "{directories: [{path: /etc/x}], files: [{path: /etc/y, append: [{source: 'data:,b'}]}]}"),
    ];
    let inputs: Vec<(&str, String)> =
        inputs.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    let managed = all(&inputs).unwrap().managed.unwrap();
    assert_eq!(managed.entries[Utf8Path::new("/etc/x")].kind, RequestKind::Directory { mode: None });
    match &managed.entries[Utf8Path::new("/etc/y")].kind {
        RequestKind::File { contents: None, append, .. } => assert_eq!(append.len(), 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn units_and_keys_are_joined() {
    let with = |name: &str, rest: &str| {
        machine_config(name, "worker", &format!("  config:\n    ignition: {{version: 3.4.0}}\n{rest}"))
    };
    let inputs = [
        (
            "a",
            with(
                "a",
                "    systemd: {units: [{name: u.service, enabled: true, contents: old, dropins: [{name: a.conf, contents: a}, {name: b.conf, contents: b}]}]}\n    \
                     passwd: {users: [{name: core, passwordHash: '$6$a$b', sshAuthorizedKeys: [ssh-rsa A, ssh-rsa B]}]}",
            ),
        ),
        (
            "b",
            with(
                "b",
                "    systemd: {units: [{name: u.service, mask: false, contents: \"[Install]\", dropins: [{name: b.conf}, {name: c.conf}]}]}\n    \
                     passwd: {users: [{name: core, sshAuthorizedKeys: [ssh-rsa C, ssh-rsa A]}]}",
            ),
        ),
    ];
    let managed = all(&inputs).unwrap().managed.unwrap();
    let unit = &managed.units["u.service"];
    assert_eq!((unit.enabled, unit.mask), (Some(true), Some(false)));
    assert_eq!(unit.contents.as_ref().unwrap().bytes(), b"[Install]");
    let dropins: Vec<_> = unit.dropins.iter().map(|(name, blob)| (name.as_str(), blob.bytes())).collect();
    assert_eq!(dropins, [("a.conf", &b"a"[..]), ("b.conf", b"b"), ("c.conf", b"")]);
    let core = managed.core.unwrap();
    assert_eq!(core.keys, ["ssh-rsa A", "ssh-rsa B", "ssh-rsa C"]);
    assert_eq!(core.password_hash.unwrap().bytes(), b"$6$a$b");
}

#[test]
fn files_of_one_name_are_one_too_many() {
    let inputs = [
        ("a.yaml", machine_config("same", "worker", "  fips: false")),
        ("b.yaml", machine_config("same", "master", "  fips: false")),
    ];
    let twice = [inputs[0].clone(), inputs[0].clone()];
    assert_eq!(all(&twice).unwrap_err().to_string(), "a.yaml: it is named twice; leave one");
    assert_eq!(
        all(&inputs).unwrap_err().to_string(),
        "b.yaml: metadata.name: a.yaml has the name same too; leave one"
    );
}

#[test]
fn problems_between_files_name_both() {
    let inputs = [
        ("dir/b.ign", ignition("3.0.0", "storage: {files: [{path: /etc/systemd/system/a.service}]}")),
        (
            "a.yaml",
            machine_config(
                "a",
                "worker",
                "  config: {ignition: {version: 3.4.0}, systemd: {units: [{name: a.service}]}}",
            ),
        ),
    ];
    assert_eq!(
        all(&inputs).unwrap_err().to_string(),
        "dir/b.ign: storage.files[0].path: /etc/systemd/system/a.service: a.yaml: spec.config.systemd.units[0] \
         writes this path; leave one"
    );
}

#[test]
fn all_files_are_read_before_anything_is_refused() {
    let inputs = [
        ("a", "a: b: c".to_owned()),
        ("b", String::new()),
        ("c", machine_config("c", "worker", "  fips: 1")),
    ];
    let invalid = all(&inputs).unwrap_err();
    assert_eq!(invalid.problems.len(), 3);
    let fault = Fault::from(invalid);
    assert_eq!(fault.kind.code(), 3);
    assert_eq!(fault.what, "the config is refused: 3 problems");
    assert!(fault.why.unwrap().contains("; b: it is empty; "), "each is named");
}

#[test]
fn a_config_of_ignition_is_named_by_its_file() {
    let inputs = [
        (
            "z/10-a.ign",
            ignition("3.0.0", "storage: {files: [{path: /etc/x, contents: {source: 'data:,first'}}]}"),
        ),
        (
            "a/20-b.ign",
            ignition("3.0.0", "storage: {files: [{path: /etc/x, contents: {source: 'data:,last'}}]}"),
        ),
    ];
    let config = all(&inputs).unwrap();
    assert_eq!(config.names, ["10-a.ign", "20-b.ign"]);
    assert_eq!(content(&config.managed.unwrap(), "/etc/x"), b"last");
}
