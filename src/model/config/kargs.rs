//! Kernel arguments as a MachineConfig spells them.

use crate::model::kargs::{InvalidKarg, KargEdit, KernelArguments};

/// The single arguments of one entry of `spec.kernelArguments`: split at white space outside of
/// double quotes, which stay.
///
/// # Errors
///
/// What cannot stand on a kernel's command line, or is not for a config to set.
pub fn split(entry: &str) -> Result<Vec<String>, InvalidKarg> {
    KargEdit::Append(entry.to_owned()).check()?;
    Ok(KernelArguments::parse(entry).arguments().to_vec())
}
