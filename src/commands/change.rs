//! How a change ended, for people and for programs: what `pivot`, `apply` and `forget` say last.

use serde::Serialize;

use crate::host::converge::{Change, SetAside};
use crate::model::records::describe_config;
use crate::model::status::DeploymentName;
use crate::pipeline::Outcome;
use crate::plan::{Plan, short_name};

/// The last JSON line.
#[derive(Debug, Default, Serialize)]
pub(super) struct Line {
    pub(super) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deployment: Option<DeploymentName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    staged: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
    /// What was changed on the running root.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Vec<Change>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<Vec<SetAside>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Vec<String>>,
}

impl Line {
    /// What a dry run says.
    pub(super) fn planned(plan: Plan) -> (Self, String) {
        let text = plan.to_string();
        (Self { plan: Some(plan), ..Self::of("planned") }, text)
    }

    /// A line of one word.
    pub(super) fn of(outcome: &'static str) -> Self {
        Self { outcome, ..Self::default() }
    }
}

/// What an outcome says. `verb` takes `--resume`.
pub(super) fn describe(outcome: &Outcome, verb: &str) -> (Line, String) {
    match outcome {
        Outcome::NothingToDo(name) => (
            Line { outcome: "nothing-to-do", deployment: Some(name.clone()), ..Line::default() },
            format!("nothing to do: the next boot starts {}, which is just that\n", short_name(name)),
        ),
        Outcome::Planned(plan) => Line::planned(plan.clone()),
        Outcome::Prepared(intent) => (
            Line { outcome: "prepared", id: Some(intent.id.clone()), ..Line::default() },
            if intent.live {
                format!("prepared: `mcd {verb} --resume={}` makes it on the running system\n", intent.id)
            } else {
                format!("prepared: `mcd {verb} --resume={}` switches to it, without network\n", intent.id)
            },
        ),
        Outcome::Committed { name, staged, .. } => {
            let line = Line {
                outcome: "committed",
                deployment: Some(name.clone()),
                staged: Some(*staged),
                ..Line::default()
            };
            let text = if *staged {
                format!(
                    "staged {}: it is finalised at shutdown, and the next boot starts it\n",
                    short_name(name)
                )
            } else {
                format!("deployed {}: the next boot starts it\n", short_name(name))
            };
            (line, text)
        }
        Outcome::Applied(done) => (
            Line {
                outcome: "applied",
                id: Some(done.live.id.clone()),
                deployment: done.live.deployment.clone(),
                changed: Some(done.converged.changed.clone()),
                set_aside: Some(done.converged.set_aside.clone()),
                actions: Some(done.live.actions.iter().map(ToString::to_string).collect()),
                ..Line::default()
            },
            describe_live(done),
        ),
        Outcome::ReturnedToBooted(name) => (
            Line { outcome: "returned-to-booted", deployment: Some(name.clone()), ..Line::default() },
            format!("the next boot starts {} again, which runs now\n", short_name(name)),
        ),
    }
}

fn describe_live(done: &crate::pipeline::config::Done) -> String {
    let mut text = String::new();
    for aside in &done.converged.set_aside {
        match &aside.copy {
            Some(copy) => text.push_str(&format!("{} was edited; the edit is kept as {copy}\n", aside.path)),
            None => text.push_str(&format!("{} was edited; the record keeps what it was\n", aside.path)),
        }
    }
    let names = describe_config(&done.live.to.manifest.names);
    let count = done.converged.changed.len();
    let changed = match count {
        0 => "nothing had to be changed".to_owned(),
        1 => "1 path changed".to_owned(),
        count => format!("{count} paths changed"),
    };
    text.push_str(&format!("{names} is applied, without a reboot: {changed}\n"));
    match &done.live.next {
        Some(next) if next.after.is_some() && next.staged => {
            text.push_str("what was staged is staged again with it\n");
        }
        Some(next) if next.after.is_some() => text.push_str(&format!(
            "what was prepared is prepared again with it: `mcd pivot --resume={}`\n",
            next.before.id
        )),
        Some(next) if next.staged => text.push_str("what was staged before is dropped\n"),
        Some(_) => text.push_str("what was prepared before is dropped\n"),
        None => {}
    }
    text
}
