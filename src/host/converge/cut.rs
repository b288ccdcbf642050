//! What a boot does about a live apply that was cut, and about a config that is given up.
//!
//! The records tell what belongs on the root in every case but one: a live apply that failed and was cut
//! while it was undone must go on back. Either way nothing of it is under way afterwards.

use anyhow::Result;

use super::deployment::Effective;
use super::record::{Record, Stand, read_record};
use super::root::Root;
use crate::host::durable;
use crate::model::applied::Applied;
use crate::model::live::{LIVE, Live};
use crate::model::manifest::Manifest;
use crate::model::records::{INTENT, Intent};

/// The folder of the records, without leading slash.
const RECORDS: &str = "var/lib/mcd";

/// The live apply that was cut on this deployment. Makes what belongs there what it must go back to.
/// One of another deployment is over; one that cannot be read stops nobody.
pub(super) fn find(root: &Root, state: &mut Effective) -> Option<Live> {
    let folder = root.dir().open_dir(RECORDS).ok()?;
    let bytes = durable::read(&folder, LIVE).ok()??;
    let live = match Live::parse(&bytes) {
        Ok(live) => live,
        Err(fault) => {
            state.warnings.push(fault.to_string());
            return None;
        }
    };
    let is_here = match (&live.deployment, &state.deployment) {
        (Some(name), Some(here)) => name.checksum == here.commit && name.serial == here.serial,
        (None, None) => !state.is_deployment,
        _ => false,
    };
    if is_here && !live.is_forward() {
        state.to = live.back.clone();
    }
    Some(live)
}

/// Ends it, once everything is laid down: a next boot that it was to make again is committed with the
/// new content, where that is what was laid down.
pub(super) fn end(root: &Root, state: &Effective, live: &Live) -> Result<()> {
    let folder = root.dir().open_dir(RECORDS)?;
    let is_done = live.is_forward() && state.to.commit == live.to.commit;
    if let Some(next) = live.next.as_ref().filter(|_| is_done) {
        let present = durable::read(&folder, INTENT)?.and_then(|bytes| Intent::parse(&bytes).ok());
        match (&next.after, present) {
            (Some(after), _) => durable::replace(&folder, INTENT, &after.to_bytes())?,
            (None, Some(present)) if present.id == next.before.id => durable::remove(&folder, INTENT)?,
            (None, _) => {}
        }
    }
    durable::remove(&folder, LIVE)
}

/// A config that was given up was laid down once more: from now on it is the machine's own.
pub(super) fn release(root: &Root, to: &Applied) -> Result<()> {
    if !to.manifest.released || to.manifest.entries.is_empty() {
        return Ok(());
    }
    for record in [Record::Var, Record::Etc] {
        let Stand::Known(applied) = read_record(root, record)? else { continue };
        let manifest = Manifest { version: applied.manifest.version, released: true, ..Manifest::default() };
        let released = Applied {
            manifest,
            originals: Vec::new(),
            original_password: None,
            made: Vec::new(),
            ..*applied
        };
        super::record::write_record(root, record, &released)?;
    }
    Ok(())
}
