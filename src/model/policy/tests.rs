use super::*;

/// The policies after one file, or its problems, one on each line.
fn with(yaml: &str) -> Result<Policies, Vec<String>> {
    let mut policies = Policies::built_in();
    match policies.add("20-own.yaml", yaml.as_bytes()) {
        Ok(()) => Ok(policies),
        Err(invalid) => Err(invalid.problems.iter().map(ToString::to_string).collect()),
    }
}

fn restart(unit: &str) -> Action {
    Action::Restart(unit.to_owned())
}

fn reload(unit: &str) -> Action {
    Action::Reload(unit.to_owned())
}

#[test]
fn the_defaults_are_the_operators() {
    let policies = Policies::built_in();
    let anchors = "/etc/pki/ca-trust/source/anchors";
    let trust = "coreos-update-ca-trust.service";
    for (path, actions) in [
        ("/var/lib/kubelet/config.json", vec![Action::None]),
        ("/etc/kubernetes/kubelet-ca.crt", vec![Action::None]),
        ("/etc/nmstate/openshift/worker-0.yml", vec![Action::None]),
        ("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", vec![reload(CRIO)]),
        ("/etc/containers/policy.json", vec![reload(CRIO)]),
        ("/etc/containers/registries.conf", vec![Action::Special]),
        ("/etc/containers/registries.d/sigstore.yaml", vec![reload(CRIO)]),
        ("/etc/crio/policies/default.json", vec![reload(CRIO)]),
        (&format!("{anchors}/openshift-config-user-ca-bundle.crt"), vec![restart(trust), restart(CRIO)]),
        (&format!("{anchors}/iri-root-ca.crt"), vec![restart(trust)]),
        ("/etc/kubernetes/credential-providers/ecr.yaml", vec![restart("kubelet.service")]),
        (
            "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
            vec![Action::DaemonReload, restart("kubelet.service")],
        ),
        ("/etc/iri-registry/a/b", vec![restart("iri-registry.service")]),
        ("/usr/local/bin/load-registry-image.sh", vec![restart("iri-registry.service")]),
    ] {
        let (_, policy) = policies.of_path(Utf8Path::new(path)).expect(path);
        assert_eq!((&policy.actions, &policy.origin), (&actions, &Origin::BuiltIn), "{path}");
    }
    for path in [
        "/etc/chrony.conf",
        "/etc/containers/registries.conf.d/x.conf",
        "/etc/iri-registry2",
        "/etc/containers",
    ] {
        assert_eq!(policies.of_path(Utf8Path::new(path)), None, "{path}");
    }
    let unit = policies.of_unit("iri-registry.service").expect("it has one");
    assert_eq!(unit.actions, [Action::DaemonReload, restart("iri-registry.service")]);
    assert_eq!(policies.of_unit("iri-registry"), None);
    assert_eq!(policies.of_unit("kubelet.service"), None);
    assert_eq!(policies.of_keys().actions, [Action::None]);
}

const SPEC: &str = "
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  logLevel: Normal
  managementState: Managed
  nodeDisruptionPolicy:
    files:
    - path: /etc/my
      actions: [{type: Restart, restart: {serviceName: my.service}}]
    - path: /etc/my/sub/dir
      actions:
      - type: Drain
      - type: Reload
        reload: {serviceName: other@1.service}
    - path: /etc/containers/registries.conf
      actions: [{type: Reboot}]
    units:
    - name: a.service
      actions: [{type: DaemonReload}, {type: Reload, reload: {serviceName: a.service}}]
    sshkey:
      actions: [{type: Reboot}]
status:
  nodeDisruptionPolicyStatus: {}
";

