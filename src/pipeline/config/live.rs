//! The live apply: files on the running root, then reloads and restarts, then what the next boot starts.
//!
//! One record ([`Live`]) says how far it is; each stage can be done again from its beginning. What fails
//! turns the direction round; what is cut is continued in its direction by [`super::recover`].

use anyhow::Result;

use super::content::root_of;
use super::ground::{Deployed, Ground};
use super::next;
use super::observe::{Observed, Side};
use crate::error::{ExitKind, Fault};
use crate::host::converge::{Converge, Converged, Problem, converge, preflight};
use crate::host::{actions, history_of_live, now};
use crate::model::applied::{APPLIED_VERSION, Applied};
use crate::model::event::{Event, EventSink};
use crate::model::live::{LIVE_VERSION, Live, LiveAction, LiveState, NextBoot};
use crate::model::manifest::{Manifest, Scope};
use crate::model::policy::Action;
use crate::model::records::{HistoryOutcome, describe_config};
use crate::pipeline::Session;
use crate::pipeline::change::wait;
use crate::plan::disruption::Verdict;

/// The service that a change of registries.conf is for.
const CRIO: &str = "crio.service";
/// Problems that a refusal names before it only counts.
const NAMED: usize = 5;

/// A live apply, ready to be made.
#[derive(Debug)]
pub(super) struct Ready<'a> {
    /// What it was worked out on.
    pub(super) observed: &'a Observed,
    /// The derived commit with the contents.
    pub(super) commit: &'a str,
    pub(super) manifest: &'a Manifest,
    pub(super) actions: Vec<LiveAction>,
    pub(super) next: Option<NextBoot>,
    pub(super) who: &'a str,
    pub(super) wait: bool,
}

/// What a live apply did.
#[derive(Debug, Clone)]
pub struct Done {
    /// Its record as it ended.
    pub live: Live,
    /// What was laid down.
    pub converged: Converged,
}

/// Makes it.
pub(super) fn carry_out(session: &Session, ready: Ready<'_>) -> Result<Done> {
    let Some(running) = &ready.observed.running else {
        return Err(Fault::failed("nothing of this sysroot runs").into());
    };
    let root = root_of(&session.host, running)?;
    let to = record(running, ready.manifest, Some(ready.commit));
    // With what a stranger lacks: a record must not forget it.
    let back = record(running, &running.configured.carried, running.configured.commit.as_deref());
    refuse_problems(&preflight(
        &root,
        &Converge { to: &to, known: &[&back.manifest], scopes: &Scope::OF_DEPLOYMENT, now: now() },
    )?)?;
    session.stop_if_asked()?;
    let locked = session.host.lock(wait(session, ready.wait))?;
    ready.observed.confirm(&locked)?;
    let live = Live {
        version: LIVE_VERSION,
        id: locked.new_id(),
        state: LiveState::Converging,
        deployment: Some(running.status.name.clone()),
        back,
        to,
        actions: ready.actions,
        next: ready.next.map(|next| next::named(&locked, ready.observed, next)),
        who: ready.who.to_owned(),
        when: now(),
        extra: serde_json::Map::new(),
    };
    locked.keep_derived(ready.commit, &running.configured.image_commit)?;
    if let Some(next) = &live.next {
        next::keep(&locked, next)?;
    }
    locked.write_live(&live)?;
    let ground = Deployed { locked: &locked, root };
    Run { ground: &ground, sink: session.sink.as_ref() }.forward(live)
}

/// A live apply that goes on, with the lock of the place held.
pub(super) struct Run<'a> {
    pub(super) ground: &'a dyn Ground,
    pub(super) sink: &'a dyn EventSink,
}

