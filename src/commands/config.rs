//! The verbs of configuration.

#[cfg(feature = "ostree")]
mod diff;

use anyhow::Result;

use super::Ended;
use crate::error::Fault;
use crate::options::config::ConfigRequest;
use crate::ui::Printer;

/// Carries a request out.
#[cfg_attr(
    not(feature = "ostree"),
    expect(unused_variables, reason = "no verb of this build shows anything")
)]
pub(super) fn run(request: ConfigRequest, printer: &Printer) -> Result<Ended> {
    match request {
        #[cfg(feature = "ostree")]
        ConfigRequest::Diff(options) => diff::run(&options, printer),
        _ => Err(Fault::refused("this verb is being built").into()),
    }
}
