//! A world that obeys: a node, a host, a drain controller. Each action has its effect at once; each
//! wait is followed by what was waited for.

use std::collections::BTreeMap;

use super::super::annotations::{self, Annotations, NodePatch};
use super::super::*;
use crate::model::wire::{Done, Failed, Outcome, PlanSummary};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Live,
    LiveWithDrain,
    Reboot,
    Refused,
    Broken,
    Unhealthy,
    Absent,
    NotAConfig,
}

/// What becomes of a config is in its name.
pub(super) fn kind(name: &str) -> Kind {
    match name.split('-').next().unwrap_or_default() {
        "live" => Kind::Live,
        "livedrain" => Kind::LiveWithDrain,
        "refused" => Kind::Refused,
        "broken" => Kind::Broken,
        "unhealthy" => Kind::Unhealthy,
        "absent" => Kind::Absent,
        "bad" => Kind::NotAConfig,
        _ => Kind::Reboot,
    }
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) view: View,
    pub(super) raw: BTreeMap<String, String>,
    pub(super) log: Vec<String>,
    pub(super) writes: usize,
    boots: u32,
    last_good: Option<String>,
}

impl World {
    /// A node that is Done with `reboot-a`.
    pub(super) fn done() -> Self {
        let raw = BTreeMap::from([
            (annotations::CURRENT_CONFIG.to_owned(), "reboot-a".to_owned()),
            (annotations::DESIRED_CONFIG.to_owned(), "reboot-a".to_owned()),
            (annotations::STATE.to_owned(), "Done".to_owned()),
            (annotations::DESIRED_DRAIN.to_owned(), "uncordon-reboot-a".to_owned()),
            (annotations::LAST_APPLIED_DRAIN.to_owned(), "uncordon-reboot-a".to_owned()),
        ]);
        let host = HostReport {
            mcd: "1".to_owned(),
            boot_id: "boot-0".to_owned(),
            applied_config: Some("reboot-a".to_owned()),
            ..HostReport::default()
        };
        let view =
            View { node: Some(NodeView::default()), host: Some(host), now: 1_000_000, ..View::default() };
        let mut world =
            Self { view, raw, log: Vec::new(), writes: 0, boots: 0, last_good: Some("reboot-a".to_owned()) };
        world.read();
        world
    }

    pub(super) fn annotate(&mut self, name: &str, value: &str) {
        self.raw.insert(name.to_owned(), value.to_owned());
        self.read();
    }

    pub(super) fn desire(&mut self, config: &str) {
        self.annotate(annotations::DESIRED_CONFIG, config);
    }

    pub(super) fn host(&mut self) -> &mut HostReport {
        self.view.host.as_mut().unwrap()
    }

    pub(super) fn node(&self) -> &NodeView {
        self.view.node.as_ref().unwrap()
    }

    fn read(&mut self) {
        if let Some(node) = &mut self.view.node {
            node.annotations = Annotations::read(&self.raw);
            let node = node.clone();
            self.view.memory.see_node(&node, self.view.now);
        }
    }

    /// Acts until nothing more comes by itself; at most `limit` actions.
    pub(super) fn settle(&mut self, limit: usize) -> Wait {
        for _ in 0..limit {
            if let Some(wait) = self.step() {
                return wait;
            }
        }
        panic!("still busy after {limit} actions:\n{}\n{:#?}", self.log.join("\n"), self.view);
    }

    /// One action; the wait that nothing will end.
    pub(super) fn step(&mut self) -> Option<Wait> {
        if let Some(host) = self.view.host.clone() {
            self.view.memory.see_host(&host);
        }
        let action = next(&self.view);
        self.log.push(describe(&action));
        match action {
            Action::AskHost => panic!("the host is known"),
            Action::Attach(_) => self.host().running.clear(),
            Action::FetchConfig(name) => self.fetch(name),
            Action::Publish(publish) => self.publish(publish),
            Action::Drain(order) => {
                self.view.node.as_mut().unwrap().unschedulable = order.starts_with("drain-");
                self.annotate(annotations::LAST_APPLIED_DRAIN, &order);
            }
            Action::Host(step) => self.host_step(&step),
            Action::Wait(wait) => return self.wait(wait),
        }
        None
    }

