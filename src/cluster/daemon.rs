//! The loop: look, decide, do one thing, come back.
//!
//! One task on one thread. Nothing polls: it wakes when the Node, the ControllerConfig or the host says
//! something, or when a retry is due. While the host works it goes on listening; where the API server is
//! away, writes wait in the outbox and the host's work goes on.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use tokio::time::Instant;

use super::api::{ApiFault, Cluster};
use super::drainer::Drainer;
use super::events::{self, Event};
use super::hear::{Draining, Happened};
use super::host_call::HostCall;
use super::machine_config_node::MachineConfigNode;
use super::metrics::Metrics;
use super::node::{self, Heard, Watch};
use super::outbox::Outbox;
use super::request::{self, Texts};
use super::{controller_config, jitter};
use crate::error::{ExitKind, to_fault};
use crate::model::wire::{Done, Failed, Reply, ReplyBody};
use crate::plan::cluster::annotations::{self, NodePatch, State};
use crate::plan::cluster::memory::delay;
use crate::plan::cluster::phase::Progress;
use crate::plan::cluster::reason::ReasonKind;
use crate::plan::cluster::{
    Action, ConfigView, ControllerConfigView, Publish, Settings, Step, Target, View, Wait, Waits,
    is_superseded, next, target,
};

/// So often the host may not answer before the node is called Degraded: it may be starting.
const HOST_TRIES: u32 = 3;
/// Between two tries to reach the host.
const HOST_AGAIN: Duration = Duration::from_secs(2);
/// Seconds by which the clock must differ from what has passed to count as set.
const CLOCK_STEP: i64 = 5;

/// The daemon of one node.
pub struct Daemon<H, D> {
    pub(super) cluster: Cluster,
    pub(super) host: Rc<H>,
    pub(super) drainer: Rc<D>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) view: View,
    pub(super) heard: Heard,
    pub(super) outbox: Outbox,
    pub(super) nodes: Watch<Node>,
    pub(super) controller_configs: Option<Watch<DynamicObject>>,
    pub(super) draining: Option<Draining>,
    pub(super) changed: Option<std::pin::Pin<Box<dyn Future<Output = ()>>>>,
    pub(super) texts: Texts,
    progress: Progress,
    machine_config_node: MachineConfigNode,
    who: String,
    /// Of the host that was last asked.
    boot: String,
    /// What the clock said, in seconds since the epoch, and when.
    clock: (Instant, i64),
    host_tries: u32,
    fetch_tries: u32,
}

impl<H, D> std::fmt::Debug for Daemon<H, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("node", &self.cluster.node).finish_non_exhaustive()
    }
}

impl<H: HostCall + 'static, D: Drainer + 'static> Daemon<H, D> {
    /// The daemon of `cluster`'s node.
    pub fn new(
        cluster: Cluster,
        host: Rc<H>,
        drainer: Rc<D>,
        settings: Settings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let nodes = node::watch(&cluster);
        let controller_configs = Some(controller_config::watch(&cluster));
        let who =
            std::env::var("HOSTNAME").map_or_else(|_| "daemon".to_owned(), |pod| format!("daemon {pod}"));
        Self {
            cluster,
            host,
            drainer,
            metrics,
            view: View { settings, ..View::default() },
            heard: Heard::default(),
            outbox: Outbox::default(),
            nodes,
            controller_configs,
            draining: None,
            changed: None,
            texts: Texts::default(),
            progress: Progress::default(),
            machine_config_node: MachineConfigNode::default(),
            who,
            boot: String::new(),
            clock: (Instant::now(), jiff::Timestamp::now().as_second()),
            host_tries: 0,
            fetch_tries: 0,
        }
    }

    /// Follows the Node for ever.
    pub async fn run(&mut self) {
        loop {
            self.turn().await;
        }
    }

