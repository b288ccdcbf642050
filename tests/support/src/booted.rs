//! A deployment of a scratch sysroot, "booted" without a machine.
//!
//! libostree takes a system for booted when `/run/ostree-booted` exists and a deployment's folder
//! is `/` (same device and inode). A mount and pid namespace gives it that: `/` is the deployment,
//! `/sysroot` the scratch sysroot, `/boot` and `/var` stand where a boot puts them, `/run` is a
//! fresh tmpfs, `/usr` is read-only, and so is `/sysroot` if the repo's `sysroot.readonly` is set.
//! The kernel command line and the boot id are those of *this* boot. Network and clock are the
//! machine's.
//!
//! A fixture tree has neither shell nor libraries. So the machine's own `/usr/bin`, `/usr/sbin`,
//! `/usr/lib64` and the folder of its libraries are bound over the (empty) ones of the tree, in
//! this namespace only: what is read below `/usr/lib/modules`, `/usr/etc` or through `/sysroot` is
//! the tree's.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};

use crate::process::{Guarded, run};
use crate::sysroot::{BootEntry, STATEROOT, Sysroot};

/// A running "boot". Dropping it is a power cut: everything in it is killed, `/run` is gone.
#[derive(Debug)]
pub struct Booted<'a> {
    sysroot: &'a Sysroot,
    program: PathBuf,
    shares: Vec<PathBuf>,
    entry: BootEntry,
    init: u32,
    _namespace: Guarded,
}

/// Makes the mounts, becomes the namespace's init and says so. `$1` is the deployment.
const SET_UP: &str = r#"
set -e
d=$1
read -r host_pid _ < /proc/self/stat
mount --make-rprivate /
mount --bind "$d" "$d"
mount --bind "$MCD_SYSROOT" "$d/sysroot"
mount --bind "$MCD_SYSROOT/boot" "$d/boot"
mount --bind "$MCD_VAR" "$d/var"
mount -t tmpfs -o mode=0755 tmpfs "$d/run"
mount -t tmpfs -o mode=1777 tmpfs "$d/tmp"
mkdir -p "$d/run/ostree" "$d/run/test/bin" "$d/run/test/old"
touch "$d/run/ostree-booted" "$d/run/test/bin/mcd"
mount --bind "$MCD_PROGRAM" "$d/run/test/bin/mcd"
ln -s mcd "$d/run/test/bin/machine-config-daemon"
mount --bind "$d/usr" "$d/usr"
mount -o remount,bind,ro "$d/usr"
for folder in bin sbin lib64 "lib/$(uname -m)-linux-gnu"; do
    mount --bind -o ro "/usr/$folder" "$d/usr/$folder"
done
mount --rbind /dev "$d/dev"
mount --rbind /sys "$d/sys"
mount -t proc proc "$d/proc"
printf '%s\n' "$MCD_CMDLINE" > "$d/run/test/cmdline"
printf '%s\n' "$MCD_BOOT_ID" > "$d/run/test/boot_id"
mount --bind "$d/run/test/cmdline" "$d/proc/cmdline"
mount --bind "$d/run/test/boot_id" "$d/proc/sys/kernel/random/boot_id"
IFS=:
for share in $MCD_SHARES; do
    mkdir -p "$d$share"
    mount --rbind "$share" "$d$share"
done
if grep -q '^readonly=true' "$d/sysroot/ostree/repo/config"; then
    mount -o remount,bind,ro "$d/sysroot"
fi
cd "$d"
pivot_root . run/test/old
exec chroot . /bin/bash -c 'umount -l /run/test/old; echo "$1"; exec sleep infinity' init "$host_pid"
"#;

impl<'a> Booted<'a> {
    /// Boots what the sysroot's boot menu has first, with `program` as `mcd`. `shares` are folders
    /// that are seen inside at the same paths.
    pub fn boot(sysroot: &'a Sysroot, program: &Path, shares: &[&Path]) -> Result<Self> {
        let shares = shares.iter().map(|path| path.to_path_buf()).collect();
        Self::boot_entry(sysroot, program.to_owned(), shares, sysroot.next_boot()?)
    }

