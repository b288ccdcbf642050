//! Running a deployment's own `mcd` from the initramfs, and the reboot after it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};

use crate::host::converge::Deployment;
use crate::model::status::DeploymentName;

/// Where the deployment becomes a root.
const BASE: &str = "/run/mcd/back";
const PROGRAM: &str = "usr/bin/mcd";
/// Links by UUID to all file systems' devices, kept by udev.
const BY_UUID: &str = "/dev/disk/by-uuid";
/// A disk that has shown one partition shows the next one soon.
const DISK_TIMEOUT: Duration = Duration::from_secs(15);
/// The switch takes a second or two, in emulation too; a file system may be slow to sync.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(180);
/// systemd ends everything and unmounts; then the kernel is asked directly.
const REBOOT_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Has the `mcd` of the deployment `program_of` make `to` the next boot. `at` is the root that was about
/// to start.
pub(super) fn roll_back(
    at: &Path,
    program_of: &Deployment,
    boot_uuid: Option<&str>,
    to: &DeploymentName,
) -> Result<()> {
    let physical = at.join("sysroot");
    let stateroot = physical.join("ostree/deploy").join(&program_of.stateroot);
    let root = stateroot.join("deploy").join(program_of.name().to_string());
    anyhow::ensure!(is_file(&root.join(PROGRAM)), "it has no /{PROGRAM}");
    let mounted = Mounted::new(&root)?;
    mounted.bind(&physical, "sysroot")?;
    mounted.boot(&physical, boot_uuid)?;
    for tree in ["dev", "proc", "sys"] {
        mount_bind_recursive(Path::new("/").join(tree), mounted.join(tree))
            .with_context(|| format!("Binding /{tree}"))?;
    }
    mounted.bind(&stateroot.join("var"), "var")?;
    // Without what is in the real ones: libostree must take this for a sysroot that does not run.
    mounted.empty("run")?;
    if is_folder(&mounted.join("tmp")) {
        mounted.empty("tmp")?;
    }
    let mut command = Command::new("chroot");
    command
        .arg(BASE)
        .arg(Path::new("/").join(PROGRAM))
        .args(["rollback", "--sysroot", "/sysroot", "--to", &to.to_string()])
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null());
    let ended = run(&mut command, SWITCH_TIMEOUT);
    rustix::fs::sync();
    ended
}

/// Reboots from the initramfs. Does not return but with an error: what waits for the caller must not
/// begin.
pub fn reboot() -> Result<()> {
    rustix::fs::sync();
    // Everything is unmounted in order; nothing is staged that could get lost.
    let asked = run(Command::new("systemctl").args(["--no-block", "--force", "reboot"]), REBOOT_TIMEOUT);
    if asked.is_ok() {
        std::thread::sleep(REBOOT_TIMEOUT);
    }
    rustix::fs::sync();
    rustix::system::reboot(rustix::system::RebootCommand::Restart).context("Rebooting")
}

fn run(command: &mut Command, timeout: Duration) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("Starting {program}"))?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            anyhow::ensure!(status.success(), "{program} ended with {status}; the journal has what it said");
            return Ok(());
        }
        if begun.elapsed() > timeout {
            let _ = child.kill();
            let _ = child.wait();
            anyhow::bail!("{program} did not end within {} s", timeout.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// The mounts of a deployment as a root. All of them go with the value.
#[derive(Debug)]
struct Mounted;

impl Mounted {
    fn new(root: &Path) -> Result<Self> {
        Dir::open_ambient_dir("/", ambient_authority())?.create_dir_all(BASE.trim_start_matches('/'))?;
        mount_bind(root, BASE).with_context(|| format!("Binding {}", root.display()))?;
        Ok(Self)
    }

    fn join(&self, path: &str) -> PathBuf {
        Path::new(BASE).join(path)
    }

    fn bind(&self, from: &Path, to: &str) -> Result<()> {
        mount_bind(from, self.join(to)).with_context(|| format!("Binding {}", from.display()))
    }

    fn empty(&self, folder: &str) -> Result<()> {
        mount("tmpfs", self.join(folder), "tmpfs", MountFlags::empty(), None)
            .with_context(|| format!("Mounting an empty /{folder}"))
    }

    /// `/boot`, where it is a file system of its own.
    fn boot(&self, physical: &Path, uuid: Option<&str>) -> Result<()> {
        let target = self.join("sysroot/boot");
        let Some(uuid) = uuid else {
            let is_there = rustix::fs::stat(target.join("loader")).is_ok();
            anyhow::ensure!(is_there, "the boot file does not say which file system /boot is on");
            return Ok(());
        };
        let device = Path::new(BY_UUID).join(uuid);
        let begun = Instant::now();
        let stat = loop {
            match rustix::fs::stat(&device) {
                Ok(stat) => break stat,
                Err(_) if begun.elapsed() < DISK_TIMEOUT => std::thread::sleep(POLL),
                Err(error) => {
                    return Err(error).with_context(|| format!("Looking for /boot at {}", device.display()));
                }
            }
        };
        if stat.st_rdev == rustix::fs::stat(physical)?.st_dev {
            return Ok(());
        }
        // It knows what file system that is, and has the kernel load what it needs.
        run(Command::new("mount").arg(&device).arg(&target), DISK_TIMEOUT).context("Mounting /boot")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(BASE, UnmountFlags::DETACH) {
            tracing::warn!("{BASE} stays mounted: {error}");
        }
    }
}

fn is_file(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
    })
}

fn is_folder(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
    })
}
