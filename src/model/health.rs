//! What health checks found, as `mcd health --json` and `mcd status --json` print it and
//! `/run/mcd/health.json` keeps it for this boot.

use serde::{Deserialize, Serialize};

use super::status::DeploymentName;

/// Version of the JSON. Grows by addition; raised only when a field changes its meaning.
pub const HEALTH_VERSION: u32 = 1;

/// What a failed check means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The deployment is not good without it.
    Required,
    /// It is shown, and nothing is done about it.
    Wanted,
}

/// One check that was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The file's name, or that of a built-in one.
    pub name: String,
    /// What its failure means.
    pub weight: Weight,
    /// Whether it passed.
    pub passed: bool,
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// What it said, or why it failed; redacted and short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// It failed on the system before too, so that it is not held against this deployment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_before: bool,
}

/// What is thought of the running deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its checks are still being repeated.
    Judging,
    /// It proved good.
    Good,
    /// It failed, and the next boot starts the last good one.
    GivenUp,
    /// It fails, and there is nothing to go back to.
    Degraded,
    /// Others made it, or it was left before: nothing is done about it.
    NotJudged,
}

/// The checks of this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthStatus {
    /// [`HEALTH_VERSION`].
    pub version: u32,
    /// What runs.
    pub deployment: Option<DeploymentName>,
    /// What is thought of it; none where only somebody looked.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// The last run of each check.
    pub checks: Vec<Check>,
    /// When judging ends, in seconds since the epoch.
    #[serde(default)]
    pub deadline: Option<i64>,
    /// It became good with this boot: then it is time to prune.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newly_good: bool,
    /// What is wrong with the settings, or with a file among the checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Check {
    /// Whether the deployment is not good because of it.
    pub fn is_held_against(&self) -> bool {
        self.weight == Weight::Required && !self.passed && !self.failed_before
    }
}

impl HealthStatus {
    /// Whether every required check passes.
    pub fn is_healthy(&self) -> bool {
        self.checks.iter().all(|check| check.passed || check.weight == Weight::Wanted)
    }
}
