//! Random configurations, one after the other: what the last one asks for is there, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use mcd_test_support::listing::Listing;
use mcd_test_support::machine_config::MachineConfig;
use mcd_test_support::scratch::Scratch;
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::{Tree, create_repo};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Host, Outcome, program};

/// Few in `make test`; `PROPTEST_CASES=500 make test T=random_configs` for more.
fn runner(usual: u32) -> proptest::test_runner::TestRunner {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: asked.unwrap_or(usual),
        failure_persistence: None,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    };
    proptest::test_runner::TestRunner::new(config)
}

/// Paths of every sort: with a default, without, below links, in folders that are not there.
const FILES: [&str; 10] = [
    "/etc/chrony.conf",
    "/etc/default/grub",
    "/etc/new.conf",
    "/etc/a/b/c/deep.conf",
    "/etc/containers/registries.conf",
    "/usr/local/bin/tool",
    "/opt/app/file",
    "/var/lib/app/state",
    "/root/.profile",
    "/home/core/notes",
];
const UNITS: [&str; 5] =
    ["vendor-a.service", "vendor-b.service", "vendor-also.service", "vendor@three.service", "mine.service"];

/// One entry of a config; each place is taken by one at most.
#[derive(Debug, Clone)]
enum Item {
    File { path: usize, content: u8, mode: u32, owner: &'static str },
    Append { content: u8 },
    Directory { number: u8, mode: u32 },
    Link { number: u8, target: &'static str },
    Unit { name: usize, enabled: Option<bool>, mask: bool, contents: Option<u8>, drop_in: Option<u8> },
    Keys(u8),
}

fn item() -> impl Strategy<Value = Item> {
    let mode = prop::sample::select(vec![0o644_u32, 0o600, 0o755, 0o4755, 0o640]);
    let owner = prop::sample::select(vec!["root", "core"]);
    let target = prop::sample::select(vec!["chrony.conf", "/usr/lib/os-release", "nowhere"]);
    let maybe = || prop::option::of(0..3_u8);
    prop_oneof![
        6 => (0..FILES.len(), 0..4_u8, mode, owner)
            .prop_map(|(path, content, mode, owner)| Item::File { path, content, mode, owner }),
        1 => (0..3_u8).prop_map(|content| Item::Append { content }),
        1 => (0..3_u8, prop::sample::select(vec![0o755_u32, 0o700, 0o1777]))
            .prop_map(|(number, mode)| Item::Directory { number, mode }),
        1 => (0..3_u8, target).prop_map(|(number, target)| Item::Link { number, target }),
        4 => (0..UNITS.len(), prop::option::of(any::<bool>()), prop::bool::weighted(0.2), maybe(), maybe())
            .prop_map(|(name, enabled, mask, contents, drop_in)| Item::Unit {
                name, enabled, mask, contents, drop_in
            }),
        1 => (0..3_u8).prop_map(Item::Keys),
    ]
}

/// The place that an item takes.
fn place(item: &Item) -> String {
    match item {
        Item::File { path, .. } => FILES[*path].to_owned(),
        Item::Append { .. } => "/etc/hosts".to_owned(),
        Item::Directory { number, .. } => format!("/etc/folder-{number}"),
        Item::Link { number, .. } => format!("/etc/link-{number}"),
        Item::Unit { name, .. } => UNITS[*name].to_owned(),
        Item::Keys(_) => "keys".to_owned(),
    }
}

fn unit(name: &str, enabled: Option<bool>, mask: bool, contents: Option<u8>, drop_in: Option<u8>) -> Value {
    let mut keys = json!({});
    // What is nowhere cannot be enabled, and a mask takes the place of contents.
    let contents = contents.or((name == "mine.service" && !mask).then_some(0));
    if let (Some(number), false) = (contents, mask) {
        let install = ["WantedBy=multi-user.target", "WantedBy=basic.target", "RequiredBy=sockets.target"];
        let install = install[usize::from(number) % 3];
        keys["contents"] =
            json!(format!("[Service]\nExecStart=/usr/bin/true {number}\n[Install]\n{install}\n"));
    }
    if mask {
        keys["mask"] = json!(true);
    } else if let Some(enabled) = enabled {
        keys["enabled"] = json!(enabled);
    }
    if let Some(number) = drop_in {
        let text = if number == 0 { String::new() } else { format!("[Service]\nNice={number}\n") };
        keys["dropins"] = json!([{ "name": "10-vendor.conf", "contents": text }]);
    }
    keys
}

fn config(items: &[Item]) -> MachineConfig {
    let mut config = MachineConfig::new("99-random");
    let mut taken = std::collections::BTreeSet::new();
    for item in items.iter().filter(|item| taken.insert(place(item))) {
        let path = place(item);
        config = match item {
            Item::File { content, mode, owner, .. } => {
                config.file_as(&path, format!("content {content}\n"), *mode, owner)
            }
            Item::Append { content } => config.append(&path, format!("appended {content}\n")),
            Item::Directory { mode, .. } => config.directory(&path, *mode),
            Item::Link { target, .. } => config.link(&path, target),
            Item::Unit { enabled, mask, contents, drop_in, .. } => {
                config.unit(&path, unit(&path, *enabled, *mask, *contents, *drop_in))
            }
            Item::Keys(number) => {
                config.keys(&[&format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{number} one@example")])
            }
        };
    }
    config
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    prop::collection::vec(item(), 0..12)
}

/// A root that no OSTree made, from the fixture OS.
struct Plain {
    scratch: Scratch,
    pristine: PathBuf,
}

impl Plain {
    fn new() -> Self {
        let scratch = Scratch::new().unwrap();
        let repo = create_repo(&scratch.join("repo"), ostree::RepoMode::BareUser).unwrap();
        let sysroot = Sysroot::empty().unwrap();
        let commit = Tree::configurable().commit(&repo, "fixture").unwrap();
        sysroot.deploy(&repo, &commit, &[]).unwrap();
        let pristine = scratch.join("pristine");
        copy(&sysroot.next_boot().unwrap().deployment, &pristine);
        std::fs::remove_dir_all(pristine.join("usr/etc")).unwrap();
        // What is enabled already and asked for is adopted, and goes with the config: not yet as it
        // should be.
        std::fs::remove_dir_all(pristine.join("etc/systemd/system/multi-user.target.wants")).unwrap();
        // As a boot makes them.
        for folder in ["var/home/core", "var/roothome", "var/opt", "var/usrlocal/bin", "var/lib"] {
            std::fs::create_dir_all(pristine.join(folder)).unwrap();
        }
        Self { scratch, pristine }
    }

    fn root(&self, name: &str) -> PathBuf {
        let root = self.scratch.join(name);
        let _ = std::fs::remove_dir_all(&root);
        copy(&self.pristine, &root);
        root
    }

    fn apply(&self, root: &Path, config: &MachineConfig) -> Outcome {
        let file = self.scratch.join("config.yaml");
        std::fs::write(&file, config.yaml()).unwrap();
        mcd(&["apply", "--unchanged-exit-77", &file.display().to_string()], root)
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn mcd(arguments: &[&str], root: &Path) -> Outcome {
    Outcome::of(Command::new(program()).args(arguments).arg("--root").arg(root).output().unwrap())
}

/// Everything but our own records, and times.
fn listing(root: &Path) -> Listing {
    // The lock of shadow is every tool's.
    let is_ours = |path: &str| ["etc/mcd", "var/lib/mcd", "etc/.pwd.lock"].contains(&path);
    Listing::of(root, &is_ours).unwrap()
}

fn check(plain: &Plain, old: &MachineConfig, new: &MachineConfig) -> Result<(), TestCaseError> {
    let told = |outcome: &Outcome, what: &str| {
        TestCaseError::fail(format!("{what}: {outcome}\nold: {}\nnew: {}", old.yaml(), new.yaml()))
    };
    let none = |told: Vec<String>, what: &str| {
        prop_assert!(
            told.is_empty(),
            "{what}:\n{}\nold: {}\nnew: {}",
            told.join("\n"),
            old.yaml(),
            new.yaml()
        );
        Ok(())
    };
    let is_done = |outcome: &Outcome| matches!(outcome.code, Some(0 | 77));
    let root = plain.root("root");
    let before = listing(&root);
    for config in [old, new] {
        let outcome = plain.apply(&root, config);
        prop_assert!(is_done(&outcome), "{}", told(&outcome, "apply"));
    }
    // What there was in between leaves no trace.
    let at_once = plain.root("at-once");
    let outcome = plain.apply(&at_once, new);
    prop_assert!(is_done(&outcome), "{}", told(&outcome, "apply at once"));
    none(listing(&at_once).differences(&listing(&root)), "not the same as without the old config")?;
    // The plan is empty, and so is the comparison.
    let outcome = plain.apply(&root, new);
    prop_assert!(outcome.code == Some(77), "{}", told(&outcome, "not idempotent"));
    let outcome = mcd(&["verify"], &root);
    prop_assert!(outcome.code == Some(0), "{}", told(&outcome, "verify"));
    // And back.
    let outcome = mcd(&["forget", "--remove"], &root);
    prop_assert!(outcome.code == Some(0), "{}", told(&outcome, "forget"));
    none(before.differences(&listing(&root)), "forgetting does not restore")?;
    Ok(())
}

#[test]
fn root_random_configs_leave_no_trace() {
    let plain = Plain::new();
    let strategy = (items(), items()).prop_map(|(old, new)| (config(&old), config(&new)));
    runner(12).run(&strategy, |(old, new)| check(&plain, &old, &new)).unwrap();
}

/// The derived commit that a request is prepared as.
fn prepared(host: &Host, sysroot: &Sysroot, config: &MachineConfig) -> (Outcome, Option<String>) {
    let file = host.scratch.join("config.yaml");
    std::fs::write(&file, config.yaml()).unwrap();
    let mut command = Command::new(program());
    command.args(["apply", "--until", "prepared"]).arg(&file).arg("--sysroot").arg(sysroot.path());
    let outcome = Outcome::of(command.env("OSTREE_SYSROOT_DEBUG", "mutable-deployments").output().unwrap());
    let intent = sysroot.path().join("ostree/deploy/fixture/var/lib/mcd/intent.json");
    let intent = std::fs::read(intent).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    (outcome, intent.and_then(|intent| intent["commit"].as_str().map(str::to_owned)))
}

#[test]
fn root_random_configs_are_one_commit_in_any_order() {
    let host = Host::with_tree(&Tree::configurable().with_selinux());
    let strategy = (items(), items()).prop_flat_map(|(old, new)| {
        // Of those that claim one place, the first one counts: shuffled after the choice.
        let mut taken = std::collections::BTreeSet::new();
        let new: Vec<Item> = new.into_iter().filter(|item| taken.insert(place(item))).collect();
        (Just(old), Just(new.clone()), Just(new).prop_shuffle())
    });
    let check = |(old, new, shuffled): (Vec<Item>, Vec<Item>, Vec<Item>)| {
        let (first, second) = (host.sysroot.copy().unwrap(), host.sysroot.copy().unwrap());
        let (outcome, one) = prepared(&host, &first, &config(&new));
        prop_assert_eq!(outcome.code, Some(0), "{}", outcome);
        let (outcome, _) = prepared(&host, &second, &config(&old));
        prop_assert_eq!(outcome.code, Some(0), "{}", outcome);
        let (outcome, other) = prepared(&host, &second, &config(&shuffled));
        prop_assert_eq!(outcome.code, Some(0), "{}", outcome);
        prop_assert_eq!(one, other, "{}", config(&new).yaml());
        Ok(())
    };
    runner(6).run(&strategy, check).unwrap();
}
