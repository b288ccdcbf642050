//! `mcd pivot`.

use anyhow::Result;

use super::Ended;
use crate::options::PivotOptions;
use crate::ui::Printer;

// WIRE: let session = Session::open(&options.target, progress)?; Interrupt::listen()?;
//       interrupt.explain(pipeline::pivot(&mut session, request))
pub(super) fn run(_options: PivotOptions, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("pivot"))
}
