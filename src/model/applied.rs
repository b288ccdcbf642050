//! The applied record: what was laid down last in an `/etc` or in `/var`.
//!
//! `/etc/mcd/applied.json` travels with its deployment, and with copies of its `/etc` that another
//! tool's merge makes; `/var/lib/mcd/applied.json` is shared by all deployments.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::digest::Digest;
use super::manifest::{Manifest, Node, Password};

/// The version that is written. Raised only when a field changes its meaning.
pub const APPLIED_VERSION: u32 = 1;
/// Where the record of `/etc` stands, without leading slash.
pub const ETC_RECORD: &str = "etc/mcd/applied.json";
/// Where the record of `/var` stands, without leading slash.
pub const VAR_RECORD: &str = "var/lib/mcd/applied.json";
/// Stands beside the record of `/etc` while a converge is under way.
pub const ETC_CONVERGING: &str = "etc/mcd/converging.json";
/// Stands beside the record of `/var` while a converge is under way.
pub const VAR_CONVERGING: &str = "var/lib/mcd/converging.json";
/// The folder of originals that were set aside in `/etc`.
pub const ETC_ORIGINALS: &str = "etc/mcd/originals";
/// The folder of originals that were set aside in `/var`.
pub const VAR_ORIGINALS: &str = "var/lib/mcd/originals";
/// Where contents are kept on a host without a repo, by digest.
pub const CONTENT_STORE: &str = "var/lib/mcd/content";

/// What was laid down last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// [`APPLIED_VERSION`] of its writer.
    #[serde(default)]
    pub version: u32,
    /// Our id of the change that made the deployment, as the origin has it; none where there is no
    /// deployment.
    #[serde(default)]
    pub deployment_id: Option<String>,
    /// The deployment's commit, 64 hex digits.
    #[serde(default)]
    pub deployment_commit: Option<String>,
    /// The derived commit that holds the contents, 64 hex digits: the deployment's own, or one that
    /// a live apply made later.
    #[serde(default)]
    pub commit: Option<String>,
    /// What was laid down.
    #[serde(default)]
    pub manifest: Manifest,
    /// What a person had at a path before.
    #[serde(default)]
    pub originals: Vec<Original>,
    /// The password that a user had before, where the manifest has one: it returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_password: Option<Password>,
    /// Directories that were made for entries: removed again when they are empty.
    #[serde(default)]
    pub made: Vec<Utf8PathBuf>,
    /// When, in seconds since the epoch.
    #[serde(default)]
    pub when: i64,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A file of a person's that had to make room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Where it was.
    pub path: Utf8PathBuf,
    /// What it was. Its content is kept by digest in the folder of originals.
    pub node: Node,
    /// When it was set aside, in seconds since the epoch.
    #[serde(default)]
    pub when: i64,
    /// An edit of a path that was managed already: kept for the person, it does not return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
    /// What a newer version added.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Applied {
    /// Digests of contents that are ours, whatever is on disk: never a person's edit.
    pub fn names_content(&self, content: &Digest) -> bool {
        let is_it = |node: &Node| matches!(node, Node::File { digest, .. } if digest == content);
        self.manifest
            .entries
            .iter()
            .any(|entry| is_it(&entry.node) || entry.default.as_ref().is_some_and(is_it))
    }
}
