//! The command lines of the control plane's parts.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::certificates::Certificates;
use crate::process::{Guarded, run};

/// Where things are and listen.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) program: String,
    pub(super) folder: std::path::PathBuf,
    pub(super) certificates: Certificates,
    pub(super) etcd: u16,
    pub(super) etcd_peers: u16,
    pub(super) api: u16,
}

/// What is logged: everything but what the control plane and the test itself ask.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: None
  userGroups: [system:masters]
- level: Metadata
";

/// The administrator's token: of a server that lives for one run, on the loopback.
pub(super) const ADMIN_TOKEN: &str = "mcd-test-administrator";

/// Only what the tests need: each controller costs memory and time.
const CONTROLLERS: &str = "disruption-controller,daemonset-controller,deployment-controller,replicaset-controller,\
garbage-collector-controller,namespace-controller,serviceaccount-controller,pod-garbage-collector-controller";

/// The program, built if it is not there.
pub(super) fn program() -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/kube.sh");
    let output = run(Command::new("nice").arg(script)).context("Building the control plane")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

impl Setup {
    /// Writes the files that the parts read.
    pub(super) fn write_files(&self) -> Result<()> {
        fs::write(self.folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        fs::write(self.folder.join("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,system:masters\n"))?;
        Ok(())
    }

    /// `https://127.0.0.1:PORT`.
    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api)
    }

    pub(super) fn start_etcd(&self) -> Result<Guarded> {
        let (clients, peers) =
            (format!("http://127.0.0.1:{}", self.etcd), format!("http://127.0.0.1:{}", self.etcd_peers));
        let arguments = vec![
            format!("--data-dir={}", self.folder.join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            // It dies with the test: nothing to keep over a power cut.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        self.start("etcd", "etcd", &arguments)
    }

    pub(super) fn start_api_server(&self) -> Result<Guarded> {
        let file = |name: &str| self.certificates.path(name).display().to_string();
        let own = |name: &str| self.folder.join(name).display().to_string();
        let arguments = vec![
            "apiserver".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.api),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--service-account-key-file={}", file("accounts.key")),
            format!("--service-account-signing-key-file={}", file("accounts.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            format!("--token-auth-file={}", own("tokens.csv")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--audit-policy-file={}", own("audit-policy.yaml")),
            format!("--audit-log-path={}", own("audit.log")),
            "--audit-log-mode=blocking".to_owned(),
            // In MB: the log of a fleet must not be turned over while it is counted.
            "--audit-log-maxsize=8192".to_owned(),
        ];
        self.start("apiserver", &self.program, &arguments)
    }

    pub(super) fn start_controllers(&self, kubeconfig: &Path) -> Result<Guarded> {
        let arguments = vec![
            "controller-manager".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                self.certificates.path("accounts.key").display()
            ),
            format!("--controllers={CONTROLLERS}"),
            // The test's pace, not a cluster's.
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ];
        self.start("controller-manager", &self.program, &arguments)
    }

    pub(super) fn start_scheduler(&self, kubeconfig: &Path) -> Result<Guarded> {
        let arguments = vec![
            "scheduler".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        self.start("scheduler", &self.program, &arguments)
    }

    /// The end of a part's log, for an error.
    pub(super) fn log_of(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn start(&self, name: &str, program: &str, arguments: &[String]) -> Result<Guarded> {
        let log = File::options().append(true).create(true).open(self.folder.join(format!("{name}.log")))?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Guarded::start(program, &arguments, |command| {
            command.stdout(Stdio::null()).stderr(log).current_dir(&self.folder);
        })
    }
}
