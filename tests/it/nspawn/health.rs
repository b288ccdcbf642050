//! Boots that are judged: what fails is left for what was good, once, and only for its own fault.

use super::*;

/// A required check of the administrator's that fails on every version but those in `good`.
pub(super) fn check_of(machine: &Machine<'_>, weight: &str, name: &str, body: &str) {
    let path = format!("/etc/mcd/health/{weight}.d/{name}");
    machine
        .shell(&format!(
            "mkdir -p /etc/mcd/health/{weight}.d; printf '%s\\n' '#!/bin/sh' '{body}' > {path}; chmod +x {path}; \
             printf '[health]\\ndeadline = 5\\ninterval = 1\\n' > /etc/mcd/mcd.toml"
        ))
        .unwrap();
}

fn verdict(machine: &Machine<'_>) -> Value {
    status(machine)["health"].clone()
}

pub(super) fn wait_until_down(mut machine: Machine<'_>) {
    machine.wait_until_down().unwrap();
}

/// Boots what the boot menu has first, which does not stay up.
pub(super) fn boot_until_down(host: &Host) -> Machine<'_> {
    let mut machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    machine.wait_until_down().unwrap();
    machine
}

#[test]
fn root_nspawn_a_failed_check_goes_back_once_and_says_why() {
    let host = Host::new();
    let machine = host.boot();
    // The first boot is judged good: nothing required fails.
    assert_eq!(verdict(&machine)["verdict"], "good", "{:#}", status(&machine));
    assert_eq!(status(&machine)["deployments"][0]["state"], "good");
    check_of(
        &machine,
        "required",
        "app",
        ". /etc/os-release; echo serving $VERSION_ID; test $VERSION_ID != 2",
    );
    check_of(&machine, "wanted", "shared", "exit 1");
    // Wanted checks never go back: it is healthy, and says so.
    let said = fails(&machine, &["health"], 0, &["failed wanted   shared"]);
    assert!(said.contains("ok     required app") && said.contains("serving 1"), "{said}");

    mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    wait_until_down(machine);
    let down = boot_until_down(&host);
    drop(down);
    let machine = host.boot();
    assert_eq!(version(&machine), "1");
    let seen = status(&machine);
    assert_eq!(seen["went_back"]["by"], "health", "{seen:#}");
    assert!(seen["went_back"]["cause"].as_str().unwrap().contains("app"), "{seen:#}");
    let left = &seen["deployments"][1];
    assert_eq!(
        (&left["state"], left["cause"].as_str().unwrap().contains("serving 2")),
        (&"failed".into(), true)
    );
    assert_eq!(verdict(&machine)["verdict"], "good");
    let page = mcd(&machine, &["status"]);
    assert!(page.contains("Went back:") && page.contains("serving 2"), "{page}");
    let motd = machine.shell("cat /run/motd.d/50-mcd").unwrap();
    assert!(motd.contains("went back") && motd.contains("app"), "{motd}");
    let journal =
        machine.shell("journalctl -b -1 -o cat MESSAGE_ID=c6d2a7df31ac4f3a8b0b6f2d4a7f91e5").unwrap();
    assert!(journal.contains("failed: health check failed: app"), "{journal}");

    // The same again is refused, but not what corrects it: another argument, or --force.
    fails(&machine, &["pivot", &image("v2")], 3, &["failed on this host before", "serving 2", "--force"]);
    check_of(&machine, "required", "app", "exit 0");
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "corrected=1"]);
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
    // It is over with the next change that is good.
    assert!(status(&machine)["went_back"].is_null());
    assert!(!exists(&machine, "/run/motd.d/50-mcd"));
    assert_nothing_failed(&machine);
}

#[test]
fn root_nspawn_a_failed_change_is_made_again_when_forced() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", ". /etc/os-release; test $VERSION_ID != 2");
    mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    wait_until_down(machine);
    drop(boot_until_down(&host));
    let machine = host.boot();
    fails(&machine, &["pivot", &image("v2")], 3, &["--force"]);
    check_of(&machine, "required", "app", "exit 0");
    mcd(&machine, &["pivot", &image("v2"), "--force"]);
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
}

#[test]
fn root_nspawn_what_failed_before_does_not_go_back() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", "echo broken for long; exit 1");
    let said = fails(&machine, &["health"], 5, &["FAILED required app", "broken for long"]);
    assert!(said.contains("unhealthy"), "{said}");
    let said = mcd(&machine, &["pivot", &image("v2")]);
    assert!(said.contains("not held against the change: health check app"), "{said}");
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
    assert_eq!(verdict(&machine)["checks"][0]["failed_before"], true, "{:#}", verdict(&machine));
    assert!(status(&machine)["went_back"].is_null());
}

