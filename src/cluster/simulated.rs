//! A host that is not there: for tests and for simulating a fleet. It obeys, and is as quick or slow as
//! it is told.
//!
//! What becomes of a MachineConfig is in its annotation [`PLAN`], or, as rendered ones have no annotations,
//! in a kernel argument of that name: `live`, `refused`, `broken` (cannot be
//! fetched), `unhealthy` (goes back after its boot); anything else is a reboot.
//!
//! With a file, it outlives its daemon as a real one does, what runs on it goes on, and a test may edit what
//! it says of itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::host_call::{HostCall, Watch};
use crate::host::durable;
use crate::model::wire::{
    Change, ChangeState, Done, Failed, HostReport, HostRequest, IntentReport, Measured, Outcome, PlanSummary,
    Reply, ReplyBody, RunningRequest, SOURCE_CONTROLLER_CONFIG, Verb, WIRE_VERSION, Wanted,
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
    file: Option<(Dir, String)>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Inner {
    report: HostReport,
    boots: u32,
    last_good: Option<String>,
    plans: BTreeMap<String, String>,
    requests: BTreeMap<String, Open>,
    log: Vec<String>,
    /// What could not be fetched can be now.
    mended: bool,
}

/// A request that is carried out.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open {
    request: HostRequest,
    /// Milliseconds since the epoch.
    begun: i64,
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
            file: None,
        }
    }

    /// The host whose state stands in this file; where there is none yet, one that has `config`.
    ///
    /// # Errors
    ///
    /// The file's folder cannot be opened.
    pub fn kept_in(path: &Path, config: Option<&str>, pace: Pace) -> Result<Self> {
        let (folder, name) = path.parent().zip(path.file_name()).context("it is no file's path")?;
        let folder = Dir::open_ambient_dir(folder, ambient_authority())
            .with_context(|| format!("Opening {}", folder.display()))?;
        let file = Some((folder, name.to_string_lossy().into_owned()));
        let host = Self { file, ..Self::new(config, pace) };
        host.load()?;
        host.save()?;
        Ok(host)
    }

    fn load(&self) -> Result<()> {
        if let Some((folder, name)) = &self.file
            && let Some(bytes) = durable::read(folder, name)?
        {
            *self.inner.borrow_mut() = serde_json::from_slice(&bytes)?;
        }
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let Some((folder, name)) = &self.file else { return Ok(()) };
        durable::replace(folder, name, &serde_json::to_vec(&*self.inner.borrow())?)
    }

    /// How long a request takes.
    fn pace_of(&self, verb: &Verb) -> Duration {
        match verb {
            Verb::Prepare(_) => self.pace.prepare,
            Verb::Reboot { .. } => self.pace.reboot,
            _ => Duration::ZERO,
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
    fn carry_out(&self, request: &HostRequest) -> Result<Done, Failed> {
        match &request.verb {
            Verb::Prepare(wanted) => self.inner.borrow_mut().prepare(wanted),
            Verb::ApplyLive(wanted) => {
                let end = self.inner.borrow_mut().apply_live(wanted);
                self.changed.notify_one();
                end
            }
            Verb::Commit { change, .. } => self.inner.borrow_mut().commit(change),
            Verb::Reboot { .. } => {
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
    let annotated = config["metadata"]["annotations"][PLAN].as_str();
    let arguments = config["spec"]["kernelArguments"].as_array().into_iter().flatten();
    let argument =
        || arguments.filter_map(|one| one.as_str()?.strip_prefix(PLAN)?.strip_prefix('=')).next_back();
    annotated.or_else(argument).unwrap_or("reboot").to_owned()
}

impl Inner {
    fn prepare(&mut self, wanted: &Wanted) -> Result<Done, Failed> {
        let kind = plan_of(wanted);
        self.plans.insert(wanted.name.clone(), kind.clone());
        let fail = |code, what: &str| Failed { code, what: what.to_owned(), ..Failed::default() };
        match kind.as_str() {
            "refused" => return Err(fail(3, "file /etc/hosts: reserved")),
            "broken" if !self.mended => return Err(fail(1, "image registry.test/os: no such host")),
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
        self.load()?;
        let inner = self.inner.borrow();
        let running = inner.requests.values().map(|open| RunningRequest::from(&open.request)).collect();
        Ok(HostReport { running, ..inner.report.clone() })
    }

    async fn run(&self, request: &HostRequest) -> Result<()> {
        self.load()?;
        {
            let mut inner = self.inner.borrow_mut();
            if !inner.requests.contains_key(&request.id) {
                let verb = RunningRequest::from(request).verb;
                inner.log.extend(request.force.then(|| format!("{verb} --force")));
                inner.log.push(verb);
                let begun = jiff::Timestamp::now().as_millisecond();
                inner.requests.insert(request.id.clone(), Open { request: request.clone(), begun });
            }
        }
        self.save()
    }

    async fn reply(&self, id: &str, after: u64) -> Result<Reply> {
        let Some(Open { request, begun }) = self.inner.borrow().requests.get(id).cloned() else {
            bail!("the host knows no request {id}");
        };
        let since = jiff::Timestamp::now().as_millisecond().saturating_sub(begun);
        let since = Duration::from_millis(u64::try_from(since).unwrap_or(0));
        tokio::time::sleep(self.pace_of(&request.verb).saturating_sub(since)).await;
        self.load()?;
        let body = match self.carry_out(&request) {
            Ok(done) => ReplyBody::Done(Box::new(done)),
            Err(failed) => ReplyBody::Failed(failed),
        };
        self.inner.borrow_mut().requests.remove(id);
        self.save()?;
        Ok(Reply { seq: after + 1, body })
    }

    async fn changed(&self) {
        if self.inner.borrow().is_to_be_judged() {
            tokio::time::sleep(self.pace.verdict).await;
            self.inner.borrow_mut().judge();
            if let Err(error) = self.save() {
                tracing::warn!("{error:#}");
            }
            return;
        }
        let Some((folder, name)) = &self.file else { return self.changed.notified().await };
        let watched = async {
            let mut watch = Watch::new()?;
            watch.add(folder, &[name])?;
            watch.changed().await
        };
        tokio::select! {
            watched = watched => if watched.is_err() { self.changed.notified().await },
            () = self.changed.notified() => {}
        }
    }
}
