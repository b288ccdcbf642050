//! Signals, busy locks and kills: the host stays as it was, and the next run goes on.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use rustix::process::{Pid, Signal, kill_process};

use super::{Host, Outcome};

const INSECURE: &str = "--insecure-skip-tls-verification";

/// Starts a pivot that hangs in a layer's download, and waits until it does.
fn hanging(host: &Host, server: &FakeRegistry) -> Child {
    let mut command = host.command(&["pivot", &server.image("os:v2"), INSECURE]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A blob that is answered whole shows up when its end is sent; those that stall, never.
    let start = Instant::now();
    while server.blobs_served() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is fetched: {:?}", server.requests());
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn stalling(host: &Host) -> FakeRegistry {
    let image = host.v2();
    let rule = Rule::always(On::BlobOf(image.layers[1].digest.clone()), Act::StallAfter(1000));
    FakeRegistry::serve(&image.dir, vec![rule]).unwrap()
}

#[test]
fn root_signals_leave_the_host_as_it_was() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let host = Host::new();
        let server = stalling(&host);
        let before = host.switchable();
        let child = hanging(&host, &server);
        let start = Instant::now();
        kill_process(Pid::from_child(&child), signal).unwrap();
        Outcome::of(child.wait_with_output().unwrap()).fails(code, &[]);
        assert!(start.elapsed() < Duration::from_secs(10), "it took {:?} to end", start.elapsed());
        assert_eq!(host.switchable(), before);
        host.sysroot.fsck().unwrap();
        server.set_rules(vec![]);
        host.mcd(&["pivot", &server.image("os:v2"), INSECURE]).ok();
        assert_eq!(host.next_version(), "2");
    }
}

#[test]
fn root_a_killed_run_is_no_hindrance_to_the_next() {
    let host = Host::new();
    let server = stalling(&host);
    let before = host.switchable();
    let child = hanging(&host, &server);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    Outcome::of(child.wait_with_output().unwrap()).fails(137, &[]);
    assert_eq!(host.switchable(), before);
    host.sysroot.fsck().unwrap();
    server.set_rules(vec![]);
    host.mcd(&["pivot", &server.image("os:v2"), INSECURE]).ok();
    assert_eq!(host.next_version(), "2");
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_who_holds_the_lock_is_named_and_no_wait_does_not_wait() {
    let host = Host::new();
    let image = host.v2();
    host.mcd(&["pull", &image.reference()]).ok();
    let before = host.switchable();
    let other = ostree::Sysroot::new(Some(&ostree::gio::File::for_path(host.sysroot.path())));
    other.load(ostree::gio::Cancellable::NONE).unwrap();
    other.lock().unwrap();
    let pid = std::process::id().to_string();
    host.mcd(&["pivot", &image.reference(), "--no-wait"]).fails(6, &[&pid]);
    host.mcd(&["rollback", "--no-wait"]);
    assert_eq!(host.switchable(), before);
    // Reading needs no lock.
    host.mcd(&["status"]).ok();
    // Who waits says so, and goes on when the other is done.
    let mut command = host.command(&["pivot", &image.reference()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    other.unlock();
    let outcome = Outcome::of(child.wait_with_output().unwrap()).ok();
    assert!(outcome.stderr.contains(&pid), "{outcome}");
    assert_eq!(host.next_version(), "2");
}

#[test]
fn root_a_download_holds_no_host_lock() {
    let host = Host::new();
    let server = stalling(&host);
    let child = hanging(&host, &server);
    let other = ostree::Sysroot::new(Some(&ostree::gio::File::for_path(host.sysroot.path())));
    other.load(ostree::gio::Cancellable::NONE).unwrap();
    assert!(other.try_lock().unwrap(), "the download holds the sysroot's lock");
    other.unlock();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    Outcome::of(child.wait_with_output().unwrap()).fails(143, &[]);
}
