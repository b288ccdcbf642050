//! What the command line of the cluster's daemon means.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Invocation, Request};
use crate::cli::daemon::{ControllerArgs, DaemonArgs, DrainArg, OldStartArgs};
use crate::error::Fault;

/// `daemon`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonOptions {
    /// The Node.
    pub node: String,
    /// This program drains by itself.
    pub drains_itself: bool,
    /// The kubelet's credentials, to drain with.
    pub kubelet_kubeconfig: PathBuf,
    /// Drift is put right.
    pub self_heal: bool,
    /// Instead of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where metrics are served.
    pub listen: SocketAddr,
    /// The certificate and its key, to serve them with.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The first request is made within this time, at random.
    pub start_spread: std::time::Duration,
    /// For tests: the config of a host that is simulated.
    pub simulated_host: Option<String>,
    /// For tests: how long it prepares, reboots and judges.
    pub simulated_pace: std::time::Duration,
    /// For tests: where its state stands.
    pub simulated_state: Option<PathBuf>,
}

/// `controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerOptions {
    /// Instead of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where the Lease is.
    pub namespace: String,
}

/// The variable that a pod's manifest sets from `spec.nodeName`.
const NODE_NAME: &str = "NODE_NAME";

pub(super) fn daemon(args: DaemonArgs, variable: Option<String>) -> Result<DaemonOptions, Fault> {
    let node = args.node_name.or(variable).filter(|name| !name.is_empty()).ok_or_else(|| {
        Fault::usage("there is no Node to follow")
            .why(format!("neither --node-name nor the variable {NODE_NAME} is set"))
            .next("set the variable from spec.nodeName in the pod's manifest")
    })?;
    if !is_name(&node) {
        return Err(Fault::usage(format!("--node-name={node}: not the name of a Node"))
            .why("names are small letters, digits, '-' and '.'")
            .next("`kubectl get nodes` shows them"));
    }
    Ok(DaemonOptions {
        node,
        drains_itself: args.drain == DrainArg::Itself,
        kubelet_kubeconfig: args.kubelet_kubeconfig,
        self_heal: args.self_heal,
        kubeconfig: args.kubeconfig,
        listen: args.listen,
        tls: args.metrics_tls_cert.zip(args.metrics_tls_key),
        start_spread: std::time::Duration::from_secs(args.start_spread),
        simulated_host: args.simulated_host,
        simulated_pace: std::time::Duration::from_millis(args.simulated_pace),
        simulated_state: args.simulated_state,
    })
}

/// It becomes part of a path of the API.
fn is_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
}

pub(super) fn controller(args: ControllerArgs) -> Result<ControllerOptions, Fault> {
    let ControllerArgs { kubeconfig, namespace } = args;
    if namespace.is_empty() || !is_name(&namespace) {
        return Err(Fault::usage(format!("--namespace={namespace}: not the name of a namespace"))
            .why("names are small letters, digits and '-'")
            .next("manifests/ make the namespace mcd"));
    }
    Ok(ControllerOptions { kubeconfig, namespace })
}

pub(super) fn variable() -> Option<String> {
    std::env::var(NODE_NAME).ok()
}

pub(super) fn old_start(args: OldStartArgs) -> Result<Invocation, Fault> {
    if args.once_from.is_some() || args.skip_reboot {
        return Err(Fault::refused("machine-config-daemon start --once-from: not part of mcd")
            .next("`mcd apply FILE` applies a config once"));
    }
    if args.desired_configmap.is_some() {
        return Err(Fault::refused("machine-config-daemon start --desired-configmap: not part of mcd")
            .why("it is the mode of hosted control planes, which replace their nodes"));
    }
    let options = daemon(args.daemon, variable())?;
    Ok(Invocation { verbosity: 1, json: false, request: Request::Daemon(options) })
}
