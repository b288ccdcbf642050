//! The host by its own systemd: a transient unit for each request, files for what is said.
//!
//! The pod shares the host's process ids and is privileged. It enters the namespaces of the host's first
//! process to call its `systemd-run`, and reaches `/run/mcd` through `/proc/1/root`: nothing of the host is
//! mounted into the pod. The unit belongs to the host's systemd, so it outlives the pod.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use tokio::process::Command;

use super::watch::Watch;
use super::{HostCall, copy};
use crate::error::Fault;
use crate::host::service::{Answer, Spool, require_id};
use crate::model::wire::{HostReport, HostRequest, Reply};

/// The host's program.
const PROGRAM: &str = "/usr/bin/mcd";
const RUN: &str = "run";
const SETTINGS: &str = "etc/mcd";
/// Where verdicts are written.
const BOOTS: &str = "sysroot/ostree/mcd-boots";
/// After this silence the unit is looked at: one that was killed says nothing.
const SILENCE: Duration = Duration::from_secs(5);
/// A call of systemctl that takes longer is not answered any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// The host whose first process has this id.
#[derive(Debug, Clone)]
pub struct SystemdHost {
    pid: u32,
    own: PathBuf,
}

impl SystemdHost {
    /// The host that this pod runs on: it shares the host's process ids.
    pub fn of_pod() -> Self {
        Self::of_process(1)
    }

    /// The system whose first process has this id here: a container with a systemd of its own.
    pub fn of_process(pid: u32) -> Self {
        // Not /proc/self: a child is to read it.
        Self { pid, own: format!("/proc/{}/exe", std::process::id()).into() }
    }

    /// The same, which brings this program where the host has none, instead of the one that runs here.
    #[must_use]
    pub fn bringing(self, own: PathBuf) -> Self {
        Self { own, ..self }
    }

    fn root(&self) -> Result<Dir> {
        let path = format!("/proc/{}/root", self.pid);
        Dir::open_ambient_dir(&path, ambient_authority()).map_err(|error| {
            Fault::failed("the host's files cannot be reached")
                .why(format!("{path}: {error}"))
                .next("run the pod privileged and with hostPID, as manifests/ has it")
                .into()
        })
    }

    fn spool(&self) -> Result<Spool> {
        Spool::of_root(&self.root()?)
    }

    /// The words that start the host's program; where it has none, the pod's own.
    fn program(&self) -> Result<Vec<String>> {
        let root = self.root()?;
        if root.try_exists(PROGRAM.trim_start_matches('/'))? {
            return Ok(vec![PROGRAM.to_owned()]);
        }
        copy::bring(&root, &self.own)
    }

    /// Runs a program of the host in its namespaces.
    async fn call(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.pid.to_string(),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--",
        ]);
        command.args(words).kill_on_drop(true).stdin(std::process::Stdio::null());
        tokio::time::timeout(PATIENCE, command.output())
            .await
            .with_context(|| format!("{} does not answer", words[0]))?
            .with_context(|| format!("Starting nsenter for {}", words[0]))
    }

    /// Whether the unit of a request runs or is about to.
    async fn is_running(&self, id: &str) -> Result<bool> {
        let unit = unit_of(id);
        let output = self.call(&["systemctl", "show", "-P", "ActiveState", &unit]).await?;
        let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        anyhow::ensure!(!state.is_empty(), "systemctl: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(!matches!(state.as_str(), "inactive" | "failed"))
    }

    async fn start(&self, id: &str, program: &[String]) -> Result<()> {
        let unit = format!("--unit={}", unit_of(id));
        let description = format!("--description=Carry out request {id} of the cluster");
        let mut words = vec![
            "systemd-run",
            &unit,
            &description,
            // A failed one makes room for the next try.
            "--collect",
            "--quiet",
            "--no-block",
            // The program first, its children when it does not end them.
            "--property=KillMode=mixed",
            "--property=SyslogIdentifier=mcd",
        ];
        words.extend(program.iter().map(String::as_str));
        words.extend(["serve-request", "--id", id]);
        let output = self.call(&words).await?;
        // Two pods may start the same one.
        if output.status.success() || self.is_running(id).await? {
            return Ok(());
        }
        Err(Fault::failed(format!("the unit {} cannot be started on the host", unit_of(id)))
            .why(String::from_utf8_lossy(&output.stderr).trim().to_owned())
            .next("see `systemctl status` and the journal of the host")
            .into())
    }

    fn watch_host(&self) -> Result<Watch> {
        let root = self.root()?;
        let mut watch = Watch::new()?;
        watch.add(root.open_dir(RUN)?, &["machine-config-daemon-force", "mcd"])?;
        watch.add(self.spool()?.folder(), &["drift.json"])?;
        match root.open_dir(SETTINGS) {
            Ok(settings) => watch.add(settings, &["hold"])?,
            Err(_) => watch.add(root.open_dir("etc")?, &["mcd"])?,
        }
        if let Ok(boots) = root.open(BOOTS) {
            watch.add(boots, &[])?;
        }
        Ok(watch)
    }
}

