//! A sysroot that does not run.

use std::sync::Mutex;

use mcd_test_support::entry::Entry;
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::Tree;

use super::super::history_entry;
use super::*;
use crate::error::ExitKind;
use crate::host::{EtcLayout, Pinned, RollBack, commit_facts};
use crate::model::boots::{BootState, FILE_SIZE, RequestOutcome};
use crate::model::event::{Event, EventSink};
use crate::model::records::HistoryOutcome;

fn back<'a>(to: Option<&'a DeploymentName>) -> RollBack<'a> {
    RollBack { to, who: "a test", why: None }
}

#[test]
fn root_opening_what_is_no_sysroot_says_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let path = Utf8Path::from_path(scratch.path()).unwrap();
    assert!(lines(Host::open(Some(&path.join("nowhere")))).contains("cannot open the sysroot"));
    let text = lines(Host::open(Some(path)));
    assert!(
        text.contains("is not an OSTree sysroot | it has no folder ostree/repo | check the path"),
        "{text}"
    );
    if rustix::fs::stat("/run/ostree-booted").is_err() {
        assert!(lines(Host::open(None)).contains("--sysroot DIR"));
    }
}

#[test]
fn root_status_of_an_installed_host() {
    let sysroot = installed();
    let host = open(&sysroot);
    let before = std::time::Instant::now();
    let status = host.status().unwrap();
    assert!(before.elapsed().as_millis() < 100, "{:?}", before.elapsed());
    assert_eq!(status.deployments.len(), 1);
    let only = &status.deployments[0];
    assert_eq!((only.index, only.booted, only.staged, only.rollback), (0, false, false, false));
    assert_eq!(only.kernel_arguments, ARGUMENTS.join(" "));
    assert_eq!(only.version.as_deref(), Some("1"));
    assert_eq!(only.stateroot, "fixture");
    assert_eq!(only.other_origin.as_deref(), Some("fixture/installed"));
    assert_eq!((&status.prepared, &status.notices), (&None, &Vec::new()));
}

#[test]
fn root_a_sysroot_without_deployment_is_named() {
    let sysroot = Sysroot::empty().unwrap();
    let host = open(&sysroot);
    assert!(host.status().unwrap().deployments.is_empty());
    assert_eq!(host.intent().unwrap(), None);
    let commit = commit(&sysroot, &Tree::v1(), "v1");
    let text = lines(lock(&host).deploy(&DeployRequest::from(&intent("one", &commit))));
    assert!(text.contains("has no deployment") && text.contains("ostree admin deploy"), "{text}");
    assert!(lines(lock(&host).roll_back(&back(None))).contains("there is no deployment to roll back to"));
}

