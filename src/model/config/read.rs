//! From files to one [`Config`].

use std::fmt;

use super::{Config, Remark};
use crate::error::Fault;

/// One file of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Input {
    /// As people know it: its path as it was typed, or `standard input`.
    pub name: String,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// A request that is refused: everything that is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong, in the order of the files.
    pub problems: Vec<Remark>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Remark>,
}

/// Reads and merges MachineConfigs and Ignition configs. The order of the files does not matter.
///
/// # Errors
///
/// Everything that is wrong in any of them.
pub fn read(_inputs: Vec<Input>) -> Result<Config, Invalid> {
    let message = "reading configuration is being built".to_owned();
    Err(Invalid { problems: vec![Remark { field: String::new(), message }], warnings: Vec::new() })
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", self.name, self.bytes.len())
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        let first = invalid.problems.first().map(ToString::to_string).unwrap_or_default();
        Fault::refused("the configuration is refused").why(first)
    }
}