    /// One action.
    async fn turn(&mut self) {
        self.look();
        let action = next(&self.view);
        tracing::debug!("{action:?}");
        let progress = self.progress.after(&self.view, &action);
        if !matches!(action, Action::Publish(_)) {
            self.show(progress.clone()).await;
        }
        match action {
            Action::AskHost => self.ask_host().await,
            Action::FetchConfig(name) => self.fetch(name).await,
            Action::Publish(publish) => {
                self.publish(publish).await;
                self.show(progress).await;
            }
            Action::Host(step) => self.step(step).await,
            Action::Attach(id) => self.attach(&id).await,
            Action::Drain(order) => self.drain(order),
            Action::Wait(wait) => self.wait(&wait).await,
        }
    }

    /// Puts together what the decision sees.
    pub(super) fn look(&mut self) {
        self.look_at_the_clock();
        self.metrics.kubelet(self.heard.not_ready_since);
        self.view.node = self.outbox.over(&self.heard);
        self.drop_drain();
        if let Some(node) = &self.view.node {
            self.view.memory.see_node(node, self.view.now);
            let state = node.annotations.state.map_or("", State::as_str);
            let reason = node.annotations.reason.split(':').next().unwrap_or_default();
            let known = ReasonKind::ALL.iter().any(|kind| kind.id() == reason);
            self.metrics.state(state, if known { reason } else { "" }, self.view.now);
        }
        if self.view.node.is_some() && self.view.host.is_some() {
            self.metrics.ready();
        }
    }

    /// A clock that was set makes no retry late, and none early.
    fn look_at_the_clock(&mut self) {
        let (since, then) = self.clock;
        let elapsed = i64::try_from(since.elapsed().as_secs()).unwrap_or(0);
        let now = jiff::Timestamp::now().as_second();
        let step = now.saturating_sub(then.saturating_add(elapsed));
        if step.abs() >= CLOCK_STEP {
            tracing::info!("the clock was set by {step} seconds");
            self.view.shift(step);
        }
        self.clock = (Instant::now(), now);
        self.view.now = now;
    }

    async fn show(&mut self, progress: Progress) {
        self.progress = progress;
        if self.outbox.is_away() || !self.progress.is_known {
            return;
        }
        if let Some(node) = &self.view.node
            && !node.annotations.desired_config.is_empty()
        {
            self.machine_config_node.publish(&self.cluster, node, &self.heard, &self.progress).await;
        }
    }

    async fn ask_host(&mut self) {
        self.listen_to_host();
        match self.host.status().await {
            Ok(report) => {
                self.host_tries = 0;
                self.view.host_fault = None;
                self.view.memory.see_host(&report);
                self.metrics.see_host(&report);
                self.boot.clone_from(&report.boot_id);
                self.view.host = Some(report);
            }
            Err(error) => {
                self.host_tries = self.host_tries.saturating_add(1);
                let failed = Failed::from(&to_fault(&error));
                tracing::warn!("the host does not answer: {}", failed.line());
                self.view.host = None;
                if self.host_tries >= HOST_TRIES {
                    self.view.host_fault = Some(failed.line());
                } else {
                    self.listen(None, Some(Instant::now() + HOST_AGAIN)).await;
                }
            }
        }
    }

    async fn fetch(&mut self, name: String) {
        let attempts = match &self.view.config {
            ConfigView::Absent { name: of, attempts, .. } if *of == name => *attempts,
            _ => 0,
        };
        self.view.config = match self.cluster.machine_config(&name).await {
            Ok(found) if found["kind"] == "MachineConfig" && found["spec"].is_object() => {
                self.fetch_tries = 0;
                self.texts.machine_config = found.to_string();
                ConfigView::Found { name }
            }
            Ok(_) => ConfigView::Bad {
                name,
                why: "kind and spec are not those of a MachineConfig".to_owned(),
                at: self.view.now,
            },
            Err(ApiFault::Absent) => {
                ConfigView::Absent { name, at: self.view.now, attempts: attempts.saturating_add(1) }
            }
            Err(ApiFault::Refused(why)) => ConfigView::Bad { name, why, at: self.view.now },
            Err(fault @ ApiFault::Away(_)) => {
                tracing::warn!("MachineConfig {name} was not fetched: {fault}");
                self.fetch_tries = self.fetch_tries.saturating_add(1);
                let pause = jitter(Duration::from_secs(delay(self.fetch_tries).unsigned_abs()));
                self.listen(None, Some(Instant::now() + pause)).await;
                return;
            }
        };
    }

