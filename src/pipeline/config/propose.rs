//! What a request would change, for those who only want to know.

use anyhow::Result;

use super::ConfigRequest;
use super::content::OnDisk;
use super::live::actions_of;
use super::want::{Wanted, changed_paths};
use crate::pipeline::Session;
use crate::plan::apply::Way;
use crate::plan::config::Changes;
use crate::plan::disruption::Verdict;
use crate::plan::{Plan, Step, preflight};

/// What a request would change, what that asks for, and where the contents are read.
#[derive(Debug)]
pub struct Proposal {
    /// What differs from what runs where the change would be live, else from the next boot.
    pub changes: Changes,
    /// What the changes ask for.
    pub verdict: Verdict,
    /// How it would be made; none for a root without OSTree, where everything is made at once.
    pub way: Option<Way>,
    /// The image is not fetched: files were compared on the one that is there.
    pub is_estimate: bool,
    /// The bytes behind the changes.
    pub versions: OnDisk,
}

/// Works out what a request would change. What it makes in the repo is gone with the next cleanup.
pub fn propose(session: &Session, request: &ConfigRequest) -> Result<Proposal> {
    super::recover::continue_live(session, request.wait, true)?;
    let wanted = Wanted::work_out(session, request)?;
    Ok(Proposal {
        versions: OnDisk::of(session, wanted.side())?,
        is_estimate: wanted.image.missing.is_some(),
        changes: wanted.changes,
        verdict: wanted.verdict,
        way: Some(wanted.way),
    })
}

impl Proposal {
    /// How many paths change on disk.
    pub fn changed_paths(&self) -> usize {
        changed_paths(&self.changes)
    }
}

/// The steps of a request.
pub(super) fn plan(session: &Session, request: &ConfigRequest, wanted: &Wanted<'_>) -> Result<Plan> {
    let mut plan = Plan { steps: Vec::new(), checks: Vec::new() };
    let configure = |live| Step::Configure {
        names: request.config.names.clone(),
        changes: changed_paths(&wanted.changes),
        live,
    };
    let next = &wanted.observed.next;
    match wanted.way {
        Way::NothingToDo => {}
        Way::ReturnToBooted => {
            let booted = wanted.side().status.name.clone();
            plan.steps.push(Step::ReturnToBooted { booted, dropped: next.status.name.clone() });
        }
        Way::Live(_) => {
            plan.steps.push(configure(true));
            let actions = actions_of(&wanted.verdict).into_iter();
            plan.steps.extend(actions.map(|action| Step::Act { action: action.to_string() }));
        }
        Way::Deploy => {
            if let Some(source) = &wanted.image.missing {
                plan.steps.extend(source.step());
                plan.checks.extend_from_slice(source.checks());
            }
            plan.checks.push(preflight::command_line(&wanted.kernel_arguments.to_string()));
            plan.steps.push(configure(false));
            plan.steps.push(Step::Deploy {
                image: wanted.image.asked.clone(),
                kernel_arguments: wanted.kernel_arguments.to_string(),
                arguments_added: next.kernel_arguments.missing_from(&wanted.kernel_arguments),
                arguments_removed: wanted.kernel_arguments.missing_from(&next.kernel_arguments),
                staged: wanted.observed.running.is_some(),
                removes: session.host.removed_by_a_new_deployment()?,
            });
            if wanted.observed.running.is_some() {
                plan.steps.push(Step::Reboot { asked: request.reboot });
            }
        }
    }
    Ok(plan)
}
