//! What changes ask for: one verdict, with a reason for each part of it.

use serde::Serialize;

use super::config::Changes;
use super::registries::Meaning;
use crate::model::policy::{Action, Origin, Policies};

/// The file whose change is judged by its meaning.
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";

/// What all changes together ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// In the order in which they run, each once: daemon-reload, reloads, restarts; or only a reboot
    /// (before it a drain is the caller's). Empty: nothing is to be done.
    pub actions: Vec<Action>,
    /// Why, change by change.
    pub reasons: Vec<Reason>,
}

/// What one change asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What changes: a path, a unit, `keys of core`, `kernel arguments`, `image`.
    pub change: String,
    /// What it asks for.
    pub actions: Vec<Action>,
    /// Which policy says so, or that none does.
    pub why: String,
    /// Who wrote that policy; none where no policy is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Judges changes. `registries` is what a change of [`REGISTRIES_CONF`] means, none if it could not be
/// worked out: then it counts as unsafe.
pub fn judge(_changes: &Changes, _policies: &Policies, _registries: Option<&Meaning>) -> Verdict {
    Verdict { actions: vec![Action::Reboot], reasons: Vec::new() }
}

impl Verdict {
    /// Whether the host must boot again.
    pub fn needs_reboot(&self) -> bool {
        self.actions.contains(&Action::Reboot)
    }

    /// Whether pods must leave the node first.
    pub fn needs_drain(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Drain | Action::Reboot))
    }
}