#[test]
fn root_deploys_switches_and_goes_back() {
    let sysroot = installed();
    let host = open(&sysroot);
    let before = sysroot.next_boot().unwrap();
    let mut change = intent("one", &commit(&sysroot, &Tree::v2(), "v2"));
    change.asked_digest = Some(Digest::of(b"index"));
    change.request_digest = Some(Digest::of(b"request"));
    change.kernel_arguments = r#"root=UUID=0a1b rw y=0 z=4 y=1 z=4 foo="a b" nosmt=force nosmt"#.to_owned();
    let deployed = carry_out(&lock(&host), &change);
    assert!(!deployed.staged);

    let next = sysroot.next_boot().unwrap();
    assert_eq!(next.deployment_name(), deployed.name.to_string());
    let without =
        next.options.split(' ').filter(|one| !one.starts_with("ostree=")).collect::<Vec<_>>().join(" ");
    assert_eq!(without, change.kernel_arguments, "order, duplicates and quotes survive");
    let origin = sysroot.origin(&deployed.name.to_string()).unwrap();
    assert!(
        origin.contains("container-image-reference=ostree-unverified-registry:host.example/os:one"),
        "{origin}"
    );

    let status = host.status().unwrap();
    let [new, old] = status.deployments.as_slice() else { panic!("{status:?}") };
    assert_eq!((new.id.as_deref(), new.digest.as_ref()), (Some("one"), change.digest.as_ref()));
    assert_eq!(new.asked_digest, change.asked_digest);
    assert_eq!(new.kernel_arguments, change.kernel_arguments);
    assert!(
        old.rollback && old.kept && !old.pinned,
        "the one that the first change is made from counts as good"
    );
    assert_eq!(status.prepared, None, "it waits for nothing");
    assert!(sysroot.refs().unwrap().contains_key("mcd/keep/one"));

    let done = lock(&host).roll_back(&back(None)).unwrap();
    assert_eq!((done.from, done.to.to_string()), (deployed.name.clone(), before.deployment_name()));
    assert_eq!(sysroot.next_boot().unwrap().options, before.options);
    assert_eq!(host.intent().unwrap(), None);
    assert!(!sysroot.refs().unwrap().contains_key("mcd/keep/one"));
    let boots = host.boots().unwrap();
    assert_eq!(boots.entry("one").unwrap().state, BootState::RolledBack);
    assert_eq!(host.known_request(&Digest::of(b"request")).unwrap(), Some(RequestOutcome::RolledBack));
    let history = host.history().unwrap();
    assert_eq!(history.entries.last().unwrap().outcome, HistoryOutcome::RolledBack);
    assert!(host.status().unwrap().notices[0].contains("was rolled back"));

    // And forward again, by name, from an initramfs say.
    lock(&host).roll_back(&back(Some(&deployed.name))).unwrap();
    assert_eq!(sysroot.next_boot().unwrap().deployment_name(), deployed.name.to_string());
    let again = lock(&host).roll_back(&back(Some(&deployed.name))).unwrap();
    assert_eq!(again.from, again.to);
    let nowhere = name(&format!("{}.0", "0".repeat(64)));
    assert!(lines(lock(&host).roll_back(&back(Some(&nowhere)))).contains("there is no deployment 000"));
}

#[test]
fn root_keeps_good_and_pinned_ones_and_says_what_goes() {
    let sysroot = installed();
    let host = open(&sysroot);
    let v1 = name(&sysroot.deployments().unwrap()[0]);
    let v2 = carry_out(&lock(&host), &intent("two", &commit(&sysroot, &Tree::v2(), "v2"))).name;
    assert_eq!(host.removed_by_a_new_deployment().unwrap(), []);
    let v3 = carry_out(&lock(&host), &intent("three", &commit(&sysroot, &Tree::v3(), "v3"))).name;
    // v1 was good, v2 is where v3 was made from.
    assert_eq!(sysroot.deployments().unwrap(), [&v3, &v2, &v1].map(ToString::to_string));
    assert_eq!(host.removed_by_a_new_deployment().unwrap(), std::slice::from_ref(&v2));
    assert_eq!(lock(&host).set_pinned(&v2, true).unwrap(), Pinned::Yes);
    assert_eq!(lock(&host).set_pinned(&v2, true).unwrap(), Pinned::Unchanged);
    assert_eq!(host.removed_by_a_new_deployment().unwrap(), []);
    // A person's pin replaces ours, and ours comes back when it goes.
    assert_eq!(lock(&host).set_pinned(&v1, true).unwrap(), Pinned::Yes);
    assert!(host.status().unwrap().deployments[2].pinned);
    assert_eq!(lock(&host).set_pinned(&v1, false).unwrap(), Pinned::StillKept);
    assert!(host.status().unwrap().deployments[2].kept);
    assert_eq!(lock(&host).set_pinned(&v2, false).unwrap(), Pinned::No);

    let four = carry_out(&lock(&host), &intent("four", &commit(&sysroot, &Tree::v2().version("4"), "v4")));
    assert_eq!(four.others.dropped, std::slice::from_ref(&v2));
    assert_eq!(sysroot.deployments().unwrap(), [&four.name, &v3, &v1].map(ToString::to_string));
    assert!(sysroot.deployment(&v2.to_string()).is_dir(), "nothing is pruned with the switch");
}

#[test]
fn root_only_arguments_change_the_origin_not() {
    let sysroot = installed();
    let host = open(&sysroot);
    let status = host.status().unwrap();
    let commit = &status.deployments[0].name.checksum;
    let mut request = DeployRequest::from(&intent("args", commit));
    (request.image, request.digest) = (None, None);
    lock(&host).deploy(&request).unwrap();
    let new = &host.status().unwrap().deployments[0];
    assert_eq!(new.name, DeploymentName { checksum: commit.clone(), serial: 1 });
    assert_eq!(new.other_origin.as_deref(), Some("fixture/installed"));
    assert!(!new.pinned && !new.kept && new.kernel_arguments.ends_with("mcd.id=args"));
}

