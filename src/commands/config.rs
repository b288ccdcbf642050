//! The verbs of configuration.

#[cfg(feature = "ostree")]
mod apply;
#[cfg(feature = "ostree")]
mod diff;
#[cfg(feature = "ostree")]
mod forget;
#[cfg(feature = "ostree")]
mod place;
#[cfg(feature = "ostree")]
mod validate;
#[cfg(feature = "ostree")]
mod verify;

use anyhow::Result;

use super::Ended;
use crate::error::Fault;
use crate::options::config::ConfigRequest;
use crate::ui::Printer;

/// Carries a request out.
#[cfg_attr(not(feature = "ostree"), expect(unused_variables, reason = "no verb of it prints yet"))]
pub(super) fn run(request: ConfigRequest, printer: &Printer) -> Result<Ended> {
    match request {
        #[cfg(feature = "ostree")]
        ConfigRequest::Apply(options) => apply::run(options, printer),
        #[cfg(feature = "ostree")]
        ConfigRequest::Diff(options) => diff::run(&options, printer),
        #[cfg(feature = "ostree")]
        ConfigRequest::Verify(options) => verify::run(options, printer),
        #[cfg(feature = "ostree")]
        ConfigRequest::Forget(options) => forget::run(options, printer),
        #[cfg(feature = "ostree")]
        ConfigRequest::Validate(files) => validate::run(&files, printer),
        _ => Err(Fault::refused("this verb is being built").into()),
    }
}
