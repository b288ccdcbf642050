//! `mcd verify`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::place::{self, Opened};
use crate::commands::{Ended, open};
use crate::host::converge::Root;
use crate::interrupt::Interrupt;
use crate::model::event::{EventSink, Silent};
use crate::options::config::{Place, VerifyOptions};
use crate::pipeline::Session;
use crate::pipeline::config::{Following, Verified, repair, verify, verify_root};
use crate::ui::{Printer, render_verified};

pub(super) fn run(options: VerifyOptions, printer: &Printer) -> Result<Ended> {
    if options.follow {
        return follow(&options, printer);
    }
    let opened = place::open(&options.place)?;
    let interrupt = Interrupt::listen()?;
    let found = if options.repair {
        let progress = printer.progress("verify");
        let found = run_on(opened, &options, &interrupt, progress.clone());
        let found = found.inspect_err(|_| progress.finish())?;
        progress.end(&found, || render_verified(&found));
        found
    } else {
        let found = run_on(opened, &options, &interrupt, Arc::new(Silent))?;
        printer.verified(&found)?;
        found
    };
    Ok(if found.is_fine() { Ended::Done } else { Ended::Differs })
}

fn run_on(
    opened: Opened,
    options: &VerifyOptions,
    interrupt: &Interrupt,
    sink: Arc<dyn EventSink>,
) -> Result<Verified> {
    let host = match opened {
        Opened::Root(root) => {
            return interrupt.explain(verify_root(&root, options.repair, options.wait, sink.as_ref()));
        }
        Opened::Host(host) => host,
    };
    let session = Session::new(host, sink, interrupt.clone())?;
    interrupt.explain(match options.repair {
        true => repair(&session, options.wait, &open::who("verify")),
        false => verify(&session),
    })
}

/// Until somebody ends it: at once, whatever it is doing, which changes nothing.
fn follow(options: &VerifyOptions, printer: &Printer) -> Result<Ended> {
    let (path, arguments) = match &options.place {
        Place::Root(path) => (path.as_path(), vec!["--root".to_owned(), path.display().to_string()]),
        Place::Running | Place::Sysroot(_) => (Path::new("/"), Vec::new()),
    };
    let sink = printer.progress("verify");
    Following::new(Root::open(path)?, arguments, sink.as_ref())?.run()?;
    Ok(Ended::Done)
}
