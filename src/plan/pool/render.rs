//! From a pool's MachineConfigs to one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::RENDERED;
use crate::error::Fault;
use crate::model::config::{Input, read, render as written};
use crate::model::pool::Pool;

/// Hex digits of the digest in a name: as many as the operator's.
const DIGITS: usize = 32;

/// A MachineConfig that somebody wrote.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// All of it, as JSON.
    pub text: String,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.text.len())
    }
}

/// What the configs of a pool are together.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// `rendered-POOL-HASH`.
    pub name: String,
    /// Which MachineConfigs, in the order in which they were merged.
    pub sources: Vec<String>,
    /// `spec` of the MachineConfig.
    pub spec: Value,
}

impl std::fmt::Debug for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendered")
            .field("name", &self.name)
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}

/// Merges the configs that a pool selects, as `mcd apply` merges files. The name follows from what they
/// mean together: the same again is the same object.
///
/// # Errors
///
/// What is wrong, for a condition: the MachineConfig and the field; never a content.
pub fn render(pool: &Pool, sources: &BTreeMap<String, Source>) -> Result<Rendered, String> {
    let spec = pool.spec.as_ref().map_err(Clone::clone)?;
    let inputs: Vec<Input> = sources
        .iter()
        .filter(|(_, source)| spec.configs.selects(&source.labels))
        .map(|(name, source)| Input {
            name: format!("MachineConfig {name}"),
            bytes: source.text.clone().into_bytes(),
        })
        .collect();
    if inputs.is_empty() {
        return Err("spec.machineConfigSelector selects no MachineConfig".to_owned());
    }
    let config = read(inputs).map_err(|invalid| {
        let fault = Fault::from(invalid);
        fault.why.map_or(fault.what.clone(), |why| format!("{}: {why}", fault.what))
    })?;
    let digest = written::digest(&config);
    Ok(Rendered {
        name: format!("{RENDERED}{}-{}", pool.name, digest.get(..DIGITS).unwrap_or(&digest)),
        sources: config.names.clone(),
        spec: written::rendered(&config),
    })
}
