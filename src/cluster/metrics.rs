//! Metrics, under the names of the Go daemon, with counters where it had gauges that only ever grew.
//!
//! No label holds free text: `reason` is a reason's id.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::model::wire::{HostReport, Measured};
use crate::plan::cluster::StepKind;

type Labels = Vec<(&'static str, String)>;
/// Seconds with a fraction.
type Seconds = Gauge<f64, AtomicU64>;

/// What is counted. Shared with the server's task.
#[derive(Debug, Default)]
pub struct Metrics {
    registry: Mutex<Registry>,
    is_ready: AtomicBool,
    host: Family<Labels, Gauge>,
    state: Family<Labels, Gauge>,
    update_state: Family<Labels, Gauge>,
    drift: Gauge,
    kubelet: Gauge,
    /// Since when the kubelet has not been ready, in seconds since the epoch; 0: it is.
    not_ready_since: AtomicI64,
    pivot_errors: Gauge,
    failures: Family<Labels, Counter>,
    reboots_failed: Counter,
    updates: Counter,
    unavailable: Seconds,
    prepare: Seconds,
    commit: Seconds,
    boot: Seconds,
    fetched: Counter,
    reused: Counter,
}

impl Metrics {
    /// All registered, nothing counted.
    pub fn new() -> Arc<Self> {
        let metrics = Self::default();
        if let Ok(mut registry) = metrics.registry.lock() {
            metrics.register(&mut registry);
        }
        Arc::new(metrics)
    }

    fn register(&self, to: &mut Registry) {
        to.register("mcd_host_os_and_version", "The host's system and its version", self.host.clone());
        to.register("mcd_state", "Seconds since the epoch when the state began", self.state.clone());
        to.register(
            "mcd_update_state",
            "Seconds since the epoch when an update ended, or failed for the reason err",
            self.update_state.clone(),
        );
        to.register(
            "mcd_config_drift",
            "Seconds since the epoch when drift was seen; 0: none",
            self.drift.clone(),
        );
        to.register(
            "mcd_kubelet_state",
            "Probes of 30 s that the kubelet would have failed in a row, by the Node's Ready condition",
            self.kubelet.clone(),
        );
        to.register(
            "mcd_pivot_errors_total",
            "Failed updates of the system since the last good one (a gauge, as it always was)",
            self.pivot_errors.clone(),
        );
        to.register("mcd_step_failures", "Steps of the host that failed", self.failures.clone());
        to.register("mcd_reboots_failed", "Reboots that failed", self.reboots_failed.clone());
        to.register("mcd_updates", "Updates that ended in Done", self.updates.clone());
        to.register(
            "mcd_update_unavailable_seconds",
            "From the drain to the node being schedulable again, last update",
            self.unavailable.clone(),
        );
        to.register("mcd_prepare_seconds", "The last prepare", self.prepare.clone());
        to.register("mcd_commit_seconds", "The last commit or live apply", self.commit.clone());
        to.register("mcd_boot_seconds", "The last boot", self.boot.clone());
        to.register("mcd_fetched_bytes", "Bytes that came over the network", self.fetched.clone());
        to.register("mcd_reused_bytes", "Bytes of images that were there already", self.reused.clone());
    }

    /// The page.
    pub fn page(&self) -> String {
        let mut page = String::new();
        let since = self.not_ready_since.load(Ordering::Relaxed);
        self.kubelet.set(failed_probes(since, jiff::Timestamp::now().as_second()));
        if let Ok(registry) = self.registry.lock() {
            // Writing to a String cannot fail; a page without an end is not read as one.
            let _ = encode(&mut page, &registry);
        }
        page
    }

    /// Whether Node and host have been seen.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub(super) fn ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    pub(super) fn see_host(&self, host: &HostReport) {
        self.host.clear();
        let os = if host.os.is_empty() { "unsupported".to_owned() } else { host.os.to_uppercase() };
        self.host.get_or_create(&vec![("os", os), ("version", host.os_version.clone())]).set(1);
        self.drift.set(host.drift.as_ref().map_or(0, |drift| drift.since));
        if let Some(seconds) = host.boot_seconds {
            #[expect(clippy::cast_precision_loss, reason = "a boot does not take 2^52 seconds")]
            self.boot.set(seconds as f64);
        }
    }

    /// `reason` is the id of one, or empty.
    pub(super) fn state(&self, state: &str, reason: &str, now: i64) {
        let labels = vec![("state", state.to_owned()), ("reason", reason.to_owned())];
        if self.state.get(&labels).is_some() {
            return;
        }
        self.state.clear();
        self.state.get_or_create(&labels).set(now);
    }

    /// An update ended in Done, or failed for a reason.
    pub(super) fn update(&self, config: &str, reason: &str, now: i64) {
        self.update_state.clear();
        let labels = vec![("config", format!("MachineConfig: {config}")), ("err", reason.to_owned())];
        self.update_state.get_or_create(&labels).set(now);
        if reason.is_empty() {
            self.updates.inc();
            self.pivot_errors.set(0);
        }
    }

    /// Since when the kubelet has not been ready; none: it is, or does not say.
    pub(super) fn kubelet(&self, not_ready_since: Option<i64>) {
        self.not_ready_since.store(not_ready_since.unwrap_or(0), Ordering::Relaxed);
    }

    /// A clock may have been set back since: that is no negative time.
    pub(super) fn unavailable(&self, seconds: i64) {
        let seconds = seconds.max(0);
        #[expect(clippy::cast_precision_loss, reason = "no node is away for 2^52 seconds")]
        self.unavailable.set(seconds as f64);
    }

    pub(super) fn step(&self, kind: StepKind, measured: &Measured) {
        #[expect(clippy::cast_precision_loss, reason = "no step takes 2^52 milliseconds")]
        let seconds = measured.milliseconds as f64 / 1000.0;
        match kind {
            StepKind::Prepare => self.prepare.set(seconds),
            StepKind::Commit | StepKind::ApplyLive => self.commit.set(seconds),
            _ => return,
        };
        self.fetched.inc_by(measured.bytes_fetched);
        self.reused.inc_by(measured.bytes_reused);
    }

    pub(super) fn failure(&self, kind: StepKind) {
        let step = match kind {
            StepKind::Prepare => "prepare",
            StepKind::Commit => "commit",
            StepKind::ApplyLive => "apply-live",
            StepKind::Verify => "verify",
            StepKind::Cancel => "cancel",
            StepKind::Reboot => "reboot",
            StepKind::ControllerConfig => "controller-config",
        };
        self.failures.get_or_create(&vec![("step", step.to_owned())]).inc();
        match kind {
            StepKind::Reboot => {
                self.reboots_failed.inc();
            }
            StepKind::Prepare | StepKind::Commit => {
                self.pivot_errors.inc();
            }
            _ => {}
        }
    }
}

