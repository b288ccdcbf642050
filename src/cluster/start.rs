//! `mcd daemon`: from options to a running loop.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};

use super::api::{Cluster, client_of};
use super::daemon::Daemon;
use super::drainer::Drainer;
use super::host_call::HostCall;
use super::listen::{Listening, listen};
use super::metrics::Metrics;
use crate::error::Fault;
use crate::model::wire::{ChangeState, HostReport};
use crate::plan::cluster::Settings;

/// Options of `mcd daemon`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonOptions {
    /// The Node.
    pub node: String,
    /// Who drains, and whether drift is put right.
    pub settings: Settings,
    /// Instead of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics are served; none: nowhere.
    pub listen: Option<Listening>,
    /// The first request is made within this time, at random.
    pub spread: Duration,
}

/// Follows the Node until the process is told to end.
///
/// # Errors
///
/// The cluster's address or credentials cannot be read, or metrics cannot be served.
pub async fn run<H, D>(options: &DaemonOptions, host: Rc<H>, drainer: Rc<D>) -> Result<()>
where
    H: HostCall + 'static,
    D: Drainer + 'static,
{
    let metrics = Metrics::new();
    let client = client(options).await?;
    if let Some(listening) = &options.listen {
        let taken = listen(listening, std::sync::Arc::clone(&metrics), client.clone()).await?;
        tracing::info!("Listening on {taken}");
    }
    let cluster = Cluster::new(client, options.node.clone());
    tracing::info!("Version: {}", env!("CARGO_PKG_VERSION"));
    let of = Rc::clone(&host);
    let mut daemon = Daemon::new(cluster, host, drainer, options.settings, metrics);
    let follow = async {
        spread(&*of, options.spread).await;
        daemon.run().await;
    };
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = follow => {}
        _ = term.recv() => tracing::info!("Got SIGTERM; what the host carries out goes on"),
        _ = int.recv() => {}
    }
    Ok(())
}

/// Waits up to `most`, at random: the daemons of a fleet are started together, when their image changes, and
/// shall not ask together. Where an update is under way (the pod is new because the machine booted) nothing is
/// waited for; the host says so, which costs the API server nothing.
pub async fn spread<H: HostCall>(host: &H, most: Duration) {
    if most.is_zero() || host.status().await.is_ok_and(|report| is_under_way(&report)) {
        return;
    }
    let random = RandomState::new().hash_one(0) % 1000;
    tokio::time::sleep(most * u32::try_from(random).unwrap_or(0) / 1000).await;
}

fn is_under_way(host: &HostReport) -> bool {
    let is_unjudged = host.change.as_ref().is_some_and(|change| change.state == ChangeState::Booted);
    !host.running.is_empty() || host.intent.is_some() || is_unjudged
}

/// The API server that these options name, seen from their node.
///
/// # Errors
///
/// Its address or credentials cannot be read.
pub async fn connect(options: &DaemonOptions) -> Result<Cluster> {
    Ok(Cluster::new(client(options).await?, options.node.clone()))
}

async fn client(options: &DaemonOptions) -> Result<Client> {
    client_at(options.kubeconfig.as_deref()).await
}

/// A client by a kubeconfig, or by the pod's service account.
///
/// # Errors
///
/// The cluster's address or credentials cannot be read.
pub(super) async fn client_at(kubeconfig: Option<&Path>) -> Result<Client> {
    let unreadable = |what: String, why: String| {
        Fault::failed(what).why(why).next("run it in a pod with a service account, or give --kubeconfig=FILE")
    };
    if let Some(path) = kubeconfig {
        let what = || format!("kubeconfig {}: cannot be used", path.display());
        return Ok(client_of(path).await.map_err(|why| unreadable(what(), why))?);
    }
    let config = Config::incluster()
        .map_err(|error| unreadable("the cluster cannot be found".to_owned(), error.to_string()))?;
    Ok(super::api::client(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wire::{Change, IntentReport, RunningRequest};

    #[test]
    fn an_update_that_is_under_way_is_not_kept_waiting() {
        let settled = |state| HostReport {
            change: Some(Change { state, ..Change::default() }),
            ..HostReport::default()
        };
        for host in [HostReport::default(), settled(ChangeState::Good), settled(ChangeState::Failed)] {
            assert!(!is_under_way(&host), "{host:?}");
        }
        let running = HostReport { running: vec![RunningRequest::default()], ..HostReport::default() };
        let intent = HostReport { intent: Some(IntentReport::default()), ..HostReport::default() };
        for host in [running, intent, settled(ChangeState::Booted)] {
            assert!(is_under_way(&host), "{host:?}");
        }
    }
}
