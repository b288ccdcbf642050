//! Sysroots and the namespace that "boots" them, seen by the ostree command.

#![allow(clippy::disallowed_methods)]

use std::path::Path;

use mcd_test_support::booted::Booted;
use mcd_test_support::scratch::Scratch;
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::{Tree, create_repo};

struct Host {
    repo: ostree::Repo,
    second: String,
    sysroot: Sysroot,
    scratch: Scratch,
}

fn host() -> Host {
    let scratch = Scratch::new().unwrap();
    let repo = create_repo(&scratch.join("source"), ostree::RepoMode::Archive).unwrap();
    let first = Tree::v1().commit(&repo, "fixture/1").unwrap();
    let second = Tree::v2().commit(&repo, "fixture/2").unwrap();
    let sysroot = Sysroot::with_deployment(&repo, &first, &["root=/dev/vda", "quiet"]).unwrap();
    Host { repo, second, sysroot, scratch }
}

/// The program that stands for `mcd` here.
const ANY_PROGRAM: &str = "/usr/bin/true";

#[test]
fn root_a_sysroot_deploys_and_goes_away() {
    let host = host();
    let entry = host.sysroot.next_boot().unwrap();
    assert_eq!(entry.kernel_arguments(), ["root=/dev/vda", "quiet"]);
    host.sysroot.deploy(&host.repo, &host.second, &[]).unwrap();
    assert_eq!(host.sysroot.deployments().unwrap().len(), 2);
    host.sysroot.fsck().unwrap();
    let path = host.sysroot.path().to_owned();
    drop(host);
    assert!(!path.exists());
}

#[test]
fn root_disks_can_be_small() {
    let sysroot = Sysroot::empty_on_disk_of(64 << 20).unwrap();
    sysroot.mount_boot(8 << 20).unwrap();
    sysroot.fill("boot", 4096).unwrap();
    assert!(std::fs::write(sysroot.path().join("boot/x"), vec![1; 100_000]).is_err());
    std::fs::write(sysroot.path().join("x"), vec![1; 100_000]).unwrap();
    let path = sysroot.path().to_owned();
    drop(sysroot);
    assert!(!path.exists());
}

#[test]
fn root_staged_deployments_are_finalised_at_a_reboot() {
    let host = host();
    let repo = host.sysroot.path().join("ostree/repo");
    let pull = format!(
        "ostree pull-local --repo=/sysroot/ostree/repo {} {}",
        host.scratch.path().join("source").display(),
        host.second
    );
    let booted = Booted::boot(&host.sysroot, Path::new(ANY_PROGRAM), &[host.scratch.path()]).unwrap();
    assert!(booted.shell("ostree admin status").unwrap().starts_with("* fixture"));
    assert!(booted.shell("cat /proc/cmdline").unwrap().starts_with("root=/dev/vda quiet ostree="));
    assert!(booted.shell("touch /usr/x 2>/dev/null && echo yes || echo no").unwrap().contains("no"));
    let id = booted.shell("cat /proc/sys/kernel/random/boot_id").unwrap();
    booted.shell(&pull).unwrap();
    booted.shell(&format!("ostree admin deploy --stage --os=fixture {}", host.second)).unwrap();
    assert!(booted.is_staged().unwrap());
    booted.shell("echo late > /etc/late; mcd; machine-config-daemon").unwrap();
    let booted = booted.reboot().unwrap();
    assert_eq!(booted.shell("cat /etc/late").unwrap(), "late\n");
    assert_eq!(booted.shell(". /etc/os-release; echo $VERSION_ID").unwrap(), "2\n");
    assert_ne!(booted.shell("cat /proc/sys/kernel/random/boot_id").unwrap(), id);
    assert!(repo.exists());
    // The menu's second entry is the old deployment.
    let booted = booted.boot_other(1).unwrap();
    assert_eq!(booted.shell(". /etc/os-release; echo $VERSION_ID").unwrap(), "1\n");
}

#[test]
fn root_a_power_cut_loses_what_is_staged() {
    let host = host();
    host.sysroot.configure("sysroot.readonly", "true").unwrap();
    let booted = Booted::boot(&host.sysroot, Path::new(ANY_PROGRAM), &[host.scratch.path()]).unwrap();
    assert!(booted.shell("touch /sysroot/x 2>/dev/null && echo yes || echo no").unwrap().contains("no"));
    let source = host.scratch.path().join("source");
    let script = format!(
        "ostree pull-local --repo=/sysroot/ostree/repo {} {commit} && ostree admin deploy --stage --os=fixture {commit}",
        source.display(),
        commit = host.second
    );
    // pull-local does not remount; what does is libostree's own sysroot code.
    let script = format!("unshare -m bash -ec 'mount -o remount,bind,rw /sysroot; {script}'");
    booted.shell(&script).unwrap();
    assert!(booted.is_staged().unwrap());
    let booted = booted.power_cut().unwrap();
    assert!(!booted.is_staged().unwrap());
    assert_eq!(booted.shell(". /etc/os-release; echo $VERSION_ID").unwrap(), "1\n");
}

#[test]
fn root_the_network_is_the_machines() {
    use mcd_test_support::fake_registry::FakeRegistry;
    use mcd_test_support::image::Image;
    let host = host();
    let image = Image::of(&host.repo, &host.second).write(&host.scratch.path().join("oci"), "v2").unwrap();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let booted = Booted::boot(&host.sysroot, Path::new(ANY_PROGRAM), &[host.scratch.path()]).unwrap();
    // With the tree's own policy, and as the importer's child does it.
    let copy = format!("skopeo copy --src-tls-verify=false docker://{} dir:/tmp/copy", server.image("os:v2"));
    booted.shell(&copy).unwrap();
    booted.shell(&format!("skopeo inspect {}", image.reference())).unwrap();
}
