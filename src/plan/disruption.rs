//! What changes ask for: one verdict, with a reason for each part of it.
//!
//! A file asks for what the policy of its path says, a unit for that of its name, keys and password
//! for that of `sshkey`. Where no policy speaks, and for the image and kernel arguments, the answer is
//! a reboot.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use camino::Utf8Path;
use serde::Serialize;

use super::config::{Changes, EntryChange};
use super::content::{LARGEST_DIFF, Versions};
use super::registries::{self, Meaning};
use crate::model::manifest::{Node, Scope};
use crate::model::policy::{Action, CRIO, Origin, Policies, Policy};

/// The file whose change is judged by its meaning.
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";

/// Why an entry that is adopted or released needs nothing.
pub const AS_WANTED: &str = "is as wanted already";

/// Where systemd reads units, and would go on with what it read before.
const UNIT_FOLDERS: [&str; 2] = ["/etc/systemd/system", "/usr/lib/systemd/system"];

/// What all changes together ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Each once, in the order in which they run: drain; daemon-reload; reloads and restarts, as the
    /// policies order them, else reloads first. Or only a reboot, which needs none of them. Empty:
    /// nothing is to be done. Never holds [`Action::None`] or [`Action::Special`].
    pub actions: Vec<Action>,
    /// Why, change by change: image, kernel arguments, files, units, keys.
    pub reasons: Vec<Reason>,
}

/// What one change asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What changes.
    #[serde(flatten)]
    pub subject: Subject,
    /// What it asks for; [`Action::None`] where that is nothing.
    pub actions: Vec<Action>,
    /// Which rule says so, in words.
    pub why: String,
    /// Who wrote the policy; none where no policy is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "subject", content = "name", rename_all = "kebab-case")]
pub enum Subject {
    /// The image.
    Image,
    /// Kernel arguments.
    KernelArguments,
    /// A file, directory or link: its path as the config spells it.
    File(String),
    /// A unit: its name.
    Unit(String),
    /// Keys and password of a user.
    Keys(String),
}

/// Judges changes. `registries` is what a change of [`REGISTRIES_CONF`] means, none if it could not be
/// worked out: then it counts as unsafe.
pub fn judge(changes: &Changes, policies: &Policies, registries: Option<&Meaning>) -> Verdict {
    let mut reasons = Vec::new();
    if changes.image.is_some() {
        reasons.push(reboot(Subject::Image, "another image"));
    }
    if changes.kernel_arguments.is_some() {
        reasons.push(reboot(Subject::KernelArguments, "the kernel reads its arguments once"));
    }
    let usr = if changes.usr_is_writable { Usr::Writable } else { Usr::Sealed };
    reasons.extend(changes.files.iter().map(|change| file(change, policies, registries, usr)));
    reasons.extend(changes.units.iter().map(|(name, parts)| unit(name, parts, policies, usr)));
    reasons.extend(keys(changes, policies));
    Verdict { actions: join(&reasons), reasons }
}

/// What a change of [`REGISTRIES_CONF`] means, for [`judge`]; none if there is no such change, or if
/// its contents cannot be read.
pub fn registries(changes: &Changes, versions: &dyn Versions) -> Option<Meaning> {
    let change = changes.files.iter().find(|change| change.name() == REGISTRIES_CONF)?;
    // A file of another size than any real one is not worth its memory: it counts as unsafe.
    let read = |node: &Option<Node>, side: &dyn Fn() -> anyhow::Result<Option<Vec<u8>>>| match node {
        None => Some(None),
        Some(Node::File { size, .. }) if *size <= LARGEST_DIFF => side().ok().flatten().map(Some),
        Some(_) => None,
    };
    let before = read(&change.from, &|| versions.before(change))?;
    let after = read(&change.to, &|| versions.after(change))?;
    Some(registries::compare(before.as_deref(), after.as_deref()))
}

/// Whether what is below `/usr` can change without a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usr {
    Sealed,
    Writable,
}

impl Usr {
    fn keeps(self, change: &EntryChange) -> bool {
        self == Self::Sealed && change.is_visible() && Scope::of(&change.path) == Some(Scope::Usr)
    }
}

fn file(change: &EntryChange, policies: &Policies, registries: Option<&Meaning>, usr: Usr) -> Reason {
    let name = change.name();
    let subject = Subject::File(name.to_string());
    if !change.is_visible() {
        return nothing(subject, AS_WANTED);
    }
    if usr.keeps(change) {
        return reboot(subject, "what is below /usr comes with the next boot");
    }
    let Some((at, policy)) = policies.of_path(name).or_else(|| policies.of_path(&change.path)) else {
        return reboot(subject, "no policy for this path");
    };
    let mut actions = policy.actions.clone();
    let mut why = if at == name { policy.origin.to_string() } else { format!("{} for {at}", policy.origin) };
    if let Some(special) = actions.iter().position(|action| *action == Action::Special) {
        let (instead, meaning) = special_actions(name, registries);
        actions.splice(special..=special, instead);
        why = format!("{why}: {meaning}");
    }
    if is_read_by_systemd(change) {
        reload_daemon(&mut actions);
    }
    Reason { subject, actions, why, origin: Some(policy.origin.clone()) }
}

