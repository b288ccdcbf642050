//! `mcd forget`: the configuration of the host is nobody's business of ours any more.

use anyhow::Result;

use super::apply::apply;
use super::layering::{Content, Layering};
use super::observe::Observed;
use super::{ConfigRequest, recover};
use crate::error::Fault;
use crate::model::config::{Config, Managed};
use crate::model::manifest::{Manifest, Source};
use crate::model::records::Intent;
use crate::pipeline::change::wait;
use crate::pipeline::commit::{check_before_commit, commit};
use crate::pipeline::{Outcome, PullSettings, Session, Until};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct ForgetRequest {
    /// What is there stays; else the image's own comes back.
    pub keep: bool,
    /// Whether the caller will ask for a reboot.
    pub reboot: bool,
    /// Wait for whoever holds the lock.
    pub wait: bool,
    /// Who asks, for the history.
    pub who: String,
}

/// Stops managing.
pub fn forget(session: &Session, request: &ForgetRequest) -> Result<Outcome> {
    if !request.keep {
        return apply(session, &nothing(request));
    }
    recover::continue_live(session, request.wait, false)?;
    let observed = Observed::look(&session.host)?;
    let next = &observed.next;
    if means_nothing(&next.configured.carried) {
        return Ok(Outcome::NothingToDo(next.status.name.clone()));
    }
    // Managed files are defaults of the derived commit, and would go with it. So one more deployment
    // lays them down, once, and its record names none of them: from then on they differ from the
    // image's defaults, as any file of the machine's own does.
    let layering = Layering::begin(session)?;
    let released = Manifest { released: true, ..next.configured.carried.clone() };
    let previous = Some((&released, next.configured.image_commit.as_str()));
    let layered = layering.make(&next.configured.image_commit, Content { config: None, previous })?;
    if !layered.manifest.released {
        return Err(Fault::failed("the derived commit lost the mark that it is released").into());
    }
    check_before_commit(session, &layered.commit)?;
    let locked = session.host.lock(wait(session, request.wait))?;
    observed.confirm(&locked)?;
    locked.keep_derived(&layered.commit, &next.configured.image_commit)?;
    let intent = Intent {
        reboot: request.reboot,
        config: Some(Vec::new()),
        ..next.intent(locked.new_id(), layered.commit, &request.who)
    };
    locked.prepare(&intent)?;
    commit(session, &locked, intent)
}

/// A request after which nothing of ours remains.
pub(super) fn nothing(request: &ForgetRequest) -> ConfigRequest {
    ConfigRequest {
        config: Config {
            managed: Some(Managed::default()),
            kernel_arguments: Some(Vec::new()),
            ..Config::default()
        },
        source: Source::MachineConfig,
        drops_others: true,
        until: Until::Committed,
        reboot: request.reboot,
        wait: request.wait,
        pull: PullSettings::default(),
        request_digest: None,
        who: request.who.clone(),
    }
}

/// Whether nothing is managed.
fn means_nothing(manifest: &Manifest) -> bool {
    manifest.released || crate::plan::apply::means_the_same(manifest, &Manifest::default())
}
