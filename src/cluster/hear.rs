//! What the loop listens to.

use std::pin::Pin;
use std::rc::Rc;

use anyhow::Result;
use futures_util::{FutureExt as _, StreamExt as _};
use kube::runtime::watcher;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::Instant;

use super::daemon::Daemon;
use super::drainer::Drainer;
use super::host_call::HostCall;
use crate::model::wire::Reply;
use crate::plan::cluster::annotations::{LAST_APPLIED_DRAIN, NodePatch};
use crate::plan::cluster::{SelfDrain, target};

/// A drain that this process carries out.
pub(super) struct Draining {
    order: String,
    task: Pin<Box<dyn Future<Output = Result<()>>>>,
    blocked: UnboundedReceiver<String>,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Happened {
    /// The host answered.
    Reply(Result<Reply>),
    /// The time has come.
    Time,
    /// Something else; it has been taken note of.
    Other,
}

type NextReply<'a> = Pin<&'a mut dyn Future<Output = Result<Reply>>>;

impl<H: HostCall + 'static, D: Drainer + 'static> Daemon<H, D> {
    /// Waits until something happens, and takes note of it.
    pub(super) async fn listen(&mut self, reply: Option<NextReply<'_>>, until: Option<Instant>) -> Happened {
        let follows = reply.is_some();
        let host = Rc::clone(&self.host);
        let changed = self.changed.get_or_insert_with(|| Box::pin(async move { host.changed().await }));
        let flush = self.outbox.due();
        tokio::select! {
            biased;
            said = maybe(reply) => return Happened::Reply(said),
            node = self.nodes.next() => self.node_changed(node),
            object = maybe(self.controller_configs.as_mut().map(|watch| watch.next())) => {
                self.controller_config_changed(object);
            }
            () = changed, if !follows => {
                self.changed = None;
                self.view.host = None;
            }
            said = maybe(self.draining.as_mut().map(|one| one.next().boxed_local())) => {
                self.drain_said(said).await;
            }
            () = sleep(flush) => self.flush().await,
            () = sleep(until) => return Happened::Time,
        }
        Happened::Other
    }

    /// Begins to listen to the host, unless that is done already. Before it is asked how it is: what changes
    /// in between would not be heard.
    pub(super) fn listen_to_host(&mut self) {
        // One that has something to say already is over: the question that follows answers it.
        for _ in 0..2 {
            let host = Rc::clone(&self.host);
            let changed = self.changed.get_or_insert_with(|| Box::pin(async move { host.changed().await }));
            match changed.as_mut().now_or_never() {
                Some(()) => self.changed = None,
                None => return,
            }
        }
    }

    fn node_changed(&mut self, node: Option<watcher::Result<Option<k8s_openapi::api::core::v1::Node>>>) {
        match node {
            Some(Ok(node)) => {
                let before = self.heard.view.as_ref().map(target);
                self.outbox.is_back();
                self.heard.hear(node);
                // What the host said is from before somebody wanted something else of it.
                if self.heard.view.as_ref().map(target) != before {
                    self.view.host = None;
                }
            }
            Some(Err(error)) => {
                tracing::warn!("the watch of the Node broke and is taken up again: {error}");
                self.outbox.went_away();
            }
            None => self.nodes = super::node::watch(&self.cluster),
        }
    }

    fn controller_config_changed(
        &mut self,
        object: Option<watcher::Result<Option<kube::api::DynamicObject>>>,
    ) {
        match object {
            Some(Ok(object)) => self.see_controller_config(object),
            Some(Err(error)) if is_unknown_kind(&error) => {
                tracing::info!("this cluster has no ControllerConfig; none is followed");
                self.controller_configs = None;
            }
            Some(Err(error)) => tracing::debug!("the watch of the ControllerConfig broke: {error}"),
            None => self.controller_configs = None,
        }
    }

    /// Begins to carry an order out; an older one is dropped.
    pub(super) fn drain(&mut self, order: String) {
        let (send, blocked) = mpsc::unbounded_channel();
        let (drainer, of) = (Rc::clone(&self.drainer), order.clone());
        let task = Box::pin(async move { drainer.carry_out(&of, &send).await });
        self.view.drain = SelfDrain::Running { order: order.clone() };
        self.draining = Some(Draining { order, task, blocked });
    }

    /// Ends a drain that is no longer ordered.
    pub(super) fn drop_drain(&mut self) {
        let ordered = self.view.node.as_ref().map(|node| &node.annotations.desired_drain);
        if self.draining.as_ref().is_some_and(|draining| Some(&draining.order) != ordered) {
            self.draining = None;
            self.view.drain = SelfDrain::Idle;
        }
    }

    async fn drain_said(&mut self, said: DrainSays) {
        let Some(draining) = &self.draining else { return };
        let order = draining.order.clone();
        match said {
            DrainSays::Blocked(why) => self.view.drain = SelfDrain::Blocked { order, why },
            DrainSays::End(Ok(())) => {
                tracing::info!("drain complete: {order}");
                self.draining = None;
                self.view.drain = SelfDrain::Idle;
                self.write(NodePatch::new().set(LAST_APPLIED_DRAIN, "", &order)).await;
            }
            DrainSays::End(Err(error)) => {
                let fault = crate::error::to_fault(&error);
                self.view.drain = SelfDrain::Blocked { order: order.clone(), why: fault.to_string() };
                self.draining = Some(Draining::again(&self.drainer, order));
            }
        }
    }
}

enum DrainSays {
    Blocked(String),
    End(Result<()>),
}

impl Draining {
    /// The same once more, after a pause.
    fn again<D: Drainer + 'static>(drainer: &Rc<D>, order: String) -> Self {
        let (send, blocked) = mpsc::unbounded_channel();
        let (drainer, of) = (Rc::clone(drainer), order.clone());
        let task = Box::pin(async move {
            tokio::time::sleep(super::jitter(DRAIN_AGAIN)).await;
            drainer.carry_out(&of, &send).await
        });
        Self { order, task, blocked }
    }

    async fn next(&mut self) -> DrainSays {
        tokio::select! {
            biased;
            Some(why) = self.blocked.recv() => DrainSays::Blocked(why),
            end = &mut self.task => DrainSays::End(end),
        }
    }
}

/// After a drain that could not go on.
const DRAIN_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// The future, or none for ever.
async fn maybe<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn sleep(until: Option<Instant>) {
    maybe(until.map(tokio::time::sleep_until)).await;
}

fn is_unknown_kind(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    super::api::classify(error) == super::api::ApiFault::Absent
}
