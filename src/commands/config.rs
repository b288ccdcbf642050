//! The verbs of configuration.

#[cfg(feature = "ostree")]
mod diff;
#[cfg(feature = "ostree")]
mod validate;

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
        ConfigRequest::Diff(options) => diff::run(&options, printer),
        #[cfg(feature = "ostree")]
        ConfigRequest::Validate(files) => validate::run(&files, printer),
        _ => Err(Fault::refused("this verb is being built").into()),
    }
}
