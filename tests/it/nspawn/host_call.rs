//! The call from the pod: this process is the pod, the container's systemd runs the units.

use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use mcd::cluster::host_call::{HostCall as _, SystemdHost};
use mcd::host::service::Spool;
use mcd::model::wire::{
    Done, Failed, HostRequest, Outcome, Reply, ReplyBody, SOURCE_MACHINE_CONFIG, Verb, WIRE_VERSION, Wanted,
};
use mcd_test_support::machine::Machine;

use super::{Host, image};

/// A path whose change needs nothing.
const QUIET: &str = "/etc/nmstate/openshift/a.yml";

/// A pod. Everything that it knows dies with it.
struct Pod {
    host: SystemdHost,
    runtime: tokio::runtime::Runtime,
}

impl Pod {
    fn on(machine: &Machine<'_>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let host = SystemdHost::of_process(machine.leader()).bringing(env!("CARGO_BIN_EXE_mcd").into());
        Self { host, runtime }
    }

    fn run(&self, id: &str, verb: &Verb) {
        self.runtime.block_on(self.host.run(&request(id, verb))).unwrap();
    }

    fn reply(&self, id: &str, after: u64) -> anyhow::Result<Reply> {
        self.runtime.block_on(self.host.reply(id, after))
    }

    /// All replies from the first.
    fn replies(&self, id: &str) -> Vec<Reply> {
        let mut all = Vec::new();
        loop {
            let reply = self.reply(id, all.len() as u64).unwrap();
            all.push(reply);
            if all.last().unwrap().body.is_end() {
                return all;
            }
        }
    }

    fn ask(&self, id: &str, verb: &Verb) -> Result<Done, Failed> {
        self.run(id, verb);
        match self.replies(id).pop().unwrap().body {
            ReplyBody::Done(done) => Ok(*done),
            ReplyBody::Failed(failed) => Err(failed),
            other => panic!("{other:?}"),
        }
    }

    fn status(&self) -> mcd::model::wire::HostReport {
        self.runtime.block_on(self.host.status()).unwrap()
    }
}

fn request(id: &str, verb: &Verb) -> HostRequest {
    HostRequest {
        version: WIRE_VERSION,
        id: id.to_owned(),
        who: "daemon in a test".to_owned(),
        force: false,
        verb: verb.clone(),
    }
}

fn wanted(name: &str, image: Option<String>, path: &str, content: &str) -> Wanted {
    let config = serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": {
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [
                {"path": path, "mode": 420, "contents": {"source": format!("data:,{content}")}},
            ]},
        }},
    });
    Wanted {
        machine_config: config.to_string(),
        name: name.to_owned(),
        image,
        source: SOURCE_MACHINE_CONFIG.to_owned(),
    }
}

#[test]
fn root_nspawn_a_request_outlives_its_pod_and_is_answered_once() {
    let host = Host::new();
    let machine = host.boot();
    let pod = Pod::on(&machine);
    let before = pod.status();
    assert_eq!((before.version, before.mcd.as_str()), (WIRE_VERSION, env!("CARGO_PKG_VERSION")));
    assert_eq!(before.applied_config, None);

    let prepare = Verb::Prepare(wanted("rendered-1", Some(image("v2")), "/etc/from-config", "one"));
    pod.run("prepare-1", &prepare);
    pod.reply("prepare-1", 0).unwrap();
    // Killed with the first reply in its hands.
    drop(pod);
    let pod = Pod::on(&machine);
    pod.run("prepare-1", &prepare);
    let replies = pod.replies("prepare-1");
    let numbers: Vec<u64> = replies.iter().map(|reply| reply.seq).collect();
    assert_eq!(numbers, (1..=replies.len() as u64).collect::<Vec<_>>());
    let ends = replies.iter().filter(|reply| reply.body.is_end()).count();
    assert_eq!(ends, 1, "{replies:#?}");
    let ReplyBody::Done(done) = &replies.last().unwrap().body else { panic!("{replies:#?}") };
    assert_eq!(done.outcome, Outcome::Prepared);
    let plan = done.plan.as_ref().unwrap();
    assert!(plan.reboot && plan.drain && plan.why.iter().any(|why| why.starts_with("image: ")), "{plan:?}");
    let report = done.report.as_ref().unwrap();
    assert!(!report.intent.as_ref().unwrap().committed, "{report:?}");
    // One unit did it: asking again answered from the file.
    let journal = machine.shell("journalctl --no-pager -u mcd-request-prepare-1.service -o cat").unwrap();
    assert!(journal.matches("Started").count() <= 1, "{journal}");

    let change = done.change.clone().unwrap();
    let done = pod.ask("commit-1", &Verb::Commit { change, reboot: true }).unwrap();
    assert_eq!(done.outcome, Outcome::Rebooting);
    drop(pod);
    let machine = machine.next_boot().unwrap();
    let pod = Pod::on(&machine);
    assert_eq!(machine.shell("cat /etc/from-config").unwrap(), "one");
    let report = pod.status();
    assert_eq!(report.applied_config.as_deref(), Some("rendered-1"));
    assert_eq!(super::version(&machine), "2");
    // The spool is gone with the boot, and what is asked then is an error, not a wait.
    let error = pod.reply("commit-1", 0).unwrap_err();
    assert!(format!("{error:#}").contains("commit-1 is not known"), "{error:#}");
}

