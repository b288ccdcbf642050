use anyhow::Result;

use super::*;
use crate::model::digest::Digest;
use crate::model::manifest::{Entry, Manifest, Password};
use crate::model::policy::Policies;
use crate::plan::config::samples::{entry, file, link, manifest, part};
use crate::plan::content::Versions;
use crate::plan::disruption::{judge, registries};

/// The contents of [`file`] nodes, by digest.
struct Known(Vec<Vec<u8>>);

impl Known {
    fn find(&self, node: Option<&Node>) -> Result<Option<Vec<u8>>> {
        let Some(Node::File { digest, .. }) = node else { return Ok(None) };
        Ok(self.0.iter().find(|bytes| Digest::of(bytes) == *digest).cloned())
    }
}

impl Versions for Known {
    fn before(&self, change: &EntryChange) -> Result<Option<Vec<u8>>> {
        self.find(change.from.as_ref())
    }

    fn after(&self, change: &EntryChange) -> Result<Option<Vec<u8>>> {
        self.find(change.to.as_ref())
    }
}

/// A host that changes from one manifest to another.
struct Story {
    changes: Changes,
    verdict: Verdict,
    known: Known,
}

impl Story {
    fn new(old: &Manifest, new: &Manifest, known: &[&str], policy: &str) -> Self {
        let mut policies = Policies::built_in();
        if !policy.is_empty() {
            policies.add("20-own.yaml", policy.as_bytes()).expect("a valid policy");
        }
        let known = Known(known.iter().map(|text| text.as_bytes().to_vec()).collect());
        let changes = Changes::between(old, new, &|_| None);
        let verdict = judge(&changes, &policies, registries(&changes, &known).as_ref());
        Self { changes, verdict, known }
    }

    /// After the image and what it needs were added.
    fn with_image(mut self) -> Self {
        self.changes.image = Some(ImageChange {
            before: Some("docker://registry.example/os:4.18 (sha256:0123456789ab)".to_owned()),
            after: "docker://registry.example/os:4.19".to_owned(),
        });
        self.verdict = judge(&self.changes, &Policies::built_in(), None);
        self
    }

    fn view(&self, show_secrets: bool) -> DiffView<'_> {
        DiffView::new(&self.changes, &self.verdict, &self.known, show_secrets).expect("it can be read")
    }

    fn page(&self) -> String {
        plain(&self.view(false))
    }
}

fn plain(view: &DiffView<'_>) -> String {
    anstream::adapter::strip_str(&render(view)).to_string()
}

fn with_owner(node: Node, user: u32, group: u32) -> Node {
    match node {
        Node::File { digest, size, mode, label, object, .. } => {
            Node::File { digest, size, mode, uid: user, gid: group, label, object }
        }
        other => other,
    }
}

const OLD_CHRONY: &str = "server a.example iburst\ndriftfile /var/lib/chrony/drift\nmakestep 1.0 3\n";
const NEW_CHRONY: &str = "server b.example iburst\ndriftfile /var/lib/chrony/drift\nmakestep 1.0 3";
const KEYS: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG core@example\n";
const PULL_SECRET: &str = "{\"auths\":{\"registry.example\":{\"auth\":\"dG9wLXNlY3JldA==\"}}}";

fn directory(mode: u32) -> Node {
    Node::Directory { mode, uid: 0, gid: 0, label: None }
}

