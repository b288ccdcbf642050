//! The daemons: all on one thread, each with its own token, over connections that they share.
//!
//! A host that reboots ends its daemon, and a new one begins, as a machine's pod does.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use http::{HeaderValue, Request};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use mcd::cluster::api::Cluster;
use mcd::cluster::daemon::Daemon;
use mcd::cluster::drainer::Drainer;
use mcd::cluster::host_call::HostCall;
use mcd::cluster::metrics::Metrics;
use mcd::cluster::simulated::{Pace, Simulated};
use mcd::cluster::spread;
use mcd::model::wire::{HostReport, HostRequest, Outcome, Reply, ReplyBody};
use mcd::plan::cluster::{DrainBy, Settings};
use mcd_test_support::kube::ControlPlane;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};

/// A node, and the token of its pod.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: String,
    pub(super) token: String,
}

/// All of them. They end with this value.
#[derive(Debug)]
pub(super) struct Daemons {
    metrics: Vec<Arc<Metrics>>,
    away: Arc<Away>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Nodes that are cordoned.
#[derive(Debug, Default)]
struct Away {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Daemons {
    /// Starts them, each within `spread`, on hosts that have `config`.
    pub(super) fn start(
        plane: &ControlPlane,
        members: Vec<Member>,
        config: &str,
        spread: Duration,
        pace: Duration,
    ) -> Self {
        let metrics: Vec<_> = members.iter().map(|_| Metrics::new()).collect();
        let away = Arc::new(Away::default());
        let (stop, stopped) = oneshot::channel();
        let kubeconfig =
            Kubeconfig::read_from(plane.kubeconfig_with_token("fleet", "none").unwrap()).unwrap();
        let of = (metrics.clone(), Arc::clone(&away), config.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                let options = KubeConfigOptions::default();
                let mut shared = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
                // Each request brings its own.
                shared.auth_info = kube::config::AuthInfo::default();
                let shared = Client::try_from(shared).unwrap();
                let (metrics, away, config) = of;
                for (member, metrics) in members.into_iter().zip(metrics) {
                    let cluster = Cluster::new(with_token(&shared, &member.token), member.node);
                    let host = Rc::new(Host {
                        simulated: Simulated::new(
                            Some(&config),
                            Pace { prepare: pace, reboot: pace, verdict: pace },
                        ),
                        rebooted: Notify::new(),
                    });
                    let cordons = Rc::new(Cordons { cluster: cluster.clone(), away: Arc::clone(&away) });
                    tokio::task::spawn_local(follow(cluster, host, cordons, metrics, spread));
                }
                let _ = stopped.await;
            });
        });
        Self { metrics, away, stop: Some(stop), thread: Some(thread) }
    }

    /// Waits until each has seen its Node and its host.
    pub(super) fn until_ready(&self, patience: Duration) {
        let start = Instant::now();
        while let waits = self.metrics.iter().filter(|metrics| !metrics.is_ready()).count()
            && waits > 0
        {
            assert!(start.elapsed() < patience, "{waits} daemons do not begin");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Nodes that were cordoned at a time, at most.
    pub(super) fn most(&self) -> usize {
        self.away.most.load(Ordering::Relaxed)
    }

    /// Counts anew.
    pub(super) fn forget_most(&self) {
        self.away.most.store(0, Ordering::Relaxed);
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The shared connections, with this token.
fn with_token(shared: &Client, token: &str) -> Client {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    let shared = shared.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(http::header::AUTHORIZATION, value.clone());
        let shared = shared.clone();
        async move { shared.send(request).await }
    });
    Client::new(service, "default")
}

async fn follow(
    cluster: Cluster,
    host: Rc<Host>,
    cordons: Rc<Cordons>,
    metrics: Arc<Metrics>,
    most: Duration,
) {
    let settings = Settings { drain: DrainBy::Itself, self_heal: false };
    loop {
        spread(&*host, most).await;
        let mut daemon = Daemon::new(
            cluster.clone(),
            Rc::clone(&host),
            Rc::clone(&cordons),
            settings,
            Arc::clone(&metrics),
        );
        tokio::select! {
            () = daemon.run() => {}
            () = host.rebooted.notified() => {}
        }
    }
}

/// A simulated host whose reboot ends the daemon.
struct Host {
    simulated: Simulated,
    rebooted: Notify,
}

impl HostCall for Host {
    async fn status(&self) -> Result<HostReport> {
        self.simulated.status().await
    }

    async fn run(&self, request: &HostRequest) -> Result<()> {
        self.simulated.run(request).await
    }

    async fn reply(&self, id: &str, after: u64) -> Result<Reply> {
        let reply = self.simulated.reply(id, after).await?;
        if matches!(&reply.body, ReplyBody::Done(done) if done.outcome == Outcome::Rebooting) {
            self.rebooted.notify_one();
            return std::future::pending().await;
        }
        Ok(reply)
    }

    async fn changed(&self) {
        self.simulated.changed().await;
    }
}

/// Cordons and uncordons as the self drain does; there are no pods to evict.
struct Cordons {
    cluster: Cluster,
    away: Arc<Away>,
}

impl Drainer for Cordons {
    async fn carry_out(&self, order: &str, _: &UnboundedSender<String>) -> Result<()> {
        let cordon = order.starts_with("drain-");
        if cordon {
            let now = self.away.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.away.most.fetch_max(now, Ordering::Relaxed);
        }
        self.cluster.cordon(cordon).await?;
        if !cordon {
            self.away.now.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