#[test]
fn root_nspawn_the_pod_applies_live_verifies_and_hears_what_is_refused() {
    let host = Host::new();
    let machine = host.boot();
    let pod = Pod::on(&machine);
    let live = wanted("rendered-1", None, QUIET, "quiet");
    assert_eq!(pod.ask("live-1", &Verb::ApplyLive(live)).unwrap().outcome, Outcome::Applied);
    assert_eq!(machine.shell(&format!("cat {QUIET}")).unwrap(), "quiet");
    assert_eq!(pod.status().applied_config.as_deref(), Some("rendered-1"));

    machine.shell(&format!("echo edited > {QUIET}")).unwrap();
    let failed = pod.ask("verify-1", &Verb::Verify { repair: false }).unwrap_err();
    assert_eq!(failed.code, 5);
    assert!(failed.differs.iter().any(|one| one.starts_with(QUIET)), "{failed:?}");
    assert_eq!(pod.ask("repair-1", &Verb::Verify { repair: true }).unwrap().outcome, Outcome::Ok);
    assert_eq!(machine.shell(&format!("cat {QUIET}")).unwrap(), "quiet");

    let failed =
        pod.ask("live-2", &Verb::ApplyLive(wanted("r-2", None, "/etc/needs-a-boot", "x"))).unwrap_err();
    assert_eq!((failed.code, failed.is_refused()), (3, true), "{failed:?}");
    assert!(failed.line().contains("file /etc/needs-a-boot: reboot"), "{}", failed.line());
    let failed = pod.ask("bad-1", &Verb::Prepare(wanted("r-3", None, "relative", "x"))).unwrap_err();
    assert!(failed.is_refused() && failed.line().contains("storage.files[0]"), "{}", failed.line());

    // Handed over, and then its unit was killed before it said a word.
    let root =
        Dir::open_ambient_dir(format!("/proc/{}/root", machine.leader()), ambient_authority()).unwrap();
    Spool::of_root(&root).unwrap().submit(&request("lost-1", &Verb::Status)).unwrap();
    let error = pod.reply("lost-1", 0).unwrap_err();
    assert!(format!("{error:#}").contains("ended on the host without an answer"), "{error:#}");
    // Asked again, it is carried out.
    assert_eq!(pod.ask("lost-1", &Verb::Status).unwrap().outcome, Outcome::Ok);
}

#[test]
fn root_nspawn_a_hold_on_the_host_is_heard_at_once() {
    let host = Host::new();
    let machine = host.boot();
    let pod = Pod::on(&machine);
    assert_eq!(pod.status().hold, None);
    super::fails(&machine, &["hold", "--for", "never"], 2, &["--for never: no time"]);
    pod.runtime.block_on(async {
        let heard = tokio::time::timeout(std::time::Duration::from_secs(30), pod.host.changed());
        let placed = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            super::mcd(&machine, &["hold", "--for", "2h", "--reason", "disk swap"]);
        };
        tokio::join!(heard, placed).0.unwrap();
    });
    let hold = pod.status().hold.unwrap();
    assert_eq!(hold.why, "disk swap");
    assert!(hold.until.is_some());
    let page = super::mcd(&machine, &["status"]);
    assert!(page.contains("Held:") && page.contains("disk swap"), "{page}");
    assert_eq!(super::status(&machine)["hold"]["why"], "disk swap");
    super::mcd(&machine, &["release"]);
    assert_eq!(pod.status().hold, None);
    assert!(super::status(&machine)["hold"].is_null());
}