#[test]
fn root_a_deploy_that_fails_leaves_the_host_as_it_was() {
    let sysroot = installed();
    let host = open(&sysroot);
    let before = (sysroot.boot_entries().unwrap(), host.status().unwrap().deployments[0].name.clone());
    let bare = Tree::v2().without("usr/lib/modules").with(Entry::dir("usr/lib/modules"));
    let commit = commit(&sysroot, &bare, "bare");
    let text =
        format!("{:#}", lock(&host).deploy(&DeployRequest::from(&intent("bare", &commit))).unwrap_err());
    assert!(text.contains("kernel"), "{text}");
    assert_eq!(sysroot.boot_entries().unwrap(), before.0);
    let folders = std::fs::read_dir(sysroot.deployment("x").parent().unwrap()).unwrap();
    let folders: Vec<_> = folders.flatten().filter(|entry| entry.path().is_dir()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    assert!(lines(host.refuse_unbootable(&commit)).contains("it has no kernel"));
}

#[test]
fn root_a_held_lock_names_its_holder() {
    struct Told(Mutex<Vec<Event>>);
    impl EventSink for Told {
        fn event(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }
    let sysroot = installed();
    let host = open(&sysroot);
    let held = lock(&host);
    let error = to_fault(&host.lock(Wait::No).unwrap_err());
    assert_eq!(error.kind, ExitKind::Busy);
    assert!(error.why.unwrap().contains(&format!("held by process {}", std::process::id())));
    let told = Told(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let host = open(&sysroot);
            host.lock(Wait::Telling(&told)).map(|locked| locked.status().unwrap().deployments.len())
        });
        while told.0.lock().unwrap().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // What changes while it waits is seen after.
        carry_out(&held, &intent("two", &commit(&sysroot, &Tree::v2(), "v2")));
        drop(held);
        assert_eq!(waiting.join().unwrap().unwrap(), 2);
    });
    let told = told.0.into_inner().unwrap();
    assert!(
        matches!(&told[..], [Event::Waiting { holder, .. }] if holder.starts_with("process ")),
        "{told:?}"
    );
}

#[test]
fn root_a_read_only_sysroot_is_refused() {
    let sysroot = installed();
    let path = sysroot.path().to_str().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        assert!(std::process::Command::new("mount").args(arguments).status().unwrap().success());
    };
    run(&["--bind", &path, &path]);
    run(&["-o", "remount,bind,ro", &path]);
    let host = open(&sysroot);
    assert_eq!(host.status().unwrap().deployments.len(), 1, "reading is fine");
    let text = lines(host.lock(Wait::No));
    assert!(std::process::Command::new("umount").args(["-l", &path]).status().unwrap().success());
    assert!(text.contains("is read-only") && text.contains("remount,rw"), "{text}");
}

#[test]
fn root_the_boot_file_is_whole_from_the_start_and_survives_a_full_disk() {
    let sysroot = Sysroot::empty_on_disk_of(64 << 20).unwrap();
    let source = create_repo(&sysroot.scratch().join("source"), ostree::RepoMode::BareUser).unwrap();
    let commit = Tree::v1().commit(&source, "v1").unwrap();
    sysroot.deploy(&source, &commit, &ARGUMENTS).unwrap();
    let host = open(&sysroot);
    let note = |id: &str| {
        let change = DeployRequest::from(&intent(id, &commit));
        lock(&host).note_change(&change, None).unwrap();
    };
    note("one");
    let path = sysroot.path().join("ostree/mcd-boots");
    let size = || std::fs::metadata(&path).unwrap().len() as usize;
    assert_eq!(size(), FILE_SIZE);
    sysroot.fill("ostree", 0).unwrap();
    for id in ["two", "three"] {
        note(id);
    }
    assert_eq!((size(), host.boots().unwrap().entries.len()), (FILE_SIZE, 3));

    // A slot that a power cut tore leaves the record before.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(host.boots().unwrap().entries.len(), 2);
}

