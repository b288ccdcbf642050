//! What the parts of one boot tell each other and `mcd status`, in `/run`: it dies with the boot.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::status::DeploymentName;

/// The file, below `/run`. The initramfs' `/run` becomes that of the system.
pub const BOOT_NOTE: &str = "mcd/boot.json";

/// What happened so far in this boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootNote {
    /// The deployment that starts.
    pub deployment: Option<DeploymentName>,
    /// Its boot was counted, or needs no counting.
    pub counted: bool,
    /// Why the boot goes on although the deployment should have been left, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// What belongs on it could not be laid down: it must not be called good.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unconverged: bool,
    /// What another version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl BootNote {
    /// Nothing has happened yet to this deployment.
    pub fn of(deployment: DeploymentName) -> Self {
        Self { deployment: Some(deployment), ..Self::default() }
    }

    /// Reads one. What cannot be read says nothing.
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_another_version_is_read_and_kept() {
        let name = format!("{}.1", "0f".repeat(32));
        let note =
            BootNote::parse(format!(r#"{{"deployment":"{name}","counted":true,"later":1}}"#).as_bytes());
        assert_eq!(
            (note.deployment.clone().unwrap().serial, note.counted, note.unconverged),
            (1, true, false)
        );
        assert_eq!(BootNote::parse(&note.to_bytes()), note);
        assert_eq!(BootNote::parse(b"{"), BootNote::default());
    }
}
