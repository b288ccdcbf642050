//! The verbs, one small file each: options in, one call of the library, words out.

#[cfg(feature = "ostree")]
mod change;
mod config;
#[cfg(feature = "cluster")]
mod daemon;
#[cfg(feature = "ostree")]
pub(crate) mod doctor;
#[cfg(feature = "ostree")]
mod firstboot;
#[cfg(feature = "ostree")]
mod generate;
#[cfg(feature = "ostree")]
mod health;
#[cfg(feature = "ostree")]
mod history;
#[cfg(feature = "ostree")]
mod hold;
#[cfg(feature = "ostree")]
mod maintain;
#[cfg(feature = "ostree")]
mod open;
#[cfg(feature = "ostree")]
mod pivot;
#[cfg(feature = "ostree")]
mod pull;
#[cfg(feature = "ostree")]
mod report;
#[cfg(feature = "ostree")]
mod rollback;
#[cfg(feature = "ostree")]
mod serve;
#[cfg(feature = "ostree")]
mod status;

use anyhow::Result;

use crate::error::ExitKind;
use crate::options::Request;
use crate::ui::Printer;

/// How a verb that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Done, or nothing was to do.
    Done,
    /// Nothing was to do, and the caller wants to know it by the exit code.
    Unchanged,
    /// What was compared differs; it has been shown.
    Differs,
    /// What was looked at is refused, and the answer says why.
    Refused,
}

impl Ended {
    /// The process exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Unchanged => ExitKind::Unchanged.code(),
            Self::Differs => ExitKind::Differs.code(),
            Self::Refused => ExitKind::Refused.code(),
        }
    }
}

/// Carries a request out.
#[cfg(feature = "ostree")]
pub fn run(request: Request, printer: &Printer) -> Result<Ended> {
    match request {
        Request::Pivot(options) => pivot::run(options, printer),
        Request::Config(request) => config::run(request, printer),
        Request::Pull(options) => pull::run(options, printer),
        Request::Status(target) => status::run(target, printer),
        Request::Health(options) => health::run(options, printer),
        Request::Report(output) => report::run(output.as_deref(), printer),
        Request::Rollback(options) => rollback::run(options, printer),
        Request::Pin(options) => maintain::pin(options, printer),
        Request::Cancel(target) => maintain::cancel(target, printer),
        Request::Cleanup(options) => maintain::cleanup(options, printer),
        Request::History(options) => history::run(options, printer),
        Request::Doctor(options) => doctor::run(options, printer),
        Request::Firstboot(options) => firstboot::run(options, printer),
        #[cfg(feature = "cluster")]
        Request::Daemon(options) => daemon::run(options),
        #[cfg(feature = "cluster")]
        Request::Controller(options) => daemon::control(options),
        #[cfg(not(feature = "cluster"))]
        Request::Daemon(_) | Request::Controller(_) => {
            Err(crate::error::Fault::refused("this mcd does not follow a cluster")
                .why("it was built without the feature `cluster`")
                .into())
        }
        Request::Generate(options) => generate::run(options, printer),
        Request::Serve(options) => serve::run(options, printer),
        Request::Hold(options) => hold::run(options, printer),
        Request::Version(line) => {
            printer.line(&line);
            Ok(Ended::Done)
        }
    }
}

/// Carries a request out, in the small binary of the initramfs: no verb of it needs libostree.
#[cfg(not(feature = "ostree"))]
pub fn run(request: Request, printer: &Printer) -> Result<Ended> {
    match request {
        Request::Config(request) => return config::run(request, printer),
        Request::Version(line) => {
            printer.line(&line);
            return Ok(Ended::Done);
        }
        _ => {}
    }
    Err(crate::error::Fault::refused("this mcd cannot import or deploy")
        .why("it was built without the feature `ostree`, for the initramfs")
        .next("use the mcd of the running system")
        .into())
}
