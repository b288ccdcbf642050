//! `pivot`: from a request to a prepared or committed change.

use anyhow::Result;

use super::Session;
use super::acquire::{self, PullSettings, Source};
use super::commit::{check_before_commit, commit, refuse_failed_before};
use super::config::{self, Done};
use crate::error::Fault;
use crate::host::{Wait, history_entry};
use crate::model::digest::Digest;
use crate::model::event::Event;
use crate::model::image_ref::OsImage;
use crate::model::kargs::{KargEdit, KernelArguments};
use crate::model::records::{HistoryOutcome, Intent};
use crate::model::status::{DeploymentName, HostStatus};
use crate::plan::{self, Decision, Deploy, Desired, Plan, Step, preflight};

/// How far a change goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Only say what would be done.
    Planned,
    /// Everything is on disk, nothing is switched.
    Prepared,
    /// Switched.
    Committed,
}

/// A request to move to an image, or to change kernel arguments.
#[derive(Debug, Clone)]
pub struct PivotRequest {
    /// The image; none keeps the one that the next boot starts.
    pub image: Option<OsImage>,
    /// Changes of kernel arguments.
    pub kargs: Vec<KargEdit>,
    /// How far to go.
    pub until: Until,
    /// Whether the caller will ask for a reboot: an interrupted change then does so as well.
    pub reboot: bool,
    /// Wait for whoever holds the host lock.
    pub wait: bool,
    /// How to fetch.
    pub pull: PullSettings,
    /// The digest of the host API request that this run carries out.
    pub request_digest: Option<Digest>,
    /// Who asks, for the history: the verb as typed.
    pub who: String,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The next boot starts just that already.
    NothingToDo(DeploymentName),
    /// `--dry-run`.
    Planned(Plan),
    /// Prepared under this id.
    Prepared(Box<Intent>),
    /// The next boot starts this.
    Committed {
        /// The image, or what changed of it, for people.
        image: String,
        /// The deployment.
        name: DeploymentName,
        /// It is finalised at shutdown.
        staged: bool,
    },
    /// Made on the running system.
    Applied(Box<Done>),
    /// Something else would have booted; now what runs stays.
    ReturnedToBooted(DeploymentName),
}

/// Moves the host to an image and arguments, as far as `request.until` says.
pub fn pivot(session: &Session, request: &PivotRequest) -> Result<Outcome> {
    config::continue_live(session, request.wait, request.until == Until::Planned)?;
    let host = session.host.status()?;
    let mut desired = Desired { image: request.image.clone(), resolved: None, kargs: request.kargs.clone() };
    let mut decision = decide(&desired, &host)?;
    let mut source = None;
    if let Some(image) = &request.image
        && matches!(decision, Decision::Resolve | Decision::Deploy(_))
    {
        let found = acquire::find(session, image, &request.pull)?;
        desired.resolved = Some(found.digest().clone());
        decision = decide(&desired, &host)?;
        source = Some(found);
    }
    if let Decision::ReturnToBooted { .. } = decision
        && !config::Observed::look(&session.host)?.has_same_config()
    {
        // The image runs, but what is configured waits for the next boot with another one.
        decision = keep_config(&desired, &host)?;
        if let Some(image) = &request.image {
            source = Some(acquire::find(session, image, &request.pull)?);
        }
    }
    let plan = describe(session, &decision, &host, source.as_ref(), request.reboot)?;
    if request.until == Until::Planned {
        return Ok(match decision {
            Decision::NothingToDo => nothing_to_do(&host)?,
            _ => Outcome::Planned(plan),
        });
    }
    match decision {
        Decision::NothingToDo => nothing_to_do(&host),
        Decision::ReturnToBooted { booted, .. } => {
            let locked = session.host.lock(wait(session, request.wait))?;
            locked.return_to_booted(&request.who)?;
            Ok(Outcome::ReturnedToBooted(booted))
        }
        Decision::Deploy(deploy) => {
            acquire::refuse_failed("the change", &plan.checks)?;
            announce(session, &plan);
            carry_out(session, request, deploy, source)
        }
        Decision::Resolve => Err(Fault::failed("the image's digest stayed unknown").into()),
    }
}

fn decide(desired: &Desired, host: &HostStatus) -> Result<Decision> {
    match plan::decide(desired, host) {
        Ok(Some(decision)) => Ok(decision),
        Ok(None) => Err(no_deployment(host).into()),
        Err(invalid) => Err(Fault::usage(invalid.to_string()).into()),
    }
}

/// The wanted image as a deployment of its own.
fn keep_config(desired: &Desired, host: &HostStatus) -> Result<Decision> {
    let next = host.next_boot().ok_or_else(|| no_deployment(host))?;
    let arguments = KernelArguments::parse(&next.kernel_arguments).apply(&desired.kargs);
    Ok(Decision::Deploy(Deploy {
        image: desired.image.clone(),
        digest: desired.resolved.clone(),
        kernel_arguments: arguments.map_err(Fault::from)?,
        base: next.name.clone(),
    }))
}

