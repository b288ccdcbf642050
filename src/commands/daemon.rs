//! `mcd daemon`.

use std::rc::Rc;

use anyhow::{Context as _, Result};

use super::Ended;
use crate::cluster;
use crate::cluster::drainer::NoDrainer;
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
        return Err(Fault::refused("this version calls no host yet").into());
    };
    let config = Some(config.as_str()).filter(|config| !config.is_empty());
    let each = options.simulated_pace;
    let pace = Pace { prepare: each, reboot: each, verdict: each };
    let host = Rc::new(Simulated::new(config, pace));
    runtime.block_on(cluster::run(&asked, host, Rc::new(NoDrainer)))?;
    Ok(Ended::Done)
}
