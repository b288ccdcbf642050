//! The installed host that stories begin with, and the registry beside it.
//!
//! In three layers, each kept in the cache folder. `tests/vm/tree.sh` makes the tree: Debian with a
//! kernel and an initramfs, minutes. On it come the program under test as `make install` ships it and
//! the settings of a test machine, as version 1; version 2 has another kernel pair and a few other
//! files. Both are in a registry as images of two chunks, what is never the same and the rest. And
//! version 1 is on a disk, put there by the program itself, from the image: some ten seconds for every
//! new program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cache::{Cached, remove};
use crate::compress::Compression;
use crate::image::Image;
use crate::layout::digest_of;
use crate::process::run;
use crate::registry::Registry;
use crate::scratch::Scratch;
use crate::shipped;
use crate::sysroot::{STATEROOT, Sysroot, ostree};
use crate::tree::noise;
use crate::vm::agent;
use crate::vm::disk::{Disk, Layout};

/// Part of the cache's key: to be changed when this folder makes another host.
const EDITION: &str = "2";
/// Where the guest's network has this machine's loopback.
pub const GATEWAY: &str = "10.0.2.2";
/// Of the disk, in MiB: three kernel pairs; a tree and what two versions differ in, twice.
const BOOT_SIZE: u64 = 160;
const ROOT_SIZE: u64 = 1600;
/// The kernel command line of the installed system. From `mitigations` on: what saves an emulated boot
/// some 15 s of processor time and has to do with nothing under test.
const ARGUMENTS: [&str; 9] = [
    "root=LABEL=root",
    "rw",
    "console=ttyS0",
    "panic=1",
    "mitigations=off",
    "lsm=capability",
    "audit=0",
    "random.trust_cpu=on",
    "cryptomgr.notests",
];
/// Nothing here is about these, and they cost seconds of every boot.
const MASKED: [&str; 14] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "ldconfig.service",
    "serial-getty@ttyS0.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-pcrphase.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-update-done.service",
];
/// The guest's only network, without waiting for an address.
const NETWORK: &str = "[Match]
Type=ether

