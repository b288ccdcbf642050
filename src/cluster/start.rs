//! `mcd daemon`: from options to a running loop.

use std::path::{Path, PathBuf};
use std::rc::Rc;

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
    let mut daemon = Daemon::new(cluster, host, drainer, options.settings, metrics);
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = daemon.run() => {}
        _ = term.recv() => tracing::info!("Got SIGTERM; what the host carries out goes on"),
        _ = int.recv() => {}
    }
    Ok(())
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
