//! The control plane's keys: a CA, the server's certificate, and clients' (kubelets show one).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::run;

/// A folder with `ca.crt`, `ca.key`, `server.crt`, `server.key` and `accounts.key`, the key that tokens are signed with.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    folder: PathBuf,
}

/// Elliptic keys are made in milliseconds.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Certificates {
    /// Makes them in `folder`.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let made = Self { folder: folder.to_owned() };
        made.openssl(|command| {
            command.args(["req", "-x509", "-days", "30", "-subj", "/CN=mcd-test"]).args(KEY);
            command.args(["-keyout", "ca.key", "-out", "ca.crt"]);
        })?;
        made.sign(
            "server",
            "/CN=kube-apiserver",
            "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc",
        )?;
        made.openssl(|command| {
            command.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "accounts.key"]);
        })?;
        Ok(made)
    }

    /// The path of one of its files.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The CA's certificate, PEM.
    pub(super) fn ca(&self) -> Result<Vec<u8>> {
        fs::read(self.path("ca.crt")).context("The control plane's CA")
    }

    /// A client's certificate and key in one file, as a kubelet keeps it; `subject` is who it is.
    pub(super) fn client(&self, name: &str, subject: &str) -> Result<PathBuf> {
        self.sign(name, subject, "extendedKeyUsage=clientAuth")?;
        let pair = self.path(&format!("{name}.pem"));
        let mut text = fs::read_to_string(self.path(&format!("{name}.crt")))?;
        text += &fs::read_to_string(self.path(&format!("{name}.key")))?;
        fs::write(&pair, text)?;
        Ok(pair)
    }

    fn sign(&self, name: &str, subject: &str, extension: &str) -> Result<()> {
        let (key, request, certificate) =
            (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        let extensions = self.path(&format!("{name}.ext"));
        fs::write(&extensions, extension)?;
        self.openssl(|command| {
            command.args(["req", "-subj", subject]).args(KEY).args(["-keyout", &key, "-out", &request]);
        })?;
        // A random serial: two tests may ask at the same time.
        self.openssl(|command| {
            command.args(["x509", "-req", "-days", "30", "-CA", "ca.crt", "-CAkey", "ca.key"]);
            command.arg("-extfile").arg(&extensions).args(["-in", &request, "-out", &certificate]);
        })
    }

    fn openssl(&self, arguments: impl FnOnce(&mut Command)) -> Result<()> {
        let mut command = Command::new("openssl");
        arguments(command.current_dir(&self.folder));
        run(&mut command).map(drop)
    }
}
