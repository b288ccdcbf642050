//! Disruption policy: what a change of a file, a unit or a key asks for.
//!
//! The form is that of the cluster's `MachineConfiguration` object: `spec.nodeDisruptionPolicy`, or,
//! as the operator publishes it merged with its defaults,
//! `status.nodeDisruptionPolicyStatus.clusterPolicies`. An administrator puts the same into
//! `/etc/mcd/policy.d/*.yaml`. What is read later replaces what was read before for the same path or
//! unit, the built-in defaults first of all.

use std::collections::BTreeMap;
use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use super::config::Remark;

/// Where the host's own policy files stand, without leading slash. Read in the order of their names.
pub const POLICY_FOLDER: &str = "etc/mcd/policy.d";

/// What is done so that a change takes effect. In the order in which actions run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "action", content = "unit", rename_all = "kebab-case")]
pub enum Action {
    /// Nothing: whoever uses it reads it again.
    None,
    /// `systemctl daemon-reload`.
    DaemonReload,
    /// `systemctl reload` of a unit.
    Reload(String),
    /// What a change of `registries.conf` asks for: CRI-O reads it again. The node is drained if the
    /// change may break a running pod; that shows as a [`Action::Drain`] beside it.
    Special,
    /// `systemctl restart` of a unit.
    Restart(String),
    /// The node is drained.
    Drain,
    /// The host is booted again.
    Reboot,
}

/// Who says what a change asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", content = "file", rename_all = "kebab-case")]
pub enum Origin {
    /// A default of this program.
    BuiltIn,
    /// A policy file, by its name.
    File(String),
}

/// What a change asks for, and who says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// As they were written, in that order; never empty.
    pub actions: Vec<Action>,
    /// Who says so.
    pub origin: Origin,
}

/// All policies that are in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies {
    files: BTreeMap<Utf8PathBuf, Policy>,
    units: BTreeMap<String, Policy>,
    sshkey: Policy,
}

/// A policy file that is wrong: every problem, by its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPolicy {
    /// What is wrong, `FILE: FIELD` first.
    pub problems: Vec<Remark>,
}

impl Policies {
    /// The defaults that the operator has, and no action for the kubelet's CA bundle.
    pub fn built_in() -> Self {
        let none = Policy { actions: vec![Action::None], origin: Origin::BuiltIn };
        Self { files: BTreeMap::new(), units: BTreeMap::new(), sshkey: none }
    }

    /// Adds what a policy file says, replacing what was said before for the same path or unit.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] lists everything that is wrong with the file; nothing of it is taken over.
    pub fn add(&mut self, name: &str, _yaml: &[u8]) -> Result<(), InvalidPolicy> {
        let message = "policy files are not read yet".to_owned();
        Err(InvalidPolicy { problems: vec![Remark { field: name.to_owned(), message }] })
    }

    /// The policy of the longest path that is this one or a directory above it, and that path.
    pub fn of_path(&self, path: &Utf8Path) -> Option<(&Utf8Path, &Policy)> {
        path.ancestors().find_map(|above| {
            let (at, policy) = self.files.get_key_value(above)?;
            Some((at.as_path(), policy))
        })
    }

    /// The policy of a unit, by its exact name.
    pub fn of_unit(&self, name: &str) -> Option<&Policy> {
        self.units.get(name)
    }

    /// The policy of keys and passwords.
    pub fn of_keys(&self) -> &Policy {
        &self.sshkey
    }
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

impl std::error::Error for InvalidPolicy {}
