//! A machine with a disk: what a story holds in its hands.
//!
//! ```no_run
//! # use mcd_test_support::vm::{installation::Installation, machine::Machine};
//! # fn story(installation: &Installation) -> anyhow::Result<()> {
//! let mut machine = Machine::install(installation)?;
//! machine.boot()?;
//! machine.shell("mcd pivot …")?;
//! machine.reboot()?;
//! assert!(machine.shell("mcd status")?.contains("v2"));
//! # Ok(())
//! # }
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::scratch::Scratch;
use crate::vm::agent::{Agent, Said};
use crate::vm::boot_menu::{self, Entry};
use crate::vm::disk::Disk;
use crate::vm::installation::Installation;
use crate::vm::qemu::{Down, Power, Qemu};

/// From power-on until the boot is complete: 20 to 40 s, many times that on a loaded machine.
const BOOT: Duration = Duration::from_secs(600);
/// A script of a story: a pull of some 50 MB is the longest.
const SCRIPT: Duration = Duration::from_secs(600);
/// From the request until the machine is down: 5 to 10 s; more than systemd gives a unit that hangs.
const SHUTDOWN: Duration = Duration::from_secs(300);

/// A `/var` of its own, in MiB: skopeo unpacks nothing there.
const VAR_SIZE: u64 = 256;

/// A machine that is off or runs. Dropping it is a power cut, and its disk is gone.
#[derive(Debug)]
pub struct Machine {
    disk: Disk,
    running: Option<Running>,
    boots: u32,
    consoles: Vec<PathBuf>,
    log: Option<PathBuf>,
    clock: Option<String>,
    /// Last: what runs must end before its folder goes.
    scratch: Scratch,
}

#[derive(Debug)]
struct Running {
    entry: Entry,
    boot_id: Option<String>,
    agent: Agent,
    qemu: Qemu,
}

impl Machine {
    /// A machine of its own with a copy of the installed disk, off.
    pub fn install(installation: &Installation) -> Result<Self> {
        let scratch = Scratch::new()?;
        let disk = installation.disk().copy_to(&scratch.join("disk"))?;
        Ok(Self { disk, running: None, boots: 0, consoles: Vec::new(), log: None, clock: None, scratch })
    }

    /// Records from the next boot on what is written to the disk. Every boot begins a new record.
    pub fn record(&mut self) -> PathBuf {
        self.log.insert(self.scratch.join("block-log")).clone()
    }

