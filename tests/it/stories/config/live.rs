//! The running host, in a namespace that libostree takes for a booted one: live applies, and what the
//! boots after them find.

use mcd_test_support::booted::Booted;
use mcd_test_support::process::run;
use mcd_test_support::sysroot::ostree;
use serde_json::Value;

use super::*;

/// A `systemctl` that notes its calls, says that every unit runs, and fails where a test asks for it.
/// Work on a tree is the real one's.
const SYSTEMCTL: &str = r#"
mkdir -p /run/systemd/system
cat > /run/test/bin/systemctl <<'END'
#!/bin/bash
for argument in "$@"; do
    case $argument in --root*) exec /usr/bin/systemctl "$@";; esac
done
case "$*" in
    show*) printf 'LoadState=loaded\nActiveState=active\n'; exit 0;;
    start*) exit 0;;
esac
echo "$*" >> /run/test/calls
if [ -e /run/test/slow ]; then touch /run/test/begun; sleep 60; fi
if [ -e /run/test/fails ]; then echo "the unit says no" >&2; exit 1; fi
END
chmod 755 /run/test/bin/systemctl
"#;

/// A path whose change needs nothing, and one that asks for a reload of CRI-O.
const QUIET: &str = "/etc/nmstate/openshift/a.yml";
const RELOADS: &str = "/etc/containers/registries.d/a.yaml";

fn boot(host: &Host) -> Booted<'_> {
    ready(Booted::boot(&host.sysroot, program(), &[host.scratch.path()]).unwrap())
}