    async fn publish(&mut self, publish: Publish) {
        let Publish { patch, reason } = publish;
        let value = |name: &str| patch.annotations.get(name).and_then(Option::as_deref).map(str::to_owned);
        let (state, order) = (value(annotations::STATE), value(annotations::DESIRED_DRAIN));
        let before = self.view.node.clone().unwrap_or_default();
        let to = target(&before);
        if let Some(reason) = &reason
            && reason.kind.state() != State::Working
        {
            self.view.memory.degraded_for = Some(to.clone());
        }
        self.write(patch).await;
        self.tell(&to.config, state.as_deref(), order.as_deref(), reason.as_ref());
        if state.as_deref() == Some(State::Done.as_str()) {
            self.finished(&to.config, &before.annotations.drain_since);
        }
    }

    /// Tells people, in the words that they search for.
    fn tell(
        &self,
        config: &str,
        state: Option<&str>,
        order: Option<&str>,
        reason: Option<&crate::plan::cluster::reason::Reason>,
    ) {
        if order.is_some_and(|order| order.starts_with("drain-")) {
            tracing::info!("Update prepared; requesting cordon and drain via annotation to controller");
            self.event(&Event::normal("Drain", format!("Draining node to update to {config}")));
        }
        let Some(reason) = reason else {
            if state == Some(State::Done.as_str()) {
                tracing::info!("In desired state MachineConfig: {config}");
            }
            return;
        };
        let line = reason.annotation();
        let state = reason.kind.state().as_str();
        if reason.kind.state() == State::Working {
            tracing::info!("{line}");
        } else {
            tracing::error!("Marking {state} due to: {line:?}");
            self.event(&Event::warning(events::name(reason.kind), line));
            self.metrics.update(config, reason.kind.id(), self.view.now);
        }
    }

    fn finished(&mut self, config: &str, drain_since: &str) {
        let node = self.cluster.node.clone();
        self.event(&Event::normal(
            "NodeDone",
            format!("Setting node {node}, currentConfig {config} to Done"),
        ));
        self.metrics.update(config, "", self.view.now);
        if let Ok(since) = drain_since.parse::<i64>() {
            self.metrics.unavailable(self.view.now.saturating_sub(since));
        }
        self.texts.machine_config = String::new();
        self.view.config = ConfigView::NotFetched;
        // The next failure is news again, whatever it is over.
        self.view.memory.degraded_for = None;
    }

    fn event(&self, event: &Event) {
        events::send(&self.cluster, &self.heard.uid, event);
    }

    async fn step(&mut self, step: Step) {
        let of = self.view.node.as_ref().map(target).unwrap_or_default();
        if let Step::Reboot { config } = &step {
            tracing::info!("initiating reboot: Node will reboot into config {config}");
            self.event(&Event::normal("Reboot", format!("Node will reboot into config {config}")));
            let patch = NodePatch::new().set(annotations::POST_CONFIG_ACTION, "", annotations::REBOOTING);
            self.write(patch).await;
        }
        if let Step::Prepare { target, .. } = &step {
            let from = self.view.node.as_ref().map(|node| node.annotations.current_config.clone());
            tracing::info!("Starting update from {} to {}", from.unwrap_or_default(), target.config);
        }
        let request = request::request(&step, &self.texts, &self.who, self.protocol());
        let end = match self.host.run(&request).await {
            Ok(()) => self.follow(&request.id, Some(&step)).await,
            Err(error) => Err(Failed::from(&to_fault(&error))),
        };
        self.ended(&step, &of, end).await;
    }

