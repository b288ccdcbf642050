//! What a boot does: find out what belongs on the root, and lay it down where something else was.
//!
//! In the initramfs the `/var` below the root is not the real one, so only `/etc` is looked at there;
//! the rest follows early in the real root.

use anyhow::Result;
use serde::Serialize;

use super::compare::{Difference, differences};
use super::cut;
use super::deployment::{Effective, effective};
use super::record::{Record, Stand, read_converging};
use super::root::Root;
use super::{Change, Converge, Converged, SetAside, converge};
use crate::model::applied::Applied;
use crate::model::manifest::{Manifest, Scope};
use crate::plan::boot::Belongs;

/// The version of [`BootReport`]. Grows by addition.
pub const BOOT_REPORT_VERSION: u32 = 1;

/// Which root is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootStage {
    /// The one that runs.
    Running,
    /// One that is about to start.
    Before,
}

/// What a boot found and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootReport {
    /// [`BOOT_REPORT_VERSION`].
    pub version: u32,
    /// The deployment as `STATEROOT/COMMIT.SERIAL`.
    pub deployment: Option<String>,
    /// What belongs there.
    pub belongs: Belongs,
    /// Another tool made the deployment.
    pub stranger: bool,
    /// Entries that the config has below `/usr` and a stranger's deployment does not.
    pub missing_below_usr: Vec<String>,
    /// What was changed.
    pub changed: Vec<Change>,
    /// What a person had, and where it is now.
    pub set_aside: Vec<SetAside>,
    /// What differs and was left: it was laid down once, and somebody changed it since.
    pub differences: Vec<Difference>,
    /// What could not be read, and other things to know.
    pub warnings: Vec<String>,
}

/// Makes a root hold what belongs on it. A damaged record is told, and never stops it. The caller holds
/// the host lock.
pub fn boot(root: &Root, stage: BootStage, now: i64) -> Result<BootReport> {
    boot_with(root, stage, now, &mut || Ok(()))
}

/// The same; `before_change` is called before the first change.
pub fn boot_with(
    root: &Root,
    stage: BootStage,
    now: i64,
    before_change: &mut dyn FnMut() -> Result<()>,
) -> Result<BootReport> {
    let mut state = effective(root)?;
    // `/var`, where the record of a live apply stands, is there in the real root only.
    let cut = if stage == BootStage::Running { cut::find(root, &mut state) } else { None };
    let state = state;
    let missing_below_usr = missing_below_usr(root, &state)?;
    let mut report = BootReport {
        version: BOOT_REPORT_VERSION,
        deployment: state
            .deployment
            .as_ref()
            .map(|found| format!("{}/{}.{}", found.stateroot, found.commit, found.serial)),
        belongs: state.belongs,
        // On an image's own commit, a record is also what a live apply leaves.
        stranger: state.belongs == Belongs::Stranger || !missing_below_usr.is_empty(),
        missing_below_usr,
        changed: Vec::new(),
        set_aside: Vec::new(),
        differences: Vec::new(),
        warnings: state.warnings.clone(),
    };
    let scopes = scopes(&state, stage);
    let known: Vec<&Manifest> = state.commit_manifest.iter().collect();
    let contents = state.contents(root)?;
    let mut waiting = Vec::new();
    for scope in scopes {
        if needs_converging(root, &state, scope)? {
            waiting.push(scope);
        } else if state.belongs != Belongs::Nothing {
            report.differences.extend(differences(root, &state.to.manifest, &[scope])?);
        }
    }
    if !waiting.is_empty() {
        before_change()?;
        let request = Converge { to: &state.to, known: &known, scopes: &waiting, now };
        let Converged { changed, set_aside, warnings, .. } = converge(root, &contents, &request)?;
        report.changed = changed;
        report.set_aside = set_aside;
        report.warnings.extend(warnings);
    }
    if let Some(live) = &cut {
        cut::end(root, &state, live)?;
    }
    if stage == BootStage::Running {
        cut::release(root, &state.to)?;
    }
    Ok(report)
}

/// Where this stage may change something.
fn scopes(state: &Effective, stage: BootStage) -> Vec<Scope> {
    match (state.belongs, stage, state.is_deployment) {
        (Belongs::Unknown, ..) => Vec::new(),
        (Belongs::Nothing, BootStage::Running, _) => vec![Scope::Var],
        (Belongs::Nothing, BootStage::Before, _) => Vec::new(),
        (_, BootStage::Before, true) => vec![Scope::Etc],
        (_, BootStage::Running, true) => Scope::OF_DEPLOYMENT.to_vec(),
        (_, _, false) => Scope::ALL.to_vec(),
    }
}

/// Whether what was laid down last is something else, or a run was cut short.
fn needs_converging(root: &Root, state: &Effective, scope: Scope) -> Result<bool> {
    let record = Record::of(scope);
    let stand = match record {
        Record::Etc => &state.etc,
        Record::Var => &state.var,
    };
    if read_converging(root, record)?.is_some() {
        return Ok(true);
    }
    Ok(match stand {
        Stand::Known(laid) => !is_same(laid, &state.to),
        Stand::Damaged(_) => true,
        Stand::Missing => state.belongs != Belongs::Nothing,
    })
}

fn is_same(laid: &Applied, to: &Applied) -> bool {
    let names = |record: &Applied| {
        (record.deployment_id.clone(), record.deployment_commit.clone(), record.commit.clone())
    };
    names(laid) == names(to) && laid.manifest == to.manifest
}

/// What a deployment without a manifest in its commit lacks of what is recorded.
fn missing_below_usr(root: &Root, state: &Effective) -> Result<Vec<String>> {
    if !state.is_stranger() {
        return Ok(Vec::new());
    }
    let mut missing: Vec<String> = differences(root, &state.to.manifest, &[Scope::Usr])?
        .into_iter()
        .map(|difference| difference.path.to_string())
        .collect();
    missing.dedup();
    Ok(missing)
}
