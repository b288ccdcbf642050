//! A deployment of a scratch sysroot, booted for real by systemd in a container.
//!
//! `systemd-nspawn` stands for the machine, and the harness for boot loader and initramfs: it takes
//! the first entry of the boot menu, puts deployment, `/sysroot`, `/boot`, `/var` and
//! `/run/ostree-booted` where a boot puts them, gives systemd the entry's kernel arguments, and starts
//! it as PID 1. systemd, D-Bus, logind and OSTree's units are the deployment's own. A reboot ends the
//! container, like a machine that goes down; [`Machine::next_boot`] then starts what the menu says.
//!
//! The kernel and the network are this machine's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::{Guarded, run};
use crate::sysroot::{BootEntry, STATEROOT, Sysroot};

/// A container that runs, or has gone down. Dropping it is a power cut.
#[derive(Debug)]
pub struct Machine<'a> {
    sysroot: &'a Sysroot,
    shares: Vec<(PathBuf, String)>,
    entry: BootEntry,
    console: PathBuf,
    name: String,
    leader: u32,
    container: Guarded,
}

/// How a machine went down by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// It wants to start again.
    Reboot,
    /// It wants to stay off.
    PowerOff,
}

/// A boot takes 2 to 5 seconds; a loaded machine is slower.
const DEADLINE: Duration = Duration::from_secs(90);
/// Where the processes of one container are kept apart from others: systemd claims the whole group.
const CONTROL_GROUPS: [&str; 3] = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Puts itself into control groups of its own and becomes the container. On a machine that systemd
/// runs, systemd lends the group. `$1` is the container's name.
const START: &str = r#"
set -e
name=$1
shift
if [ -d /run/systemd/system ]; then
    exec systemd-run --quiet --scope --unit="$name" --property=Delegate=yes -- "$@"
fi
for root in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
    [ -e "$root/cgroup.procs" ] || continue
    mkdir "$root/$name"
    echo $$ >"$root/$name/cgroup.procs"
done
exec "$@"
"#;

/// The first process in the container, in the place of ostree-prepare-root. OSTree's generator reads
/// the kernel's command line, systemd (in a container) its own.
const INIT: &str = r#"
if grep -q '^readonly=true' /sysroot/ostree/repo/config; then
    touch /run/ostree-sysroot-ro.stamp
    mount -o remount,bind,ro /sysroot
fi
printf '%s\n' "$*" >/run/kernel-command-line
mount --bind /run/kernel-command-line /proc/cmdline
exec /usr/lib/systemd/systemd "$@"
"#;

impl<'a> Machine<'a> {
    /// Boots what the boot menu has first and waits until the boot is complete. `shares` are folders
    /// (first) that are seen inside, read-only, at other paths (second).
    pub fn boot(sysroot: &'a Sysroot, shares: &[(&Path, &str)]) -> Result<Self> {
        let machine = Self::power_on(sysroot, shares)?;
        machine.wait_until_up()?;
        Ok(machine)
    }

    /// Boots what the boot menu has first, and returns while systemd begins.
    pub fn power_on(sysroot: &'a Sysroot, shares: &[(&Path, &str)]) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mcd-test-{}-{number}", std::process::id());
        let entry = sysroot.next_boot()?;
        let console = sysroot.scratch().join(&format!("console-{number}"));
        let log = fs::File::create(&console)?;
        let mut arguments = vec!["-c".to_owned(), START.to_owned(), "start".to_owned(), name.clone()];
        arguments.extend(container(sysroot, shares, &entry, &name)?);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut container = Guarded::start("bash", &arguments, |command| {
            command.stdout(log.try_clone().expect("a descriptor is left")).stderr(log);
        })?;
        let leader = wait_for_systemd(&mut container)
            .with_context(|| format!("The console said:\n{}", text_of(&console)))?;
        let shares = shares.iter().map(|(from, to)| (from.to_path_buf(), (*to).to_owned())).collect();
        Ok(Self { sysroot, shares, entry, console, name, leader, container })
    }

    /// The boot menu's entry that runs.
    pub fn entry(&self) -> &BootEntry {
        &self.entry
    }

    /// The id here of its first process.
    pub fn leader(&self) -> u32 {
        self.leader
    }

    /// What systemd said on the console.
    pub fn console(&self) -> String {
        text_of(&self.console)
    }

