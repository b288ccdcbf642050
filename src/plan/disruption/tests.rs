use proptest::prelude::*;

use super::*;
use crate::model::manifest::{Entry, Manifest, Part};
use crate::plan::config::samples::{entry, file as content, link, manifest, part};
use crate::plan::config::tests::any_manifest;
use crate::plan::config::{ArgumentsChange, ImageChange, PasswordChange, PasswordState};

fn policies(yaml: &str) -> Policies {
    let mut policies = Policies::built_in();
    policies.add("own.yaml", yaml.as_bytes()).expect("a valid policy");
    policies
}

/// Changes that add these entries.
fn adding(entries: Vec<Entry>) -> Changes {
    Changes::between(&Manifest::default(), &manifest(entries), &|_| None)
}

fn files(paths: &[&str]) -> Changes {
    adding(paths.iter().map(|path| entry(path, content("x", 0o644))).collect())
}

fn words(actions: &[Action]) -> String {
    actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";

#[test]
fn files_ask_for_what_their_policy_says() {
    let own = policies(
        "files:
- path: /etc/a
  actions: [{type: Restart, restart: {serviceName: a.service}}]
- path: /etc/b
  actions: [{type: Drain}, {type: Reload, reload: {serviceName: b.service}}]
- path: /etc/systemd/system
  actions: [{type: None}]
- path: /usr/lib/a
  actions: [{type: None}]
- path: /var/roothome/x
  actions: [{type: None}]
",
    );
    for (paths, expected) in [
        (&[][..], ""),
        (&["/var/lib/kubelet/config.json"][..], ""),
        (&["/etc/chrony.conf"], "reboot"),
        (&["/etc/a/x", "/etc/chrony.conf"], "reboot"),
        (&["/etc/a/x", "/etc/a/y", "/etc/a"], "restart a.service"),
        (
            &["/etc/a/x", "/etc/b", "/var/lib/kubelet/config.json"],
            "drain, reload b.service, restart a.service",
        ),
        (&["/etc/systemd/system/x.service.d/1.conf"], "daemon-reload"),
        (&["/usr/lib/a/x"], "reboot"),
        (&["/var/roothome/x"], ""),
        (&["/etc/containers/policy.json", "/etc/crio/policies/x.json"], "reload crio.service"),
        (
            &[CA, "/etc/containers/policy.json"],
            "restart coreos-update-ca-trust.service, restart crio.service",
        ),
    ] {
        let verdict = judge(&files(paths), &own, None);
        assert_eq!(words(&verdict.actions), expected, "{paths:?}");
        assert_eq!(verdict.reasons.len(), paths.len());
    }
}

#[test]
fn a_policy_speaks_of_the_path_as_it_is_asked_or_as_it_is() {
    let asked = |path: &str, asked: &str| {
        adding(vec![Entry { asked: Some(asked.into()), ..entry(path, content("x", 0o755)) }])
    };
    let changes = asked("/var/usrlocal/bin/load-registry-image.sh", "/usr/local/bin/load-registry-image.sh");
    let verdict = judge(&changes, &Policies::built_in(), None);
    assert_eq!(words(&verdict.actions), "restart iri-registry.service");
    let own = policies("files: [{path: /var/roothome, actions: [{type: None}]}]");
    let verdict = judge(&asked("/var/roothome/x", "/root/x"), &own, None);
    assert_eq!(words(&verdict.actions), "");
    assert_eq!(verdict.reasons[0].why, "policy file own.yaml for /var/roothome");
}

#[test]
fn below_usr_only_a_root_without_ostree_can_change_while_it_runs() {
    let own = policies("files: [{path: /usr/lib/a, actions: [{type: None}]}]");
    let mut changes = files(&["/usr/lib/a/x"]);
    changes.usr_is_writable = true;
    assert_eq!(words(&judge(&changes, &own, None).actions), "");
    assert_eq!(words(&judge(&changes, &Policies::built_in(), None).actions), "reboot");
}

#[test]
fn registries_are_judged_by_meaning() {
    let changes = files(&[REGISTRIES_CONF]);
    let policies = Policies::built_in();
    for (meaning, expected, why) in [
        (Some(Meaning::Same), "", "built-in policy: it says the same as before"),
        (Some(Meaning::Safe), "reload crio.service", "built-in policy: every image can be pulled as before"),
        (
            Some(Meaning::Unsafe("registry a goes".to_owned())),
            "drain, reload crio.service",
            "built-in policy: registry a goes",
        ),
        (None, "drain, reload crio.service", "built-in policy: it could not be compared"),
    ] {
        let verdict = judge(&changes, &policies, meaning.as_ref());
        assert_eq!(words(&verdict.actions), expected);
        assert_eq!(verdict.reasons[0].why, why);
        assert_eq!(verdict.needs_drain(), expected.contains("drain"));
    }
    let own = self::policies("files: [{path: /etc/containers/registries.conf, actions: [{type: None}]}]");
    assert_eq!(words(&judge(&changes, &own, None).actions), "");
}

#[test]
fn units_ask_by_their_exact_name_and_their_enablement_is_theirs() {
    let own = policies(
        "units:
- name: a.service
  actions: [{type: Restart, restart: {serviceName: a.service}}]
- name: none.service
  actions: [{type: None}]
",
    );
    let of = |name: &str, kind: fn(String) -> Part, node| {
        adding(vec![part(&format!("/etc/systemd/system/{name}"), node, kind(name.to_owned()))])
    };
    for (changes, expected) in [
        (of("a.service", Part::Unit, content("", 0o644)), "daemon-reload, restart a.service"),
        (of("a.service", Part::Enablement, link("../a")), "daemon-reload, restart a.service"),
        (of("none.service", Part::Unit, content("", 0o644)), "daemon-reload"),
        (of("a@1.service", Part::Unit, content("", 0o644)), "reboot"),
        (of("b.service", Part::Enablement, link("../b")), "reboot"),
    ] {
        assert_eq!(words(&judge(&changes, &own, None).actions), expected);
    }
    // A path's policy does not speak for the units in it, as in the Go daemon.
    let path = policies("files: [{path: /etc/systemd/system, actions: [{type: None}]}]");
    let changes = of("b.service", Part::Unit, content("", 0o644));
    assert_eq!(words(&judge(&changes, &path, None).actions), "reboot");
}

#[test]
fn keys_and_password_are_one() {
    let mut changes = adding(vec![part(
        "/var/home/core/.ssh/authorized_keys",
        content("k", 0o600),
        Part::Keys("core".to_owned()),
    )]);
    changes.password = Some(PasswordChange { user: "core".to_owned(), to: PasswordState::Set });
    let verdict = judge(&changes, &Policies::built_in(), None);
    assert_eq!((words(&verdict.actions).as_str(), verdict.reasons.len()), ("", 1));
    assert_eq!(verdict.reasons[0].subject, Subject::Keys("core".to_owned()));
    let own = policies("sshkey: {actions: [{type: Reboot}]}");
    assert!(judge(&changes, &own, None).needs_reboot());
}

#[test]
fn image_and_arguments_need_a_boot() {
    let image = Some(ImageChange { before: None, after: "x".to_owned() });
    let kernel_arguments = Some(ArgumentsChange::default());
    for changes in
        [Changes { image, ..Changes::default() }, Changes { kernel_arguments, ..Changes::default() }]
    {
        let verdict = judge(&changes, &Policies::built_in(), None);
        assert_eq!(verdict.actions, [Action::Reboot]);
        assert!(verdict.needs_drain() && verdict.needs_reboot());
    }
    assert_eq!(judge(&Changes::default(), &Policies::built_in(), None), Verdict::default());
}

#[test]
fn what_is_as_wanted_asks_for_nothing() {
    let new = manifest(vec![
        entry("/etc/chrony.conf", content("x", 0o644)),
        entry("/usr/lib/x", content("x", 0o644)),
        part("/etc/systemd/system/b.service", content("x", 0o644), Part::Unit("b.service".to_owned())),
        part("/var/home/core/.ssh/authorized_keys", content("x", 0o600), Part::Keys("core".to_owned())),
        part("/etc/systemd/system-preset/20-mcd.preset", content("x", 0o644), Part::Preset),
    ]);
    let there = |entry: &Entry| (entry.part != Part::Preset).then(|| entry.node.clone());
    let own = policies("sshkey: {actions: [{type: Reboot}]}");
    let verdict = judge(&Changes::between(&Manifest::default(), &new, &there), &own, None);
    assert_eq!(words(&verdict.actions), "");
    assert_eq!(verdict.reasons.len(), 4);
    assert!(verdict.reasons.iter().all(|reason| reason.actions == [Action::None]));
}

#[test]
fn policies_order_their_own_actions() {
    let own = policies(
        "files:
- path: /etc/1
  actions: [{type: Restart, restart: {serviceName: a.service}}]
- path: /etc/2
  actions:
  - {type: Restart, restart: {serviceName: z.service}}
  - {type: DaemonReload}
  - {type: Restart, restart: {serviceName: a.service}}
- path: /etc/3
  actions:
  - {type: Restart, restart: {serviceName: y.service}}
  - {type: Reload, reload: {serviceName: b.service}}
- path: /etc/4
  actions: [{type: Reload, reload: {serviceName: c.service}}]
- path: /etc/5
  actions:
  - {type: Restart, restart: {serviceName: a.service}}
  - {type: Restart, restart: {serviceName: z.service}}
- path: /etc/6
  actions: [{type: Reload, reload: {serviceName: z.service}}]
",
    );
    for (paths, expected) in [
        (&["/etc/1", "/etc/2"][..], "daemon-reload, restart z.service, restart a.service"),
        (&["/etc/1", "/etc/3"], "restart a.service, restart y.service, reload b.service"),
        (&["/etc/1", "/etc/4"], "reload c.service, restart a.service"),
        // They contradict each other: no order is right, but it is always the same.
        (&["/etc/2", "/etc/5"], "daemon-reload, restart a.service, restart z.service"),
        (&["/etc/5", "/etc/6"], "restart a.service, restart z.service"),
    ] {
        assert_eq!(words(&judge(&files(paths), &own, None).actions), expected, "{paths:?}");
    }
}

/// A policy for the paths and units of [`any_manifest`].
fn any_policies() -> impl Strategy<Value = Policies> {
    let any_action = prop_oneof![
        Just("{type: Drain}".to_owned()),
        Just("{type: DaemonReload}".to_owned()),
        "[a-c]".prop_map(|unit| format!("{{type: Reload, reload: {{serviceName: {unit}.service}}}}")),
        "[a-c]".prop_map(|unit| format!("{{type: Restart, restart: {{serviceName: {unit}.service}}}}")),
    ];
    let any_actions = prop_oneof![
        1 => Just("{type: None}".to_owned()),
        4 => proptest::collection::vec(any_action, 1..4).prop_map(|actions| actions.join(", ")),
    ];
    proptest::collection::vec(any_actions, 6).prop_map(|actions| {
        policies(&format!(
            "files:
- {{path: /etc/a, actions: [{}]}}
- {{path: /etc/b, actions: [{}]}}
- {{path: /etc/c, actions: [{}]}}
- {{path: /etc/d, actions: [{}]}}
units:
- {{name: a.service, actions: [{}]}}
- {{name: b.service, actions: [{}]}}
",
            actions[0], actions[1], actions[2], actions[3], actions[4], actions[5]
        ))
    })
}

proptest! {
    #[test]
    fn a_verdict_is_ordered_and_each_action_stands_once(
        old in any_manifest(), new in any_manifest(), own in any_policies(), usr in any::<bool>(),
    ) {
        let mut changes = Changes::between(&old, &new, &|_| None);
        changes.usr_is_writable = usr;
        let verdict = judge(&changes, &own, Some(&Meaning::Safe));
        let actions = &verdict.actions;
        let once: BTreeSet<&Action> = actions.iter().collect();
        prop_assert_eq!(once.len(), actions.len());
        let asked: BTreeSet<&Action> = verdict.reasons.iter().flat_map(|reason| &reason.actions).collect();
        prop_assert_eq!(verdict.needs_reboot(), asked.contains(&Action::Reboot));
        if verdict.needs_reboot() {
            prop_assert_eq!(actions, &[Action::Reboot]);
        } else {
            for action in asked {
                let is_there = match action {
                    Action::None => true,
                    Action::Reload(unit) => {
                        once.contains(action) || once.contains(&Action::Restart(unit.clone()))
                    }
                    other => once.contains(other),
                };
                prop_assert!(is_there, "{action:?} in {actions:?}");
            }
            let place = |action: &Action| actions.iter().position(|other| other == action);
            let first = actions.iter().position(|action| matches!(action, Action::Reload(_) | Action::Restart(_)));
            if let (Some(daemon), Some(first)) = (place(&Action::DaemonReload), first) {
                prop_assert!(daemon < first);
            }
            prop_assert!(place(&Action::Drain).is_none_or(|place| place == 0));
        }
    }

    #[test]
    fn a_verdict_does_not_depend_on_the_order_of_changes(
        old in any_manifest(), new in any_manifest(), own in any_policies(), seed in any::<prop::sample::Index>(),
    ) {
        let changes = Changes::between(&old, &new, &|_| None);
        let mut turned = changes.clone();
        turned.files.reverse();
        if !turned.files.is_empty() {
            let by = seed.index(turned.files.len());
            turned.files.rotate_left(by);
        }
        prop_assert_eq!(judge(&changes, &own, None).actions, judge(&turned, &own, None).actions);
    }

    #[test]
    fn nothing_that_differs_asks_for_nothing(one in any_manifest(), own in any_policies()) {
        let changes = Changes::between(&one, &one, &|_| None);
        prop_assert_eq!(judge(&changes, &own, None), Verdict::default());
    }
}
