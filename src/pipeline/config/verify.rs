//! `mcd verify`: is the machine what it was told to be? And `--repair`: make it that again.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::content::root_of;
use super::ground::{Deployed, Ground, Plain};
use super::live::{actions_of, record};
use super::observe::{Observed, Side};
use super::root::PlainRoot;
use super::{carry, recover};
use crate::error::Fault;
use crate::host::converge::{
    Converge, Converged, Difference, Record, Stand, converge, differences, read_record,
};
use crate::host::policies::policies;
use crate::host::{HostLocked, RecordsFolder, ToldBy, actions, now};
use crate::model::applied::Applied;
use crate::model::event::{Event, EventSink};
use crate::model::kargs::KernelArguments;
use crate::model::live::LIVE;
use crate::model::manifest::{Manifest, Scope};
use crate::model::records::{DIRECTORY, Intent};
use crate::pipeline::change::wait;
use crate::pipeline::commit::{check_before_commit, commit};
use crate::pipeline::{Outcome, Session};
use crate::plan::config::Changes;
use crate::plan::disruption::judge;
use crate::plan::drift::TOLD_MAX;

/// What the kernel was started with.
const COMMAND_LINE: &str = "proc/cmdline";

/// What a verification found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Whether anything is managed at all.
    pub managed: bool,
    /// The MachineConfigs that were compared with.
    pub names: Vec<String>,
    /// Files, units, keys and passwords that are not as they must be.
    pub differences: Vec<Difference>,
    /// The same, where that is no fault: the first boot of a new deployment lays it down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Difference>,
    /// Image and kernel arguments that are not.
    pub host: Vec<HostDifference>,
    /// What a repair changed.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<Repaired>,
}

/// Something of the host itself that is not as it was told to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDifference {
    /// What.
    pub what: HostPart,
    /// As it must be.
    pub expected: String,
    /// As it is.
    pub found: String,
}

/// Parts of a host that are not files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostPart {
    /// The image.
    Image,
    /// A kernel argument, in the boot entry.
    KernelArgument,
    /// A kernel argument that the boot entry has, and the running kernel does not.
    RunningKernelArgument,
    /// A live apply that was cut, or is under way.
    LiveApply,
}

/// What a repair did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Repaired {
    /// Paths that were put right.
    pub converged: Converged,
    /// A deployment was made for what only a boot can change.
    pub deployed: bool,
}

impl Verified {
    /// Whether everything is as it must be, or will be with the next boot.
    pub fn is_fine(&self) -> bool {
        let deployed = self.repaired.as_ref().is_some_and(|repaired| repaired.deployed);
        self.differences.is_empty() && (self.host.is_empty() || deployed)
    }

    /// What differs in words, at most [`TOLD_MAX`]: paths and what is not as it must be, never contents.
    pub fn told(&self) -> Vec<String> {
        let files =
            self.differences.iter().map(|one| format!("{}: {}, not {}", one.path, one.found, one.expected));
        let host = self.host.iter().map(|one| {
            let what = serde_json::to_value(one.what).ok();
            let what = what.as_ref().and_then(|what| what.as_str()).unwrap_or("host").to_owned();
            format!("{what}: {}, not {}", one.found, one.expected)
        });
        files.chain(host).take(TOLD_MAX).collect()
    }
}

/// Compares what runs, else what the next boot would start, with what belongs there.
pub fn verify(session: &Session) -> Result<Verified> {
    recover::continue_live(session, false, true)?;
    let observed = Observed::look(&session.host)?;
    look(session, &observed)
}

