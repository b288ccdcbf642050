//! Every reason that the daemon can give. `docs/runbook.md` says of each what to do; a test compares
//! the two.

use super::annotations::{REASON_MAX, State};
use crate::model::redact::redact;

/// A reason's kind; its id never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonKind {
    /// The MachineConfig that is desired does not exist.
    ConfigAbsent,
    /// What is desired is no MachineConfig.
    ConfigInvalid,
    /// The host refuses it before anything changes.
    ConfigRefused,
    /// Fetching or preparing failed.
    PrepareFailed,
    /// Making it the next boot failed; the host is as before.
    CommitFailed,
    /// Applying it without a reboot failed; the host is as before.
    ApplyFailed,
    /// Dropping a change that is no longer desired failed.
    CancelFailed,
    /// A step failed half-way and was not undone.
    NotUndone,
    /// The reboot does not happen.
    RebootFailed,
    /// It runs and its checks failed; the host went back.
    ChangeFailed,
    /// It did not come up; the host went back.
    ChangeUnproven,
    /// A person went back.
    ChangeRolledBack,
    /// The host differs from what was laid down.
    Drift,
    /// Comparing the host with its records failed.
    VerifyFailed,
    /// A workload does not leave.
    DrainBlocked,
    /// The drain is not carried out in time.
    DrainSlow,
    /// The node is not made schedulable in time.
    UncordonSlow,
    /// A person holds drains and reboots back.
    Hold,
    /// The host's program does not answer.
    HostUnreachable,
    /// There is no program on the host.
    HostWithoutMcd,
    /// What the ControllerConfig carries cannot be read.
    ControllerConfigInvalid,
    /// What the ControllerConfig carries cannot be laid down.
    ControllerConfigFailed,
}

impl ReasonKind {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::ConfigAbsent,
        Self::ConfigInvalid,
        Self::ConfigRefused,
        Self::PrepareFailed,
        Self::CommitFailed,
        Self::ApplyFailed,
        Self::CancelFailed,
        Self::NotUndone,
        Self::RebootFailed,
        Self::ChangeFailed,
        Self::ChangeUnproven,
        Self::ChangeRolledBack,
        Self::Drift,
        Self::VerifyFailed,
        Self::DrainBlocked,
        Self::DrainSlow,
        Self::UncordonSlow,
        Self::Hold,
        Self::HostUnreachable,
        Self::HostWithoutMcd,
        Self::ControllerConfigInvalid,
        Self::ControllerConfigFailed,
    ];

    /// Stable: what the reason begins with, and the heading in the runbook.
    pub fn id(self) -> &'static str {
        match self {
            Self::ConfigAbsent => "config-absent",
            Self::ConfigInvalid => "config-invalid",
            Self::ConfigRefused => "config-refused",
            Self::PrepareFailed => "prepare-failed",
            Self::CommitFailed => "commit-failed",
            Self::ApplyFailed => "apply-failed",
            Self::CancelFailed => "cancel-failed",
            Self::NotUndone => "not-undone",
            Self::RebootFailed => "reboot-failed",
            Self::ChangeFailed => "change-failed",
            Self::ChangeUnproven => "change-unproven",
            Self::ChangeRolledBack => "change-rolled-back",
            Self::Drift => "drift",
            Self::VerifyFailed => "verify-failed",
            Self::DrainBlocked => "drain-blocked",
            Self::DrainSlow => "drain-slow",
            Self::UncordonSlow => "uncordon-slow",
            Self::Hold => "hold",
            Self::HostUnreachable => "host-unreachable",
            Self::HostWithoutMcd => "host-without-mcd",
            Self::ControllerConfigInvalid => "controller-config-invalid",
            Self::ControllerConfigFailed => "controller-config-failed",
        }
    }

    /// The state that goes with it.
    pub fn state(self) -> State {
        match self {
            Self::ConfigInvalid | Self::ConfigRefused => State::Unreconcilable,
            Self::Hold => State::Working,
            _ => State::Degraded,
        }
    }
}

/// Why a node is not Done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Its kind.
    pub kind: ReasonKind,
    /// What, why and what next, in one line. Never a credential.
    pub text: String,
}

impl Reason {
    /// A reason of `kind` that says `text`.
    pub fn new(kind: ReasonKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// As the annotation has it: one line, at most [`REASON_MAX`] characters.
    pub fn annotation(&self) -> String {
        let line = format!("{}: {}", self.kind.id(), redact(&self.text));
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_MAX).collect()
    }
}