/// What [`Action::Special`] stands for.
fn special_actions(path: &Utf8Path, registries: Option<&Meaning>) -> (Vec<Action>, String) {
    let drained = |why: &str| (vec![Action::Drain, Action::Reload(CRIO.to_owned())], why.to_owned());
    match registries {
        _ if path != REGISTRIES_CONF => drained("its meaning is not known"),
        None => drained("it could not be compared"),
        Some(Meaning::Unsafe(why)) => drained(why),
        Some(Meaning::Safe) => {
            (vec![Action::Reload(CRIO.to_owned())], "every image can be pulled as before".to_owned())
        }
        Some(Meaning::Same) => (vec![Action::None], "it says the same as before".to_owned()),
    }
}

fn unit(name: &str, parts: &[EntryChange], policies: &Policies, usr: Usr) -> Reason {
    let subject = Subject::Unit(name.to_owned());
    if !parts.iter().any(EntryChange::is_visible) {
        return nothing(subject, AS_WANTED);
    }
    if parts.iter().any(|part| usr.keeps(part)) {
        return reboot(subject, "what is below /usr comes with the next boot");
    }
    let Some(policy) = policies.of_unit(name) else {
        return reboot(subject, "no policy for this unit");
    };
    let mut actions = policy.actions.clone();
    reload_daemon(&mut actions);
    Reason { subject, actions, why: policy.origin.to_string(), origin: Some(policy.origin.clone()) }
}

fn keys(changes: &Changes, policies: &Policies) -> Option<Reason> {
    let user = changes.password.as_ref().map(|password| password.user.clone());
    let user = user.or_else(|| changes.keys.iter().find_map(EntryChange::user))?;
    let subject = Subject::Keys(user);
    if changes.password.is_none() && !changes.keys.iter().any(EntryChange::is_visible) {
        return Some(nothing(subject, AS_WANTED));
    }
    let policy = policies.of_keys();
    let (actions, why) = (special_elsewhere(policy), policy.origin.to_string());
    Some(Reason { subject, actions, why, origin: Some(policy.origin.clone()) })
}

/// A policy's actions where nothing but a drain can be made of [`Action::Special`].
fn special_elsewhere(policy: &Policy) -> Vec<Action> {
    let instead = |action: &Action| match action {
        Action::Special => vec![Action::Drain, Action::Reload(CRIO.to_owned())],
        other => vec![other.clone()],
    };
    policy.actions.iter().flat_map(instead).collect()
}

fn reboot(subject: Subject, why: &str) -> Reason {
    Reason { subject, actions: vec![Action::Reboot], why: why.to_owned(), origin: None }
}

fn nothing(subject: Subject, why: &str) -> Reason {
    Reason { subject, actions: vec![Action::None], why: why.to_owned(), origin: None }
}

fn is_read_by_systemd(change: &EntryChange) -> bool {
    UNIT_FOLDERS.iter().any(|folder| change.path.starts_with(folder))
}

/// systemd goes on with what it read before, so whatever runs next would meet the old unit.
fn reload_daemon(actions: &mut Vec<Action>) {
    if !actions.contains(&Action::Reboot) && !actions.contains(&Action::DaemonReload) {
        actions.retain(|action| *action != Action::None);
        actions.insert(0, Action::DaemonReload);
    }
}

/// Joins what the changes ask for.
fn join(reasons: &[Reason]) -> Vec<Action> {
    let asked = || reasons.iter().flat_map(|reason| &reason.actions);
    if asked().any(|action| *action == Action::Reboot) {
        return vec![Action::Reboot];
    }
    let first = [Action::Drain, Action::DaemonReload];
    let mut joined: Vec<Action> =
        first.into_iter().filter(|action| asked().any(|asked| asked == action)).collect();
    joined.extend(in_order(reasons));
    joined
}

/// Reloads and restarts: each once, after everything that a policy names before it. Where policies do
/// not say, reloads come first, and then the order of names.
fn in_order(reasons: &[Reason]) -> Vec<Action> {
    let all = || reasons.iter().flat_map(|reason| &reason.actions);
    // A restart does all that a reload does.
    let whole = |action: &Action| match action {
        Action::Reload(unit) => {
            let restart = Action::Restart(unit.clone());
            Some(if all().any(|other| *other == restart) { restart } else { action.clone() })
        }
        Action::Restart(_) => Some(action.clone()),
        _ => None,
    };
    let mut left: BTreeSet<Action> = all().filter_map(whole).collect();
    let chains: Vec<Vec<Action>> =
        reasons.iter().map(|reason| reason.actions.iter().filter_map(whole).collect()).collect();
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |action: &Action| {
            chains.iter().any(|chain| {
                let before = chain.iter().take_while(|other| *other != action).count();
                before < chain.len() && chain[..before].iter().any(|other| left.contains(other))
            })
        };
        // Policies that contradict each other leave a ring: then the order of names decides.
        let next = left.iter().find(|action| !waits(action)).or(left.first()).cloned();
        let Some(next) = next else { break };
        left.remove(&next);
        ordered.push(next);
    }
    ordered
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

    /// What a subject asks for.
    pub fn reason(&self, subject: &Subject) -> Option<&Reason> {
        self.reasons.iter().find(|reason| reason.subject == *subject)
    }
}