#[test]
fn root_a_superseded_change_is_told_and_kept_no_more() {
    let sysroot = installed();
    let host = open(&sysroot);
    let (one, two) = (commit(&sysroot, &Tree::v2(), "v2"), commit(&sysroot, &Tree::v3(), "v3"));
    let mut first = intent("one", &one);
    first.state = IntentState::Prepared;
    lock(&host).prepare(&first).unwrap();
    assert_eq!(
        host.status().unwrap().prepared.map(|it| (it.id, it.committed)),
        Some(("one".to_owned(), false))
    );
    let second = Intent { state: IntentState::Prepared, ..intent("two", &two) };
    lock(&host).prepare(&second).unwrap();
    let refs = sysroot.refs().unwrap();
    assert!(!refs.contains_key("mcd/keep/one") && refs.get("mcd/keep/two") == Some(&two));
    let told: Vec<_> =
        host.history().unwrap().entries.into_iter().map(|entry| (entry.id, entry.outcome)).collect();
    let expected = [("one", HistoryOutcome::Cancelled)];
    assert_eq!(told, expected.map(|(id, outcome)| (id.to_owned(), outcome)));

    let dropped = lock(&host).cancel("a test").unwrap();
    assert_eq!((dropped.intent.map(|intent| intent.id), dropped.staged), (Some("two".to_owned()), None));
    assert_eq!((host.intent().unwrap(), sysroot.refs().unwrap().contains_key("mcd/keep/two")), (None, false));
    assert_eq!(lock(&host).cancel("a test").unwrap(), Default::default());
    let records = sysroot.path().join("ostree/deploy/fixture/var/lib/mcd");
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&records), mode(&records.join("history.jsonl"))), (0o700, 0o600));
    assert!(!is_file(&records.join("intent.json")));
}

#[test]
fn root_a_damaged_record_stops_neither_a_look_nor_the_way_back() {
    let sysroot = installed();
    let host = open(&sysroot);
    carry_out(&lock(&host), &intent("one", &commit(&sysroot, &Tree::v2(), "v2")));
    let records = sysroot.path().join("ostree/deploy/fixture/var/lib/mcd");
    let damage = || std::fs::write(records.join("intent.json"), [0; 64]).unwrap();
    damage();
    let status = host.status().unwrap();
    assert_eq!((status.deployments.len(), status.prepared), (2, None));
    assert!(status.notices.iter().any(|it| it.contains("intent.json") && it.contains("mcd cancel")));
    let dropped = lock(&host).cancel("a test").unwrap();
    assert!(dropped.damaged && dropped.intent.is_none() && !is_file(&records.join("intent.json")));

    damage();
    // A history that cannot be written (as on a full disk) does not make the rollback one that failed.
    std::fs::remove_file(records.join("history.jsonl")).unwrap_or_default();
    std::fs::create_dir(records.join("history.jsonl")).unwrap();
    let done = lock(&host).roll_back(&back(None)).unwrap();
    assert!(done.is_change() && done.unrecorded.is_some() && !is_file(&records.join("intent.json")));
    assert_eq!(host.status().unwrap().next_boot().map(|next| &next.name), Some(&done.to));
    assert!(!lock(&host).roll_back(&back(Some(&done.to))).unwrap().is_change());
}

#[test]
fn root_the_history_is_bounded() {
    let sysroot = installed();
    let host = open(&sysroot);
    let locked = lock(&host);
    for number in 0..203 {
        let change = intent(&format!("n{number}"), "x");
        locked
            .append_history(history_entry(&change, HistoryOutcome::Failed, Some("why".to_owned())))
            .unwrap();
    }
    let history = host.history().unwrap();
    assert_eq!((history.entries.len(), history.entries[0].id.as_str(), history.unreadable), (200, "n3", 0));
    let ids: std::collections::BTreeSet<_> = (0..20).map(|_| locked.new_id()).collect();
    assert_eq!(ids.len(), 20, "{ids:?}");
}