    async fn attach(&mut self, id: &str) {
        let running = self.view.host.as_ref().and_then(|host| host.running.iter().find(|one| one.id == id));
        let known = running.and_then(request::step);
        tracing::info!("following {id}, which the host carries out already");
        let step = known.as_ref().map(|(step, _)| step.clone());
        let end = self.follow(id, step.as_ref()).await;
        match known {
            Some((step, of)) => self.ended(&step, &of, end).await,
            None => self.ask_host().await,
        }
    }

    /// Follows a request to its end; listens to everything else meanwhile.
    async fn follow(&mut self, id: &str, step: Option<&Step>) -> Result<Done, Failed> {
        let mut seen = 0;
        let mut is_cancelled = false;
        loop {
            let (host, of) = (Rc::clone(&self.host), id.to_owned());
            let mut reply = Box::pin(async move { host.reply(&of, seen).await });
            let said = loop {
                if let Happened::Reply(said) = self.listen(Some(reply.as_mut()), None).await {
                    break said;
                }
                self.look();
                if !is_cancelled && step.is_some_and(|step| is_superseded(&self.view, step)) {
                    is_cancelled = true;
                    self.stop().await;
                }
            };
            match said {
                Ok(Reply { seq, body }) => {
                    seen = seq;
                    match body {
                        ReplyBody::Progress { message } => tracing::info!("{message}"),
                        ReplyBody::Done(done) => return Ok(*done),
                        ReplyBody::Failed(failed) => return Err(failed),
                        ReplyBody::Unknown => {}
                    }
                }
                Err(error) => return Err(Failed::from(&to_fault(&error))),
            }
        }
    }

    fn protocol(&self) -> u32 {
        self.view.host.as_ref().map_or(0, |host| host.version)
    }

    /// Something else is desired: what is being prepared is not worth waiting for.
    async fn stop(&self) {
        let request = request::request(&Step::Cancel, &self.texts, &self.who, self.protocol());
        if let Err(error) = self.host.run(&request).await {
            tracing::warn!("what is no longer desired is prepared to its end: {error:#}");
        }
    }

    async fn ended(&mut self, step: &Step, of: &Target, end: Result<Done, Failed>) {
        self.look_at_the_clock();
        let now = self.view.now;
        match &end {
            Ok(done) => {
                self.metrics.step(step.kind(), &done.measured);
                if let Step::Commit { target, .. } = step {
                    let text = format!("{} starts with the next boot", target.config);
                    self.event(&Event::normal("OSUpdateStaged", text));
                }
            }
            // Differences are what a comparison is for.
            Err(failed) if failed.code == ExitKind::Differs.code() => {}
            Err(failed) => {
                self.metrics.failure(step.kind());
                tracing::warn!("{:?} failed: {}", step.kind(), failed.line());
            }
        }
        self.view.memory.see_end(step, of, &self.boot, &end, now);
        self.ask_host().await;
    }

    async fn wait(&mut self, wait: &Wait) {
        let until = wait.until.map(|until| {
            let pause = Duration::from_secs(until.saturating_sub(self.view.now).max(0).unsigned_abs());
            // Never before: the decision would be the same and the wait begin again.
            let pause = pause + Duration::from_millis(200);
            Instant::now() + if wait.waits == Waits::Retry { jitter(pause) } else { pause }
        });
        tracing::debug!("waiting: {:?}", wait.waits);
        if let Happened::Time = self.listen(None, until).await
            && self.view.host.is_none()
        {
            self.view.host_fault = None;
        }
    }

    /// What the ControllerConfig says now.
    pub(super) fn see_controller_config(&mut self, object: Option<DynamicObject>) {
        let Some(object) = object else {
            self.view.controller_config = ControllerConfigView::None;
            return;
        };
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        self.view.controller_config = match controller_config::machine_config(&object.data, &version) {
            Ok(text) => {
                self.texts.controller_config = text;
                ControllerConfigView::Found { version }
            }
            Err(why) => ControllerConfigView::Bad { version, why },
        };
    }
}
