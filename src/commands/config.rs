//! The verbs of configuration.

#[cfg(feature = "ostree")]
mod apply;
mod boot;
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
use crate::options::config::ConfigRequest;
use crate::ui::Printer;

/// Carries a request out.
pub(super) fn run(request: ConfigRequest, printer: &Printer) -> Result<Ended> {
    match request {
        ConfigRequest::Boot(part) => boot::run(part, printer),
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
        #[cfg(not(feature = "ostree"))]
        _ => Err(crate::error::Fault::refused("this mcd cannot read a configuration")
            .why("it was built without the feature `ostree`, for the initramfs")
            .next("use the mcd of the running system")
            .into()),
    }
}
