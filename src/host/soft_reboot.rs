//! A reboot of user space only, and the choice between that and a full one.
//!
//! It skips the initramfs, and with it the hook: what that does (laying down what belongs on the
//! deployment, and counting the boot) is done here, before the switch.
//!
//! What mounts is run by systemd, outside of the mount namespace that this process works in: there the
//! next root must be seen.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use fn_error_context::context;

use super::child;
use super::confirm::on_disk_of;
use super::host_lock::Wait;
use super::now;
use super::reboot;
use super::sysroot::Host;
use crate::error::Fault;
use crate::model::event::{Event, EventSink};
use crate::model::kargs::KernelArguments;
use crate::model::status::DeploymentStatus;
use crate::options::Reboot;
use crate::plan::boot_count::{Count, OnDisk, count};
use crate::plan::reboot::{Facts, obstacle};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Where OSTree puts what a soft reboot starts (systemd-soft-reboot.service(8)).
const NEXT_ROOT: &str = "/run/nextroot";
/// OSTree's verb, of 2025.
const VERB: &str = "prepare-soft-reboot";
const FINALISE: &str = "ostree-finalize-staged.service";

impl Host {
    /// Refuses a soft reboot that cannot be had on this host, whatever the change is: better known
    /// before it.
    pub fn refuse_soft_reboot(&self, asked: Reboot) -> Result<(), Fault> {
        if asked != Reboot::Soft {
            return Ok(());
        }
        match obstacle(Facts { same_kernel: true, same_arguments: true, ..tools() }) {
            Some(why) => Err(refusal(why).next("use --reboot=auto or --reboot=full")),
            None => Ok(()),
        }
    }

    /// Reboots as asked. `auto` says which way and why.
    pub fn reboot(&self, asked: Reboot, force: bool, sink: &dyn EventSink) -> Result<()> {
        let obstacle = match asked {
            Reboot::Never => return Ok(()),
            Reboot::Full => return reboot::ask(force, sink),
            Reboot::Auto | Reboot::Soft => self.obstacle()?,
        };
        match (obstacle, asked) {
            (Some(why), Reboot::Soft) => Err(refusal(why)
                .next("`systemctl reboot` completes the change: everything else is done")
                .into()),
            (Some(why), _) => {
                sink.event(Event::Note { message: format!("a full reboot: {why}") });
                reboot::ask(force, sink)
            }
            (None, _) => {
                let message = "a soft reboot: kernel, initramfs and arguments stay".to_owned();
                sink.event(Event::Note { message });
                match self.soft_reboot(force, sink) {
                    Err(error)
                        if asked == Reboot::Auto && !error.chain().any(|cause| cause.is::<Fault>()) =>
                    {
                        let message = format!("a full reboot instead: {error:#}");
                        sink.event(Event::Warning { message });
                        reboot::ask(force, sink)
                    }
                    ended => ended,
                }
            }
        }
    }

    fn obstacle(&self) -> Result<Option<&'static str>> {
        let status = self.status()?;
        let (Some(booted), Some(next)) = (status.booted(), status.next_boot()) else {
            return Ok(Some("no deployment of this host runs"));
        };
        let mut facts = tools();
        facts.same_kernel = self.boot_sum(booted)? == self.boot_sum(next)?;
        let arguments = |one: &DeploymentStatus| KernelArguments::parse(&one.kernel_arguments);
        facts.same_arguments = arguments(booted).is_equivalent(&arguments(next));
        Ok(obstacle(facts))
    }

    #[context("Preparing a soft reboot")]
    fn soft_reboot(&self, force: bool, sink: &dyn EventSink) -> Result<()> {
        reboot::refuse_blocked(force, sink)?;
        let before = self.finalised()?;
        outside(&["ostree", "admin", VERB, "0"])?;
        // Takes the host lock by itself.
        if let Err(error) = outside(&["mcd", "boot", "--root", NEXT_ROOT]).and_then(|()| self.count(&before))
        {
            // The root that is not as it must be is never started.
            outside(&["ostree", "admin", VERB, "--reset"])?;
            return Err(error);
        }
        super::health::forget(self)?;
        sink.event(Event::Note { message: "rebooting user space".to_owned() });
        let mut command = Command::new("systemctl");
        command.arg("soft-reboot");
        if force {
            command.arg("--ignore-inhibitors");
        }
        run(&mut command)
    }

    /// The next boot, once it is finalised: what is staged has no merged `/etc` yet.
    fn finalised(&self) -> Result<Next> {
        if self.status()?.next_boot().is_some_and(|next| next.staged) {
            // OSTree's service does it when it is stopped, at any time.
            reboot::finalise_at_shutdown()?;
            run(Command::new("systemctl").args(["stop", FINALISE]))?;
        }
        let status = self.status()?;
        let next = status.next_boot().filter(|next| !next.staged);
        let Some(next) = next else { anyhow::bail!("the staged deployment could not be finalised") };
        let disk = on_disk_of(next);
        let boots = self.boots()?.entry(&disk.entry_id()).map_or(0, |entry| entry.boots);
        Ok(Next { disk, boots })
    }

    /// Counts the boot that begins, unless `mcd boot` did.
    fn count(&self, next: &Next) -> Result<()> {
        let locked = self.lock(Wait::No)?;
        let boots = locked.boots()?;
        if boots.entry(&next.disk.entry_id()).is_none_or(|known| known.boots != next.boots) {
            return Ok(());
        }
        match count(&boots, &next.disk, &[], now()) {
            Count::Boot(entry) | Count::Stays { entry, .. } => locked.edit_boots(|boots| boots.note(entry)),
            Count::No | Count::GoBack(_) => Ok(()),
        }
    }
}

/// What the switch goes to.
struct Next {
    disk: OnDisk,
    boots: u32,
}

/// What the host's programs can; the rest is for the caller to find out.
fn tools() -> Facts {
    let ask = |program: &str, arguments: &[&str]| {
        child::run(Command::new(program).args(arguments), TIMEOUT, &|| false)
    };
    // The list of verbs: `--help` after a verb that it does not know ends well, too.
    let verbs = ask("ostree", &["admin", "--help"]).output;
    Facts {
        ostree_can: verbs.split_whitespace().any(|word| word == VERB),
        systemd_can: ask("systemctl", &["cat", "soft-reboot.target"]).passed,
        same_kernel: false,
        same_arguments: false,
    }
}

fn outside(words: &[&str]) -> Result<()> {
    run(Command::new("systemd-run").args(["--quiet", "--wait", "--pipe", "--collect", "--"]).args(words))
}

fn run(command: &mut Command) -> Result<()> {
    let ended = child::run(command, TIMEOUT, &|| false);
    let program = command.get_program().to_string_lossy();
    anyhow::ensure!(ended.passed, "{program}: {}", ended.said);
    Ok(())
}

fn refusal(why: &str) -> Fault {
    Fault::refused("a soft reboot is not possible").why(why)
}
