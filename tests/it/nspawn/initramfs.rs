//! The small program of the initramfs, as dracut's module ships it, in the place of the hook: in a root
//! that is no system, with a deployment mounted as `ostree-prepare-root` does it. Real boots of it are in
//! `tests/vm`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mcd_test_support::process::run;
use mcd_test_support::shipped;

use super::*;

/// Bytes of the stripped program: every boot loads it, and `/boot` is small.
const SIZE_MAX: u64 = 4_000_000;
/// What a boot may be slower for a hook that finds nothing to do.
const TIME_MAX: Duration = Duration::from_millis(50);

/// The program; the first caller compiles it.
fn small() -> &'static Path {
    static SMALL: OnceLock<PathBuf> = OnceLock::new();
    SMALL.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_mcd"));
        shipped::initramfs_program(program, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
    })
}

/// Makes the initramfs in mounts of its own and runs `$4` in it. Its first process is no system's: what
/// asks for a reboot there ends it.
const INITRAMFS: &str = r#"
tree=$1 deployment=$2 sysroot=$3 script=$4 small=$5 root=$6
mount --bind "$tree" "$root"
for folder in run etc; do mount -t tmpfs tmpfs "$root/$folder"; done
for folder in dev sys; do mount --rbind "/$folder" "$root/$folder"; done
mount -t proc proc "$root/proc"
touch "$root/etc/initrd-release"
mkdir "$root/run/root" "$root/run/bin"
cp "$small" "$root/run/bin/mcd"
printf '%s\n' '#!/bin/sh' 'echo "ASKED systemctl $*"' 'kill -KILL $PPID' >"$root/run/bin/systemctl"
chmod +x "$root/run/bin/systemctl"
mount --bind "$deployment" "$root/run/root"
mount --bind "$sysroot" "$root/run/root/sysroot"
mount -o remount,bind,ro "$root/run/root/sysroot"
exec chroot "$root" env -i PATH=/run/bin:/usr/bin:/usr/sbin bash -ec "$script"
"#;

/// Runs a script in the initramfs that is about to start the next boot of `host`.
fn in_initramfs(host: &Host, script: &str) -> Output {
    let scratch = tempfile::tempdir().unwrap();
    let deployment = host.sysroot.next_boot().unwrap().deployment;
    Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "bash",
            "-ec",
            INITRAMFS,
            "initramfs",
        ])
        // Any tree with the programs that dracut puts there.
        .args([&deployment, &deployment, host.sysroot.path()])
        .arg(script)
        .arg(small())
        .arg(scratch.path())
        .output()
        .unwrap()
}

const HOOK: &str = "status=0; mcd boot --root /run/root || status=$?
! touch /run/root/sysroot/written 2>/dev/null || echo WRITABLE
! findmnt /run/mcd/back || echo MOUNTED
cat /run/mcd/boot.json
exit $status";

/// Version 2, committed on a good version 1, and off.
fn committed() -> Host {
    let host = Host::new();
    let mut machine = host.boot();
    assert_eq!(status(&machine)["deployments"][0]["state"], "good");
    mcd(&machine, &["pivot", &image("v2")]);
    machine.shell("systemctl poweroff").unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    host
}

