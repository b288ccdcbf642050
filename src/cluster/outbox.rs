//! Writes to the Node that the API server has not taken yet.
//!
//! The decision sees the Node as it will be, so the host's work goes on while the API server is away;
//! newer writes replace older ones, and all that wait are one request.

use std::time::Duration;

use tokio::time::Instant;

use super::api::ApiFault;
use super::daemon::Daemon;
use super::drainer::Drainer;
use super::host_call::HostCall;
use super::jitter;
use super::node::Heard;
use crate::plan::backoff::doubled;
use crate::plan::cluster::NodeView;
use crate::plan::cluster::annotations::{Annotations, NodePatch};

/// Seconds before the first repetition.
const FIRST: u64 = 1;
/// Seconds between later ones, at most.
const LAST: u64 = 60;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    patch: NodePatch,
    tries: u32,
    due: Option<Instant>,
    is_away: bool,
}

impl Outbox {
    /// When the next try is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The API server did not answer when it was last asked.
    pub(super) fn is_away(&self) -> bool {
        self.is_away
    }

    /// It answers again: what waits is written at once.
    pub(super) fn is_back(&mut self) {
        self.is_away = false;
        if self.due.is_some() {
            self.tries = 0;
            self.due = Some(Instant::now());
        }
    }

    /// It does not answer.
    pub(super) fn went_away(&mut self) {
        self.is_away = true;
    }

    /// The Node as it will be.
    pub(super) fn over(&self, heard: &Heard) -> Option<NodeView> {
        let mut view = heard.view.clone()?;
        if self.patch.is_empty() {
            return Some(view);
        }
        let mut all = heard.annotations.clone();
        for (name, value) in &self.patch.annotations {
            match value {
                Some(value) => all.insert((*name).to_owned(), value.clone()),
                None => all.remove(*name),
            };
        }
        view.annotations = Annotations::read(&all);
        Some(view)
    }

    /// Also what was refused is tried again soon: an API server that starts refuses everything until it has
    /// read who may do what.
    fn failed(&mut self) {
        self.tries = self.tries.saturating_add(1);
        let pause = doubled(FIRST, LAST, self.tries);
        self.due = Some(Instant::now() + jitter(Duration::from_secs(pause)));
    }
}

impl<H: HostCall + 'static, D: Drainer + 'static> Daemon<H, D> {
    /// Writes to the Node: now if that is possible, else later.
    pub(super) async fn write(&mut self, patch: NodePatch) {
        self.outbox.patch.annotations.extend(patch.annotations);
        // While it is known to be away, everything waits for the next try.
        if !self.outbox.is_away || self.outbox.due.is_none() {
            self.flush().await;
        }
    }

    pub(super) async fn flush(&mut self) {
        self.outbox.due = None;
        if self.outbox.patch.is_empty() {
            return;
        }
        match self.cluster.patch_node(&self.outbox.patch).await {
            Ok(node) => {
                self.outbox = Outbox::default();
                self.heard.answer(node);
            }
            Err(ApiFault::Absent) => {
                tracing::info!("the Node is gone");
                self.outbox = Outbox::default();
                self.heard.hear(None);
            }
            Err(fault) => {
                tracing::warn!("the Node was not written, and will be: {fault}");
                self.outbox.is_away = matches!(fault, ApiFault::Away(_));
                self.outbox.failed();
            }
        }
    }
}
