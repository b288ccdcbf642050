//! `mcd diff`.

use std::sync::Arc;

use anyhow::Result;

use super::apply::load;
use super::place::{self, Opened};
use crate::commands::{Ended, open};
use crate::interrupt::Interrupt;
use crate::model::event::{EventSink, Silent};
use crate::model::manifest::Source;
use crate::options::config::DiffOptions;
use crate::pipeline::config::{ConfigRequest, propose, propose_for_root};
use crate::pipeline::{PullSettings, Session, Until};
use crate::ui::Printer;
use crate::ui::diff::DiffView;

/// Shows what an apply would change.
pub(super) fn run(options: &DiffOptions, printer: &Printer) -> Result<Ended> {
    let opened = place::open(&options.place)?;
    let interrupt = Interrupt::listen()?;
    let sink: Arc<dyn EventSink> = Arc::new(Silent);
    let request = ConfigRequest {
        config: load(&options.files, &interrupt, sink.as_ref())?,
        source: Source::MachineConfig,
        drops_others: false,
        until: Until::Planned,
        reboot: false,
        wait: true,
        pull: PullSettings::default(),
        who: open::who("diff"),
    };
    let proposal = interrupt.explain(match opened {
        Opened::Root(root) => propose_for_root(&root, &request, sink.as_ref()),
        Opened::Host(host) => {
            Session::new(host, sink, interrupt.clone()).and_then(|session| propose(&session, &request))
        }
    })?;
    let mut view =
        DiffView::new(&proposal.changes, &proposal.verdict, &proposal.versions, options.show_secrets)?;
    if proposal.is_estimate {
        view.notices
            .push("the image is not fetched yet: files are compared with the one that is there".to_owned());
    }
    printer.diff(&view)?;
    Ok(if proposal.changes.is_empty() { Ended::Done } else { Ended::Differs })
}