#[test]
fn root_nspawn_what_failed_is_prepared_again_for_a_pod_that_forces() {
    let host = Host::new();
    let machine = host.boot();
    super::health::check_of(&machine, "required", "app", ". /etc/os-release; test $VERSION_ID != 2");
    super::mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    super::health::wait_until_down(machine);
    drop(super::health::boot_until_down(&host));
    let machine = host.boot();
    let pod = Pod::on(&machine);
    let prepare = Verb::Prepare(Wanted { image: Some(image("v2")), ..Wanted::default() });
    let failed = pod.ask("again-1", &prepare).unwrap_err();
    assert!(failed.is_refused() && failed.line().contains("failed on this host before"), "{}", failed.line());
    let forced = HostRequest { force: true, ..request("again-2", &prepare) };
    pod.runtime.block_on(pod.host.run(&forced)).unwrap();
    let ReplyBody::Done(done) = pod.replies("again-2").pop().unwrap().body else { panic!("refused") };
    assert_eq!(done.outcome, Outcome::Prepared);
}

/// Of a protocol that is not known yet, only the move to an image is certain to mean the same.
#[test]
fn root_nspawn_a_later_protocol_is_refused_but_for_a_move_to_an_image() {
    let host = Host::new();
    let machine = host.boot();
    let pod = Pod::on(&machine);
    let later = |id: &str, verb: Verb| HostRequest { version: WIRE_VERSION + 1, ..request(id, &verb) };
    pod.runtime.block_on(pod.host.run(&later("later-1", Verb::Cancel))).unwrap();
    let ReplyBody::Failed(failed) = pod.replies("later-1").pop().unwrap().body else { panic!("done") };
    assert!(failed.is_refused() && failed.line().contains("protocol"), "{}", failed.line());
    let forward = Verb::MoveToImage { image: image("v2"), reboot: true };
    pod.runtime.block_on(pod.host.run(&later("later-2", forward))).unwrap();
    let machine = machine.next_boot().unwrap();
    assert_eq!(super::version(&machine), "2");
}

/// The first migration: nothing of ours is on the host, and the image has it.
#[test]
fn root_nspawn_a_host_without_mcd_is_moved_to_an_image_by_the_pods_copy() {
    let host = Host::new();
    let usr = host.sysroot.next_boot().unwrap().deployment.join("usr");
    std::fs::remove_file(usr.join("bin/mcd")).unwrap();
    let machine = host.boot();
    assert!(!super::exists(&machine, "/usr/bin/mcd"));
    let pod = Pod::on(&machine);
    let report = pod.status();
    assert_eq!((report.version, report.mcd.as_str()), (WIRE_VERSION, env!("CARGO_PKG_VERSION")));
    let libraries = machine.shell("ls /run/mcd/pod/*/lib").unwrap();
    for name in ["libc.so.6", "libostree-1.so.1", "loader"] {
        assert!(libraries.contains(name), "{libraries}");
    }
    // Nothing of it is this distribution's.
    let list = "cd /run/mcd/pod/*; lib/loader --inhibit-cache --library-path $PWD/lib --list $PWD/mcd";
    let loaded = machine.shell(list).unwrap();
    let paths: Vec<&str> = loaded.lines().filter_map(|line| line.split(" => ").nth(1)).collect();
    let is_its_own = |path: &&str| path.starts_with("/run/mcd/pod/") || path.starts_with("lib/loader");
    assert!(paths.len() > 10 && paths.iter().all(is_its_own), "{loaded}");

    let prepare = Verb::Prepare(wanted("rendered-1", Some(image("v2")), "/etc/from-config", "one"));
    let change = pod.ask("first-1", &prepare).unwrap().change.unwrap();
    assert_eq!(
        pod.ask("first-2", &Verb::Commit { change, reboot: true }).unwrap().outcome,
        Outcome::Rebooting
    );
    let machine = machine.next_boot().unwrap();
    let pod = Pod::on(&machine);
    assert_eq!(
        (super::version(&machine).as_str(), machine.shell("cat /etc/from-config").unwrap().as_str()),
        ("2", "one")
    );
    assert!(super::exists(&machine, "/usr/bin/mcd"));
    assert_eq!(pod.status().applied_config.as_deref(), Some("rendered-1"));
    assert!(!super::exists(&machine, "/run/mcd/pod"), "the image's own is used");
}