#[test]
fn root_kernels_and_sizes_are_as_libostree_sees_them() {
    let sysroot = installed();
    let host = open(&sysroot);
    let same = commit(&sysroot, &Tree::v2(), "v2");
    let other = commit(&sysroot, &Tree::v3(), "v3");
    assert_eq!(host.next_boot_kernel().unwrap().unwrap().bytes, 50_000);
    let pair = host.kernel_pair(&same).unwrap();
    assert_eq!((pair.bytes, pair.in_boot), (50_000, true));
    assert!(!host.kernel_pair(&other).unwrap().in_boot);
    let size = host.tree_size(&other).unwrap();
    let new = carry_out(&lock(&host), &intent("three", &other)).name;
    assert!(host.kernel_pair(&other).unwrap().in_boot, "the checksum is libostree's");
    let folder = sysroot.deployment(&new.to_string());
    let count = |arguments: &str| {
        let script = format!("find . {arguments} | wc -l");
        let output =
            std::process::Command::new("sh").args(["-c", &script]).current_dir(&folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    assert_eq!(size.directories, count("-path ./etc -prune -o -type d -print"));
    assert_eq!(size.etc_files, count("-mindepth 2 -path './usr/etc/*' -print"));
    let space = host.observe_space().unwrap();
    assert!(space.repo_free > 0 && space.boot_is_on_root && space.repo_reserve > 0, "{space:?}");
}

#[test]
fn root_device_trees_and_old_kernel_layouts_count() {
    let sysroot = installed();
    let host = open(&sysroot);
    let folder = "usr/lib/modules/6.1.0-fixture";
    let versions =
        commit_facts(&sysroot.repo().unwrap(), &commit(&sysroot, &Tree::v2(), "v2")).unwrap().kernel_versions;
    let folder = folder.replace("6.1.0-fixture", &versions[0]);
    let trees = Tree::v3()
        .with(Entry::file(format!("{folder}/dtb/b/one.dtb"), "one"))
        .with(Entry::file(format!("{folder}/dtb/a.dtb"), "two"));
    let trees = commit(&sysroot, &trees, "dtb");
    assert_eq!(host.kernel_pair(&trees).unwrap().bytes, 50_006);
    carry_out(&lock(&host), &intent("dtb", &trees));
    assert!(host.kernel_pair(&trees).unwrap().in_boot);

    let sum = "ab".repeat(32);
    let old = Tree::v2()
        .without("usr/lib/modules")
        .with(Entry::file(format!("usr/lib/ostree-boot/vmlinuz-4.18-{sum}"), "kernel"))
        .with(Entry::file(format!("usr/lib/ostree-boot/initramfs-4.18.img-{sum}"), "initramfs"));
    let old = commit(&sysroot, &old, "old");
    assert_eq!(host.kernel_pair(&old).unwrap().bytes, 15);
    carry_out(&lock(&host), &intent("old", &old));
    assert!(host.kernel_pair(&old).unwrap().in_boot);
    host.refuse_unbootable(&old).unwrap();
}

#[test]
fn root_what_cannot_be_booted_is_refused_before_it_is_deployed() {
    let sysroot = installed();
    let host = open(&sysroot);
    let second = Entry::file("usr/lib/modules/9.9/vmlinuz", "another");
    let composefs = Entry::file("usr/lib/ostree/prepare-root.conf", "[composefs]\nenabled = signed\n");
    for (name, tree, why) in [
        ("two-kernels", Tree::v2().with(second), "several kernels (6"),
        ("both", Tree::v2().with(Entry::file("etc/x", "x")), "both /etc and /usr/etc"),
        ("neither", Tree::v2().without("usr/etc"), "neither /etc nor /usr/etc"),
        ("no-name", Tree::v2().without("usr/lib/os-release").without("usr/etc/os-release"), "no os-release"),
    ] {
        let commit = commit(&sysroot, &tree, name);
        let text = lines(host.refuse_unbootable(&commit));
        assert!(text.contains(why), "{name}: {text}");
    }
    let repo = sysroot.repo().unwrap();
    let signed = commit_facts(&repo, &commit(&sysroot, &Tree::v2().with(composefs), "signed")).unwrap();
    assert!(signed.demands_signed_composefs);
    let plain = commit_facts(&repo, &commit(&sysroot, &Tree::v2(), "v2")).unwrap();
    assert_eq!((plain.etc, plain.demands_signed_composefs), (EtcLayout::Sound, false));
}

/// What is said to fail fails in libostree, and what is not does not.
#[test]
fn root_etc_conflicts_are_those_that_libostree_has() {
    type Change = fn(&Path);
    let cases: [(&str, Change, Tree, Option<&str>); 7] = [
        (
            "file against folder",
            |etc| std::fs::write(etc.join("new.d"), "x").unwrap(),
            Tree::v2().with(Entry::file("usr/etc/new.d/a", "a")),
            Some("/etc/new.d is a local file"),
        ),
        (
            "changed default against folder",
            |etc| std::fs::write(etc.join("fixture.conf"), "mine").unwrap(),
            Tree::v2().with(Entry::file("usr/etc/fixture.conf/a", "a")),
            Some("/etc/fixture.conf is"),
        ),
        (
            "unchanged default against folder",
            |_| {},
            Tree::v2().with(Entry::file("usr/etc/fixture.conf/a", "a")),
            None,
        ),
        (
            "change below a file",
            |etc| std::fs::write(etc.join("ssh/mine"), "x").unwrap(),
            Tree::v2().without("usr/etc/ssh").with(Entry::file("usr/etc/ssh", "a file")),
            Some("/etc/ssh/mine was changed here"),
        ),
        (
            "folder of one's own against file",
            |etc| {
                std::fs::create_dir(etc.join("own")).unwrap();
                std::fs::write(etc.join("own/a"), "x").unwrap();
            },
            Tree::v2().with(Entry::file("usr/etc/own", "file")),
            None,
        ),
        (
            "pipe and socket",
            |etc| {
                std::process::Command::new("mkfifo").arg(etc.join("pipe")).status().unwrap();
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, etc.join("socket"), FileType::Socket, Mode::RUSR, 0).unwrap();
            },
            Tree::v2(),
            None,
        ),
        (
            "link in place of a default folder",
            |etc| {
                std::fs::remove_dir_all(etc.join("containers")).unwrap();
                std::os::unix::fs::symlink("/var/containers", etc.join("containers")).unwrap();
            },
            Tree::v2(),
            Some("/etc/containers is a local file"),
        ),
    ];
    for (what, change, tree, expected) in cases {
        // A tree that puts a folder where another case has a file.
        let tree = if what.contains("default against folder") {
            tree.without("usr/etc/fixture.conf").with(Entry::file("usr/etc/fixture.conf/a", "a"))
        } else {
            tree
        };
        let sysroot = installed();
        let host = open(&sysroot);
        change(&sysroot.deployment(&sysroot.deployments().unwrap()[0]).join("etc"));
        let commit = commit(&sysroot, &tree, "new");
        let found: Vec<String> =
            host.etc_conflicts(&commit).unwrap().iter().map(ToString::to_string).collect();
        let deployed = lock(&host).deploy(&DeployRequest::from(&intent("one", &commit)));
        match expected {
            None => {
                assert!(found.is_empty(), "{what}: {found:?}");
                deployed.unwrap_or_else(|error| panic!("{what}: {error:#}"));
            }
            Some(text) => {
                assert!(found[0].contains(text), "{what}: {found:?}");
                assert!(deployed.is_err(), "{what}");
                assert!(
                    lines(host.refuse_etc_conflicts(&commit))
                        .contains("local changes in /etc cannot be merged")
                );
            }
        }
    }
}

#[test]
fn root_rollback_losses_name_paths_only() {
    let sysroot = installed();
    let host = open(&sysroot);
    let old = name(&sysroot.deployments().unwrap()[0]);
    let new = carry_out(&lock(&host), &intent("one", &commit(&sysroot, &Tree::v2(), "v2"))).name;
    std::fs::write(sysroot.deployment(&new.to_string()).join("etc/ssh/ssh_host_ed25519_key"), "secret")
        .unwrap();
    assert_eq!(host.rollback_losses(&old).unwrap(), ["/etc/ssh/ssh_host_ed25519_key"]);
    assert!(host.rollback_losses(&new).unwrap().is_empty());
}

#[test]
fn root_requests_of_a_sysroot_that_does_not_run_are_not_read() {
    let sysroot = installed();
    let etc = sysroot.deployment(&sysroot.deployments().unwrap()[0]).join("etc/pivot");
    std::fs::create_dir(&etc).unwrap();
    std::fs::write(etc.join("image-pullspec"), "host.example/os:1").unwrap();
    assert_eq!(open(&sysroot).request().unwrap(), None);
}