/// What units do early in the real root.
fn ready(booted: Booted<'_>) -> Booted<'_> {
    booted.shell(SYSTEMCTL).unwrap();
    mcd(&booted, &["boot"]).ok();
    booted
}

fn reboot(booted: Booted<'_>) -> Booted<'_> {
    let booted = ready(booted.reboot().unwrap());
    // What a unit does late in the boot.
    mcd(&booted, &["cleanup", "--after-boot"]).ok();
    booted
}

fn power_cut(booted: Booted<'_>) -> Booted<'_> {
    ready(booted.power_cut().unwrap())
}

fn mcd(booted: &Booted<'_>, arguments: &[&str]) -> Outcome {
    Outcome::of(booted.mcd(arguments).unwrap())
}

fn apply(host: &Host, booted: &Booted<'_>, machine: &Machine, more: &[&str]) -> Outcome {
    let path = host.config(machine);
    mcd(booted, &[&["apply", path.to_str().unwrap()], more].concat())
}

fn read(booted: &Booted<'_>, path: &str) -> Option<String> {
    let text = booted.shell(&format!("if [ -e {path} ]; then echo -n +; cat {path}; fi")).unwrap();
    text.strip_prefix('+').map(str::to_owned)
}

fn calls(booted: &Booted<'_>) -> Vec<String> {
    let text = read(booted, "/run/test/calls").unwrap_or_default();
    text.lines().map(|line| line.replace("--no-ask-password ", "")).collect()
}

fn status(booted: &Booted<'_>) -> Value {
    mcd(booted, &["status", "--json"]).ok().json()
}

fn version(booted: &Booted<'_>) -> String {
    booted.shell(". /etc/os-release; echo -n $VERSION_ID").unwrap()
}

#[test]
fn root_a_change_without_a_reboot_is_made_at_once() {
    let host = Host::with_image();
    let booted = boot(&host);
    let config = machine("99-a").file(RELOADS, "docker: {}\n").file(QUIET, "a: 1\n");
    let ended = apply(&host, &booted, &config, &["--json"]).ok();
    assert!(ended.stdout.contains("\"outcome\":\"applied\""), "{ended}");
    assert!(!booted.is_staged().unwrap());
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
    assert_eq!(calls(&booted), ["reload -- crio.service"]);
    let now = status(&booted);
    assert_eq!(now["deployments"][0]["config"]["names"][0], "99-a");
    assert_eq!(read(&booted, "/var/lib/mcd/live.json"), None);
    apply(&host, &booted, &config, &["--unchanged-exit-77"]).fails(77, &[]);
    mcd(&booted, &["verify"]).ok();
    mcd(&booted, &["cleanup"]).ok();

    // It survives boots, and leaves with the config.
    let booted = power_cut(booted);
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
    apply(&host, &booted, &machine("99-a").file(QUIET, "a: 1\n"), &[]).ok();
    assert_eq!(read(&booted, RELOADS), None);
    assert_eq!(read(&booted, QUIET).as_deref(), Some("a: 1\n"));
    let history = mcd(&booted, &["history", "--json"]).ok().json();
    assert_eq!(history.as_array().unwrap().last().unwrap()["outcome"], "applied");
}

#[test]
fn root_an_action_that_fails_takes_the_files_back() {
    let host = Host::with_image();
    let booted = boot(&host);
    booted.shell("mkdir -p /etc/containers/registries.d; echo mine > /etc/containers/registries.d/a.yaml; touch /run/test/fails").unwrap();
    let config = machine("99-a").file(RELOADS, "docker: {}\n").file(QUIET, "a: 1\n");
    apply(&host, &booted, &config, &[]).fails(1, &["99-a", "crio.service", "the unit says no"]);
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("mine\n"));
    assert_eq!(read(&booted, QUIET), None);
    assert_eq!(read(&booted, "/var/lib/mcd/live.json"), None);
    assert_eq!(calls(&booted), ["reload -- crio.service"; 2], "once forward, once with the old files back");
    booted.shell("rm /run/test/fails").unwrap();
    apply(&host, &booted, &config, &[]).ok();
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
}

#[test]
fn root_a_change_that_needs_a_reboot_waits_for_it() {
    let host = Host::with_image();
    let booted = boot(&host);
    let config = machine("99-a")
        .file("/etc/fixture.conf", "level = 9\n")
        .file("/var/lib/thing/data", "for /var\n")
        .file(QUIET, "a: 1\n");
    booted.shell("echo edited > /etc/fixture.conf").unwrap();
    apply(&host, &booted, &config, &[]).ok();
    assert!(booted.is_staged().unwrap());
    assert_eq!(read(&booted, QUIET), None, "nothing is made in part");
    apply(&host, &booted, &config, &["--unchanged-exit-77"]).fails(77, &[]);
    let booted = reboot(booted);
    // OSTree's merge kept the edit; what is managed wins.
    assert_eq!(read(&booted, "/etc/fixture.conf").as_deref(), Some("level = 9\n"));
    assert_eq!(read(&booted, "/var/lib/thing/data").as_deref(), Some("for /var\n"));
    mcd(&booted, &["verify"]).ok();
    // And back: image, configuration and what was edited.
    mcd(&booted, &["rollback"]).ok();
    let booted = reboot(booted);
    assert_eq!(read(&booted, "/etc/fixture.conf").as_deref(), Some("edited\n"));
    assert_eq!(read(&booted, "/var/lib/thing/data"), None);
}

#[test]
fn root_what_differs_is_named_and_put_right() {
    let host = Host::with_image();
    let booted = boot(&host);
    let config = machine("99-a").file(RELOADS, "docker: {}\n").file(QUIET, "a: 1\n");
    apply(&host, &booted, &config, &[]).ok();
    booted.shell(&format!("echo x >> {RELOADS}; chmod 600 {QUIET}")).unwrap();
    let found = mcd(&booted, &["verify"]);
    assert_eq!(found.code, Some(5), "{found}");
    for words in [RELOADS, QUIET, "mode", "content", "mcd verify --repair"] {
        assert!(found.stdout.contains(words), "{words}: {found}");
    }
    let json = mcd(&booted, &["verify", "--json"]).json();
    assert_eq!(json["differences"].as_array().unwrap().len(), 2, "{json:#}");
    mcd(&booted, &["verify", "--repair"]).ok();
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
    mcd(&booted, &["verify"]).ok();
    assert_eq!(calls(&booted).last().map(String::as_str), Some("reload -- crio.service"));
}

#[test]
fn root_a_live_apply_while_another_image_is_staged_reaches_both() {
    let host = Host::with_image();
    let v2 = host.v2();
    let booted = boot(&host);
    apply(&host, &booted, &machine("99-a").file(QUIET, "old\n"), &[]).ok();
    mcd(&booted, &["pivot", &v2.reference(), "--karg-append", "k=v"]).ok();
    apply(&host, &booted, &machine("99-a").file(QUIET, "new\n"), &[]).ok();
    assert_eq!(read(&booted, QUIET).as_deref(), Some("new\n"));
    assert!(booted.is_staged().unwrap());
    let booted = reboot(booted);
    assert_eq!(version(&booted), "2");
    assert!(booted.entry().options.contains("k=v"));
    assert_eq!(read(&booted, QUIET).as_deref(), Some("new\n"));
    mcd(&booted, &["verify"]).ok();
}

#[test]
fn root_a_live_apply_while_another_image_is_prepared_reaches_both() {
    let host = Host::with_image();
    let v2 = host.v2();
    let booted = boot(&host);
    apply(&host, &booted, &machine("99-a").file(QUIET, "old\n"), &[]).ok();
    mcd(&booted, &["pivot", &v2.reference(), "--until", "prepared"]).ok();
    apply(&host, &booted, &machine("99-a").file(QUIET, "new\n"), &[]).ok();
    mcd(&booted, &["pivot", "--resume"]).ok();
    let booted = reboot(booted);
    assert_eq!(version(&booted), "2");
    assert_eq!(read(&booted, QUIET).as_deref(), Some("new\n"));
}

#[test]
fn root_what_runs_asked_for_again_drops_what_is_staged() {
    let host = Host::with_image();
    let booted = boot(&host);
    let first = machine("99-a").file(QUIET, "a: 1\n");
    apply(&host, &booted, &first, &[]).ok();
    apply(&host, &booted, &machine("99-b").file("/etc/needs-reboot", "x\n"), &[]).ok();
    assert!(booted.is_staged().unwrap());
    apply(&host, &booted, &first, &[]).ok();
    assert!(!booted.is_staged().unwrap());
    assert_eq!(read(&booted, QUIET).as_deref(), Some("a: 1\n"));
}

#[test]
fn root_what_is_there_already_is_adopted() {
    let host = Host::with_image();
    let booted = boot(&host);
    booted.shell("echo same > /etc/by-hand").unwrap();
    // No policy knows the file: a change of it would need a reboot.
    apply(&host, &booted, &machine("99-a").file("/etc/by-hand", "same\n"), &[]).ok();
    assert!(!booted.is_staged().unwrap());
    assert_eq!(status(&booted)["deployments"][0]["config"]["entries"], 1);
}

#[test]
fn root_a_strangers_deployment_keeps_the_config() {
    let host = Host::with_image();
    let booted = boot(&host);
    let config = machine("99-a")
        .file("/etc/fixture.conf", "level = 9\n")
        .file("/usr/lib/thing.conf", "below /usr\n")
        .file("/var/lib/thing/data", "for /var\n");
    apply(&host, &booted, &config, &[]).ok();
    let booted = reboot(booted);
    assert_eq!(read(&booted, "/usr/lib/thing.conf").as_deref(), Some("below /usr\n"));
    let image = status(&booted)["deployments"][0]["image_commit"].as_str().unwrap().to_owned();
    drop(booted);
    // Another tool deploys the image itself, and what was before goes.
    let sysroot = format!("--sysroot={}", host.sysroot.path().display());
    for arguments in [&["deploy", "--os=fixture", &image][..], &["undeploy", "1"][..]] {
        run(ostree().arg("admin").args(arguments).arg(&sysroot)).unwrap();
    }
    let booted = boot(&host);
    assert_eq!(read(&booted, "/etc/fixture.conf").as_deref(), Some("level = 9\n"));
    assert_eq!(read(&booted, "/var/lib/thing/data").as_deref(), Some("for /var\n"));
    assert_eq!(read(&booted, "/usr/lib/thing.conf"), None);
    let now = status(&booted);
    assert_eq!(now["deployments"][0]["config"]["stranger"], true, "{now:#}");
    assert_eq!(now["deployments"][0]["config"]["missing"][0], "/usr/lib/thing.conf");
    let found = mcd(&booted, &["verify"]);
    assert_eq!(found.code, Some(5), "{found}");
    assert!(found.stdout.contains("/usr/lib/thing.conf"), "{found}");
    mcd(&booted, &["verify", "--repair"]).ok();
    let booted = reboot(booted);
    assert_eq!(read(&booted, "/usr/lib/thing.conf").as_deref(), Some("below /usr\n"));
    mcd(&booted, &["verify"]).ok();
    assert!(status(&booted)["deployments"][0]["config"]["stranger"].is_null());
}

/// Applies what asks for a reload, and kills that while the service reloads.
fn kill_while_reloading(host: &Host, booted: &Booted<'_>) {
    booted.shell("touch /run/test/slow").unwrap();
    let path = host.config(&machine("99-a").file(RELOADS, "docker: {}\n"));
    let mut running = booted.command("mcd").args(["apply", path.to_str().unwrap()]).spawn().unwrap();
    booted
        .shell("for i in $(seq 300); do [ -e /run/test/begun ] && exit 0; sleep 0.1; done; exit 1")
        .unwrap();
    booted.signal_mcd("KILL").unwrap();
    running.wait().unwrap();
}

#[test]
fn root_a_live_apply_that_is_killed_is_ended_by_the_next_run() {
    let host = Host::with_image();
    let booted = boot(&host);
    kill_while_reloading(&host, &booted);
    assert!(read(&booted, "/var/lib/mcd/live.json").is_some());
    booted.shell("rm /run/test/slow /run/test/calls").unwrap();
    apply(&host, &booted, &machine("99-a").file(RELOADS, "docker: {}\n"), &["--unchanged-exit-77"])
        .fails(77, &[]);
    assert_eq!(calls(&booted), ["reload -- crio.service"]);
    assert_eq!(read(&booted, "/var/lib/mcd/live.json"), None);
    mcd(&booted, &["verify"]).ok();
}

#[test]
fn root_a_live_apply_that_is_killed_is_ended_by_the_boot() {
    let host = Host::with_image();
    let booted = boot(&host);
    kill_while_reloading(&host, &booted);
    let booted = power_cut(booted);
    assert_eq!(read(&booted, "/var/lib/mcd/live.json"), None);
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
    mcd(&booted, &["verify"]).ok();
}

#[test]
fn root_a_live_apply_can_be_prepared_and_resumed() {
    let host = Host::with_image();
    let booted = boot(&host);
    let config = machine("99-a").file(RELOADS, "docker: {}\n");
    apply(&host, &booted, &config, &["--until", "prepared"]).ok();
    assert_eq!(read(&booted, RELOADS), None);
    mcd(&booted, &["apply", "--resume"]).ok();
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
    assert_eq!(calls(&booted), ["reload -- crio.service"]);
    assert!(status(&booted)["prepared"].is_null());
}

#[test]
fn root_forgetting_with_keep_leaves_what_is_there() {
    let host = Host::with_image();
    let v2 = host.v2();
    let booted = boot(&host);
    let config = machine("99-a").file("/etc/mine", "kept\n").file("/var/lib/thing/data", "kept\n");
    apply(&host, &booted, &config, &[]).ok();
    let booted = reboot(booted);
    mcd(&booted, &["forget", "--keep"]).ok();
    let booted = reboot(booted);
    assert_eq!(read(&booted, "/etc/mine").as_deref(), Some("kept\n"));
    assert_eq!(status(&booted)["deployments"][0]["config"]["entries"], 0);
    // From now on it is the machine's own, through edits and images.
    booted.shell("echo edited > /etc/mine").unwrap();
    mcd(&booted, &["verify"]).ok();
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    let booted = reboot(booted);
    assert_eq!(version(&booted), "2");
    assert_eq!(read(&booted, "/etc/mine").as_deref(), Some("edited\n"));
    assert_eq!(read(&booted, "/var/lib/thing/data").as_deref(), Some("kept\n"));
}

#[test]
fn root_what_cannot_be_undone_is_undone_by_the_next_run() {
    let host = Host::with_image();
    let booted = boot(&host);
    // The reload fails, and with it goes the right to write (of that run, which has mounts of its own).
    booted
        .shell("sed -i 's|^if .*fails.*|if [ -e /run/test/fails ]; then mount --bind /etc /etc; mount -o remount,bind,ro /etc; exit 1; fi|' /run/test/bin/systemctl; touch /run/test/fails")
        .unwrap();
    let config = machine("99-a").file(RELOADS, "docker: {}\n");
    apply(&host, &booted, &config, &[]).fails(4, &["99-a", "mcd verify --repair"]);
    assert!(read(&booted, "/var/lib/mcd/live.json").is_some());
    booted.shell("rm /run/test/fails").unwrap();
    mcd(&booted, &["verify", "--repair"]).ok();
    assert_eq!(read(&booted, RELOADS), None);
    assert_eq!(read(&booted, "/var/lib/mcd/live.json"), None);
    apply(&host, &booted, &config, &[]).ok();
    assert_eq!(read(&booted, RELOADS).as_deref(), Some("docker: {}\n"));
}

#[test]
fn root_a_lost_change_on_top_of_a_staged_one_is_staged_again() {
    let host = Host::with_image();
    let v2 = host.v2();
    let booted = boot(&host);
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    apply(&host, &booted, &machine("99-a").file("/etc/needs-reboot", "x\n"), &[]).ok();
    let booted = power_cut(booted);
    assert_eq!(version(&booted), "1");
    mcd(&booted, &["apply", "--resume"]).ok();
    let booted = reboot(booted);
    assert_eq!(version(&booted), "2");
    assert_eq!(read(&booted, "/etc/needs-reboot").as_deref(), Some("x\n"));
}

#[test]
fn root_an_image_that_runs_does_not_take_the_staged_config_away() {
    let host = Host::with_image();
    let (v1, v2) = (host.v1(), host.v2());
    let booted = boot(&host);
    let config =
        machine("99-a").file("/etc/needs-reboot", "x\n").spec(&format!("osImageURL: \"{}\"", v2.reference()));
    apply(&host, &booted, &config, &[]).ok();
    mcd(&booted, &["pivot", &v1.reference()]).ok();
    let booted = reboot(booted);
    assert_eq!(version(&booted), "1");
    assert_eq!(read(&booted, "/etc/needs-reboot").as_deref(), Some("x\n"));
}

#[test]
fn root_a_live_apply_reaches_a_change_that_was_lost_with_the_power() {
    let host = Host::with_image();
    let v2 = host.v2();
    let booted = boot(&host);
    apply(&host, &booted, &machine("99-a").file(QUIET, "old\n"), &[]).ok();
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    let booted = power_cut(booted);
    apply(&host, &booted, &machine("99-a").file(QUIET, "new\n"), &[]).ok();
    mcd(&booted, &["pivot", "--resume"]).ok();
    let booted = reboot(booted);
    assert_eq!(version(&booted), "2");
    assert_eq!(read(&booted, QUIET).as_deref(), Some("new\n"));
}

#[test]
fn root_a_live_apply_survives_another_tools_change_of_arguments() {
    let host = Host::with_image();
    let booted = boot(&host);
    let config = machine("99-a").file("/etc/needs-reboot", "x\n").file(QUIET, "old\n");
    apply(&host, &booted, &config, &[]).ok();
    let booted = reboot(booted);
    let config = machine("99-a").file("/etc/needs-reboot", "x\n").file(QUIET, "new\n");
    apply(&host, &booted, &config, &[]).ok();
    let name = status(&booted)["deployments"][0]["name"].as_str().unwrap().to_owned();
    drop(booted);
    // Such tools deploy the same commit again, with the origin as it was.
    let origin = host.scratch.join("origin");
    std::fs::write(&origin, host.sysroot.origin(&name).unwrap()).unwrap();
    let commit = name.split('.').next().unwrap();
    run(ostree()
        .args(["admin", "deploy", "--os=fixture", "--karg-append=other=tool", commit])
        .arg(format!("--origin-file={}", origin.display()))
        .arg(format!("--sysroot={}", host.sysroot.path().display())))
    .unwrap();
    let booted = boot(&host);
    assert!(booted.entry().options.contains("other=tool"));
    assert_eq!(read(&booted, QUIET).as_deref(), Some("new\n"));
    mcd(&booted, &["verify"]).ok();
}

#[test]
fn root_a_kernel_argument_that_is_missing_is_named_and_put_right() {
    let host = Host::with_image();
    let booted = boot(&host);
    apply(&host, &booted, &machine("99-a").file(QUIET, "a\n").spec("kernelArguments: [one=1]"), &[]).ok();
    let booted = reboot(booted);
    mcd(&booted, &["verify"]).ok();
    mcd(&booted, &["pivot", "--karg-delete", "one"]).ok();
    let booted = reboot(booted);
    let found = mcd(&booted, &["verify"]);
    assert_eq!(found.code, Some(5), "{found}");
    assert!(found.stdout.contains("one=1"), "{found}");
    mcd(&booted, &["verify", "--repair"]).ok();
    let booted = reboot(booted);
    assert!(booted.entry().options.contains("one=1"));
    mcd(&booted, &["verify"]).ok();
}
