//! `mcd report`.

use std::path::Path;

use anyhow::Result;

use super::Ended;
use crate::error::Fault;
use crate::ui::Printer;

pub(super) fn run(_output: Option<&Path>, _printer: &Printer) -> Result<Ended> {
    Err(Fault::refused("mcd report is not made yet").into())
}
