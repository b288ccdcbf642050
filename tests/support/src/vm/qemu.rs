//! The emulator: its command line, its console, and its own word on how the machine went down.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::process::Guarded;
use crate::registry::base64;
use crate::vm::agent;

/// How a machine went down by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// It wants to start again.
    Reboot,
    /// It wants to stay off.
    PowerOff,
    /// Its watchdog bit: nobody had fed it.
    Watchdog,
}

/// What to start.
#[derive(Debug)]
pub struct Power<'a> {
    /// The disk's image.
    pub image: &'a Path,
    /// Where everything that is written to the disk is recorded, in order, with its flushes.
    pub log: Option<&'a Path>,
    /// The kernel.
    pub kernel: &'a Path,
    /// Its initramfs.
    pub initramfs: &'a Path,
    /// Its command line.
    pub options: &'a str,
    /// What the clock says at the start; now, if nothing is said.
    pub clock: Option<&'a str>,
    /// A folder for sockets.
    pub folder: &'a Path,
    /// Where the console goes.
    pub console: &'a Path,
}

/// A running emulator. Dropping it is a power cut of a machine whose disk writes what it is given.
#[derive(Debug)]
pub struct Qemu {
    process: Guarded,
    events: BufReader<UnixStream>,
    folder: PathBuf,
}

/// How long qemu may take to open its sockets: it is loaded from disk, on a loaded machine.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// `max` has the instructions that digests are made with.
const PROCESSOR: &str = "max";

impl Qemu {
    /// Switches a machine on.
    pub fn start(power: &Power<'_>) -> Result<Self> {
        let folder = power.folder;
        for socket in ["qmp", "agent"] {
            let _ = fs::remove_file(folder.join(socket));
        }
        let credential = folder.join("credential");
        let script = base64(agent::SCRIPT.as_bytes());
        fs::write(&credential, format!("io.systemd.credential.binary:{}={script}", agent::CREDENTIAL))?;
        let arguments = command_line(power, &credential)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let complaints = folder.join("qemu.log");
        let log = File::create(&complaints)?;
        let mut process = Guarded::start("qemu-system-x86_64", &arguments, |command| {
            command.stdout(log.try_clone().expect("a descriptor is left")).stderr(log);
        })?;
        let events = wait_for_socket(&mut process, &folder.join("qmp"))
            .with_context(|| format!("qemu said: {}", fs::read_to_string(&complaints).unwrap_or_default()))?;
        let mut qemu = Self { process, events: BufReader::new(events), folder: folder.to_owned() };
        qemu.message(START_DEADLINE)?.context("qemu does not greet")?;
        writeln!(qemu.events.get_mut(), "{}", json!({ "execute": "qmp_capabilities" }))?;
        Ok(qemu)
    }

    /// The socket of the guest's port.
    pub fn agent_socket(&self) -> PathBuf {
        self.folder.join("agent")
    }

    /// Whether it still runs.
    pub fn is_up(&mut self) -> Result<bool> {
        Ok(self.process.child().try_wait()?.is_none())
    }

    /// Waits until the machine went down; `None` if it has not so long.
    pub fn wait_until_down(&mut self, patience: Duration) -> Result<Option<Down>> {
        let begun = Instant::now();
        let mut down = None;
        while begun.elapsed() < patience {
            let left = patience.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            let Some(message) = self.message(left)? else {
                if self.is_up()? {
                    continue;
                }
                return match down {
                    Some(down) => Ok(Some(down)),
                    None => bail!("qemu ended and did not say why"),
                };
            };
            match message["event"].as_str() {
                Some("WATCHDOG") => down = Some(Down::Watchdog),
                Some("SHUTDOWN") if down.is_none() => {
                    down = match message["data"]["reason"].as_str() {
                        Some("guest-reset" | "guest-panic") => Some(Down::Reboot),
                        Some("guest-shutdown") => Some(Down::PowerOff),
                        reason => bail!("qemu shut down: {reason:?}"),
                    };
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The next message of the monitor; `None` if none comes so long, or qemu has ended.
    fn message(&mut self, patience: Duration) -> Result<Option<Value>> {
        self.events.get_ref().set_read_timeout(Some(patience))?;
        let mut line = String::new();
        match self.events.read_line(&mut line) {
            Ok(0) => {
                // Its sockets are closed a moment before it has ended.
                std::thread::sleep(Duration::from_millis(20));
                Ok(None)
            }
            Ok(_) => Ok(Some(serde_json::from_str(&line).context("Reading what qemu says")?)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error).context("Reading qemu's monitor"),
        }
    }
}

fn wait_for_socket(process: &mut Guarded, path: &Path) -> Result<UnixStream> {
    let begun = Instant::now();
    while begun.elapsed() < START_DEADLINE {
        if let Ok(stream) = UnixStream::connect(path) {
            return Ok(stream);
        }
        if let Some(status) = process.child().try_wait()? {
            bail!("qemu ended with {status}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("qemu opens no monitor")
}

fn command_line(power: &Power<'_>, credential: &Path) -> Result<Vec<String>> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("A path of a test is not UTF-8");
    let folder = text(power.folder)?;
    let mut arguments: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-machine",
        "q35",
        // Never `kvm:tcg`: where /dev/kvm opens and cannot run a stock kernel, qemu hangs.
        "-accel",
        "tcg,thread=multi,tb-size=256",
        "-cpu",
        PROCESSOR,
        "-smp",
        "2",
        "-m",
        "1024",
        "-netdev",
        "user,id=net",
        "-device",
        "virtio-net-pci,netdev=net,romfile=",
        "-device",
        "virtio-rng-pci",
        "-device",
        "i6300esb",
        "-action",
        "watchdog=reset",
        "-device",
        "virtio-serial-pci",
    ]
    .map(str::to_owned)
    .into();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("-qmp", format!("unix:{folder}/qmp,server=on,wait=off"));
    add("-chardev", format!("socket,id=agent,path={folder}/agent,server=on,wait=off"));
    add("-device", format!("virtserialport,chardev=agent,name={}", agent::PORT));
    add("-serial", format!("file:{}", text(power.console)?));
    add("-smbios", format!("type=11,path={}", text(credential)?));
    add("-kernel", text(power.kernel)?);
    add("-initrd", text(power.initramfs)?);
    add("-append", power.options.to_owned());
    if let Some(clock) = power.clock {
        add("-rtc", format!("base={clock}"));
    }
    // The image is a test's: nothing on this machine waits for it to be safe on a disk.
    let image = text(power.image)?;
    add("-blockdev", format!("driver=file,node-name=file,filename={image},cache.no-flush=on,discard=unmap"));
    let mut disk = "file";
    if let Some(log) = power.log {
        add("-blockdev", format!("driver=file,node-name=log,filename={},cache.no-flush=on", text(log)?));
        add(
            "-blockdev",
            "driver=blklogwrites,node-name=recorded,file=file,log=log,log-sector-size=512".into(),
        );
        disk = "recorded";
    }
    add("-device", format!("virtio-blk-pci,drive={disk}"));
    Ok(arguments)
}
