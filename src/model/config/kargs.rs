//! Kernel arguments as a MachineConfig spells them.

use crate::model::kargs::KernelArguments;

/// The single arguments of one entry of `spec.kernelArguments`: split at white space outside of
/// double quotes, which stay.
pub fn split(entry: &str) -> Vec<String> {
    KernelArguments::parse(entry).arguments().to_vec()
}
