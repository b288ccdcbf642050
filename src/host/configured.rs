//! What is managed on a deployment: its `/etc` record, its commit's manifest, and who made it.

use std::collections::BTreeSet;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::sysroot::Host;
use crate::model::applied::{Applied, ETC_RECORD};

impl Host {
    /// The commits that deployments are of and that records name: those of every deployment's `/etc`, of `/var`, and of what is
    /// under way. None where one of them cannot be read.
    #[context("Reading which commits the records name")]
    pub(super) fn commits_in_records(&self) -> Result<Option<BTreeSet<String>>> {
        let mut named = BTreeSet::new();
        let mut records: Vec<Option<Applied>> = Vec::new();
        let sysroot = self.load()?;
        for deployment in sysroot.deployments() {
            // Its own commit too: another tool's merge may carry its record on when it is gone.
            named.insert(deployment.csum().to_string());
            let path = sysroot.deployment_dirpath(&deployment);
            match read_record(self.root(), &format!("{path}/{ETC_RECORD}")) {
                Ok(record) => records.push(record),
                Err(_) => return Ok(None),
            }
        }
        let Ok(var) = self.var_record() else { return Ok(None) };
        records.push(var);
        if let Some(intent) = self.intent()? {
            named.extend([intent.commit, intent.image_commit]);
        }
        let Ok(live) = self.live() else { return Ok(None) };
        if let Some(live) = live {
            records.extend([Some(live.to), Some(live.back)]);
            for intent in live.next.into_iter().flat_map(|next| [Some(next.before), next.after]).flatten() {
                named.extend([intent.commit, intent.image_commit]);
            }
        }
        for record in records.into_iter().flatten() {
            named.extend(record.commit.into_iter().chain(record.deployment_commit));
        }
        Ok(Some(named))
    }

    /// What was laid down last in `/var`.
    pub(super) fn var_record(&self) -> Result<Option<Applied>> {
        match self.var()? {
            Some(var) => read_record(&var, VAR_RECORD_IN_VAR),
            None => Ok(None),
        }
    }
}

/// The record of `/var`, seen from there.
const VAR_RECORD_IN_VAR: &str = "lib/mcd/applied.json";

/// Reads a record; none where there is none.
#[context("Reading the record {path}")]
fn read_record(root: &Dir, path: &str) -> Result<Option<Applied>> {
    match root.read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
