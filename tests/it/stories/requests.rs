//! The old host API: request files, read when no image is named.

use mcd_test_support::booted::Booted;

use super::{Host, Outcome, program};

const PULLSPEC: &str = "/etc/pivot/image-pullspec";
const KERNEL_ARGS: &str = "/etc/pivot/kernel-args";
const REBOOT_NEEDED: &str = "/run/pivot/reboot-needed";

fn boot(host: &Host) -> Booted<'_> {
    Booted::boot(&host.sysroot, program(), &[host.scratch.path()]).unwrap()
}

fn mcd(booted: &Booted<'_>, arguments: &[&str]) -> Outcome {
    Outcome::of(booted.mcd(arguments).unwrap())
}

fn ask(booted: &Booted<'_>, image: &str, kernel_args: &str) {
    let script =
        format!("mkdir -p /etc/pivot; echo '{image}' > {PULLSPEC}; printf '{kernel_args}' > {KERNEL_ARGS}");
    booted.shell(&script).unwrap();
}

fn exists(booted: &Booted<'_>, path: &str) -> bool {
    booted.shell(&format!("test -e {path} && echo yes || echo no")).unwrap().trim() == "yes"
}

#[test]
fn root_a_request_is_carried_out_and_cleared_when_it_is_fulfilled() {
    let host = Host::new();
    let image = host.v2();
    let booted = boot(&host);
    ask(&booted, &image.reference(), "ADD nosmt\\nDELETE quiet\\n");
    mcd(&booted, &["pivot"]).ok();
    assert!(booted.is_staged().unwrap());
    let booted = booted.reboot().unwrap();
    assert!(booted.entry().options.starts_with("root=LABEL=root nosmt ostree="), "{:?}", booted.entry());
    // The merge of /etc brought the request along: the run after the reboot finds it fulfilled.
    mcd(&booted, &["pivot", "--unchanged-exit-77"]).fails(77, &[]);
    assert!(!exists(&booted, PULLSPEC) && !exists(&booted, KERNEL_ARGS));
}

#[test]
fn root_a_request_for_what_is_there_is_cleared_at_once() {
    let host = Host::new();
    let image = host.v2();
    host.mcd(&["pivot", &image.reference()]).ok();
    let booted = boot(&host);
    ask(&booted, &image.reference(), "");
    mcd(&booted, &["pivot"]).ok();
    assert!(!booted.is_staged().unwrap());
    assert!(!exists(&booted, PULLSPEC));
}

#[test]
fn root_a_rollback_to_an_etc_with_the_request_does_not_run_it_again() {
    let host = Host::new();
    let booted = boot(&host);
    ask(&booted, &host.v2().reference(), "");
    mcd(&booted, &["pivot"]).ok();
    let booted = booted.reboot().unwrap();
    mcd(&booted, &["pivot"]).ok();
    mcd(&booted, &["rollback"]).ok();
    let booted = booted.reboot().unwrap();
    // This /etc is the one that the request was written to.
    mcd(&booted, &["pivot"]);
    assert!(!booted.is_staged().unwrap());
    assert!(!exists(&booted, PULLSPEC));
}

#[test]
fn root_without_image_and_request_the_host_stays_and_the_message_says_where_it_looked() {
    let host = Host::new();
    let booted = boot(&host);
    let outcome = mcd(&booted, &["pivot"]);
    assert!(outcome.code.is_some_and(|code| code <= 3), "{outcome}");
    assert!(outcome.stderr.contains(PULLSPEC), "{outcome}");
    assert!(!booted.is_staged().unwrap());
}

#[test]
fn root_a_reboot_request_is_understood() {
    let host = Host::new();
    let image = host.v2();
    host.mcd(&["pivot", &image.reference()]).ok();
    let booted = boot(&host);
    booted.shell(&format!("mkdir -p /run/pivot; touch {REBOOT_NEEDED}")).unwrap();
    // There is no logind in the namespace: that a reboot is asked for shows in the failure.
    let outcome = mcd(&booted, &["pivot"]);
    assert!(outcome.code.is_some(), "{outcome}");
    assert!(!booted.is_staged().unwrap());
}

#[test]
fn root_the_old_names_take_the_old_flags() {
    let host = Host::new();
    let image = host.v2();
    let booted = boot(&host);
    let output =
        booted.command("machine-config-daemon").args(["pivot", "--keep", &image.reference()]).output();
    Outcome::of(output.unwrap()).ok();
    assert!(booted.is_staged().unwrap());
}