/// The Go daemon asked the kubelet so often, and counted the failures in a row: alerts compare with that.
const PROBE_SECONDS: i64 = 30;

fn failed_probes(not_ready_since: i64, now: i64) -> i64 {
    if not_ready_since == 0 { 0 } else { now.saturating_sub(not_ready_since).max(0) / PROBE_SECONDS + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_fails_a_probe_every_thirty_seconds() {
        assert_eq!(
            [(0, 99), (100, 100), (100, 190), (100, 50)].map(|(since, now)| failed_probes(since, now)),
            [0, 1, 4, 1]
        );
    }

    #[test]
    fn the_page_has_the_names_that_alerts_ask_for() {
        let metrics = Metrics::new();
        metrics.see_host(&HostReport { boot_seconds: Some(21), ..HostReport::default() });
        metrics.state("Done", "", 5);
        metrics.update("rendered-a", "", 5);
        metrics.unavailable(-7);
        metrics.failure(StepKind::Reboot);
        metrics.kubelet(None);
        let page = metrics.page();
        for line in [
            "mcd_host_os_and_version{os=\"unsupported\",version=\"\"} 1",
            "mcd_state{state=\"Done\",reason=\"\"} 5",
            "mcd_update_state{config=\"MachineConfig: rendered-a\",err=\"\"} 5",
            "mcd_config_drift 0",
            "mcd_kubelet_state 0",
            "mcd_pivot_errors_total 0",
            "mcd_reboots_failed_total 1",
            "mcd_updates_total 1",
            "mcd_boot_seconds 21.0",
            "mcd_update_unavailable_seconds 0.0",
            "mcd_step_failures_total{step=\"reboot\"} 1",
        ] {
            assert!(page.lines().any(|one| one == line), "{line} is not in\n{page}");
        }
    }
}