/// The same, and puts right what differs.
pub fn repair(session: &Session, may_wait: bool, who: &str) -> Result<Verified> {
    recover::continue_live(session, may_wait, false)?;
    let observed = Observed::look(&session.host)?;
    let found = look(session, &observed)?;
    if found.is_fine() {
        return Ok(found);
    }
    let side = side(&observed);
    let mut repaired = Repaired::default();
    {
        let locked = session.host.lock(wait(session, may_wait))?;
        observed.confirm(&locked)?;
        repaired.converged = lay_down(session, &locked, side)?;
    }
    let mut left = look(session, &observed)?;
    let is_usr = |difference: &&Difference| Scope::of(&difference.path) == Some(Scope::Usr);
    let stranger = side.configured.told_by == ToldBy::Stranger;
    let lacks_usr = stranger && left.differences.iter().any(|one| is_usr(&one));
    let lacks_argument = left.host.iter().any(|one| one.what == HostPart::KernelArgument);
    if lacks_usr || lacks_argument {
        deploy(session, &observed, may_wait, who)?;
        repaired.deployed = true;
        left.differences.retain(|one| !(stranger && is_usr(&one)));
    }
    left.repaired = Some(repaired);
    Ok(left)
}

fn side(observed: &Observed) -> &Side {
    observed.running.as_ref().unwrap_or(&observed.next)
}

fn look(session: &Session, observed: &Observed) -> Result<Verified> {
    let side = side(observed);
    if !side.configured.is_managed() {
        return Ok(Verified::default());
    }
    let manifest = &side.configured.carried;
    let all = if side.status.staged {
        Vec::new()
    } else {
        differences(&root_of(&session.host, side)?, manifest, &Scope::ALL)?
    };
    // Nothing was laid down on it so far: its commit tells what belongs there, not a record.
    let is_new = !side.status.booted && side.configured.told_by == ToldBy::Commit;
    let (pending, differences) =
        all.into_iter().partition(|one| is_new && Scope::of(&one.path) != Some(Scope::Usr));
    Ok(Verified {
        managed: true,
        names: manifest.names.clone(),
        differences,
        pending,
        host: host_differences(session, observed, side)?,
        repaired: None,
    })
}

fn host_differences(session: &Session, observed: &Observed, side: &Side) -> Result<Vec<HostDifference>> {
    let mut found = Vec::new();
    let wanted = &side.configured.carried.kernel_arguments;
    let missing = |arguments: &KernelArguments, what: HostPart| {
        let (have, want) = (arguments, KernelArguments::parse(&wanted.join(" ")));
        let missing = have.missing_from(&want).into_iter();
        missing.map(move |argument| HostDifference { what, expected: argument, found: "missing".to_owned() })
    };
    found.extend(missing(&side.kernel_arguments, HostPart::KernelArgument));
    if side.status.booted && found.is_empty() {
        let running = session.host.running_root()?.read_to_string(COMMAND_LINE)?;
        found.extend(missing(&KernelArguments::parse(running.trim()), HostPart::RunningKernelArgument));
    }
    if session.host.live()?.is_some() {
        found.push(cut_live());
    }
    if let Some(difference) = image_difference(session, observed, side)? {
        found.push(difference);
    }
    Ok(found)
}

fn cut_live() -> HostDifference {
    HostDifference {
        what: HostPart::LiveApply,
        expected: "ended".to_owned(),
        found: "cut, or under way".to_owned(),
    }
}

/// Another tool's deployment may be of another image than the one that was asked for here.
fn image_difference(session: &Session, observed: &Observed, side: &Side) -> Result<Option<HostDifference>> {
    if side.configured.told_by != ToldBy::Stranger {
        return Ok(None);
    }
    let told = side.configured.commit.as_deref();
    let expected = match told {
        Some(commit) => session.host.image_of_commit(commit)?,
        None => None,
    };
    let found = observed.next.status.digest.as_ref().map(ToString::to_string);
    let differs = expected.is_some() && expected != found;
    Ok(differs.then(|| HostDifference {
        what: HostPart::Image,
        expected: expected.unwrap_or_default(),
        found: found.unwrap_or_else(|| side.status.name.checksum.clone()),
    }))
}

/// Puts files right, and tells the services of what changed.
fn lay_down(session: &Session, locked: &HostLocked<'_>, side: &Side) -> Result<Converged> {
    if side.status.staged {
        return Ok(Converged::default());
    }
    let ground = Deployed { locked, root: root_of(&session.host, side)? };
    // With what a stranger lacks below /usr: the record must not forget it.
    let to = record(side, &side.configured.carried, side.configured.commit.as_deref());
    let policy_root = session.host.deployment_root(&side.status)?;
    mend(&ground, &to, &policy_root, side.status.booted, session.sink.as_ref())
}