impl HostCall for SystemdHost {
    #[context("Asking the host how it is")]
    async fn status(&self) -> Result<HostReport> {
        let program = match self.program() {
            Ok(program) => program,
            // A host that says nothing of itself: that is said, and not hidden by an error.
            Err(error) => {
                tracing::error!("{error:#}");
                return Ok(HostReport::default());
            }
        };
        let mut words: Vec<&str> = program.iter().map(String::as_str).collect();
        words.extend(["serve-request", "--status"]);
        let output = self.call(&words).await?;
        if !output.status.success() {
            return Err(Fault::failed("the host's mcd does not say how the host is")
                .why(String::from_utf8_lossy(&output.stderr).trim().to_owned())
                .next("run `mcd status` on the host")
                .into());
        }
        serde_json::from_slice(&output.stdout).context("Reading the host's report")
    }

    async fn run(&self, request: &HostRequest) -> Result<()> {
        require_id(&request.id)?;
        let program = self.program()?;
        let spool = self.spool()?;
        spool.submit(request)?;
        if matches!(spool.answer(&request.id)?, Answer::Ended(_)) || self.is_running(&request.id).await? {
            return Ok(());
        }
        self.start(&request.id, &program).await
    }

    async fn reply(&self, id: &str, after: u64) -> Result<Reply> {
        let spool = self.spool()?;
        // Before the first look: what is written in between is not missed.
        let mut watch = Watch::new()?;
        watch.add(spool.replies_folder(), &[])?;
        loop {
            let next = |replies: Vec<Reply>| replies.into_iter().find(|reply| reply.seq == after + 1);
            if let Some(reply) = next(spool.replies(id)?) {
                return Ok(reply);
            }
            if !spool.is_known(id)? {
                return Err(Fault::failed(format!("request {id} is not known to the host"))
                    .why("it was never handed over, or the host booted since")
                    .into());
            }
            match tokio::time::timeout(SILENCE, watch.changed()).await {
                Ok(changed) => changed?,
                Err(_) if self.is_running(id).await? => {}
                Err(_) => {
                    return next(spool.replies(id)?).ok_or_else(|| {
                        Fault::failed(format!("request {id} ended on the host without an answer"))
                            .why(format!("its unit {} does not run: it was stopped or killed", unit_of(id)))
                            .next("see `journalctl -t mcd` on the host")
                            .into()
                    });
                }
            }
        }
    }

    async fn changed(&self) {
        let watched = match self.watch_host() {
            Ok(watch) => watch.changed().await,
            Err(error) => Err(error),
        };
        if let Err(error) = watched {
            tracing::warn!("changes of the host are not noticed at once: {error:#}");
            tokio::time::sleep(PATIENCE).await;
        }
    }
}

fn unit_of(id: &str) -> String {
    format!("mcd-request-{id}.service")
}
