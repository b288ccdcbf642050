//! What is said of disks: kept, and compared by what it means.

use super::*;
use crate::model::config::{Disks, said};

const VAR: &str = "storage:
  disks:
  - device: /dev/disk/by-id/coreos-boot-disk
    wipeTable: false
    partitions: [{label: var, startMiB: 50000, sizeMiB: 0, number: 5}]
  filesystems:
  - {device: /dev/disk/by-partlabel/var, path: /var, format: xfs, mountOptions: [defaults, prjquota]}
";

fn disks(rest: &str) -> Disks {
    managed("3.4.0", rest).disks
}

#[test]
fn every_section_is_kept() {
    let all =
        "storage: {disks: [{device: a}], raid: [{name: b}], filesystems: [{device: c}], luks: [{name: d}]}";
    let read = disks(all);
    assert_eq!(read.keys().collect::<Vec<_>>(), ["disks", "filesystems", "luks", "raid"]);
    assert_eq!(read["luks"].field, "x.yaml: storage.luks");
    assert_eq!(managed("2.2.0", "storage: {disks: [{device: a}]}").disks.len(), 1);
    assert_eq!(
        problems(&ignition("2.2.0", "storage: {luks: [{name: d}]}")),
        "x.yaml: storage.luks: there is no such field"
    );
}

#[test]
fn the_same_in_another_spelling_is_the_same() {
    let json = r#"{"ignition": {"version": "3.4.0"}, "storage": {
        "filesystems": [{"format": "xfs", "path": "/var", "device": "/dev/disk/by-partlabel/var", "label": null,
            "mountOptions": ["defaults", "prjquota"], "options": [], "wipeFilesystem": false}],
        "disks": [{"partitions": [{"number": 5, "sizeMiB": 0, "startMiB": 50000, "label": "var"}],
            "device": "/dev/disk/by-id/coreos-boot-disk"}]}}"#;
    let other = one(json).unwrap().managed.unwrap().disks;
    assert_eq!(said(&disks(VAR)), said(&other));
    for (old, new) in [("50000", "50001"), ("xfs", "ext4"), ("[defaults, prjquota]", "[prjquota, defaults]")]
    {
        assert_ne!(said(&disks(&VAR.replace(old, new))), said(&other), "{new}");
    }
    let (one, two) = ("{device: a, wipeTable: true}", "{device: b}");
    let list = |items: &str| said(&disks(&format!("storage: {{disks: [{items}]}}")));
    assert_eq!(list(&format!("{one}, {two}")), list(&format!("{two}, {one}")));
    assert_ne!(list(one), list(two));
}

#[test]
fn several_files_say_the_same_or_are_refused() {
    let of = |name: &str, disk: &str| {
        let spec = format!("  config: {{ignition: {{version: 3.4.0}}, storage: {{disks: [{disk}]}}}}");
        input(&format!("{name}.yaml"), &machine_config(name, "worker", &spec))
    };
    let same = read(vec![of("a", "{device: x}"), of("b", "{device: x}")]).unwrap();
    assert_eq!(same.managed.unwrap().disks.len(), 1);
    let differ = read(vec![of("a", "{device: x}"), of("b", "{device: y}")]).unwrap_err();
    assert_eq!(
        differ.to_string(),
        "b.yaml: spec.config.storage.disks: a.yaml: spec.config.storage.disks says something else of them; put both into one"
    );
}

#[test]
fn what_is_no_list_of_objects_is_refused() {
    for (list, field, message) in [
        ("{}", "storage.disks", "it must be a list, not an object"),
        ("[/dev/sda]", "storage.disks[0]", "it must be an object"),
        ("[{device: a, device: b}]", "storage.disks[0].device", "it is written twice; leave one"),
    ] {
        let told = problems(&ignition("3.4.0", &format!("storage: {{disks: {list}}}")));
        assert_eq!(told, format!("x.yaml: {field}: {message}"));
    }
}

#[test]
fn a_key_is_shown_to_nobody() {
    let read = disks("storage: {luks: [{name: root, keyFile: {source: 'data:,topsecret'}}]}");
    assert!(!format!("{read:?}").contains("topsecret"));
}
