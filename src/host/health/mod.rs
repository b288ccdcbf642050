//! Health checks of the running system: the administrator's and the image's executables, and built-in
//! ones. What they mean for the deployment is decided in [`crate::plan::health`].
//!
//! `/etc/mcd/health/{required,wanted}.d` and `/usr/lib/mcd/health/{required,wanted}.d` hold
//! executables; exit code 0 passes. A file of `/etc` takes the place of the one in `/usr` of the same
//! name, or of the built-in check of that name; a link to `/dev/null` masks both.

mod builtin;
mod scripts;
mod settings;
mod told;

use std::time::Duration;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

pub(super) use builtin::default_route;
pub use settings::Settings;
pub use told::{forget, read as last_told, tell, tell_at_login};

use super::child;
use super::sysroot::Host;
use crate::model::health::{Check, HEALTH_VERSION, HealthStatus, Weight};
use crate::model::image_ref::OsImage;
use crate::model::status::DeploymentName;

/// The unit that judges.
const SERVICE: &str = "mcd-health.service";

/// Whether the service that judges a boot is there and enabled. Masked, disabled or missing, the first
/// boot is all the proof that there is.
pub fn is_to_judge() -> bool {
    let mut command = std::process::Command::new("systemctl");
    command.args(["is-enabled", "--quiet", SERVICE]);
    super::reboot::is_systemd() && child::run(&mut command, Duration::from_secs(10), &|| false).passed
}

/// The checks of a running host.
#[derive(Debug)]
pub struct Checks {
    /// How they are run.
    pub settings: Settings,
    scripts: scripts::Scripts,
    deployment: Option<DeploymentName>,
    image: Option<OsImage>,
}

/// One check to be run.
enum Job<'a> {
    Script(&'a scripts::Script),
    Builtin(builtin::Builtin),
}

impl Checks {
    /// Those of the running host. Looks at folders and settings; runs nothing.
    pub fn of(host: &Host) -> Result<Self> {
        let status = host.status()?;
        let booted = status.booted();
        let root: Dir = host.running_root()?;
        let mut settings = Settings::of(&root);
        let scripts = scripts::Scripts::find(&root);
        settings.warnings.extend(scripts.warnings.iter().cloned());
        Ok(Self {
            settings,
            scripts,
            deployment: booted.map(|booted| booted.name.clone()),
            image: booted.and_then(|booted| booted.image.clone()),
        })
    }

    /// Runs them all, at the same time, in the order of their names. `failing_before` is what failed
    /// on the system before this deployment.
    pub fn run(&self, failing_before: &[String], is_stopped: &(dyn Fn() -> bool + Sync)) -> HealthStatus {
        let mut checks = self.run_some(|_| true, self.settings.timeout, is_stopped);
        for check in &mut checks {
            check.failed_before = !check.passed && failing_before.contains(&check.name);
        }
        HealthStatus {
            version: HEALTH_VERSION,
            deployment: self.deployment.clone(),
            verdict: None,
            checks,
            deadline: None,
            newly_good: false,
            warnings: self.settings.warnings.clone(),
        }
    }

    /// The names of the required checks that fail now, each given at most `timeout`. A boot that is not
    /// complete yet proves nothing: then there are none.
    pub fn failing(&self, timeout: Duration) -> Vec<String> {
        if super::reboot::is_systemd() && !builtin::is_up(timeout) {
            return Vec::new();
        }
        let timeout = timeout.min(self.settings.timeout);
        let checks = self.run_some(|weight| weight == Weight::Required, timeout, &|| false);
        checks.into_iter().filter(|check| !check.passed).map(|check| check.name).collect()
    }

    fn run_some(
        &self,
        wanted: impl Fn(Weight) -> bool,
        timeout: Duration,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Check> {
        let builtins = builtin::Builtin::of_host(self.image.as_ref(), self.deployment.as_ref()).into_iter();
        let builtins = builtins.filter(|one| !self.scripts.takes_place_of(one.name())).map(Job::Builtin);
        let jobs: Vec<Job<'_>> = builtins
            .chain(self.scripts.scripts.iter().map(Job::Script))
            .filter(|job| wanted(job.weight()))
            .collect();
        let run = |job: &Job<'_>| self.run_one(job, timeout, is_stopped);
        let mut checks: Vec<Check> = std::thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = jobs.iter().map(|job| scope.spawn(move || run(job))).collect();
            running.into_iter().filter_map(|one| one.join().ok()).collect()
        });
        checks.sort_by(|one, other| (one.weight as u8, &one.name).cmp(&(other.weight as u8, &other.name)));
        checks
    }

    fn run_one(&self, job: &Job<'_>, timeout: Duration, is_stopped: &(dyn Fn() -> bool + Sync)) -> Check {
        let ended = match job {
            Job::Script(script) => {
                let mut command = script.command();
                if let Some(deployment) = &self.deployment {
                    command.env("MCD_DEPLOYMENT", deployment.to_string());
                }
                child::run(&mut command, timeout, is_stopped)
            }
            Job::Builtin(builtin) => builtin.run(timeout, is_stopped),
        };
        Check {
            name: job.name().to_owned(),
            weight: job.weight(),
            passed: ended.passed,
            millis: u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
            why: (!ended.said.is_empty()).then_some(ended.said),
            failed_before: false,
        }
    }
}

impl Job<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Script(script) => &script.name,
            Self::Builtin(builtin) => builtin.name(),
        }
    }

    fn weight(&self) -> Weight {
        match self {
            Self::Script(script) => script.weight,
            Self::Builtin(builtin) => builtin.weight(),
        }
    }
}