fn files() -> Story {
    let with_default = |default: Node, one: Entry| Entry { default: Some(default), ..one };
    let old = manifest(vec![
        entry("/etc/chrony.conf", file(OLD_CHRONY, 0o644)),
        entry("/etc/gone.conf", file("gone\n", 0o644)),
        with_default(file("image\n", 0o644), entry("/etc/motd", file("ours\n", 0o600))),
        entry("/etc/mode-only", file("x", 0o644)),
        entry("/etc/was-file", file("file\n", 0o644)),
        entry("/etc/link", link("old-target")),
        entry("/etc/dir", directory(0o755)),
    ]);
    let new = manifest(vec![
        entry("/etc/chrony.conf", file(NEW_CHRONY, 0o644)),
        with_default(file("old\n", 0o644), entry("/etc/issue", file("new\n", 0o644))),
        entry("/etc/mode-only", with_owner(file("x", 0o4755), 0, 998)),
        entry("/etc/was-file", link("../usr/share/x")),
        entry("/etc/link", link("new-target")),
        entry("/etc/dir", directory(0o700)),
        entry("/etc/binary", file("a\0b", 0o644)),
        Entry {
            asked: Some("/usr/local/bin/tool".into()),
            ..entry("/var/usrlocal/bin/tool", with_owner(file("#!/bin/sh\nexec true\n", 0o755), 1000, 1000))
        },
        with_default(file("same", 0o644), entry("/etc/same", file("same", 0o644))),
        entry("/var/lib/kubelet/config.json", file(PULL_SECRET, 0o600)),
    ]);
    let known = [
        OLD_CHRONY,
        NEW_CHRONY,
        "gone\n",
        "image\n",
        "ours\n",
        "old\n",
        "new\n",
        "file\n",
        "a\0b",
        "#!/bin/sh\nexec true\n",
        PULL_SECRET,
    ];
    let policy = "files:
- path: /etc/chrony.conf
  actions: [{type: Restart, restart: {serviceName: chronyd.service}}]
- path: /etc
  actions: [{type: None}]
";
    Story::new(&old, &new, &known, policy)
}

fn units() -> Story {
    let folder = "/etc/systemd/system";
    let of = |name: &str| Part::Unit(name.to_owned());
    let enables = |name: &str| Part::Enablement(name.to_owned());
    let wants = |name: &str| format!("{folder}/multi-user.target.wants/{name}");
    let old = manifest(vec![
        part(&format!("{folder}/a.service"), file("[Service]\nExecStart=/bin/a\n", 0o644), of("a.service")),
        part(&wants("old.service"), link("/usr/lib/systemd/system/old.service"), enables("old.service")),
    ]);
    let new = manifest(vec![
        part(
            &format!("{folder}/a.service"),
            file("[Service]\nExecStart=/bin/a --fast\n", 0o644),
            of("a.service"),
        ),
        part(&format!("{folder}/a.service.d/10-x.conf"), file("[Unit]\n", 0o644), of("a.service")),
        part(&wants("a.service"), link("/etc/systemd/system/a.service"), enables("a.service")),
        part(&format!("{folder}/masked.service"), link("/dev/null"), of("masked.service")),
        Entry {
            default: Some(link("/usr/lib/systemd/system/vendor.service")),
            ..part(&wants("vendor.service"), Node::Absent, enables("vendor.service"))
        },
        part(
            "/etc/systemd/system-preset/20-mcd.preset",
            file("enable a.service\ndisable vendor.service\n", 0o644),
            Part::Preset,
        ),
    ]);
    let known = [
        "[Service]\nExecStart=/bin/a\n",
        "[Service]\nExecStart=/bin/a --fast\n",
        "[Unit]\n",
        "enable a.service\ndisable vendor.service\n",
    ];
    let mut policy = "units:\n".to_owned();
    for name in ["a", "masked", "old", "vendor"] {
        policy.push_str(&format!(
            "- name: {name}.service\n  actions: [{{type: Restart, restart: {{serviceName: {name}.service}}}}]\n"
        ));
    }
    Story::new(&old, &new, &known, &policy)
}

fn keys() -> Story {
    let mut old = manifest(vec![]);
    old.password = Some(Password { user: "core".to_owned(), hash: "$6$salt$old-hash".to_owned() });
    let mut new = manifest(vec![Entry {
        asked: Some("/home/core/.ssh/authorized_keys.d/ignition".into()),
        ..part(
            "/var/home/core/.ssh/authorized_keys.d/ignition",
            with_owner(file(KEYS, 0o600), 1000, 1000),
            Part::Keys("core".to_owned()),
        )
    }]);
    new.password = Some(Password { user: "core".to_owned(), hash: "$6$salt$new-hash".to_owned() });
    Story::new(&old, &new, &[KEYS], "")
}