fn mend(
    ground: &dyn Ground,
    to: &Applied,
    policy_root: &cap_std_ext::cap_std::fs::Dir,
    runs: bool,
    sink: &dyn EventSink,
) -> Result<Converged> {
    let request = Converge { to, known: &[], scopes: ground.scopes(), now: now() };
    let converged = converge(ground.root(), ground.contents()?.as_ref(), &request)?;
    if !runs || converged.changed.is_empty() {
        return Ok(converged);
    }
    // As if what was put right had not been there: that is what the services must be told.
    let mut before = to.manifest.clone();
    before.entries.retain(|entry| !converged.changed.iter().any(|one| one.path == entry.path));
    let changes = Changes::between(&before, &to.manifest, &|_| None);
    let verdict = judge(&changes, &policies(policy_root)?, None);
    if verdict.needs_reboot() {
        let message = "some of what was put right takes effect with a reboot".to_owned();
        sink.event(Event::Note { message });
    }
    for action in actions_of(&verdict) {
        actions::run(&action, sink)?;
    }
    Ok(converged)
}

/// Makes a deployment with all that is managed, and the arguments that belong to it.
fn deploy(session: &Session, observed: &Observed, may_wait: bool, who: &str) -> Result<Outcome> {
    let next = &observed.next;
    let wanted = &next.configured.carried.kernel_arguments;
    let arguments = next.kernel_arguments.replace_managed(wanted, wanted).map_err(Fault::from)?;
    let Some((layered, _layering)) = carry::carried(session, observed, &next.configured.image_commit)? else {
        return Err(Fault::failed("nothing is managed on this host").into());
    };
    check_before_commit(session, &layered.commit)?;
    let locked = session.host.lock(wait(session, may_wait))?;
    locked.keep_derived(&layered.commit, &next.configured.image_commit)?;
    let intent = Intent {
        kernel_arguments: arguments.to_string(),
        config: Some(next.configured.carried.names.clone()),
        ..next.intent(locked.new_id(), layered.commit, who)
    };
    locked.prepare(&intent)?;
    commit(session, &locked, intent)
}

/// Compares a root without OSTree with its record; with `repair`, puts right what differs.
pub fn verify_root(
    place: &PlainRoot,
    repair: bool,
    may_wait: bool,
    sink: &dyn EventSink,
) -> Result<Verified> {
    let told = match read_record(&place.root, Record::Etc)? {
        Stand::Known(applied) => *applied,
        Stand::Missing => return Ok(Verified::default()),
        Stand::Damaged(why) => {
            return Err(Fault::failed("the record of this root is damaged")
                .why(format!("etc/mcd/applied.json: {why}"))
                .next("apply the configuration again once that file is removed")
                .into());
        }
    };
    let found = look_at_root(place, &told.manifest)?;
    if !repair || found.is_fine() {
        return Ok(found);
    }
    let _lock = crate::host::converge::lock(&place.root, may_wait)?;
    let records = RecordsFolder::of_root(place.root.dir())?;
    let ground = Plain { root: &place.root, runs: place.runs, records: &records };
    recover::continue_live_on(&ground, records.live()?, sink, false)?;
    // What was cut and is ended now may have written it anew.
    let told = match read_record(&place.root, Record::Etc)? {
        Stand::Known(applied) => *applied,
        Stand::Missing | Stand::Damaged(_) => told,
    };
    let converged = mend(&ground, &told, place.root.dir(), place.runs, sink)?;
    let mut left = look_at_root(place, &told.manifest)?;
    left.repaired = Some(Repaired { converged, deployed: false });
    Ok(left)
}

fn look_at_root(place: &PlainRoot, manifest: &Manifest) -> Result<Verified> {
    let is_cut = place.root.dir().exists(format!("var/{DIRECTORY}/{LIVE}"));
    Ok(Verified {
        managed: true,
        names: manifest.names.clone(),
        differences: differences(&place.root, manifest, &Scope::ALL)?,
        pending: Vec::new(),
        host: if is_cut { vec![cut_live()] } else { Vec::new() },
        repaired: None,
    })
}