#[test]
fn root_nspawn_the_hook_leaves_what_began_three_times() {
    let host = committed();
    let version_2 = host.sysroot.next_boot().unwrap().deployment;
    for _ in 0..3 {
        let said = in_initramfs(&host, HOOK);
        assert!(said.status.success(), "{}", text(&said));
        let words = text(&said);
        assert!(words.contains(r#""counted":true"#) && !words.contains("ASKED"), "{words}");
        assert!(!words.contains("WRITABLE") && !words.contains("MOUNTED"), "{words}");
    }
    assert_eq!(host.sysroot.next_boot().unwrap().deployment, version_2);
    let said = in_initramfs(&host, HOOK);
    let words = text(&said);
    assert!(words.contains("ASKED systemctl --no-block --force reboot"), "{words}");
    assert!(words.contains("3 boots ended without a verdict") && words.contains("going back to"), "{words}");
    assert_ne!(host.sysroot.next_boot().unwrap().deployment, version_2, "{words}");

    let machine = host.boot();
    assert_eq!(version(&machine), "1");
    let seen = status(&machine);
    assert_eq!(
        (&seen["went_back"]["by"], &seen["deployments"][1]["state"]),
        (&"boot-count".into(), &"unproven".into())
    );
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_nspawn_the_hook_boots_on_where_going_back_fails() {
    let host = committed();
    for _ in 0..3 {
        in_initramfs(&host, HOOK);
    }
    // Whatever keeps the older `mcd` from doing what it is asked: here, neither has a program.
    let hidden = "mount -t tmpfs tmpfs /run/root/usr/bin";
    let before = host.sysroot.boot_entries().unwrap();
    let gone = format!(
        "for one in /run/root/sysroot/ostree/deploy/*/deploy/*.?/usr/bin; do mount -t tmpfs tmpfs $one; done; {hidden}; {HOOK}"
    );
    let said = in_initramfs(&host, &gone);
    let words = text(&said);
    assert!(said.status.success() && !words.contains("ASKED"), "{words}");
    assert!(words.contains("it could not be left") && words.contains("it has no /usr/bin/mcd"), "{words}");
    assert!(words.contains(r#""degraded":"3 boots"#), "{words}");
    assert_eq!(host.sysroot.boot_entries().unwrap(), before);
    // The next boot tries again.
    assert!(text(&in_initramfs(&host, HOOK)).contains("ASKED"));
}

#[test]
fn root_nspawn_the_hook_lays_etc_down_or_goes_back() {
    let host = Host::new();
    let mut machine = host.boot();
    machine
        .shell(
            "cat > /run/mc.yaml <<'END'
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-app
spec:
  config:
    ignition: {version: 3.2.0}
    storage:
      files:
      - path: /etc/app/settings
        mode: 420
        contents: {source: 'data:,new'}
  kernelArguments: [app=1]
END
mcd apply /run/mc.yaml; systemctl poweroff",
        )
        .unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    let settings = host.sysroot.next_boot().unwrap().deployment.join("etc/app/settings");
    let etc = settings.parent().unwrap();
    std::fs::write(&settings, "edited").unwrap();
    let said = in_initramfs(&host, HOOK);
    assert!(said.status.success(), "{}", text(&said));
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), "new");

    // Something is in the way, and the change has no verdict yet.
    std::fs::remove_dir_all(etc).unwrap();
    std::fs::write(etc, "in the way").unwrap();
    std::fs::remove_file(etc.with_file_name("mcd").join("applied.json")).unwrap();
    let words = text(&in_initramfs(&host, HOOK));
    assert!(words.contains("could not be laid down") && words.contains("ASKED"), "{words}");
    let machine = host.boot();
    let seen = status(&machine);
    assert_eq!(
        (&seen["went_back"]["by"], &seen["deployments"][1]["state"]),
        (&"converge".into(), &"failed".into())
    );
}

#[test]
fn root_nspawn_the_small_program_is_small_and_quick() {
    let size = std::fs::metadata(small()).unwrap().len();
    assert!(size <= SIZE_MAX, "{size} bytes");
    let needed = run(Command::new("ldd").arg(small())).unwrap();
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    assert!(!needed.contains("ostree") && !needed.contains("glib-2"), "{needed}");

    // A hundred managed files, laid down and good: the usual boot.
    let host = Host::new();
    let machine = host.boot();
    let files: String = (0..100)
        .map(|number| {
            format!(
                "      - {{path: /etc/app/{number}, mode: 420, contents: {{source: 'data:,{number}'}}}}\n"
            )
        })
        .collect();
    machine
        .shell(&format!(
            "cat > /run/mc.yaml <<'END'
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-app
spec:
  kernelArguments: [app=1]
  config:
    ignition: {{version: 3.2.0}}
    storage:
      files:
{files}END
mcd apply /run/mc.yaml"
        ))
        .unwrap();
    let mut machine = machine.reboot().unwrap();
    assert_eq!(status(&machine)["deployments"][0]["state"], "good");
    machine.shell("systemctl poweroff").unwrap();
    machine.wait_until_down().unwrap();
    drop(machine);
    let said = in_initramfs(
        &host,
        "mcd boot --root /run/root
        measure() { local best=999999999 begun took; for _ in {1..20}; do
            begun=${EPOCHREALTIME/./}; \"$@\" >/dev/null; took=$((${EPOCHREALTIME/./} - begun))
            if [ $took -lt $best ]; then best=$took; fi
        done; echo TOOK $best; }
        measure /bin/true; measure mcd boot --root /run/root",
    );
    let words = text(&said);
    assert!(words.contains("nothing to do"), "{words}");
    let took: Vec<u64> = words.lines().filter_map(|line| line.strip_prefix("TOOK ")?.parse().ok()).collect();
    let more = Duration::from_micros(took[1].saturating_sub(took[0]));
    assert!(more < TIME_MAX, "{more:?} more than /bin/true: {words}");
}
