//! `mcd daemon`.

use std::rc::Rc;

use anyhow::{Context as _, Result};

use super::Ended;
use crate::cluster;
use crate::cluster::drainer::NoDrainer;
use crate::cluster::host_call::SystemdHost;
use crate::cluster::simulated::{Pace, Simulated};
use crate::error::Fault;
use crate::options::DaemonOptions;
use crate::plan::cluster::{DrainBy, Settings};

pub(super) fn run(options: DaemonOptions) -> Result<Ended> {
    let settings = Settings {
        drain: if options.drains_itself { DrainBy::Itself } else { DrainBy::Controller },
        self_heal: options.self_heal,
    };
    let asked = cluster::DaemonOptions {
        node: options.node,
        settings,
        kubeconfig: options.kubeconfig,
        listen: Some(options.listen),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the daemon's thread")?;
    let Some(config) = options.simulated_host else {
        if options.drains_itself {
            return Err(Fault::refused("--drain=self is not part of this version")
                .why("it would never drain, and changes that ask for it would never be made")
                .next("let a drain controller do it: --drain=controller")
                .into());
        }
        runtime.block_on(cluster::run(&asked, Rc::new(SystemdHost::of_pod()), Rc::new(NoDrainer)))?;
        return Ok(Ended::Done);
    };
    let config = Some(config.as_str()).filter(|config| !config.is_empty());
    let each = options.simulated_pace;
    let pace = Pace { prepare: each, reboot: each, verdict: each };
    let host = Rc::new(Simulated::new(config, pace));
    runtime.block_on(cluster::run(&asked, host, Rc::new(NoDrainer)))?;
    Ok(Ended::Done)
}