    fn fetch(&mut self, name: String) {
        self.view.config = match kind(&name) {
            Kind::Absent => {
                let attempts = match &self.view.config {
                    ConfigView::Absent { attempts, .. } => attempts + 1,
                    _ => 1,
                };
                ConfigView::Absent { name, at: self.view.now, attempts }
            }
            Kind::NotAConfig => {
                ConfigView::Bad { name, why: "spec.config: not an object".to_owned(), at: self.view.now }
            }
            _ => ConfigView::Found { name },
        };
    }

    fn publish(&mut self, publish: Publish) {
        assert!(!publish.patch.is_empty(), "a write that changes nothing:\n{}", self.log.join("\n"));
        self.writes += 1;
        if publish.reason.is_some_and(|reason| reason.kind.state() != annotations::State::Working) {
            self.view.memory.degraded_for = Some(target(self.node()));
        }
        self.patch(publish.patch);
    }

    fn patch(&mut self, patch: NodePatch) {
        for (name, value) in patch.annotations {
            match value {
                Some(value) => self.raw.insert(name.to_owned(), value),
                None => self.raw.remove(name),
            };
        }
        self.read();
    }

    fn host_step(&mut self, step: &Step) {
        let target = target(self.node());
        let boot = self.host().boot_id.clone();
        let end = self.carry_out(step, &target);
        let now = self.view.now;
        self.view.memory.see_end(step, &target, &boot, &end, now);
    }

    fn carry_out(&mut self, step: &Step, target: &Target) -> Result<Done, Failed> {
        let kind = kind(&target.config);
        let fail = |code, what: &str| Failed { code, what: what.to_owned(), ..Failed::default() };
        match step {
            Step::Prepare { .. } => {
                let plan = match kind {
                    Kind::Refused => return Err(fail(3, "file /etc/x: reserved")),
                    Kind::Broken => return Err(fail(1, "image: no such host")),
                    Kind::Live => PlanSummary::default(),
                    Kind::LiveWithDrain => PlanSummary { drain: true, ..PlanSummary::default() },
                    _ => PlanSummary { drain: true, reboot: true, ..PlanSummary::default() },
                };
                if self.host().applied_config.as_ref() == Some(&target.config)
                    && self.host().intent.is_none()
                    && target.image == self.host().booted_image
                {
                    return Ok(Done { outcome: Outcome::Nothing, ..Done::default() });
                }
                if plan.reboot {
                    self.host().intent = Some(IntentReport {
                        id: format!("change-{}", target.config),
                        config: Some(target.config.clone()),
                        image: target.image.clone(),
                        committed: false,
                        plan: plan.clone(),
                    });
                }
                let change = plan.reboot.then(|| format!("change-{}", target.config));
                Ok(Done { outcome: Outcome::Prepared, change, plan: Some(plan), ..Done::default() })
            }
            Step::Commit { change, .. } => {
                let host = self.host();
                let Some(intent) = &mut host.intent else { return Err(fail(3, "nothing is prepared")) };
                if intent.id != *change {
                    return Err(fail(3, "superseded"));
                }
                intent.committed = true;
                host.force = false;
                Ok(Done { outcome: Outcome::Committed, ..Done::default() })
            }
            Step::ApplyLive { .. } => {
                let host = self.host();
                host.applied_config = Some(target.config.clone());
                host.booted_image = target.image.clone();
                host.force = false;
                host.change = Some(Change {
                    config: Some(target.config.clone()),
                    image: target.image.clone(),
                    state: ChangeState::Good,
                    ..Change::default()
                });
                self.last_good = Some(target.config.clone());
                Ok(Done { outcome: Outcome::Applied, ..Done::default() })
            }
            Step::Verify { repair } => {
                if *repair {
                    self.host().drift = None;
                }
                if self.host().drift.is_some() {
                    return Err(fail(5, "the host differs"));
                }
                Ok(Done { outcome: Outcome::Ok, ..Done::default() })
            }
            Step::Cancel => {
                self.host().intent = None;
                Ok(Done::default())
            }
            Step::ControllerConfig { .. } => Ok(Done { outcome: Outcome::Applied, ..Done::default() }),
            Step::Reboot { .. } => {
                self.annotate(annotations::POST_CONFIG_ACTION, annotations::REBOOTING);
                Ok(Done { outcome: Outcome::Rebooting, ..Done::default() })
            }
        }
    }