#[test]
fn root_nspawn_without_a_good_deployment_it_stays_and_says_degraded() {
    let host = Host::new();
    // Set up before its first boot, so that nothing was ever good.
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::create_dir_all(etc.join("mcd/health/required.d")).unwrap();
    std::fs::write(etc.join("mcd/mcd.toml"), "[health]\ndeadline = 2\ninterval = 1\n").unwrap();
    std::os::unix::fs::symlink("/usr/bin/false", etc.join("mcd/health/required.d/app")).unwrap();
    // The installation's own deployment counts as good since it was pivoted from; it goes.
    std::fs::remove_file(host.sysroot.path().join("ostree/mcd-boots")).unwrap();
    let machine = host.boot();
    assert_eq!(verdict(&machine)["verdict"], "degraded", "{:#}", verdict(&machine));
    assert_eq!(version(&machine), "1");
    assert!(machine.shell("cat /run/motd.d/50-mcd").unwrap().contains("degraded"));
    assert!(mcd(&machine, &["status"]).contains("degraded"));
}

#[test]
fn root_nspawn_a_shutdown_while_judging_is_no_verdict() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", ". /etc/os-release; test $VERSION_ID != 2");
    machine.shell("printf '[health]\\ndeadline = 600\\ninterval = 1\\n' > /etc/mcd/mcd.toml").unwrap();
    mcd(&machine, &["pivot", &image("v2"), "--reboot=full"]);
    wait_until_down(machine);
    let mut machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    wait_for(&machine, "grep -q judging /run/mcd/health.json");
    machine.shell("systemctl reboot").unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    let machine = Machine::power_on(&host.sysroot, &[(&host.installation.images(), IMAGES)]).unwrap();
    wait_for(&machine, "grep -q judging /run/mcd/health.json");
    let seen = status(&machine);
    assert_eq!(version(&machine), "2");
    assert_ne!(seen["deployments"][0]["state"], "failed", "{seen:#}");
    assert!(seen["went_back"].is_null());
}

#[test]
fn root_nspawn_a_lost_change_is_staged_again_once() {
    let host = Host::new();
    let machine = host.boot();
    mcd(&machine, &["pivot", &image("v2")]);
    let machine = machine.power_cut().unwrap();
    assert_eq!(version(&machine), "1");
    assert!(
        machine.is_staged().unwrap(),
        "{}",
        machine.shell("journalctl -b -u mcd-resume --no-pager").unwrap()
    );
    let machine = machine.power_cut().unwrap();
    assert!(!machine.is_staged().unwrap(), "only once");
    let journal = machine.shell("journalctl -b -u mcd-resume -o cat --no-pager").unwrap();
    assert!(journal.contains("lost again") && journal.contains("--resume="), "{journal}");
    let id = status(&machine)["prepared"]["id"].as_str().unwrap().to_owned();
    mcd(&machine, &["pivot", &format!("--resume={id}")]);
    let machine = machine.reboot().unwrap();
    assert_eq!(version(&machine), "2");

    // What was dropped stays dropped.
    mcd(&machine, &["pivot", &image("v3")]);
    mcd(&machine, &["cancel"]);
    let machine = machine.power_cut().unwrap();
    assert!(!machine.is_staged().unwrap());
    assert_eq!(version(&machine), "2");
}

