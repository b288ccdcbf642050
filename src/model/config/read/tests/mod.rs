//! What is read, what is refused, and what it says then.

mod disks;
mod documents;
mod fixtures;
mod merging;
mod properties;
mod refusals;
#[cfg(feature = "cluster")]
mod rendering;
mod shapes;

use super::*;
use crate::model::config::{Contents, Managed, RequestKind};

/// Reads one file called `x.yaml`.
pub(super) fn one(text: &str) -> Result<Config, Invalid> {
    read(vec![input("x.yaml", text)])
}

pub(super) fn input(name: &str, text: &str) -> Input {
    Input { name: name.to_owned(), bytes: text.as_bytes().to_vec() }
}

/// An Ignition config of this version with these lines below it.
pub(super) fn ignition(version: &str, rest: &str) -> String {
    format!("ignition: {{version: {version}}}\n{rest}\n")
}

/// What is managed by a config of this version.
pub(super) fn managed(version: &str, rest: &str) -> Managed {
    match one(&ignition(version, rest)) {
        Ok(config) => config.managed.unwrap(),
        Err(invalid) => panic!("{invalid}"),
    }
}

/// All problems of a text, one on each line.
pub(super) fn problems(text: &str) -> String {
    match one(text) {
        Ok(_) => "valid".to_owned(),
        Err(invalid) => invalid.to_string(),
    }
}

/// All warnings of a valid text.
pub(super) fn warnings(text: &str) -> Vec<String> {
    match one(text) {
        Ok(config) => config.warnings.iter().map(ToString::to_string).collect(),
        Err(invalid) => panic!("{invalid}"),
    }
}

/// A MachineConfig with these lines in its `spec`, each indented by two.
pub(super) fn machine_config(name: &str, role: &str, spec: &str) -> String {
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: {name}\n  \
         labels: {{machineconfiguration.openshift.io/role: {role}}}\nspec:\n{spec}\n"
    )
}

/// The content of a file.
pub(super) fn content(managed: &Managed, path: &str) -> Vec<u8> {
    match &managed.entries[camino::Utf8Path::new(path)].kind {
        RequestKind::File { contents: Some(Contents::Inline(blob)), append, .. } if append.is_empty() => {
            blob.bytes().to_vec()
        }
        other => panic!("{other:?}"),
    }
}