    /// Gives it a `/var` on a file system of its own. The machine must be off.
    pub fn separate_var(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "a disk is divided while the machine is off");
        self.disk.separate_var(VAR_SIZE)
    }

    /// The time, as `2026-01-31T12:00:00`, that the clock says at the next boots.
    pub fn set_clock(&mut self, time: &str) {
        self.clock = Some(time.to_owned());
    }

    /// The disk. To be mounted only while the machine is off.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// A folder beside the disk that lives as long.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Boots what the raw disk has first, and waits until everything that the boot starts has started,
    /// or failed.
    pub fn boot(&mut self) -> Result<&mut Self> {
        self.power_on()?;
        self.wait_until_up()?;
        Ok(self)
    }

    /// Boots what the raw disk has first, and returns as soon as the emulator runs.
    pub fn power_on(&mut self) -> Result<&mut Self> {
        ensure!(self.running.is_none(), "the machine runs already");
        let entry = boot_menu::first(&self.disk)?;
        let kernel = self.scratch.join("kernel");
        let initramfs = self.scratch.join("initramfs");
        entry.extract(&self.disk, &kernel, &initramfs)?;
        self.boots += 1;
        let console = self.scratch.join(&format!("console-{}", self.boots));
        self.consoles.push(console.clone());
        if let Some(log) = &self.log {
            fs::File::create(log)?;
        }
        let qemu = Qemu::start(&Power {
            image: self.disk.image(),
            log: self.log.as_deref(),
            kernel: &kernel,
            initramfs: &initramfs,
            options: &entry.options,
            clock: self.clock.as_deref(),
            folder: self.scratch.path(),
            console: &console,
        })?;
        let agent = Agent::connect(&qemu.agent_socket())?;
        self.running = Some(Running { entry, boot_id: None, agent, qemu });
        Ok(self)
    }

    /// Waits until everything that the boot starts has started, or failed.
    pub fn wait_until_up(&mut self) -> Result<()> {
        self.greeted(BOOT)?;
        let state = self.run("systemctl is-system-running --wait || :")?.stdout;
        ensure!(
            ["running", "degraded"].contains(&state.trim()),
            "the boot ended as {state}; the console said:\n{}",
            self.console()
        );
        Ok(())
    }

    /// Waits for the guest's first word. A machine whose systemd never began is started once more:
    /// emulators have hung there, and nothing under test has run.
    fn greeted(&mut self, patience: Duration) -> Result<()> {
        let running = self.running.as_mut().context("The machine is off")?;
        if running.boot_id.is_some() {
            return Ok(());
        }
        running.boot_id = running.agent.hello(patience).with_context(|| tail(self.consoles.last()))?;
        if running.boot_id.is_some() {
            return Ok(());
        }
        let console = self.console();
        if !console.contains("systemd[1]") && self.boots == 1 {
            self.cut_power();
            self.power_on()?;
            return self.greeted(patience);
        }
        bail!("the boot does not end; the console said:\n{console}")
    }

    /// The entry that runs.
    pub fn entry(&self) -> Result<&Entry> {
        Ok(&self.running.as_ref().context("The machine is off")?.entry)
    }

    /// What the last boot's kernel and systemd said on the console.
    pub fn console(&self) -> String {
        text_of(self.consoles.last())
    }

    /// Runs a shell script in it (`bash -e`, as root, without a terminal).
    pub fn run(&mut self, script: &str) -> Result<Said> {
        self.greeted(BOOT)?;
        let running = self.running.as_mut().context("The machine is off")?;
        running.agent.run(script, SCRIPT).with_context(|| tail(self.consoles.last()))
    }

    /// The same; an error if it fails. Gives its standard output.
    pub fn shell(&mut self, script: &str) -> Result<String> {
        self.run(script)?.done().with_context(|| format!("In the guest: {script}"))
    }

    /// Tells it to run a script, and does not wait for an answer: the script ends the boot.
    pub fn tell(&mut self, script: &str) -> Result<()> {
        self.greeted(BOOT)?;
        self.running.as_mut().context("The machine is off")?.agent.tell(script)
    }

    /// Waits until the console says this: of a boot in which nobody can be asked.
    pub fn wait_for_console(&mut self, words: &str) -> Result<()> {
        let begun = Instant::now();
        while !self.console().contains(words) {
            let running = self.running.as_mut().context("The machine is off")?;
            let is_up = running.qemu.is_up()?;
            ensure!(is_up && begun.elapsed() < BOOT, "no {words:?} on the console:\n{}", self.console());
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Waits until it has gone down, as something in it asked for.
    pub fn wait_until_down(&mut self) -> Result<Down> {
        let running = self.running.as_mut().context("The machine is off")?;
        let Some(down) = running.qemu.wait_until_down(SHUTDOWN)? else {
            bail!("it does not go down; the console said:\n{}", self.console());
        };
        self.running = None;
        Ok(down)
    }

    /// Waits for the reboot that something in it asked for, and boots what is then first.
    pub fn next_boot(&mut self) -> Result<&mut Self> {
        match self.wait_until_down()? {
            Down::Reboot | Down::Watchdog => self.boot(),
            Down::PowerOff => bail!("it went off instead of starting again:\n{}", self.console()),
        }
    }

    /// Reboots in order, as a person does, and boots what is then first.
    pub fn reboot(&mut self) -> Result<&mut Self> {
        self.tell("systemctl reboot")?;
        self.next_boot()
    }

    /// Shuts down in order. The machine is off.
    pub fn power_off(&mut self) -> Result<()> {
        self.tell("systemctl poweroff")?;
        match self.wait_until_down()? {
            Down::PowerOff => Ok(()),
            other => bail!("it went down as {other:?}"),
        }
    }

    /// Ends at once: what the guest had not sent to the disk is lost. The machine is off.
    pub fn cut_power(&mut self) {
        self.running = None;
    }
}

fn text_of(path: Option<&PathBuf>) -> String {
    let read = |path: &PathBuf| fs::read(path as &Path).ok();
    String::from_utf8_lossy(&path.and_then(read).unwrap_or_default()).into_owned()
}

/// The end of a console, for a message.
fn tail(path: Option<&PathBuf>) -> String {
    const LINES: usize = 30;
    let text = text_of(path);
    let lines: Vec<&str> = text.lines().collect();
    format!("The console ended with:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"))
}
