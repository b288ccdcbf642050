//! `mcd forget`.

use anyhow::Result;

use super::apply::note_applied;
use super::place::{self, Opened};
use crate::commands::change::{Line, describe};
use crate::commands::{Ended, open};
use crate::interrupt::Interrupt;
use crate::logging;
use crate::options::Reboot;
use crate::options::config::ForgetOptions;
use crate::pipeline::config::{ForgetRequest, PlainRoot, RootForgotten, forget, forget_root};
use crate::pipeline::{Outcome, Session};
use crate::ui::{Printer, Progress};

pub(super) fn run(options: ForgetOptions, printer: &Printer) -> Result<Ended> {
    let opened = place::open(&options.place)?;
    let progress = printer.progress("forget");
    let interrupt = Interrupt::listen()?;
    match opened {
        Opened::Root(root) => on_root(&root, &options, &interrupt, progress.as_ref()),
        Opened::Host(host) => {
            let session = Session::new(host, progress.clone(), interrupt.clone())?;
            on_host(&session, &options, &interrupt, progress.as_ref())
        }
    }
    .inspect_err(|_| progress.finish())?;
    Ok(Ended::Done)
}

fn on_host(
    session: &Session,
    options: &ForgetOptions,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<()> {
    let wants_reboot = session.host.is_booted() && options.reboot != Reboot::Never;
    session.host.refuse_soft_reboot(options.reboot)?;
    let outcome = interrupt.explain(forget(session, &request(options, wants_reboot)))?;
    if let Outcome::Committed { image, name, .. } = &outcome {
        logging::committed(image, name, false);
    }
    if let Outcome::Applied(done) = &outcome {
        note_applied(done);
    }
    let (line, text) = describe(&outcome, "apply");
    progress.end(&line, || text);
    if wants_reboot && matches!(outcome, Outcome::Committed { .. }) {
        session.host.reboot(options.reboot, options.force, progress)?;
    }
    Ok(())
}

fn on_root(
    root: &PlainRoot,
    options: &ForgetOptions,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<()> {
    let (line, text) = match interrupt.explain(forget_root(root, &request(options, false), progress))? {
        RootForgotten::Removed(done) => describe(&Outcome::Applied(done), "apply"),
        RootForgotten::Nothing => {
            (Line::of("nothing-to-do"), "nothing to do: nothing is managed on this root\n".to_owned())
        }
        RootForgotten::Kept => (
            Line::of("released"),
            "nothing is managed on this root any more; what is there belongs to it\n".to_owned(),
        ),
    };
    progress.end(&line, || text);
    Ok(())
}

fn request(options: &ForgetOptions, reboot: bool) -> ForgetRequest {
    ForgetRequest { keep: options.keep, reboot, wait: options.wait, who: open::who("forget") }
}