impl Run<'_> {
    /// From wherever it is to its end. What fails on the way is undone.
    pub(super) fn forward(&self, mut live: Live) -> Result<Done> {
        let mut tried = 0;
        match self.stages(&mut live, &mut tried) {
            Ok(converged) => {
                self.note_done(&live);
                Ok(Done { live, converged })
            }
            Err(cause) => Err(self.back(live, tried, &cause)),
        }
    }

    fn stages(&self, live: &mut Live, tried: &mut usize) -> Result<Converged> {
        let converged = self.lay_down(&live.to, &live.back.manifest)?;
        if live.owes_actions() {
            self.note(live, LiveState::Acting);
            for action in live.actions.iter().filter(|_| self.ground.runs()) {
                *tried += 1;
                actions::run(action, self.sink)?;
            }
        }
        self.note(live, LiveState::Staging);
        self.ground.bring_forward(live)?;
        Ok(converged)
    }

    /// Back to what was there before, because of `cause`. Gives the error to end with.
    pub(super) fn back(&self, mut live: Live, tried: usize, cause: &anyhow::Error) -> anyhow::Error {
        let had_staged = live.state == LiveState::Staging;
        self.note(&mut live, LiveState::Undoing);
        let names = describe_config(&live.to.manifest.names);
        let undone = self.undo(&live, had_staged, tried);
        let why = Some(format!("{cause:#}"));
        let told = self.ground.append_history(history_of_live(&live, HistoryOutcome::Failed, why));
        if let Err(error) = told {
            self.warn(format!("the failure cannot be recorded: {error:#}"));
        }
        let fault = crate::error::to_fault(cause);
        // A converge that could not undo itself was undone here.
        let kind = if fault.kind == ExitKind::NotUndone { ExitKind::Failed } else { fault.kind };
        match undone {
            Ok(()) => Fault::new(kind, format!("{names} was not applied: {}", fault.what))
                .why(fault.why.unwrap_or_else(|| "see the journal".to_owned()))
                .next(fault.next.unwrap_or_else(|| "everything is as it was before; try again".to_owned()))
                .into(),
            Err(error) => Fault::new(
                ExitKind::NotUndone,
                format!("{names} is applied in part: {}", fault.what),
            )
            .why(format!("what was there before cannot be put back: {error:#}"))
            .next("mend what stands in the way; any `mcd apply`, or `mcd verify --repair`, goes on with it")
            .into(),
        }
    }

    fn undo(&self, live: &Live, had_staged: bool, tried: usize) -> Result<()> {
        self.lay_down(&live.back, &live.to.manifest)?;
        for action in live.actions.iter().take(tried) {
            if let Err(error) = actions::run(action, self.sink) {
                self.warn(format!("with the old files back: {error:#}"));
            }
        }
        if had_staged {
            self.ground.bring_back(live)?;
        }
        self.ground.clear_live()
    }

    /// Notes how far it is. Where that cannot be written, a run that finds the older state does more
    /// than it must, which is no harm; a full disk must not keep the old files from coming back.
    fn note(&self, live: &mut Live, state: LiveState) {
        live.state = state;
        if let Err(error) = self.ground.write_live(live) {
            self.warn(format!("the record of the live apply cannot be written: {error:#}"));
        }
    }

    fn lay_down(&self, to: &Applied, known: &Manifest) -> Result<Converged> {
        let request = Converge { to, known: &[known], scopes: self.ground.scopes(), now: now() };
        let converged = converge(self.ground.root(), self.ground.contents()?.as_ref(), &request)?;
        for message in &converged.warnings {
            self.warn(message.clone());
        }
        Ok(converged)
    }

    /// The records of what is done. What fails here is said, but does not undo it.
    fn note_done(&self, live: &Live) {
        let noted = self
            .ground
            .append_history(history_of_live(live, HistoryOutcome::Applied, None))
            .and_then(|()| self.ground.clear_live());
        if let Err(error) = noted {
            self.warn(format!("the change is made, but its records cannot be written: {error:#}"));
        }
    }

    fn warn(&self, message: String) {
        self.sink.event(Event::Warning { message });
    }
}

/// What a record of a deployment's root says.
pub(super) fn record(side: &Side, manifest: &Manifest, commit: Option<&str>) -> Applied {
    Applied {
        version: APPLIED_VERSION,
        deployment_id: side.status.id.clone(),
        deployment_commit: Some(side.status.name.checksum.clone()),
        commit: commit.map(str::to_owned),
        manifest: manifest.clone(),
        ..Applied::default()
    }
}

/// The calls of systemd that a verdict asks for. A drain is the caller's business, who knows of pods.
pub(super) fn actions_of(verdict: &Verdict) -> Vec<LiveAction> {
    let mut actions: Vec<LiveAction> = Vec::new();
    for action in &verdict.actions {
        let action = match action {
            Action::DaemonReload => LiveAction::DaemonReload,
            Action::Reload(unit) => LiveAction::Reload(unit.clone()),
            Action::Special => LiveAction::Reload(CRIO.to_owned()),
            Action::Restart(unit) => LiveAction::Restart(unit.clone()),
            Action::None | Action::Drain | Action::Reboot => continue,
        };
        if !actions.contains(&action) {
            actions.push(action);
        }
    }
    actions
}

/// Refuses what stands in the way, before anything is changed.
pub(super) fn refuse_problems(problems: &[Problem]) -> Result<(), Fault> {
    let Some(first) = problems.first() else { return Ok(()) };
    let mut named: Vec<String> =
        problems.iter().take(NAMED).map(|problem| format!("{}: {}", problem.path, problem.why)).collect();
    if problems.len() > NAMED {
        named.push(format!("and {} more", problems.len() - NAMED));
    }
    Err(Fault::refused("the configuration cannot be laid down; nothing was changed")
        .why(named.join("; "))
        .next(first.next.clone()))
}
