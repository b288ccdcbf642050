//! `mcd pin`, `mcd unpin`, `mcd cancel` and `mcd cleanup`.

use anyhow::Result;

use super::Ended;
use crate::options::{CleanupOptions, PinOptions, Target};
use crate::ui::Printer;

// WIRE: let name = options.which.resolve(&host.status()?)?.name.clone();
//       host.lock(wait)?.set_pinned(&name, options.pinned)
pub(super) fn pin(options: PinOptions, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired(if options.pinned { "pin" } else { "unpin" }))
}

// WIRE: host.lock(wait)?.drop_staged() and the intent
pub(super) fn cancel(_target: Target, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("cancel"))
}

// WIRE: host.lock(wait)?.prune(…); with after_boot the records are settled first
pub(super) fn cleanup(_options: CleanupOptions, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("cleanup"))
}
