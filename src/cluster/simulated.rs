//! A host that is not there: for tests and for simulating a fleet. It obeys, and is as quick or slow as
//! it is told.
//!
//! What becomes of a MachineConfig is in its annotation [`PLAN`]: `live`, `refused`, `broken` (cannot be
//! fetched), `unhealthy` (goes back after its boot); anything else is a reboot.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::sync::Notify;

use super::host_call::HostCall;
use crate::model::wire::{
    Change, ChangeState, Done, Failed, HostReport, HostRequest, IntentReport, Measured, Outcome, PlanSummary,
    Reply, ReplyBody, SOURCE_CONTROLLER_CONFIG, Verb, WIRE_VERSION, Wanted,
};

/// The annotation of a MachineConfig that says what becomes of it.
pub const PLAN: &str = "mcd.test/plan";

/// How long things take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// A prepare.
    pub prepare: Duration,
    /// A reboot, until the host answers again.
    pub reboot: Duration,
    /// The verdict after a boot.
    pub verdict: Duration,
}

/// The host.
#[derive(Debug)]
pub struct Simulated {
    inner: RefCell<Inner>,
    changed: Notify,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Inner {
    report: HostReport,
    boots: u32,
    last_good: Option<String>,
    plans: BTreeMap<String, String>,
    requests: BTreeMap<String, HostRequest>,
    log: Vec<String>,
}

impl Simulated {
    /// A host that has `config`.
    pub fn new(config: Option<&str>, pace: Pace) -> Self {
        let report = HostReport {
            version: WIRE_VERSION,
            mcd: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: "boot-0".to_owned(),
            os: "simulated".to_owned(),
            applied_config: config.map(str::to_owned),
            ..HostReport::default()
        };
        let last_good = report.applied_config.clone();
        Self {
            inner: RefCell::new(Inner { report, last_good, ..Inner::default() }),
            changed: Notify::new(),
            pace,
        }
    }

    /// Changes what the host says of itself.
    pub fn edit(&self, edit: impl FnOnce(&mut HostReport)) {
        edit(&mut self.inner.borrow_mut().report);
        self.changed.notify_one();
    }

    /// What it was asked for, in order: `prepare`, `commit`, …
    pub fn log(&self) -> Vec<String> {
        self.inner.borrow().log.clone()
    }

    /// Carries a request out.
    async fn carry_out(&self, request: &HostRequest) -> Result<Done, Failed> {
        match &request.verb {
            Verb::Prepare(wanted) => {
                tokio::time::sleep(self.pace.prepare).await;
                self.inner.borrow_mut().prepare(wanted)
            }
            Verb::ApplyLive(wanted) => {
                let end = self.inner.borrow_mut().apply_live(wanted);
                self.changed.notify_one();
                end
            }
            Verb::Commit { change, .. } => self.inner.borrow_mut().commit(change),
            Verb::Reboot { .. } => {
                tokio::time::sleep(self.pace.reboot).await;
                self.inner.borrow_mut().reboot();
                self.changed.notify_one();
                Ok(done(Outcome::Rebooting))
            }
            Verb::Verify { repair } => {
                let mut inner = self.inner.borrow_mut();
                if *repair {
                    inner.report.drift = None;
                }
                match &inner.report.drift {
                    Some(drift) => Err(Failed {
                        code: 5,
                        what: "the host differs from its records".to_owned(),
                        differs: drift.differs.clone(),
                        ..Failed::default()
                    }),
                    None => Ok(done(Outcome::Ok)),
                }
            }
            Verb::Cancel => {
                self.inner.borrow_mut().report.intent = None;
                Ok(done(Outcome::Ok))
            }
            Verb::Status | Verb::TakeOver => Ok(done(Outcome::Ok)),
            Verb::MoveToImage { .. } | Verb::Unknown => Err(Failed {
                code: 3,
                what: "a simulated host does not do that".to_owned(),
                ..Failed::default()
            }),
        }
    }
}

fn done(outcome: Outcome) -> Done {
    Done { outcome, ..Done::default() }
}

fn plan_of(wanted: &Wanted) -> String {
    let config: serde_json::Value = serde_json::from_str(&wanted.machine_config).unwrap_or_default();
    config["metadata"]["annotations"][PLAN].as_str().unwrap_or("reboot").to_owned()
}

impl Inner {
    fn prepare(&mut self, wanted: &Wanted) -> Result<Done, Failed> {
        let kind = plan_of(wanted);
        self.plans.insert(wanted.name.clone(), kind.clone());
        let fail = |code, what: &str| Failed { code, what: what.to_owned(), ..Failed::default() };
        match kind.as_str() {
            "refused" => return Err(fail(3, "file /etc/hosts: reserved")),
            "broken" => return Err(fail(1, "image registry.test/os: no such host")),
            _ => {}
        }
        let is_there = self.report.applied_config.as_ref() == Some(&wanted.name)
            && self.report.intent.is_none()
            && self.report.booted_image == wanted.image;
        if is_there {
            return Ok(done(Outcome::Nothing));
        }
        let reboot = kind != "live";
        let plan = PlanSummary { drain: reboot, reboot, ..PlanSummary::default() };
        let change = format!("change-{}", wanted.name);
        if reboot {
            self.report.intent = Some(IntentReport {
                id: change.clone(),
                config: Some(wanted.name.clone()),
                image: wanted.image.clone(),
                committed: false,
                plan: plan.clone(),
            });
        }
        let measured = Measured { milliseconds: 1500, bytes_fetched: 1000, bytes_reused: 9000 };
        Ok(Done { change: Some(change), plan: Some(plan), measured, ..done(Outcome::Prepared) })
    }