    fn boot_entry(
        sysroot: &'a Sysroot,
        program: PathBuf,
        shares: Vec<PathBuf>,
        entry: BootEntry,
    ) -> Result<Self> {
        let deployment = entry.deployment.to_str().context("The deployment's path is not UTF-8")?;
        let var = sysroot.path().join("ostree/deploy").join(STATEROOT).join("var");
        let share_list: Vec<_> = shares.iter().map(|path| path.to_string_lossy()).collect();
        let arguments =
            ["--mount", "--pid", "--fork", "--kill-child", "bash", "-c", SET_UP, "set-up", deployment];
        let mut namespace = Guarded::start("unshare", &arguments, |command| {
            command
                .env("MCD_SYSROOT", sysroot.path())
                .env("MCD_VAR", var)
                .env("MCD_PROGRAM", &program)
                .env("MCD_CMDLINE", &entry.options)
                .env("MCD_BOOT_ID", next_boot_id())
                .env("MCD_SHARES", share_list.join(":"))
                .stdout(Stdio::piped());
        })?;
        let stdout = namespace.child().stdout.take().context("The namespace has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Ok(init) = line.trim().parse() else { bail!("the namespace of {deployment} could not be made") };
        Ok(Self { sysroot, program, shares, entry, init, _namespace: namespace })
    }

    /// The boot menu's entry that runs.
    pub fn entry(&self) -> &BootEntry {
        &self.entry
    }

    /// A command in the booted system. `mcd` is in the path.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.init.to_string(),
            "--mount",
            "--pid",
            "--root",
            "--wd",
            "--",
            program,
        ]);
        command.env_clear().env("PATH", "/run/test/bin:/usr/bin:/usr/sbin").env("NO_COLOR", "1");
        command.env("OSTREE_SYSROOT_DEBUG", "mutable-deployments").stdin(Stdio::null());
        command
    }

    /// Runs a shell script in it; an error if it fails.
    pub fn shell(&self, script: &str) -> Result<String> {
        let output = run(self.command("bash").args(["-ec", script]))?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs `mcd` with these arguments.
    pub fn mcd(&self, arguments: &[&str]) -> Result<Output> {
        self.command("mcd").args(arguments).output().context("Entering the namespace")
    }

    /// Sends a signal to every running `mcd` of this boot.
    pub fn signal_mcd(&self, signal: &str) -> Result<()> {
        self.shell(&format!("pkill -{signal} -x mcd")).map(drop)
    }

    /// Whether a deployment waits for the shutdown.
    pub fn is_staged(&self) -> Result<bool> {
        Ok(self.shell("test -e /run/ostree/staged-deployment && echo yes || echo no")?.trim() == "yes")
    }

    /// What OSTree's own service does at shutdown: merges `/etc` and switches the boot entries.
    ///
    /// Tried again while `/sysroot` cannot be remounted: another test's switch has frozen the file
    /// system that all of them share, which is what no machine of its own meets.
    pub fn finalize(&self) -> Result<()> {
        const TRIES: u32 = 60;
        for _ in 1..TRIES {
            match self.shell("ostree admin finalize-staged") {
                Err(error) if format!("{error:#}").contains("Device or resource busy") => {
                    std::thread::sleep(std::time::Duration::from_millis(250));
                }
                ended => return ended.map(drop),
            }
        }
        self.shell("ostree admin finalize-staged").map(drop)
    }

    /// Shuts down in order (what is staged is finalised) and boots what is then first.
    pub fn reboot(self) -> Result<Self> {
        if self.is_staged()? {
            self.finalize()?;
        }
        self.power_cut()
    }

    /// Ends at once, without finalising, and boots what is first.
    pub fn power_cut(self) -> Result<Self> {
        let Self { sysroot, program, shares, .. } = self;
        Self::boot_entry(sysroot, program, shares, sysroot.next_boot()?)
    }

    /// Ends at once and boots the entry at `index` of the menu: what a person picks at the console.
    pub fn boot_other(self, index: usize) -> Result<Self> {
        let Self { sysroot, program, shares, .. } = self;
        let entry = sysroot.boot_entries()?.into_iter().nth(index).context("The boot menu is shorter")?;
        Self::boot_entry(sysroot, program, shares, entry)
    }
}

/// Every boot has an id of its own, in the kernel's form.
fn next_boot_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
