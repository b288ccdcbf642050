//! Disruption policy: what a change of a file, a unit or a key asks for.
//!
//! The form is that of the cluster's `MachineConfiguration` object: `spec.nodeDisruptionPolicy`, or,
//! as the operator publishes it merged with its defaults,
//! `status.nodeDisruptionPolicyStatus.clusterPolicies`. An administrator puts the same, or only the
//! `files`, `units` and `sshkey` of it, into `/etc/mcd/policy.d/*.yaml`. What is read later replaces
//! what was read before for the same path or unit, the built-in defaults first of all.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use super::config::Remark;

/// Where the host's own policy files stand, without leading slash. Read in the order of their names.
pub const POLICY_FOLDER: &str = "etc/mcd/policy.d";
/// The container runtime, which reads `registries.conf` and image policies again when it is reloaded.
pub const CRIO: &str = "crio.service";

/// What is done so that a change takes effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "action", content = "unit", rename_all = "kebab-case")]
pub enum Action {
    /// Nothing: whoever uses it reads it again.
    None,
    /// `systemctl daemon-reload`.
    DaemonReload,
    /// `systemctl reload` of a unit.
    Reload(String),
    /// `systemctl restart` of a unit.
    Restart(String),
    /// What a change of `registries.conf` asks for: CRI-O reads it again, after a drain if the change
    /// may break a running pod.
    Special,
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
    /// The defaults that the operator has, and no action for the kubelet's CA bundle: the kubelet
    /// reads it again by itself.
    pub fn built_in() -> Self {
        let policy = |actions: Vec<Action>| Policy { actions, origin: Origin::BuiltIn };
        let restart = |unit: &str| Action::Restart(unit.to_owned());
        let reload_crio = || vec![Action::Reload(CRIO.to_owned())];
        let trust = "coreos-update-ca-trust.service";
        let registry = "iri-registry.service";
        let anchors = "/etc/pki/ca-trust/source/anchors";
        let files = [
            ("/var/lib/kubelet/config.json".to_owned(), vec![Action::None]),
            ("/etc/kubernetes/kubelet-ca.crt".to_owned(), vec![Action::None]),
            ("/etc/nmstate/openshift".to_owned(), vec![Action::None]),
            ("/etc/machine-config-daemon/no-reboot/containers-gpg.pub".to_owned(), reload_crio()),
            ("/etc/containers/policy.json".to_owned(), reload_crio()),
            ("/etc/containers/registries.d".to_owned(), reload_crio()),
            ("/etc/crio/policies".to_owned(), reload_crio()),
            ("/etc/containers/registries.conf".to_owned(), vec![Action::Special]),
            (format!("{anchors}/openshift-config-user-ca-bundle.crt"), vec![restart(trust), restart(CRIO)]),
            (format!("{anchors}/iri-root-ca.crt"), vec![restart(trust)]),
            ("/etc/kubernetes/credential-providers".to_owned(), vec![restart("kubelet.service")]),
            (
                "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf"
                    .to_owned(),
                vec![Action::DaemonReload, restart("kubelet.service")],
            ),
            ("/etc/iri-registry".to_owned(), vec![restart(registry)]),
            ("/usr/local/bin/load-registry-image.sh".to_owned(), vec![restart(registry)]),
        ];
        let units = [(registry.to_owned(), policy(vec![Action::DaemonReload, restart(registry)]))];
        Self {
            files: files.into_iter().map(|(path, actions)| (path.into(), policy(actions))).collect(),
            units: units.into(),
            sshkey: policy(vec![Action::None]),
        }
    }

    /// Adds what a policy file says, replacing what was said before for the same path or unit.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] lists everything that is wrong with the file; nothing of it is taken over.
    pub fn add(&mut self, name: &str, yaml: &[u8]) -> Result<(), InvalidPolicy> {
        let said = parse::parse(name, yaml)?;
        let policy = |actions| Policy { actions, origin: Origin::File(name.to_owned()) };
        self.files.extend(said.files.into_iter().map(|(path, actions)| (path, policy(actions))));
        self.units.extend(said.units.into_iter().map(|(unit, actions)| (unit, policy(actions))));
        if let Some(actions) = said.sshkey {
            self.sshkey = policy(actions);
        }
        Ok(())
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

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::DaemonReload => f.write_str("daemon-reload"),
            Self::Reload(unit) => write!(f, "reload {unit}"),
            Self::Restart(unit) => write!(f, "restart {unit}"),
            Self::Special => write!(f, "reload {CRIO}"),
            Self::Drain => f.write_str("drain"),
            Self::Reboot => f.write_str("reboot"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in policy"),
            Self::File(name) => write!(f, "policy file {name}"),
        }
    }
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

impl std::error::Error for InvalidPolicy {}
