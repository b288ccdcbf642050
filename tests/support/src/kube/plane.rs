//! The control plane as a value.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::api::Api;
use super::audit::Audit;
use super::certificates::Certificates;
use super::kubelet::Kubelet;
use super::start::{ADMIN_TOKEN, Setup, program};
use crate::process::Guarded;
use crate::scratch::Scratch;

/// A running control plane. It dies with this value, and with the test process.
#[derive(Debug)]
pub struct ControlPlane {
    setup: Setup,
    admin: Api,
    // In the order in which they must go: an API server without etcd lingers for a minute.
    kubelet: Option<Kubelet>,
    _others: Vec<Guarded>,
    api_server: Mutex<Option<Guarded>>,
    _etcd: Guarded,
    _scratch: Scratch,
}

/// It is there within three seconds; a loaded machine is much slower.
const READY_DEADLINE: Duration = Duration::from_secs(120);

impl ControlPlane {
    /// The one that the tests of this process share.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<(ControlPlane, Child)>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            let plane = Self::start()?;
            let sweeper = sweep_at_exit(&plane.setup.folder)?;
            Ok((plane, sweeper))
        });
        match shared {
            Ok((plane, _)) => Ok(plane),
            Err(error) => bail!("The shared control plane: {error:#}"),
        }
    }

    /// One of its own with everything: for tests that stop the API server, or that change what others rely on.
    pub fn start() -> Result<Self> {
        let mut plane = Self::api_server_only()?;
        let kubeconfig = plane.admin_kubeconfig();
        plane._others.push(plane.setup.start_controllers(&kubeconfig)?);
        plane._others.push(plane.setup.start_scheduler(&kubeconfig)?);
        Ok(plane)
    }

    /// API server, etcd and kubelets: where nothing is to be scheduled or disrupted.
    pub fn api_server_only() -> Result<Self> {
        let scratch = Scratch::new()?;
        let certificates = Certificates::make(&scratch.join("keys"))?;
        let [etcd, etcd_peers, api] = free_ports()?;
        let folder = scratch.path().to_owned();
        let setup = Setup { program: program()?, folder, certificates, etcd, etcd_peers, api };
        setup.write_files()?;
        let admin = Api::new(&setup.url(), &setup.certificates.ca()?, ADMIN_TOKEN)?;
        let etcd = setup.start_etcd()?;
        let api_server = Mutex::new(Some(setup.start_api_server()?));
        let mut plane = Self {
            setup,
            admin,
            kubelet: None,
            _others: Vec::new(),
            api_server,
            _etcd: etcd,
            _scratch: scratch,
        };
        plane.wait_until_ready()?;
        plane.write_kubeconfig("admin", &format!("token: {ADMIN_TOKEN}"))?;
        plane.kubelet = Some(Kubelet::start(plane.admin.clone()));
        Ok(plane)
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.setup.url()
    }

    /// The administrator.
    pub fn admin(&self) -> &Api {
        &self.admin
    }

    /// A kubeconfig file of the administrator.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.setup.folder.join("admin.kubeconfig")
    }

    /// A kubeconfig file for `token`; `name` is free to choose, once.
    pub fn kubeconfig_with_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.write_kubeconfig(name, &format!("token: {token}"))
    }

    /// A kubeconfig file as the kubelet of `node` has: its credentials are a client certificate in a file beside it.
    pub fn kubelet_kubeconfig(&self, node: &str) -> Result<PathBuf> {
        let name = format!("kubelet-{node}");
        let pair =
            self.setup.certificates.client(&name, &format!("/O=system:nodes/CN=system:node:{node}"))?;
        let pair = pair.display();
        self.write_kubeconfig(&name, &format!("client-certificate: {pair}, client-key: {pair}"))
    }

    /// The CA that signed the server's certificate, PEM.
    pub fn ca(&self) -> Result<Vec<u8>> {
        self.setup.certificates.ca()
    }

    /// Runs the real kubectl as the administrator; gives its standard output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_as(&self.admin_kubeconfig(), arguments)
    }

    /// Runs the real kubectl with this kubeconfig; an error has what it said.
    pub fn kubectl_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.setup.program)
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments)
            .env("KUBECACHEDIR", self.setup.folder.join("kubectl"))
            .stdin(Stdio::null())
            .output()
            .context("Starting kubectl")?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), error.trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Makes a namespace.
    pub fn namespace(&self, name: &str) -> Result<()> {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        self.admin.post("/api/v1/namespaces", &body)?.ok().map(drop)
    }

    /// What is asked from now on.
    pub fn audit(&self) -> Result<Audit> {
        Audit::from_now(self.setup.folder.join("audit.log"))
    }

    /// Ends the API server at once, and leaves the rest.
    pub fn stop_api_server(&self) {
        *self.lock() = None;
    }

    /// Starts the API server again, at the same address.
    pub fn start_api_server(&self) -> Result<()> {
        *self.lock() = Some(self.setup.start_api_server()?);
        self.wait_until_ready()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            if self.admin.get("/readyz").is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if let Some(server) = self.lock().as_mut()
                && let Some(status) = server.child().try_wait()?
            {
                bail!("The API server ended with {status}:\n{}", self.setup.log_of("apiserver"));
            }
            if start.elapsed() > READY_DEADLINE {
                let logs = ["apiserver", "etcd"].map(|name| self.setup.log_of(name));
                bail!("The API server is not ready after {READY_DEADLINE:?}:\n{}", logs.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn write_kubeconfig(&self, name: &str, user: &str) -> Result<PathBuf> {
        let path = self.setup.folder.join(format!("{name}.kubeconfig"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\ncontexts:\n- name: test\n  context: {{ cluster: test, user: test }}\n\
             clusters:\n- name: test\n  cluster: {{ server: \"{}\", certificate-authority: \"{}\" }}\n\
             users:\n- name: test\n  user: {{ {user} }}\n",
            self.url(),
            self.setup.certificates.path("ca.crt").display(),
        );
        fs::write(&path, text).with_context(|| format!("Writing {}", path.display()))?;
        Ok(path)
    }
}

/// Ports that were free a moment ago, all different.
fn free_ports() -> Result<[u16; 3]> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

/// A value in a static is never dropped: something else must remove the folder, when this process is gone. It notices by the
/// end of its input.
fn sweep_at_exit(folder: &Path) -> Result<Child> {
    let keeps = std::env::var_os("MCD_TEST_KEEP").is_some();
    let program = if keeps { "cat" } else { "cat; sleep 1; rm -rf -- \"$1\"" };
    Command::new("sh")
        .args(["-c", program, "sweeper"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("Starting the sweeper")
}
