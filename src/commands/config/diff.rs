//! `mcd diff`.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::apply::load;
use super::place::{self, Opened};
use crate::commands::{Ended, open, pull};
use crate::interrupt::Interrupt;
use crate::model::config::Config;
use crate::model::event::{Event, EventSink};
use crate::options::FetchOptions;
use crate::options::config::DiffOptions;
use crate::pipeline::config::{ConfigRequest, Proposal, propose, propose_for_root};
use crate::pipeline::{Session, Until};
use crate::plan::apply::Way;
use crate::ui::Printer;
use crate::ui::diff::DiffView;

/// Shows what an apply would change.
pub(super) fn run(options: &DiffOptions, printer: &Printer) -> Result<Ended> {
    let opened = place::open(&options.place)?;
    let interrupt = Interrupt::listen()?;
    let heard = Arc::new(Heard::default());
    let config = load(&options.files, &interrupt, heard.as_ref())?;
    let (proposal, place) = interrupt.explain(match opened {
        Opened::Root(root) => propose_for_root(&root, &request(config), heard.as_ref())
            .map(|proposal| (proposal, if root.runs { Runs::Here } else { Runs::Not })),
        Opened::Host(host) => {
            let runs = if host.is_booted() { Runs::Here } else { Runs::Not };
            let session = Session::new(host, heard.clone(), interrupt.clone())?;
            propose(&session, &request(config)).map(|proposal| (proposal, runs))
        }
    })?;
    let mut view =
        DiffView::new(&proposal.changes, &proposal.verdict, &proposal.versions, options.show_secrets)?;
    view.notices = heard.warnings();
    view.notices.extend(notice(&proposal, place));
    printer.diff(&view)?;
    Ok(if proposal.changes.is_empty() { Ended::Done } else { Ended::Differs })
}

/// Whether the host runs, so that actions mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Here,
    Not,
}

/// What a reader of the page must know of how it would be made.
fn notice(proposal: &Proposal, runs: Runs) -> Vec<String> {
    let mut notices = Vec::new();
    if proposal.is_estimate {
        notices.push(
            "the image is not on this host yet: files are compared with those of the one that is there, \
             and the image itself may change more; after `mcd pull` this is exact"
                .to_owned(),
        );
    }
    let is_quiet = proposal.changes.is_empty() || proposal.verdict.needs_reboot();
    match (proposal.way, runs) {
        (Some(Way::ReturnToBooted), _) => notices.push(
            "what runs is just that: what would have booted next is dropped, and nothing is made".to_owned(),
        ),
        (_, Runs::Not) if !proposal.verdict.actions.is_empty() => {
            notices
                .push("the host does not run: it needs no action, its next start has everything".to_owned());
        }
        (Some(Way::Deploy), Runs::Here) if !is_quiet => notices.push(
            "what would boot next is another system than the one that runs: the change goes there, \
             and needs a reboot"
                .to_owned(),
        ),
        _ => {}
    }
    notices
}

fn request(config: Config) -> ConfigRequest {
    ConfigRequest {
        config,
        source: Default::default(),
        drops_others: false,
        until: Until::Planned,
        reboot: false,
        wait: true,
        pull: pull::settings(FetchOptions::default()),
        request_digest: None,
        who: open::who("diff"),
    }
}

/// Keeps warnings for the end of the page: stdout is one document, and nothing else happens.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventSink for Heard {
    fn event(&self, event: Event) {
        if let Event::Warning { message } = event {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
    }
}