#[test]
fn root_nspawn_kubelet_counts_while_its_certificate_is_valid() {
    let host = Host::new();
    let machine = host.boot();
    let health = |script: &str| -> Value {
        let said =
            machine.shell(&format!("{script} PATH=/run/stub:$PATH mcd health --json || true")).unwrap();
        let found: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        let checks = found["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "kubelet").unwrap_or_default()
    };
    assert!(health("").is_null(), "there is no kubelet");
    machine
        .shell(
            "printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' \
             > /etc/systemd/system/kubelet.service; systemctl -q enable kubelet.service; mkdir -p /run/stub",
        )
        .unwrap();
    assert!(health("").is_null(), "it has not joined a cluster");
    machine
        .shell("mkdir -p /var/lib/kubelet/pki; touch /var/lib/kubelet/pki/kubelet-client-current.pem")
        .unwrap();
    // The stub stands for openssl, whose word on a certificate is all that is taken from it.
    let valid = "printf '#!/bin/sh\\nexit 0\\n' > /run/stub/openssl; chmod +x /run/stub/openssl;";
    let expired = "printf '#!/bin/sh\\nexit 1\\n' > /run/stub/openssl; chmod +x /run/stub/openssl;";
    let down = health(valid);
    assert_eq!((&down["weight"], &down["passed"]), (&"required".into(), &false.into()), "{down:#}");
    assert!(down["why"].as_str().unwrap().contains("10248/healthz"), "{down:#}");
    assert_eq!(health(expired)["weight"], "wanted");

    let server = std::net::TcpListener::bind("127.0.0.1:10248").unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for (client, body) in server.incoming().zip(["ok", "no"]) {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 2048]);
            let _ = write!(client, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{body}");
        }
    });
    assert_eq!(health(valid)["passed"], true);
    let other = health(valid);
    assert!(other["why"].as_str().unwrap().contains("does not say ok"), "{other:#}");
}

#[test]
fn root_nspawn_a_soft_reboot_is_refused_with_its_reason() {
    let host = Host::new();
    let machine = host.boot();
    // No Debian that tests run on has an ostree with the verb.
    fails(
        &machine,
        &["pivot", &image("v2"), "--reboot=soft"],
        3,
        &["soft reboot is not possible", "prepare-soft-reboot"],
    );
    assert!(!machine.is_staged().unwrap(), "refused before the change");
    let said = mcd(&machine, &["pivot", &image("v2"), "--reboot=auto"]);
    assert!(said.contains("a full reboot: this libostree has no"), "{said}");
    let machine = machine.next_boot().unwrap();
    assert_eq!(version(&machine), "2");
}

