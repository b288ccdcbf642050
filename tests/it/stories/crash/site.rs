//! A copy of a scene's host: as a directory, or running.

use std::path::Path;
use std::process::{Command, Stdio};

use mcd_test_support::booted::Booted;
use mcd_test_support::strace::{self, Cut, Fate};
use mcd_test_support::sysroot::Sysroot;

use super::super::{Outcome, program};

/// How a run is watched.
pub(super) enum Watch<'a> {
    Not,
    Recording(&'a Path),
    Struck(&'a Cut, Fate, &'a Path),
}

/// Where the command of a scene runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On a sysroot that is not booted.
    Directory,
    /// Beside a sysroot that is not booted: `{next}` and `{plain}` stand for folders in it.
    Outside,
    /// In the booted deployment.
    Running,
}

/// How a host goes down after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Down {
    /// What is staged is finalised.
    InOrder,
    /// Nothing is.
    PowerCut,
}

/// A host at work.
pub(super) struct Site<'a> {
    sysroot: &'a Sysroot,
    booted: Option<Booted<'a>>,
    place: Place,
    /// Whether `mcd boot` runs at each boot.
    converges: bool,
}

impl<'a> Site<'a> {
    /// `shared` is seen inside a running host at the same path.
    pub(super) fn new(sysroot: &'a Sysroot, place: Place, converges: bool, shared: &Path) -> Self {
        let booted = match place {
            Place::Directory | Place::Outside => None,
            Place::Running => Some(Booted::boot(sysroot, program(), &[shared]).unwrap()),
        };
        Self { sysroot, booted, place, converges }
    }

    /// Runs `mcd` to its end, whatever that is.
    pub(super) fn run(&self, arguments: &[String], watch: &Watch<'_>) -> Outcome {
        let mut command = match &self.booted {
            Some(booted) => watched(booted.command(""), "mcd", arguments, watch),
            None => {
                let mut command = Command::new("env");
                command.env("OSTREE_SYSROOT_DEBUG", "mutable-deployments").env("NO_COLOR", "1");
                watched(command, &program().display().to_string(), &self.placed(arguments), watch)
            }
        };
        Outcome::of(match watch {
            Watch::Struck(..) => strace::run_struck(&mut command).unwrap(),
            Watch::Not | Watch::Recording(_) => command.stdin(Stdio::null()).output().unwrap(),
        })
    }

    /// Arguments with the places of this copy.
    fn placed(&self, arguments: &[String]) -> Vec<String> {
        let path = self.sysroot.path().display().to_string();
        // A cleanup is one of the sysroot in any case.
        if self.place == Place::Directory || arguments[0] == "cleanup" {
            return [arguments, &["--sysroot".to_owned(), path]].concat();
        }
        let next = self.sysroot.next_boot().map(|entry| entry.deployment.display().to_string());
        let next = next.unwrap_or_default();
        let place =
            |word: &String| word.replace("{next}", &next).replace("{plain}", &format!("{path}/plain"));
        arguments.iter().map(place).collect()
    }

    /// Whether it is booted.
    pub(super) fn is_running(&self) -> bool {
        self.booted.is_some()
    }

    /// Goes down and boots again, with all that a boot does of ours.
    pub(super) fn next_boot(self, down: Down) -> Result<Self, String> {
        let Self { sysroot, booted, place, converges } = self;
        let booted = match (booted, down) {
            (Some(booted), Down::InOrder) => Some(booted.reboot()),
            (Some(booted), Down::PowerCut) => Some(booted.power_cut()),
            (None, _) => None,
        };
        let site = Self {
            sysroot,
            booted: booted.transpose().map_err(|error| format!("{error:#}"))?,
            place,
            converges,
        };
        if converges {
            site.converge()?;
        }
        Ok(site)
    }

    /// What the initramfs does with the root that is about to start, and then that root.
    fn converge(&self) -> Result<(), String> {
        let next = self.sysroot.next_boot().map_err(|error| format!("{error:#}"))?;
        let root = next.deployment.display().to_string();
        let early = Command::new(program()).args(["boot", "--root", &root]).output().unwrap();
        let late = |booted: &Booted<'_>| Outcome::of(booted.mcd(&["boot"]).unwrap());
        let outcomes = [
            Outcome::of(early),
            match &self.booted {
                Some(booted) => late(booted),
                None => late(&Booted::boot(self.sysroot, program(), &[]).unwrap()),
            },
        ];
        let failed = outcomes.iter().find(|outcome| outcome.code != Some(0));
        failed.map_or(Ok(()), |outcome| Err(format!("mcd boot: {outcome}")))
    }
}

/// `program` with `arguments` by way of `command`, which executes what is added to it.
fn watched(command: Command, program: &str, arguments: &[String], watch: &Watch<'_>) -> Command {
    let traced = match watch {
        Watch::Not => vec![program.to_owned()],
        Watch::Recording(log) => [strace::recording(log), vec![program.to_owned()]].concat(),
        Watch::Struck(cut, fate, log) => [strace::struck(cut, *fate, log), vec![program.to_owned()]].concat(),
    };
    let mut whole = Command::new(command.get_program());
    // The namespace's command ends with a place for the program.
    whole.args(command.get_args().filter(|argument| !argument.is_empty())).args(traced).args(arguments);
    if command.get_program() == "nsenter" {
        whole.env_clear();
    }
    whole.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    whole
}