fn image_and_arguments() -> Story {
    let with = |text: &str| {
        let mut manifest = manifest(vec![]);
        manifest.kernel_arguments = text.split_whitespace().map(str::to_owned).collect();
        manifest
    };
    let old = with("hugepagesz=1G hugepages=32 nosmt");
    let new = with("hugepagesz=1G hugepages=4 nosmt");
    Story::new(&old, &new, &[], "").with_image()
}

fn registries_conf() -> Story {
    let path = "/etc/containers/registries.conf";
    let old = "[[registry]]\nlocation = \"a.example\"\n";
    let new = "[[registry]]\nlocation = \"b.example\"\n";
    let side = |text| manifest(vec![entry(path, file(text, 0o644))]);
    Story::new(&side(old), &side(new), &[old, new], "")
}

#[test]
fn files_with_every_kind_of_change() {
    insta::assert_snapshot!(files().page());
}

#[test]
fn units_with_drop_ins_and_enablement() {
    insta::assert_snapshot!(units().page());
}

#[test]
fn keys_and_password_without_the_hash() {
    let page = keys().page();
    assert!(!page.contains("$6$"), "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn image_and_kernel_arguments() {
    insta::assert_snapshot!(image_and_arguments().page());
}

#[test]
fn a_registry_goes() {
    insta::assert_snapshot!(registries_conf().page());
}

#[test]
fn nothing_differs() {
    let story = Story::new(&Manifest::default(), &Manifest::default(), &[], "");
    assert_eq!(story.page(), "Nothing differs.\n");
    let view = DiffView { notices: vec!["the image is not here\x1b[2J".to_owned()], ..story.view(false) };
    assert_eq!(plain(&view), "Nothing differs.\nNotice: the image is not here [2J\n");
}

#[test]
fn only_the_order_of_arguments() {
    let with = |words: &[&str]| {
        let mut manifest = manifest(vec![]);
        manifest.kernel_arguments = words.iter().map(|word| (*word).to_owned()).collect();
        manifest
    };
    let page = Story::new(&with(&["a", "b"]), &with(&["b", "a"]), &[], "").page();
    assert!(page.starts_with("kernel arguments\n    order: b a\n    needs reboot ("), "{page}");
}

#[test]
fn secrets_are_shown_only_when_asked_for() {
    let story = files();
    assert!(!story.page().contains("dG9wLXNlY3JldA"));
    assert!(plain(&story.view(true)).contains("dG9wLXNlY3JldA"));
    for show_secrets in [false, true] {
        let json = serde_json::to_string(&Document::from(&story.view(show_secrets))).expect("JSON");
        let digest = Digest::of(PULL_SECRET.as_bytes()).to_string();
        assert!(!json.contains("dG9wLXNlY3JldA") && !json.contains(&digest), "never in JSON");
    }
}

#[test]
fn a_huge_file_is_not_printed() {
    let many: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    let huge = "x\n".repeat(1 << 20);
    let new = manifest(vec![entry("/etc/many", file(&many, 0o644)), entry("/etc/huge", file(&huge, 0o644))]);
    let page = Story::new(&Manifest::default(), &new, &[&many, &huge], "").page();
    assert!(page.len() < 20_000, "{} bytes", page.len());
    assert!(page.contains("more lines not shown)") && page.contains("content is too large to be shown"));
}

#[test]
fn as_json() {
    for (name, story) in [
        ("files", files()),
        ("units", units()),
        ("keys", keys()),
        ("image_and_arguments", image_and_arguments()),
        ("registries", registries_conf()),
    ] {
        insta::assert_json_snapshot!(format!("json_of_{name}"), Document::from(&story.view(false)));
    }
}

#[test]
fn lines_of_ours_fit_a_terminal() {
    for story in [files(), units(), keys(), image_and_arguments(), registries_conf()] {
        for line in story.page().lines().filter(|line| !line.contains('/')) {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
}

#[test]
fn names_cannot_steer_the_terminal() {
    let new = manifest(vec![entry("/etc/\x1b]0;owned\x07", link("\x1b[2J"))]);
    let page = Story::new(&Manifest::default(), &new, &[], "").page();
    assert!(!page.contains(['\x1b', '\x07']), "{page:?}");
}