/// Programs that write down how they were called. `ostree` mounts the next root as its verb does.
const STUBS: &str = r#"
mkdir -p /run/stub
cat > /run/stub/ostree <<'END'
#!/bin/bash
echo "ostree $*" >> /run/calls
case "$*" in
"admin prepare-soft-reboot 0")
    entry=$(ls /boot/loader/entries/*.conf | sort -V | tail -1)
    root=$(grep -o 'ostree=[^ ]*' "$entry" | cut -d= -f2)
    mkdir -p /run/nextroot
    mount --bind "/sysroot$root" /run/nextroot
    mount --rbind /sysroot /run/nextroot/sysroot ;;
"admin --help") echo "  prepare-soft-reboot" ;;
"admin prepare-soft-reboot"*) ;;
*) exec /usr/bin/ostree "$@" ;;
esac
END
cat > /run/stub/systemctl <<'END'
#!/bin/bash
echo "systemctl $*" >> /run/calls
case "$*" in
"cat soft-reboot.target" | soft-reboot*) ;;
*) exec /usr/bin/systemctl "$@" ;;
esac
END
chmod +x /run/stub/*
"#;

#[test]
fn root_nspawn_a_soft_reboot_counts_the_boot_before_the_switch() {
    let host = Host::new();
    let machine = host.boot();
    machine.shell(STUBS).unwrap();
    let said = machine
        .shell(&format!("PATH=/run/stub:$PATH mcd pivot {} --reboot=soft 2>&1 || echo FAILED", image("v2")))
        .unwrap();
    assert!(!said.contains("FAILED") && said.contains("rebooting user space"), "{said}");
    let calls = machine.shell("cat /run/calls").unwrap();
    let order = [
        "ostree admin --help",
        "systemctl stop ostree-finalize-staged.service",
        "ostree admin prepare-soft-reboot 0",
        "systemctl soft-reboot",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|call| calls.find(call).unwrap_or_else(|| panic!("{call} is not in\n{calls}")))
        .collect();
    assert!(places.is_sorted(), "{calls}");
    let seen = status(&machine);
    assert_eq!(
        (&seen["deployments"][0]["state"], &seen["deployments"][0]["staged"]),
        (&"booted".into(), &false.into())
    );
    assert!(seen["health"].is_null(), "the verdict of the boot before is over: {seen:#}");

    // Another argument: user space alone cannot bring it.
    let said = machine
        .shell(&format!(
            "PATH=/run/stub:$PATH mcd pivot {} --karg-append a=b --reboot=soft 2>&1 || echo FAILED",
            image("v3")
        ))
        .unwrap();
    assert!(said.contains("FAILED") && said.contains("the kernel arguments change"), "{said}");
}

#[test]
fn root_nspawn_a_report_has_no_secret_and_says_what_is_missing() {
    let host = Host::new();
    let machine = host.boot();
    check_of(&machine, "required", "app", "echo token=s3cr3t0; exit 1");
    machine
        .shell(
            "mkdir -p /etc/containers; echo '{\"auths\":{\"r.example\":{\"auth\":\"s3cr3t1==\"}}}' > /etc/containers/auth.json
             echo 'password=s3cr3t2' | systemd-cat -t mcd
             cat > /run/mc.yaml <<'END'
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-secret
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - path: /etc/app-secret
        mode: 384
        contents: {source: 'data:,s3cr3t3'}
END
             mcd apply /run/mc.yaml; systemctl restart mcd-health.service || true",
        )
        .unwrap();
    let path = mcd(&machine, &["report", "--output", "/run/report.tar.gz"]);
    assert!(path.contains("/run/report.tar.gz"), "{path}");
    let text = machine
        .shell(
            "cd /run; stat -c %a report.tar.gz; tar -xzf report.tar.gz; grep -r . mcd-report; ls mcd-report",
        )
        .unwrap();
    assert!(text.starts_with("600\n"), "{text}");
    assert!(
        !text.contains("s3cr3t"),
        "{}",
        text.lines().filter(|line| line.contains("s3cr3t")).collect::<String>()
    );
    for wanted in
        ["status.json", "history.json", "journal-mcd.txt", "/etc/app-secret", "version-ostree.txt", "app"]
    {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    fails(
        &machine,
        &["report", "--output", "/run/report.tar.gz"],
        1,
        &["cannot be written", "--output FILE"],
    );
}

#[test]
fn root_nspawn_finalising_that_fails_is_told_and_done_again() {
    let host = Host::new();
    let machine = host.boot();
    // Other arguments: else the switch is one link below /ostree, and /boot stays as it is.
    mcd(&machine, &["pivot", &image("v2"), "--karg-append", "nosmt"]);
    // A /boot that cannot be written when it is finalised: what a full one is to libostree, too.
    let boot = host.sysroot.path().join("boot");
    // OSTree's own look back at the failure takes the host lock, and here it does so after the change
    // is staged again: neither may wait for the other.
    machine
        .shell(
            "d=/etc/systemd/system/ostree-boot-complete.service.d; mkdir -p $d
             printf '[Service]\nExecStartPre=/usr/bin/sleep 2\n' > $d/late.conf",
        )
        .unwrap();
    let frozen = Frozen::new(&boot);
    machine.shell("systemctl reboot").unwrap();
    wait_until_down(machine);
    drop(frozen);
    let machine = host.boot();
    assert_eq!(version(&machine), "1");
    let journal = machine.shell("journalctl -b -u mcd-resume -o cat --no-pager").unwrap();
    assert!(journal.contains("could not finalise it (") && journal.contains("not permitted"), "{journal}");
    assert!(machine.is_staged().unwrap(), "{journal}");
    let machine = machine.reboot().unwrap();
    assert_eq!((version(&machine).as_str(), &verdict(&machine)["verdict"]), ("2", &"good".into()));
}

/// A folder in which nothing can be made or removed, until it is dropped.
struct Frozen(std::path::PathBuf);

impl Frozen {
    fn new(folder: &std::path::Path) -> Self {
        let frozen = Self(folder.to_owned());
        assert!(frozen.set("+i"), "the file system of the tests has no immutable folders");
        frozen
    }

    fn set(&self, flag: &str) -> bool {
        std::process::Command::new("chattr")
            .arg(flag)
            .arg(&self.0)
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.set("-i");
    }
}

#[test]
fn root_nspawn_a_registry_outage_sends_nobody_back() {
    let host = Host::new();
    let machine = host.boot();
    let registry = FakeRegistry::serve(&host.installation.images(), vec![]).unwrap();
    mcd(&machine, &["pivot", &registry.image("os:v2"), "--insecure-skip-tls-verification"]);
    drop(registry);
    let machine = machine.reboot().unwrap();
    let seen = verdict(&machine);
    assert_eq!((version(&machine).as_str(), &seen["verdict"]), ("2", &"good".into()));
    let checks = seen["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "registry").unwrap();
    assert_eq!((&check["passed"], &check["weight"]), (&false.into(), &"wanted".into()), "{seen:#}");
    fails(&machine, &["health"], 0, &["failed wanted   registry", "does not answer: no connection to"]);
}