    /// The machine comes up again, and this process with it.
    fn reboot(&mut self) {
        self.boots += 1;
        let boot_id = format!("boot-{}", self.boots);
        let host = self.host();
        host.boot_id = boot_id;
        host.force = false;
        if let Some(intent) = host.intent.take_if(|intent| intent.committed) {
            host.applied_config = intent.config.clone();
            host.booted_image = intent.image.clone();
            host.change = Some(Change {
                id: intent.id,
                config: intent.config,
                image: intent.image,
                state: ChangeState::Booted,
                cause: None,
            });
        }
        self.view.memory = Memory::default();
        self.view.config = ConfigView::NotFetched;
        self.view.drain = SelfDrain::Idle;
        self.read();
    }

    fn judge(&mut self) {
        let last_good = self.last_good.clone();
        let host = self.host();
        let Some(change) = &mut host.change else { panic!("nothing to judge") };
        if kind(change.config.as_deref().unwrap_or_default()) == Kind::Unhealthy {
            change.state = ChangeState::Failed;
            change.cause = Some("kubelet.service is not active".to_owned());
            host.applied_config = last_good;
            host.booted_image = None;
            host.boot_id.push_str("-back");
            self.view.memory = Memory::default();
        } else {
            change.state = ChangeState::Good;
            let config = change.config.clone();
            host.went_back = None;
            self.last_good = config;
        }
        self.read();
    }

    fn wait(&mut self, wait: Wait) -> Option<Wait> {
        let node = self.node().annotations.clone();
        match wait.waits {
            Waits::Drain | Waits::Uncordon if node.drain_is_pending() => {
                self.view.drain = SelfDrain::Idle;
                self.view.node.as_mut().unwrap().unschedulable = node.asks_to_drain();
                self.annotate(annotations::LAST_APPLIED_DRAIN, &node.desired_drain);
                None
            }
            Waits::Verdict => {
                self.judge();
                None
            }
            Waits::Reboot => {
                self.reboot();
                None
            }
            // Retries never end by themselves where the world stays as it is.
            _ => Some(wait),
        }
    }
}

pub(super) fn describe(action: &Action) -> String {
    match action {
        Action::Publish(publish) => {
            let short = |name: &str| name.trim_start_matches(annotations::PREFIX).to_owned();
            let all: Vec<String> = publish
                .patch
                .annotations
                .iter()
                .map(|(name, value)| match value {
                    Some(value) => format!("{}={value}", short(name)),
                    None => format!("-{}", short(name)),
                })
                .collect();
            format!("publish {}", all.join(" "))
        }
        Action::Host(step) => {
            format!("host {:?}{}", step.kind(), if step.force() { " (forced)" } else { "" })
        }
        Action::Wait(wait) => format!("wait {:?}", wait.waits),
        Action::FetchConfig(name) => format!("fetch {name}"),
        Action::AskHost => "ask".to_owned(),
        Action::Attach(id) => format!("attach {id}"),
        Action::Drain(order) => format!("drain {order}"),
    }
}
