//! `mcd daemon` and `mcd controller`.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};

use super::Ended;
use crate::cluster::drain::{self, SelfDrainer};
use crate::cluster::drainer::NoDrainer;
use crate::cluster::host_call::{HostCall, SystemdHost};
use crate::cluster::simulated::{Pace, Simulated};
use crate::cluster::{self, Listening, Tls, controller};
use crate::options::{ControllerOptions, DaemonOptions};
use crate::plan::cluster::{DrainBy, Settings};

pub(super) fn run(options: DaemonOptions) -> Result<Ended> {
    let settings = Settings {
        drain: if options.drains_itself { DrainBy::Itself } else { DrainBy::Controller },
        self_heal: options.self_heal,
    };
    let tls = options.tls.map(|(certificate, key)| Tls { certificate, key });
    let asked = cluster::DaemonOptions {
        node: options.node,
        settings,
        kubeconfig: options.kubeconfig,
        listen: Some(Listening { address: options.listen, tls }),
        spread: options.start_spread,
    };
    let runtime = runtime()?;
    let Some(config) = options.simulated_host else {
        let host = Rc::new(SystemdHost::of_pod());
        return runtime.block_on(follow(&asked, host, &options.kubelet_kubeconfig));
    };
    let config = Some(config.as_str()).filter(|config| !config.is_empty());
    let each = options.simulated_pace;
    let pace = Pace { prepare: each, reboot: each, verdict: each };
    let host = match &options.simulated_state {
        Some(file) => Simulated::kept_in(file, config, pace)?,
        None => Simulated::new(config, pace),
    };
    runtime.block_on(follow(&asked, Rc::new(host), &options.kubelet_kubeconfig))
}

/// `mcd controller`.
pub(super) fn control(options: ControllerOptions) -> Result<Ended> {
    let ControllerOptions { kubeconfig, namespace } = options;
    runtime()?.block_on(controller::run(&controller::ControllerOptions { kubeconfig, namespace }))?;
    Ok(Ended::Done)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the event loop")
}

async fn follow<H: HostCall + 'static>(
    asked: &cluster::DaemonOptions,
    host: Rc<H>,
    kubelet: &Path,
) -> Result<Ended> {
    if asked.settings.drain == DrainBy::Itself {
        let kubelet = drain::kubelet(kubelet).await?;
        let drainer = SelfDrainer::new(cluster::connect(asked).await?, kubelet);
        cluster::run(asked, host, Rc::new(drainer)).await?;
    } else {
        cluster::run(asked, host, Rc::new(NoDrainer)).await?;
    }
    Ok(Ended::Done)
}
