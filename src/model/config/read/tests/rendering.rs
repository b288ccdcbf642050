//! What several configs mean together, written as one, means the same.

use serde_json::json;

use super::*;
use crate::model::config::render::{digest, rendered};

/// The same, read from its rendered form.
fn again(config: &Config) -> Config {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": "rendered" },
        "spec": rendered(config),
    });
    one(&object.to_string()).unwrap_or_else(|invalid| panic!("{invalid}\n{object:#}"))
}

/// Without what says where it was read.
fn meaning(mut config: Config) -> Config {
    config.names.clear();
    config.warnings.clear();
    if let Some(managed) = &mut config.managed {
        managed.entries.values_mut().for_each(|entry| entry.field.clear());
        managed.units.values_mut().for_each(|unit| unit.field.clear());
        managed.disks.values_mut().for_each(|section| section.field.clear());
        managed.core.iter_mut().for_each(|core| core.field.clear());
    }
    config
}

#[track_caller]
fn stays(config: Config) {
    let read = again(&config);
    assert_eq!(digest(&config), digest(&read));
    assert_eq!(meaning(config), meaning(read));
}

const EVERYTHING: &str = "  osImageURL: registry.example:5000/os:1
  baseOSExtensionsContainerImage: registry.example/extensions:1
  kernelArguments: [a=1 b, 'c=\"d e\"']
  fips: false
  kernelType: realtime
  extensions: [usbguard]
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /etc/empty}
      - {path: /etc/kept, overwrite: false}
      - {path: /etc/mode, mode: 0600, overwrite: true, contents: {source: 'data:,%00%ff'}, user: {id: 7}, group: {name: wheel}}
      - {path: /etc/more, append: [{source: 'data:,a'}, {source: 'data:,b'}]}
      - path: /etc/remote
        contents: {source: 'https://example.com/x', compression: gzip, verification: {hash: sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881}}
      directories: [{path: /etc/d, mode: 0700}]
      disks: [{device: /dev/vda, wipeTable: true, partitions: [{label: var, sizeMiB: 0}]}]
      links: [{path: /etc/l, target: ../x}, {path: /etc/h, target: /etc/mode, hard: true}]
    systemd:
      units:
      - {name: a.service, enabled: true, contents: \"[Install]\\nWantedBy=x.target\\n\"}
      - {name: b.service, mask: true}
      - {name: c.service, enabled: false, dropins: [{name: 10-x.conf, contents: '[Service]'}, {name: 20-y.conf}]}
    passwd: {users: [{name: core, sshAuthorizedKeys: [ssh-ed25519 AAAA], passwordHash: '$6$abc$def'}]}";

#[test]
fn everything_that_a_config_may_hold_stays() {
    stays(one(&machine_config("a", "worker", EVERYTHING)).unwrap());
    stays(one(&machine_config("a", "worker", "  kernelArguments: []")).unwrap());
    stays(one(&machine_config("a", "worker", "  config: {}")).unwrap());
}

#[test]
fn real_configs_stay() {
    for text in [
        include_str!("../../../../../tests/fixtures/config/rendered-worker.yaml"),
        include_str!("../../../../../tests/fixtures/config/worker-of-4.1.json"),
    ] {
        stays(one(text).unwrap());
    }
}

#[test]
fn a_large_file_is_packed_and_has_the_same_name() {
    let text = "0123456789".repeat(1000);
    let spec = format!(
        "  config:\n    ignition: {{version: 3.4.0}}\n    storage: {{files: [{{path: /etc/x, contents: {{source: 'data:,{text}'}}}}]}}"
    );
    let config = one(&machine_config("a", "worker", &spec)).unwrap();
    assert!(rendered(&config).to_string().len() < 1000);
    stays(config);
}

#[test]
fn an_image_is_written_as_other_tools_read_it() {
    let config = one(&machine_config("a", "worker", "  osImageURL: registry.example/os:1")).unwrap();
    assert_eq!(rendered(&config)["osImageURL"], "registry.example/os:1");
}

#[test]
fn another_meaning_has_another_digest() {
    let of = |spec: &str| digest(&one(&machine_config("a", "worker", spec)).unwrap());
    let base = of(EVERYTHING);
    for (from, to) in
        [("mode: 0600", "mode: 0640"), ("a=1", "a=2"), ("%00", "%01"), ("fips: false", "fips: true")]
    {
        assert_ne!(base, of(&EVERYTHING.replace(from, to)), "{from}");
    }
}
