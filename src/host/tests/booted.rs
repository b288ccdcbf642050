//! The running host, in a namespace that libostree takes for a booted one. The parts named `inside_…`
//! run there: this very program is started again in it.

use std::path::PathBuf;

use mcd_test_support::booted::Booted;

use super::*;
use crate::host::{Pinned, RollBack, Settled};
use crate::model::boots::{BootState, RequestOutcome};
use crate::model::host_request::request_digest;
use crate::model::records::HistoryOutcome;

/// Names the commit that a part deploys.
const COMMIT: &str = "MCD_TEST_COMMIT";

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn inside(booted: &Booted<'_>, part: &str, commit: &str) {
    let part = format!("host::tests::booted::inside_{part}");
    let arguments = [part.as_str(), "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    let output = booted.command("mcd").args(arguments).env(COMMIT, commit).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{part}:\n{text}");
}

fn wanted() -> String {
    std::env::var(COMMIT).unwrap()
}

/// An installed host whose physical root is read-only until libostree writes, as on real ones.
fn read_only_host() -> (Sysroot, String) {
    let sysroot = installed();
    sysroot.configure("sysroot.readonly", "true").unwrap();
    let commit = commit(&sysroot, &Tree::v2(), "v2");
    (sysroot, commit)
}

fn requested(commit: &str) -> Intent {
    Intent { request_digest: request_digest(Some("host.example/os:one"), None), ..intent("one", commit) }
}