    /// Waits until everything that the boot starts has started, or failed.
    pub fn wait_until_up(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let output = self.command("systemctl").args(["is-system-running", "--wait"]).output()?;
            let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if state == "running" || state == "degraded" {
                return Ok(());
            }
            if state == "maintenance" || begun.elapsed() > DEADLINE {
                bail!("the boot does not end: {state}; the console said:\n{}", self.console());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A command in the running system, as a login of root would start it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        let leader = self.leader.to_string();
        command.args(["--kill-after=5", "120", "nsenter", "--target", &leader]);
        command.args(["--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd", "--", program]);
        command.env_clear().env("PATH", "/usr/bin:/usr/sbin").env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    /// Runs a shell script in it; an error if it fails.
    pub fn shell(&self, script: &str) -> Result<String> {
        let output = run(self.command("bash").args(["-ec", script]))?;
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs `mcd` with these arguments.
    pub fn mcd(&self, arguments: &[&str]) -> Result<Output> {
        self.command("mcd").args(arguments).output().context("Entering the container")
    }

    /// Whether a deployment waits for the shutdown.
    pub fn is_staged(&self) -> Result<bool> {
        Ok(self.shell("test -e /run/ostree/staged-deployment && echo yes || echo no")?.trim() == "yes")
    }

    /// Whether the container ended.
    pub fn is_down(&mut self) -> Result<bool> {
        Ok(self.container.child().try_wait()?.is_some())
    }

    /// Waits until it has gone down, as something inside asked for.
    pub fn wait_until_down(&mut self) -> Result<Down> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.container.child().try_wait()? {
                // What nspawn says to a service manager that is to start it again.
                return match status.code() {
                    Some(133) => Ok(Down::Reboot),
                    Some(0) => Ok(Down::PowerOff),
                    _ => bail!("the container ended with {status}:\n{}", self.console()),
                };
            }
            if begun.elapsed() > DEADLINE {
                bail!("it does not go down; the console said:\n{}", self.console());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the reboot that something inside asked for, and boots what is then first.
    pub fn next_boot(mut self) -> Result<Self> {
        match self.wait_until_down()? {
            Down::Reboot => self.power_cut(),
            Down::PowerOff => bail!("it went off instead of starting again:\n{}", self.console()),
        }
    }

    /// Reboots in order, as a person does, and boots what is then first.
    pub fn reboot(self) -> Result<Self> {
        self.shell("systemctl reboot")?;
        self.next_boot()
    }

    /// Ends at once, nothing is stopped or finalised, and boots what is first.
    pub fn power_cut(self) -> Result<Self> {
        let (sysroot, shares) = (self.sysroot, self.shares.clone());
        drop(self);
        let shares: Vec<_> = shares.iter().map(|(from, to)| (from.as_path(), to.as_str())).collect();
        Self::boot(sysroot, &shares)
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if matches!(self.container.child().try_wait(), Ok(None)) {
            // All that runs in the container dies with its first process; nspawn then ends.
            if let Some(leader) = rustix::process::Pid::from_raw(self.leader as i32) {
                let _ = rustix::process::kill_process(leader, rustix::process::Signal::KILL);
            }
            let begun = Instant::now();
            while matches!(self.container.child().try_wait(), Ok(None)) && begun.elapsed() < DEADLINE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for root in CONTROL_GROUPS {
            let _ = Command::new("find")
                .arg(Path::new(root).join(&self.name))
                .args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// The command line of the container.
fn container(
    sysroot: &Sysroot,
    shares: &[(&Path, &str)],
    entry: &BootEntry,
    name: &str,
) -> Result<Vec<String>> {
    let path = sysroot.path();
    let mark = sysroot.scratch().join("ostree-booted");
    fs::write(&mark, "")?;
    let bind = |option: &str, from: &Path, to: &str| format!("--{option}={}:{to}", from.display());
    let mut arguments: Vec<String> = [
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--settings=no",
        "--link-journal=no",
        "--resolv-conf=off",
        "--timezone=off",
        "--console=read-only",
    ]
    .map(str::to_owned)
    .into();
    arguments.push(format!("--machine={name}"));
    arguments.push(format!("--directory={}", entry.deployment.display()));
    arguments.push(bind("bind-ro", &entry.deployment.join("usr"), "/usr"));
    arguments.push(bind("bind", path, "/sysroot"));
    arguments.push(bind("bind", &path.join("boot"), "/boot"));
    arguments.push(bind("bind", &path.join("ostree/deploy").join(STATEROOT).join("var"), "/var"));
    arguments.push(bind("bind-ro", &mark, "/run/ostree-booted"));
    arguments.extend(shares.iter().map(|(from, to)| bind("bind-ro", from, to)));
    arguments.extend(["/bin/sh", "-ec", INIT, "init"].map(str::to_owned));
    arguments.extend(entry.options.split(' ').filter(|word| !word.is_empty()).map(str::to_owned));
    Ok(arguments)
}

/// The first process of the container, once it is systemd.
fn wait_for_systemd(container: &mut Guarded) -> Result<u32> {
    let begun = Instant::now();
    let parent = container.id().to_string();
    loop {
        let children = Command::new("pgrep").args(["-P", &parent, "-x", "systemd"]).output()?;
        if let Ok(leader) = String::from_utf8_lossy(&children.stdout).trim().parse() {
            return Ok(leader);
        }
        if let Some(status) = container.child().try_wait()? {
            bail!("the container ended with {status}");
        }
        if begun.elapsed() > DEADLINE {
            bail!("systemd does not start");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