#[test]
fn the_longest_path_wins_and_a_later_file_replaces() {
    let mut policies = with(SPEC).expect("valid");
    let of = |policies: &Policies, path: &str| {
        policies.of_path(Utf8Path::new(path)).map(|(at, policy)| (at.to_string(), policy.actions.clone()))
    };
    let my = ("/etc/my".to_owned(), vec![restart("my.service")]);
    let sub = ("/etc/my/sub/dir".to_owned(), vec![Action::Drain, reload("other@1.service")]);
    assert_eq!(of(&policies, "/etc/my"), Some(my.clone()));
    assert_eq!(of(&policies, "/etc/my/x"), Some(my.clone()));
    assert_eq!(of(&policies, "/etc/my/sub"), Some(my.clone()));
    assert_eq!(of(&policies, "/etc/my/sub/directory"), Some(my));
    assert_eq!(of(&policies, "/etc/my/sub/dir"), Some(sub.clone()));
    assert_eq!(of(&policies, "/etc/my/sub/dir/x/y"), Some(sub));
    assert_eq!(of(&policies, "/etc/my2"), None);
    let registries = "/etc/containers/registries.conf";
    assert_eq!(of(&policies, registries), Some((registries.to_owned(), vec![Action::Reboot])));
    assert_eq!(policies.of_keys().origin, Origin::File("20-own.yaml".to_owned()));

    let later = "files: [{path: /etc/my, actions: [{type: None}]}]\nunits: []\n";
    policies.add("30-later.yaml", later.as_bytes()).expect("valid");
    assert_eq!(of(&policies, "/etc/my"), Some(("/etc/my".to_owned(), vec![Action::None])));
    assert!(policies.of_unit("a.service").is_some(), "what is not named stays");
    assert_eq!(policies.of_keys().actions, [Action::Reboot]);
}

#[test]
fn what_the_operator_merged_counts_before_what_was_asked() {
    let policies = with(
        r#"{
        "kind": "MachineConfiguration",
        "spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc/a", "actions": [{"type": "Reboot"}]}]}},
        "status": {"nodeDisruptionPolicyStatus": {"clusterPolicies": {
            "files": [{"path": "/etc/a", "actions": [{"type": "Special"}]}],
            "sshkey": {"actions": [{"type": "None"}]}
        }}}
    }"#,
    )
    .expect("valid");
    let (_, policy) = policies.of_path(Utf8Path::new("/etc/a")).expect("it is there");
    assert_eq!(policy.actions, [Action::Special]);
}

#[test]
fn every_mistake_is_named_by_file_and_field() {
    let problems = with(
        "
spec:
  nodeDisruptionPolicy:
    file: []
    files:
    - path: etc/relative
      actions: [{type: None}]
    - path: /etc//twice/
      actions: [{type: None}]
    - path: /etc/a
      action: [{type: None}]
    - path: /etc/b
      actions: [{type: None}, {type: Drain}]
    - path: /etc/c
      actions: [{type: Restart}, {type: reload}, {type: Reload, reload: {serviceName: crio}}]
    - path: /etc/d
      actions: [{type: Drain, restart: {serviceName: a.service}}]
    - path: /etc/e
      actions: [{type: None}]
    - path: /etc/e
      actions: [{type: Drain}]
    - path: /etc/f
      actions: none
    - /etc/g
    units:
    - name: crio
      actions: [{type: None}]
    - actions: [{type: None}]
    sshkey: {actions: []}
",
    )
    .expect_err("it is full of mistakes");
    insta::assert_snapshot!(problems.join("\n"));
}

#[test]
fn what_is_no_policy_is_refused() {
    for (yaml, expected) in [
        ("a: [", "20-own.yaml: is no valid YAML"),
        ("- a\n", "20-own.yaml: must be a MachineConfiguration"),
        ("", "20-own.yaml: is empty"),
        ("files: []\n---\nunits: []\n", "20-own.yaml: holds several documents"),
        ("files: []\nfiles: []\n", "20-own.yaml: has the field files twice"),
        ("kind: MachineConfig\n", "20-own.yaml: kind: must be MachineConfiguration"),
        ("kind: MachineConfiguration\nspec: {}\n", "20-own.yaml: has neither"),
        ("spec: {nodeDisruptionPolicy: []}\n", "20-own.yaml: spec.nodeDisruptionPolicy: must have"),
        ("paths: []\n", "20-own.yaml: paths: is not known here"),
        ("files: {}\n", "20-own.yaml: files: must be a list"),
    ] {
        let problems = with(yaml).expect_err(yaml);
        assert!(problems[0].starts_with(expected), "{yaml:?}: {problems:?}");
    }
    assert!(Policies::built_in().add("x", b"\xff\xfe").is_err());
}

#[test]
fn a_file_with_a_mistake_changes_nothing() {
    let mut policies = Policies::built_in();
    let yaml = "files: [{path: /etc/a, actions: [{type: None}]}, {path: b, actions: [{type: None}]}]";
    assert!(policies.add("x.yaml", yaml.as_bytes()).is_err());
    assert_eq!(policies, Policies::built_in());
}

proptest::proptest! {
    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), text in ".{0,200}") {
        let _ = Policies::built_in().add("x", &bytes);
        let _ = Policies::built_in().add("x", text.as_bytes());
    }
}
