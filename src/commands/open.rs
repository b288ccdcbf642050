//! What most verbs begin with: the host, and who asked.

use anyhow::Result;
use camino::Utf8Path;

use crate::error::Fault;
use crate::host::{Host, Wait};
use crate::model::event::EventSink;
use crate::options::Target;

/// Opens the host that the command line names. Before any thread is started.
pub(super) fn host(target: &Target) -> Result<Host> {
    let path = match &target.sysroot {
        None => None,
        Some(path) => Some(Utf8Path::from_path(path).ok_or_else(|| {
            Fault::usage(format!("--sysroot {}: the path is not valid UTF-8", path.display()))
        })?),
    };
    Host::open(path)
}

/// How to take the host lock.
pub(super) fn wait<'a>(target: &Target, sink: &'a dyn EventSink) -> Wait<'a> {
    if target.wait { Wait::Telling(sink) } else { Wait::No }
}

/// For the history: the verb, and the person behind `sudo`.
pub(super) fn who(verb: &str) -> String {
    match std::env::var("SUDO_USER") {
        Ok(user) if !user.is_empty() => format!("mcd {verb}, {user}"),
        _ => format!("mcd {verb}"),
    }
}