    fn apply_live(&mut self, wanted: &Wanted) -> Result<Done, Failed> {
        if wanted.source == SOURCE_CONTROLLER_CONFIG {
            return Ok(done(Outcome::Applied));
        }
        self.report.applied_config = Some(wanted.name.clone());
        self.report.booted_image.clone_from(&wanted.image);
        self.report.force = false;
        self.report.change = Some(Change {
            config: Some(wanted.name.clone()),
            image: wanted.image.clone(),
            state: ChangeState::Good,
            ..Change::default()
        });
        self.last_good = Some(wanted.name.clone());
        Ok(done(Outcome::Applied))
    }

    fn commit(&mut self, change: &str) -> Result<Done, Failed> {
        self.report.force = false;
        match &mut self.report.intent {
            Some(intent) if intent.id == change => {
                intent.committed = true;
                Ok(done(Outcome::Committed))
            }
            _ => Err(Failed { code: 3, what: format!("{change} is not prepared"), ..Failed::default() }),
        }
    }

    fn reboot(&mut self) {
        self.boots += 1;
        self.report.boot_id = format!("boot-{}", self.boots);
        self.report.force = false;
        self.report.boot_seconds = Some(20);
        let Some(intent) = self.report.intent.take_if(|intent| intent.committed) else { return };
        self.report.applied_config.clone_from(&intent.config);
        self.report.booted_image.clone_from(&intent.image);
        self.report.change = Some(Change {
            id: intent.id,
            config: intent.config,
            image: intent.image,
            state: ChangeState::Booted,
            cause: None,
        });
    }

    fn judge(&mut self) {
        let Some(change) = &mut self.report.change else { return };
        let name = change.config.clone().unwrap_or_default();
        if self.plans.get(&name).is_some_and(|plan| plan == "unhealthy") {
            change.state = ChangeState::Failed;
            change.cause = Some("kubelet.service is not active".to_owned());
            self.report.applied_config.clone_from(&self.last_good);
            self.report.booted_image = None;
            self.boots += 1;
            self.report.boot_id = format!("boot-{}", self.boots);
        } else {
            change.state = ChangeState::Good;
            self.last_good = Some(name);
        }
    }

    fn is_to_be_judged(&self) -> bool {
        self.report.change.as_ref().is_some_and(|change| change.state == ChangeState::Booted)
    }
}

impl HostCall for Simulated {
    async fn status(&self) -> Result<HostReport> {
        Ok(self.inner.borrow().report.clone())
    }

    async fn run(&self, request: &HostRequest) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        if !inner.requests.contains_key(&request.id) {
            let verb = serde_json::to_value(&request.verb)?["verb"].as_str().unwrap_or_default().to_owned();
            inner.log.push(verb);
            inner.requests.insert(request.id.clone(), request.clone());
        }
        Ok(())
    }

    async fn reply(&self, id: &str, after: u64) -> Result<Reply> {
        let Some(request) = self.inner.borrow().requests.get(id).cloned() else {
            bail!("the host knows no request {id}");
        };
        let body = match self.carry_out(&request).await {
            Ok(done) => ReplyBody::Done(Box::new(done)),
            Err(failed) => ReplyBody::Failed(failed),
        };
        self.inner.borrow_mut().requests.remove(id);
        Ok(Reply { seq: after + 1, body })
    }

    async fn changed(&self) {
        if self.inner.borrow().is_to_be_judged() {
            tokio::time::sleep(self.pace.verdict).await;
            self.inner.borrow_mut().judge();
            return;
        }
        self.changed.notified().await;
    }
}