pub(super) fn no_deployment(host: &HostStatus) -> Fault {
    Fault::refused(format!("sysroot {} has no deployment", host.sysroot))
        .why("there is no kernel command line and no /etc to carry over")
        .next("install a first deployment with `ostree admin deploy --karg=root=…`")
}

pub(super) fn nothing_to_do(host: &HostStatus) -> Result<Outcome> {
    match host.next_boot() {
        Some(next) => Ok(Outcome::NothingToDo(next.name.clone())),
        None => Err(no_deployment(host).into()),
    }
}

pub(super) fn wait(session: &Session, may_wait: bool) -> Wait<'_> {
    if may_wait { Wait::Telling(session.sink.as_ref()) } else { Wait::No }
}

pub(super) fn announce(session: &Session, plan: &Plan) {
    for step in plan.steps.iter().filter(|step| !matches!(step, Step::Reboot { .. })) {
        session.sink.event(Event::Step { what: step.to_string() });
    }
}

/// What a decision means in steps, for the plan that people see.
fn describe(
    session: &Session,
    decision: &Decision,
    host: &HostStatus,
    source: Option<&Source>,
    reboot: bool,
) -> Result<Plan> {
    let mut plan = Plan { steps: Vec::new(), checks: Vec::new() };
    match decision {
        Decision::NothingToDo | Decision::Resolve => return Ok(plan),
        Decision::ReturnToBooted { booted, dropped } => {
            plan.steps.push(Step::ReturnToBooted { booted: booted.clone(), dropped: dropped.clone() });
        }
        Decision::Deploy(deploy) => {
            if let Some(source) = source {
                plan.steps.extend(source.step());
                plan.checks.extend_from_slice(source.checks());
            }
            plan.checks.push(preflight::command_line(&deploy.kernel_arguments.to_string()));
            plan.steps.push(deploy_step(session, deploy, host)?);
        }
    }
    if host.booted().is_some() {
        plan.steps.push(Step::Reboot { asked: reboot });
    }
    Ok(plan)
}

fn deploy_step(session: &Session, deploy: &Deploy, host: &HostStatus) -> Result<Step> {
    let before =
        host.next_boot().map(|next| KernelArguments::parse(&next.kernel_arguments)).unwrap_or_default();
    Ok(Step::Deploy {
        image: deploy.image.clone(),
        kernel_arguments: deploy.kernel_arguments.to_string(),
        arguments_added: before.missing_from(&deploy.kernel_arguments),
        arguments_removed: deploy.kernel_arguments.missing_from(&before),
        staged: host.booted().is_some(),
        removes: session.host.removed_by_a_new_deployment()?,
    })
}

/// Import, second gate, prepare, and commit if that is asked for.
fn carry_out(
    session: &Session,
    request: &PivotRequest,
    deploy: Deploy,
    source: Option<Source>,
) -> Result<Outcome> {
    let pulled = source.map(|source| acquire::obtain(session, source)).transpose()?;
    session.stop_if_asked()?;
    let observed = config::Observed::look(&session.host)?;
    let next = &observed.next;
    let (image_commit, digest, asked_digest) = match pulled {
        Some(pulled) => (pulled.commit, Some(pulled.digest), pulled.asked_digest),
        None => {
            let (digest, asked) = (next.status.digest.clone(), next.status.asked_digest.clone());
            (next.configured.image_commit.clone(), digest, asked)
        }
    };
    let kept_image = if deploy.image.is_none() { next.status.image.clone() } else { None };
    let layered = config::carried(session, &observed, &image_commit)?;
    let commit_id = layered.as_ref().map_or(&image_commit, |(layered, _)| &layered.commit).clone();
    refuse_failed_before(session, &commit_id, &deploy.kernel_arguments.to_string())?;
    check_before_commit(session, &commit_id)?;
    let locked = session.host.lock(wait(session, request.wait))?;
    if observed.next.status.name != deploy.base {
        return Err(config::changed_meanwhile().into());
    }
    observed.confirm(&locked)?;
    if layered.is_some() {
        locked.keep_derived(&commit_id, &image_commit)?;
    }
    let intent = Intent {
        asked: deploy.image,
        digest,
        asked_digest,
        image_commit,
        kernel_arguments: deploy.kernel_arguments.to_string(),
        request_digest: request.request_digest.clone(),
        reboot: request.reboot,
        kept_image,
        ..next.intent(locked.new_id(), commit_id, &request.who)
    };
    locked.prepare(&intent)?;
    if request.until == Until::Prepared {
        locked.append_history(history_entry(&intent, HistoryOutcome::Prepared, None))?;
        return Ok(Outcome::Prepared(Box::new(intent)));
    }
    commit(session, &locked, intent)
}
