//! `mcd status`.

use anyhow::Result;

use super::Ended;
use crate::options::Target;
use crate::ui::Printer;

// WIRE: printer.status(&Host::open(target.sysroot.as_deref())?.status()?); Ok(Ended::Done)
pub(super) fn run(_target: Target, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("status"))
}
