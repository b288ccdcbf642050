//! The verbs of configuration.

mod boot;

use anyhow::Result;

use super::Ended;
use crate::error::Fault;
use crate::options::config::ConfigRequest;
use crate::ui::Printer;

/// Carries a request out.
pub(super) fn run(request: ConfigRequest, printer: &Printer) -> Result<Ended> {
    match request {
        ConfigRequest::Boot(root) => boot::run(root, printer),
        ConfigRequest::Apply(_)
        | ConfigRequest::Diff(_)
        | ConfigRequest::Verify(_)
        | ConfigRequest::Validate(_)
        | ConfigRequest::Forget(_) => Err(Fault::refused("this verb is being built").into()),
    }
}