[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
LinkLocalAddressing=no
IPv6AcceptRA=no
";

/// An installed host, in the cache folder.
#[derive(Debug)]
pub struct Installation {
    cached: Cached,
}

impl Installation {
    /// The one with `program` as `mcd` and what else the project's tree `source` ships, made if it is
    /// not there.
    pub fn find_or_make(program: &Path, source: &Path) -> Result<Self> {
        let script = run(&mut Command::new(source.join("tests/vm/tree.sh")))?;
        let tree = PathBuf::from(String::from_utf8(script.stdout)?.trim());
        let stage = Scratch::new()?;
        let small = shipped::initramfs_program(program, source)?;
        shipped::install(program, &small, source, &stage.join("stage"), stage.path())?;
        let parts = [&digest_of_tree(&stage.join("stage"))?, &tree.display().to_string(), EDITION];
        let cached = Cached::find_or_make("vm/host", &parts, |folder| make(folder, &tree, program, &stage))?;
        Ok(Self { cached })
    }

    /// The disk with version 1.
    pub fn disk(&self) -> Disk {
        Disk::open(&self.cached.folder().join("disk"), layout())
    }

    /// A registry with the images `os:v1` and `os:v2`.
    pub fn registry(&self) -> Result<Registry> {
        Registry::serve(&self.cached.folder().join("registry"))
    }

    /// What a guest calls an image of a registry of this machine.
    pub fn seen_by_guest(registry: &Registry, image: &str) -> String {
        format!("{GATEWAY}:{}/{image}", registry.port())
    }
}

fn layout() -> Layout {
    Layout::new(BOOT_SIZE, ROOT_SIZE)
}

/// One digest of all that a folder holds.
fn digest_of_tree(folder: &Path) -> Result<String> {
    let archive = run(Command::new("tar")
        .args(["--sort=name", "--mtime=@0", "--create", "--file=-", "--directory"])
        .arg(folder)
        .arg("."))?;
    Ok(digest_of(&archive.stdout))
}

fn make(folder: &Path, tree: &Path, program: &Path, scratch: &Scratch) -> Result<()> {
    let stage = scratch.join("stage");
    add_settings(&stage)?;
    let source = shipped::copy_branch(&tree.join("repo"), "vm/base", &folder.join("source"))?;
    let kernel = shipped::kernel_of(&source, "vm/base")?;
    let initramfs = format!("usr/lib/modules/{kernel}/initramfs.img");
    if stage.join("usr/lib/dracut/modules.d").exists() {
        run(Command::new(tree_script("initramfs.sh")).arg(folder.join("source")).arg(&stage))?;
    }
    let v1 = shipped::commit(&source, "vm/base", &[], &stage, "1")?;
    let v2 = commit_second(&source, &folder.join("source"), &v1, &initramfs, &scratch.join("stage-2"))?;

    let layout = folder.join("images");
    let registry = Registry::serve(&folder.join("registry"))?;
    for (tag, commit) in [("v1", &v1), ("v2", &v2)] {
        let image = Image::of(&source, commit).chunks(2).chunk_by(|path| Some(chunk_of(path)));
        let written = image.compression(Compression::None).write(&layout, tag)?;
        registry.push(&written, &format!("os:{tag}"))?;
    }
    install(&folder.join("disk"), &source, &v1, &format!("oci:{}:v1", layout.display()), program)?;
    remove(&layout)?;
    remove(&folder.join("source"))
}

/// What is another in every version comes in a layer of its own.
fn chunk_of(path: &str) -> usize {
    let changes = path.ends_with("/initramfs.img")
        || ["usr/lib/os-release", "usr/lib/fixture", "etc/motd"].contains(&path);
    usize::from(!changes)
}

fn add_settings(stage: &Path) -> Result<()> {
    shipped::mask(stage, &MASKED)?;
    let units = stage.join("etc/systemd/system");
    fs::write(units.join("mcd-test-agent.service"), agent::UNIT)?;
    for (wanted, by) in [
        ("mcd-test-agent.service", "multi-user.target"),
        ("systemd-networkd.service", "multi-user.target"),
        ("systemd-networkd-wait-online.service", "network-online.target"),
    ] {
        let folder = units.join(format!("{by}.wants"));
        fs::create_dir_all(&folder)?;
        let own = units.join(wanted).exists();
        let target = if own { format!("../{wanted}") } else { format!("/usr/lib/systemd/system/{wanted}") };
        symlink(target, folder.join(wanted))?;
    }
    fs::create_dir_all(stage.join("etc/systemd/network"))?;
    fs::write(stage.join("etc/systemd/network/test.network"), NETWORK)?;
    fs::write(stage.join("etc/motd"), "welcome to v1\n")?;
    fs::write(stage.join("usr/lib/os-release"), os_release(1))?;
    fs::write(stage.join("usr/lib/fixture"), noise(1, 3_000_000))?;
    fs::rename(stage.join("etc"), stage.join("usr/etc"))?;
    Ok(())
}

/// Version 2: another os-release, another file of some size, another default in `/etc`, and a kernel
/// pair with another checksum. The kernel skips zeros between and after the archives of an initramfs.
fn commit_second(
    repo: &ostree::Repo,
    path: &Path,
    first: &str,
    initramfs: &str,
    stage: &Path,
) -> Result<String> {
    let folder = Path::new(initramfs).parent().context("The initramfs is in a folder")?;
    for folder in [folder, "usr/etc".as_ref()] {
        fs::create_dir_all(stage.join(folder))?;
    }
    let option = format!("--repo={}", path.display());
    let mut bytes = run(ostree().args(["cat", &option, first]).arg(format!("/{initramfs}")))?.stdout;
    bytes.extend([0; 512]);
    fs::write(stage.join(initramfs), bytes)?;
    fs::write(stage.join("usr/lib/os-release"), os_release(2))?;
    fs::write(stage.join("usr/lib/fixture"), noise(2, 3_000_000))?;
    fs::write(stage.join("usr/etc/motd"), "welcome to v2\n")?;
    shipped::commit(repo, first, &[], stage, "2")
}

fn os_release(version: u64) -> String {
    format!("NAME=\"Debian tree\"\nID=debian\nVERSION_ID={version}\nPRETTY_NAME=\"Debian tree v{version}\"\n")
}

/// Puts version 1 on a new disk, as a host has it that came from the image.
fn install(image: &Path, source: &ostree::Repo, commit: &str, v1: &str, program: &Path) -> Result<()> {
    let disk = Disk::create(image, layout())?;
    let mounted = disk.mount()?;
    let sysroot = Sysroot::empty_at(Scratch::kept(mounted.folder())?, "sysroot")?;
    sysroot.configure("sysroot.readonly", "true")?;
    // It is synchronised when it is unmounted.
    sysroot.configure("core.fsync", "false")?;
    sysroot.deploy(source, commit, &ARGUMENTS)?;
    let etc = sysroot.next_boot()?.deployment.join("etc");
    fs::write(etc.join("fstab"), layout().fstab())?;
    // A host has been up before: else systemd takes this for its first boot, and presets everything.
    fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    let var = sysroot.path().join("ostree/deploy").join(STATEROOT).join("var");
    fs::create_dir_all(var.join("log/journal"))?;
    mcd(program, &["pivot", v1], &sysroot)?;
    run(ostree().args(["admin", "undeploy", "1"]).arg(format!("--sysroot={}", sysroot.path().display())))?;
    mcd(program, &["cleanup"], &sysroot)?;
    sysroot.configure("core.fsync", "true")?;
    mounted.unmount()
}

fn mcd(program: &Path, arguments: &[&str], sysroot: &Sysroot) -> Result<()> {
    run(Command::new(program)
        .args(arguments)
        .arg("--sysroot")
        .arg(sysroot.path())
        .env("OSTREE_SYSROOT_DEBUG", "mutable-deployments"))?;
    Ok(())
}

fn tree_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vm").join(name)
}
