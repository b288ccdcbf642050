//! `mcd pull`.

use anyhow::Result;

use super::Ended;
use crate::options::PullOptions;
use crate::ui::Printer;

// WIRE: let session = Session::open(&options.target, progress)?; Interrupt::listen()?;
//       interrupt.explain(pipeline::pull(&mut session, request))
pub(super) fn run(_options: PullOptions, _printer: &Printer) -> Result<Ended> {
    Err(super::not_wired("pull"))
}
