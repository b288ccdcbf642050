//! `mcd rollback`.

use anyhow::Result;

use super::Ended;
use crate::options::RollbackOptions;
use crate::ui::Printer;

// WIRE: let session = Session::open(&options.target, progress)?; Interrupt::listen()?;
//       interrupt.explain(pipeline::rollback(&mut session, request))
pub(super) fn run(_options: RollbackOptions, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("rollback"))
}
