//! A root without OSTree: everything is made at once, by the same converge.

use anyhow::Result;
use fn_error_context::context;

use super::content::OnDisk;
use super::ground::{Ground as _, Plain};
use super::layering::refused;
use super::live::{Done, Run, actions_of, refuse_problems};
use super::propose::Proposal;
use super::{ConfigRequest, ForgetRequest, check, recover, store};
use crate::error::Fault;
use crate::host::converge::{Converge, Record, Root, RootLock, Stand, lock, preflight, read_record};
use crate::host::durable;
use crate::host::layer::{OnRoot, compose_for_root};
use crate::host::policies::policies;
use crate::host::{RecordsFolder, new_id, now};
use crate::model::applied::{APPLIED_VERSION, Applied, ETC_RECORD, VAR_RECORD};
use crate::model::event::{Event, EventSink};
use crate::model::live::{LIVE_VERSION, Live, LiveState};
use crate::model::manifest::Manifest;
use crate::pipeline::Until;
use crate::plan::apply::means_the_same;
use crate::plan::config::Changes;
use crate::plan::{Plan, Step};

/// A root without OSTree, and whether it is the running one.
#[derive(Debug)]
pub struct PlainRoot {
    /// The root.
    pub root: Root,
    /// Its services run: they are told of changes.
    pub runs: bool,
}

/// How a request to a root ended.
#[derive(Debug)]
pub enum RootOutcome {
    /// It is just that already.
    NothingToDo,
    /// `--dry-run`.
    Planned(Plan),
    /// Done.
    Applied(Box<Done>),
}

/// How forgetting ended.
#[derive(Debug)]
pub enum RootForgotten {
    /// Nothing was managed.
    Nothing,
    /// What was there before is back.
    Removed(Box<Done>),
    /// What is there stays.
    Kept,
}

/// What is there, and what is wanted.
struct Compared {
    before: Applied,
    manifest: Manifest,
    contents: std::collections::BTreeMap<crate::model::digest::Digest, crate::model::config::Blob>,
}

/// Makes a root what the request says.
#[context("Configuring the root")]
pub fn apply_to_root(
    place: &PlainRoot,
    request: &ConfigRequest,
    sink: &dyn EventSink,
) -> Result<RootOutcome> {
    check::no_boot_parts(request)?;
    let only_look = request.until == Until::Planned;
    let _lock = hold(place, request, only_look)?;
    let records = RecordsFolder::of_root(place.root.dir())?;
    let ground = Plain { root: &place.root, runs: place.runs, records: &records };
    recover::continue_live_on(&ground, records.live()?, sink, only_look)?;
    let compared = compare(place, request, sink)?;
    if means_the_same(&compared.before.manifest, &compared.manifest) {
        if !only_look {
            // A run that was cut short, and that this one may have ended, has not come to that.
            store::prune(&place.root, &[&compared.before.manifest])?;
        }
        return Ok(RootOutcome::NothingToDo);
    }
    let proposal = propose_compared(place, &compared)?;
    if only_look {
        return Ok(RootOutcome::Planned(plan(place, request, &proposal)));
    }
    store::add(&place.root, &compared.contents)?;
    let to = Applied { version: APPLIED_VERSION, manifest: compared.manifest.clone(), ..Applied::default() };
    let scopes = ground.scopes();
    let converge = Converge { to: &to, known: &[&compared.before.manifest], scopes, now: now() };
    refuse_problems(&preflight(&place.root, &converge)?)?;
    let live = Live {
        version: LIVE_VERSION,
        id: new_id("root"),
        state: LiveState::Converging,
        deployment: None,
        back: compared.before.clone(),
        to,
        actions: if place.runs { actions_of(&proposal.verdict) } else { Vec::new() },
        next: None,
        who: request.who.clone(),
        when: now(),
        extra: serde_json::Map::new(),
    };
    ground.write_live(&live)?;
    let done = Run { ground: &ground, sink }.forward(live)?;
    store::prune(&place.root, &[&compared.manifest])?;
    Ok(RootOutcome::Applied(Box::new(done)))
}

