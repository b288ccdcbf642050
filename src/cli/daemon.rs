//! The command line of the cluster's daemon.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `mcd daemon`
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Follow the Node of this name; else that of the variable NODE_NAME
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Who drains: the cluster's drain controller, or this program itself
    #[arg(long, value_name = "WHO", default_value = "controller")]
    pub drain: DrainArg,
    /// With --drain=self: evict with the kubelet's credentials in FILE
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/kubeconfig")]
    pub kubelet_kubeconfig: PathBuf,
    /// Put right what differs on the host, instead of only saying so
    #[arg(long)]
    pub self_heal: bool,
    /// Use FILE instead of the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Serve metrics and health at ADDRESS: loopback without TLS; port 0 takes a free one
    #[arg(long, visible_alias = "metrics-url", value_name = "ADDRESS", default_value = "127.0.0.1:8797")]
    pub listen: SocketAddr,
    /// Serve them with TLS; who reads metrics shows a token that the API server lets
    #[arg(long, value_name = "FILE", requires = "metrics_tls_key")]
    pub metrics_tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    pub metrics_tls_key: Option<PathBuf>,
    /// Make the first request within SECONDS, at random; at once while an update is under way
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=3600))]
    pub start_spread: u64,
    /// For tests: no host is called; one that has CONFIG is simulated
    #[arg(long, value_name = "CONFIG", hide = true)]
    pub simulated_host: Option<String>,
    /// For tests: how long the simulated host prepares, reboots and judges
    #[arg(long, value_name = "MILLISECONDS", hide = true, default_value_t = 0)]
    pub simulated_pace: u64,
    /// For tests: where the simulated host's state stands, so that it outlives this process
    #[arg(long, value_name = "FILE", hide = true)]
    pub simulated_state: Option<PathBuf>,
}

/// `mcd controller`
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// Use FILE instead of the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the Lease mcd-controller
    #[arg(long, value_name = "NAME", default_value = "mcd")]
    pub namespace: String,
}

/// `--drain`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DrainArg {
    /// The cluster's drain controller, asked by annotation
    Controller,
    /// This program: it cordons and evicts with the kubelet's credentials
    #[value(name = "self")]
    Itself,
}

/// `machine-config-daemon start`
#[derive(Debug, Args)]
pub struct OldStartArgs {
    /// What both take.
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Accepted without effect: the host is called through its systemd
    #[arg(long, value_name = "DIR")]
    pub root_mount: Option<PathBuf>,
    /// Refused: mcd apply FILE does that
    #[arg(long, value_name = "FILE")]
    pub once_from: Option<OsString>,
    /// Refused: only with --once-from
    #[arg(long)]
    pub skip_reboot: bool,
    /// Refused: the mode of hosted control planes is not part of mcd
    #[arg(long, value_name = "NAME")]
    pub desired_configmap: Option<String>,
    /// Accepted without effect: the kubelet's health is for what watches nodes
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    pub kubelet_healthz_enabled: Option<Option<String>>,
    /// Accepted without effect
    #[arg(long, hide = true)]
    pub kubelet_healthz_endpoint: Option<String>,
    /// Accepted without effect: metrics stay on loopback
    #[arg(long, hide = true)]
    pub tls_cipher_suites: Option<String>,
    /// Accepted without effect: metrics stay on loopback
    #[arg(long, hide = true)]
    pub tls_min_version: Option<String>,
    /// Accepted without effect
    #[arg(long, hide = true)]
    pub payload_version: Option<String>,
    /// Accepted without effect: a log flag of the old program
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    pub logtostderr: Option<Option<String>>,
    /// Accepted without effect: a log flag of the old program
    #[arg(short = 'v', hide = true, value_name = "LEVEL")]
    pub old_verbosity: Option<String>,
}