#[test]
fn root_a_staged_change_is_finalised_and_proves_good() {
    let (sysroot, commit) = read_only_host();
    let booted = Booted::boot(&sysroot, &program(), &[]).unwrap();
    inside(&booted, "stages", &commit);
    assert!(booted.is_staged().unwrap());
    booted.shell("echo late > /etc/edited-after-staging").unwrap();
    booted.finalize().unwrap();
    let booted = booted.reboot().unwrap();
    assert_eq!(booted.shell("cat /etc/edited-after-staging").unwrap(), "late\n");
    inside(&booted, "proves_good", &commit);

    // Back by the boot menu: it was good before.
    let booted = booted.boot_other(1).unwrap();
    inside(&booted, "is_good_again", &commit);
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_stages() {
    let host = Host::open(None).unwrap();
    let change = requested(&wanted());
    let locked = lock(&host);
    let deployed = carry_out(&locked, &change);
    assert!(deployed.staged);
    let status = locked.status().unwrap();
    let [new, old] = status.deployments.as_slice() else { panic!("{status:?}") };
    assert!(new.staged && !new.booted && old.booted && old.rollback && old.kept);
    assert_eq!(
        (new.id.as_deref(), new.kernel_arguments.as_str()),
        (Some("one"), change.kernel_arguments.as_str())
    );
    assert_eq!(status.prepared.as_ref().map(|it| it.committed), Some(true));
    assert!(lines(locked.set_pinned(&new.name, true)).contains("is staged"));
    assert_eq!(locked.after_boot().unwrap().lost, None, "it waits");
    assert_eq!(host.intent().unwrap().unwrap().id, "one");
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_proves_good() {
    let host = Host::open(None).unwrap();
    let settled = lock(&host).after_boot().unwrap();
    let status = host.status().unwrap();
    let booted = status.booted().unwrap();
    assert_eq!(booted.id.as_deref(), Some("one"));
    assert_eq!((settled.good.as_ref(), settled.lost), (Some(&booted.name), None));
    assert_eq!(settled.fulfilled.unwrap().id, "one");
    assert!(booted.kept && !status.deployments[1].kept && !status.deployments[1].pinned);
    assert_eq!(host.boots().unwrap().entry("one").unwrap().state, BootState::Good);
    assert_eq!(host.intent().unwrap(), None);
    assert_eq!(host.history().unwrap().entries.last().unwrap().outcome, HistoryOutcome::Booted);
    let request = request_digest(Some("host.example/os:one"), None).unwrap();
    assert_eq!(host.known_request(&request).unwrap(), Some(RequestOutcome::CarriedOut));
    assert_eq!(lock(&host).after_boot().unwrap(), Settled::default(), "once");
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_is_good_again() {
    let host = Host::open(None).unwrap();
    let settled = lock(&host).after_boot().unwrap();
    let status = host.status().unwrap();
    assert_eq!(settled.good.as_ref(), status.booted().map(|booted| &booted.name));
    assert!(status.deployments[1].booted && status.deployments[1].kept && !status.deployments[0].kept);
    assert_eq!(lock(&host).after_boot().unwrap(), Settled::default());
}

#[test]
fn root_a_power_cut_after_staging_is_told_and_staged_again() {
    let (sysroot, commit) = read_only_host();
    let booted = Booted::boot(&sysroot, &program(), &[]).unwrap();
    inside(&booted, "stages", &commit);
    let booted = booted.power_cut().unwrap();
    inside(&booted, "is_lost", &commit);
    assert!(booted.is_staged().unwrap());
    booted.finalize().unwrap();
    inside(&booted.reboot().unwrap(), "proves_good", &commit);
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_is_lost() {
    let host = Host::open(None).unwrap();
    let locked = lock(&host);
    let lost = locked.after_boot().unwrap().lost.unwrap();
    assert!(
        lost.contains("change one was committed and its deployment is lost; `mcd pivot --resume=one`"),
        "{lost}"
    );
    assert_eq!(host.status().unwrap().notices, [lost]);
    let intent = host.intent().unwrap().unwrap();
    assert!(locked.deploy(&DeployRequest::from(&intent)).unwrap().staged);
    assert!(locked.status().unwrap().notices.is_empty());
}

#[test]
fn root_what_is_staged_can_be_dropped() {
    let (sysroot, commit) = read_only_host();
    let booted = Booted::boot(&sysroot, &program(), &[]).unwrap();
    for part in ["cancels", "goes_back_from_staged", "returns_to_booted"] {
        inside(&booted, "stages", &commit);
        inside(&booted, part, &commit);
        assert!(!booted.is_staged().unwrap(), "{part}");
        let booted = booted.shell("cat /sysroot/ostree/repo/refs/heads/mcd/keep/one");
        assert!(booted.is_err(), "{part}: the commit is kept no more");
    }
    // Another tool's, without a record of ours.
    let stage = format!("ostree admin deploy --stage --os=fixture {commit}");
    // It gives up where a file system is frozen for a moment, by the switch of another test say.
    booted.shell(&format!("for _ in 1 2 3 4 5; do {stage} && exit; sleep 1; done; exit 1")).unwrap();
    inside(&booted, "cancels_a_stranger", &commit);
    assert!(!booted.is_staged().unwrap());
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_cancels() {
    let host = Host::open(None).unwrap();
    let cancelled = lock(&host).cancel("a test").unwrap();
    assert!(cancelled.intent.is_some() && cancelled.staged.is_some());
    assert_eq!(host.history().unwrap().entries.last().unwrap().outcome, HistoryOutcome::Cancelled);
    assert_eq!(host.status().unwrap().deployments.len(), 1);
    assert_eq!(host.intent().unwrap(), None);
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_cancels_a_stranger() {
    let host = Host::open(None).unwrap();
    let cancelled = lock(&host).cancel("a test").unwrap();
    assert!(cancelled.intent.is_none() && cancelled.staged.is_some());
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_goes_back_from_staged() {
    let host = Host::open(None).unwrap();
    let done = lock(&host).roll_back(&RollBack { to: None, who: "a test", why: None }).unwrap();
    assert!(done.dropped_staged && !done.needs_reboot);
    assert_eq!(host.status().unwrap().deployments.len(), 1);
    assert_eq!(host.boots().unwrap().entry("one").unwrap().state, BootState::RolledBack);
    assert!(
        lines(lock(&host).roll_back(&RollBack { to: None, who: "a test", why: None }))
            .contains("no deployment")
    );
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_returns_to_booted() {
    let host = Host::open(None).unwrap();
    lock(&host).return_to_booted("a test").unwrap();
    assert!(host.status().unwrap().next_boot().unwrap().booted);
}

#[test]
fn root_a_rollback_brings_the_old_request_back_and_it_is_known() {
    let (sysroot, commit) = read_only_host();
    let booted = Booted::boot(&sysroot, &program(), &[]).unwrap();
    booted
        .shell("mkdir -p /etc/pivot /run/pivot; echo host.example/os:one > /etc/pivot/image-pullspec")
        .unwrap();
    inside(&booted, "stages", &commit);
    booted.finalize().unwrap();
    let booted = booted.reboot().unwrap();
    inside(&booted, "clears_the_request", &commit);
    inside(&booted, "goes_back", &commit);
    let booted = booted.reboot().unwrap();
    inside(&booted, "sets_the_request_aside", &commit);
    assert_eq!(booted.shell("ls /etc/pivot").unwrap(), "image-pullspec.rolled-back\n");
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_clears_the_request() {
    let host = Host::open(None).unwrap();
    let locked = lock(&host);
    locked.after_boot().unwrap();
    std::fs::create_dir_all("/run/pivot").unwrap();
    std::fs::write("/run/pivot/reboot-needed", "").unwrap();
    std::fs::write("/etc/pivot/kernel-args", "ADD nosmt\nnonsense\n").unwrap();
    let request = host.request().unwrap().unwrap();
    assert!(request.reboot && request.known.is_none() && request.warnings.len() == 1, "{request:?}");
    std::fs::remove_file("/etc/pivot/kernel-args").unwrap();
    let request = host.request().unwrap().unwrap();
    assert_eq!(request.known, Some(RequestOutcome::CarriedOut));
    locked.clear_request(&request).unwrap();
    assert_eq!(host.request().unwrap(), None);
    assert!(!is_file(Path::new("/run/pivot/reboot-needed")));
    std::fs::write("/etc/pivot/image-pullspec", "x".repeat(70_000)).unwrap();
    assert!(lines(host.request()).contains("is too long"));
    std::fs::write("/etc/pivot/image-pullspec", "a b").unwrap();
    assert!(lines(host.request()).contains("names no image"));
    std::fs::remove_file("/etc/pivot/image-pullspec").unwrap();
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_goes_back() {
    let host = Host::open(None).unwrap();
    std::fs::write("/etc/ssh/ssh_host_rsa_key", "secret").unwrap();
    let status = host.status().unwrap();
    let old = status.deployments.iter().find(|one| one.rollback).unwrap();
    assert_eq!(host.rollback_losses(&old.name).unwrap(), ["/etc/ssh/ssh_host_rsa_key"]);
    let done =
        lock(&host).roll_back(&RollBack { to: None, who: "a test", why: Some("it was slow") }).unwrap();
    assert!(done.needs_reboot && !done.dropped_staged);
    assert!(host.status().unwrap().deployments[1].booted);
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_sets_the_request_aside() {
    let host = Host::open(None).unwrap();
    let request = host.request().unwrap().unwrap();
    assert_eq!(request.known, Some(RequestOutcome::CarriedOut));
    let names = lock(&host).set_request_aside().unwrap();
    assert_eq!(names, ["/etc/pivot/image-pullspec.rolled-back"]);
    assert_eq!(host.request().unwrap(), None);
}

#[test]
fn root_pins_survive_finalising() {
    let (sysroot, commit) = read_only_host();
    let other = super::commit(&sysroot, &Tree::v3(), "v3");
    let booted = Booted::boot(&sysroot, &program(), &[]).unwrap();
    inside(&booted, "stages", &commit);
    booted.finalize().unwrap();
    let booted = booted.reboot().unwrap();
    inside(&booted, "pins_the_rollback", &other);
    booted.finalize().unwrap();
    drop(booted);
    assert_eq!(sysroot.deployments().unwrap().len(), 3);
}

#[test]
#[ignore = "runs inside a booted namespace"]
fn inside_pins_the_rollback() {
    let host = Host::open(None).unwrap();
    let locked = lock(&host);
    locked.after_boot().unwrap();
    let old = locked.status().unwrap().deployments[1].name.clone();
    assert_eq!(host.removed_by_a_new_deployment().unwrap(), std::slice::from_ref(&old));
    assert_eq!(locked.set_pinned(&old, true).unwrap(), Pinned::Yes);
    let deployed = carry_out(&locked, &intent("two", &wanted()));
    assert_eq!(deployed.others.dropped, []);
}