/// What a request would change.
pub fn propose_for_root(
    place: &PlainRoot,
    request: &ConfigRequest,
    sink: &dyn EventSink,
) -> Result<Proposal> {
    check::no_boot_parts(request)?;
    propose_compared(place, &compare(place, request, sink)?)
}

fn hold(place: &PlainRoot, request: &ConfigRequest, only_look: bool) -> Result<Option<RootLock>> {
    if only_look { Ok(None) } else { lock(&place.root, request.wait).map(Some) }
}

fn compare(place: &PlainRoot, request: &ConfigRequest, sink: &dyn EventSink) -> Result<Compared> {
    let before = match read_record(&place.root, Record::Etc)? {
        Stand::Known(applied) => *applied,
        Stand::Missing => Applied::default(),
        Stand::Damaged(why) => {
            return Err(Fault::refused("it cannot be known what is managed on this root")
                .why(format!("its record etc/mcd/applied.json is damaged: {why}"))
                .next("if nothing of it is to be kept, remove that file and run the same command again")
                .into());
        }
    };
    check::disks(request, before.manifest.disks.as_ref(), sink)?;
    let mut originals = before.originals.clone();
    if let Stand::Known(var) = read_record(&place.root, Record::Var)? {
        originals.extend(var.originals);
    }
    let on_root =
        OnRoot { manifest: &before.manifest, originals: &originals, carries: !request.drops_others };
    let (manifest, contents, warnings) =
        compose_for_root(place.root.dir(), Some(&request.config), &request.source, on_root)
            .map_err(refused)?;
    for message in warnings {
        sink.event(Event::Warning { message });
    }
    Ok(Compared { before, manifest, contents })
}

fn propose_compared(place: &PlainRoot, compared: &Compared) -> Result<Proposal> {
    let again = |root: &Root| -> Result<Root> { Ok(Root::new(root.dir().try_clone()?)) };
    let disk = OnDisk::plain(again(&place.root)?, store::contents(&place.root)?, &compared.contents);
    let found = |entry: &_| disk.found(entry);
    let mut changes = Changes::between(&compared.before.manifest, &compared.manifest, &found);
    changes.usr_is_writable = true;
    let verdict = disk.verdict(&changes, &policies(place.root.dir())?);
    Ok(Proposal { changes, verdict, way: None, is_estimate: false, versions: disk })
}

fn plan(place: &PlainRoot, request: &ConfigRequest, proposal: &Proposal) -> Plan {
    let names = request.config.names.clone();
    let mut steps = vec![Step::Configure { names, changes: proposal.changed_paths(), live: true }];
    if place.runs {
        let actions = actions_of(&proposal.verdict).into_iter();
        steps.extend(actions.map(|action| Step::Act { action: action.to_string() }));
    }
    Plan { steps, checks: Vec::new() }
}

/// Stops managing a root: its records and stored contents go, and what is there stays, or what was there
/// before comes back.
pub fn forget_root(
    place: &PlainRoot,
    request: &ForgetRequest,
    sink: &dyn EventSink,
) -> Result<RootForgotten> {
    if !request.keep {
        return Ok(match apply_to_root(place, &super::forget::nothing(request), sink)? {
            RootOutcome::Applied(done) => RootForgotten::Removed(done),
            RootOutcome::NothingToDo | RootOutcome::Planned(_) => RootForgotten::Nothing,
        });
    }
    let _lock = lock(&place.root, request.wait)?;
    let records = RecordsFolder::of_root(place.root.dir())?;
    let ground = Plain { root: &place.root, runs: place.runs, records: &records };
    recover::continue_live_on(&ground, records.live()?, sink, false)?;
    if matches!(read_record(&place.root, Record::Etc)?, Stand::Missing) {
        return Ok(RootForgotten::Nothing);
    }
    for record in [VAR_RECORD, ETC_RECORD] {
        let (folder, name) = record.rsplit_once('/').unwrap_or(("", record));
        if let Ok(folder) = place.root.dir().open_dir(folder) {
            durable::remove(&folder, name)?;
        }
    }
    store::prune(&place.root, &[])?;
    Ok(RootForgotten::Kept)
}
