//! Starting skopeo: which one is there, and with what environment it runs.
//!
//! A skopeo that `mcd` starts has no home and no per-user paths, so that nothing in root's home (an
//! auth file, a registries.conf, a policy) can change what is fetched or trusted, and it is told the
//! policy file by name. Proxies (`https_proxy`) and all other variables it inherits.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, ensure};
use camino::Utf8Path;
use cap_std_ext::cmdext::CapStdExtCommandExt;
use containers_image_proxy::{Error, ImageProxy, ImageProxyConfig};
use fn_error_context::context;

use super::credentials::Credentials;
use super::policy::POLICY_PATH;
use crate::error::Fault;
use crate::model::redact::redact;

/// A home in which nothing can be, not even by somebody's later `mkdir`: procfs makes no folders.
/// An empty `HOME` would not do: containers/image then asks the user database.
const NO_HOME: &str = "/proc/nonexistent";

/// Says where skopeo unpacks archives; else in `/var/tmp`, which may be small. It does not heed
/// `TMPDIR`.
pub(super) const TEMP_OPTION: &str = "--tmpdir";

/// Variables that lead containers/image to per-user files.
const PER_USER_VARIABLES: [&str; 7] = [
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "DOCKER_CONFIG",
    "REGISTRY_AUTH_FILE",
    "GNUPGHOME",
];

/// The first version of the proxy's protocol that enforces the policy (skopeo 1.13).
const ENFORCES_POLICY: SkopeoVersion = SkopeoVersion { major: 0, minor: 2, patch: 6 };

/// How long skopeo may take to say its version. It takes milliseconds; a loaded machine, seconds.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// The version of the proxy's protocol, which skopeo counts apart from its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkopeoVersion {
    /// Incompatible changes.
    pub major: u64,
    /// Additions.
    pub minor: u64,
    /// Additions too, so far.
    pub patch: u64,
}

impl SkopeoVersion {
    /// Of a proxy that runs.
    pub fn of(proxy: &ImageProxy) -> Self {
        let version = proxy.protocol_version();
        Self { major: version.major, minor: version.minor, patch: version.patch }
    }

    /// Whether the proxy refuses what `containers-policy.json(5)` refuses.
    pub fn enforces_policy(self) -> bool {
        self >= ENFORCES_POLICY
    }
}

/// The version of the skopeo that is installed: starts one and asks it, once per process.
///
/// May be called inside and outside of a runtime: it brings its own, on a thread of its own.
#[context("Asking skopeo for its version")]
pub fn probe() -> Result<SkopeoVersion> {
    static VERSION: OnceLock<SkopeoVersion> = OnceLock::new();
    if let Some(version) = VERSION.get() {
        return Ok(*version);
    }
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // The timer can only be made within the runtime.
            runtime.block_on(async { tokio::time::timeout(PROBE_LIMIT, ask_version()).await }).unwrap_or_else(
                |_| {
                    let why = format!("it gave no answer within {} s", PROBE_LIMIT.as_secs());
                    Err(Fault::failed("skopeo's proxy cannot be used").why(why).into())
                },
            )
        });
        asking.join().expect("asking for a version does not panic")
    })?;
    tracing::debug!(version = ?answer, "skopeo's proxy protocol");
    Ok(*VERSION.get_or_init(|| answer))
}

async fn ask_version() -> Result<SkopeoVersion> {
    let proxy = start_proxy(&Credentials::Anonymous, false, None).await?;
    let version = SkopeoVersion::of(&proxy);
    // What it says when it ends is of no interest: it has answered.
    if let Err(error) = proxy.finalize().await {
        tracing::debug!("skopeo's end: {}", redact(&error.to_string()));
    }
    Ok(version)
}

/// Starts a proxy with these credentials and no others, which unpacks in `temp` what it must. Call it on a thread that outlives the
/// proxy: the kernel ends a child with the thread that started it.
pub async fn start_proxy(
    credentials: &Credentials,
    insecure_skip_tls_verification: bool,
    temp: Option<&Utf8Path>,
) -> Result<ImageProxy> {
    let mut config = proxy_config(credentials, insecure_skip_tls_verification);
    if let (Some(temp), Some(command)) = (temp, &mut config.skopeo_cmd) {
        command.arg(TEMP_OPTION).arg(temp);
    }
    ImageProxy::new_with_config(config).await.map_err(|error| start_fault(&error).into())
}

/// The manifest or index of a local source as it lies there, unconverted and not narrowed to an
/// architecture.
#[context("Reading the manifest of {reference}")]
pub fn raw_manifest(reference: &str, temp: Option<&Utf8Path>) -> Result<Vec<u8>> {
    let mut command = command();
    if let Some(temp) = temp {
        command.arg(TEMP_OPTION).arg(temp);
    }
    command.args(["inspect", "--raw", reference]).stdin(Stdio::null());
    let output = command.output().map_err(|error| spawn_fault(&error))?;
    ensure!(output.status.success(), "{}", reason(&String::from_utf8_lossy(&output.stderr)));
    Ok(output.stdout)
}

/// The configuration of a proxy with these credentials and no others.
pub fn proxy_config(credentials: &Credentials, insecure_skip_tls_verification: bool) -> ImageProxyConfig {
    let mut config = ImageProxyConfig::default();
    credentials.configure(&mut config);
    config.insecure_skip_tls_verification = insecure_skip_tls_verification.then_some(true);
    config.skopeo_cmd = Some(command());
    config
}

/// `skopeo --policy …`, ready for a verb. It ends when the thread that starts it does.
pub(super) fn command() -> Command {
    let mut command = Command::new("skopeo");
    command.arg("--policy").arg(POLICY_PATH).env("HOME", NO_HOME);
    for variable in PER_USER_VARIABLES {
        command.env_remove(variable);
    }
    // A Ctrl-C is for mcd, which then ends its children in order; not for them at the same time.
    command.process_group(0);
    command.lifecycle_bind_to_parent_thread();
    command
}

/// What to tell when no proxy starts.
fn start_fault(error: &Error) -> Fault {
    match error {
        Error::SkopeoSpawnError(source) => spawn_fault(source),
        Error::ProxyTooOld { found_version, .. } => Fault::failed("skopeo is too old")
            .why(format!("its proxy speaks protocol {found_version}, at least 0.2.3 is needed"))
            .next("install skopeo 1.6 or later"),
        other => Fault::failed("skopeo's proxy cannot be used").why(redact(&other.to_string())),
    }
}

/// What to tell when skopeo itself does not start.
pub(super) fn spawn_fault(error: &std::io::Error) -> Fault {
    let fault = Fault::failed("skopeo cannot be started, and images are fetched with it");
    if error.kind() == std::io::ErrorKind::NotFound {
        fault.why("it is not installed").next("install the package skopeo")
    } else {
        fault.why(error.to_string())
    }
}

/// The reason in what skopeo printed: its last fatal message, else its last line, without secrets.
pub(super) fn reason(stderr: &str) -> String {
    let message = stderr.lines().rev().find_map(|line| {
        let (head, message) = line.split_once(" msg=")?;
        (head.contains("level=fatal") || head.contains("level=error")).then(|| unquote(message))
    });
    let last = || {
        stderr
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it gave no reason")
            .trim()
            .to_owned()
    };
    // One line: the message goes into a one-line part of a fault.
    redact(&message.unwrap_or_else(last)).replace('\n', "; ")
}

/// Undoes the quoting of a log line's value. It is Go's, which is JSON's for what occurs here.
fn unquote(value: &str) -> String {
    let value = value.trim();
    serde_json::from_str(value).unwrap_or_else(|_| value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_0_2_6_enforces() {
        for (version, expected) in
            [((0, 2, 3), false), ((0, 2, 5), false), ((0, 2, 6), true), ((0, 3, 0), true), ((1, 0, 0), true)]
        {
            let (major, minor, patch) = version;
            assert_eq!(SkopeoVersion { major, minor, patch }.enforces_policy(), expected, "{version:?}");
        }
    }

    #[test]
    fn reasons_are_the_fatal_message() {
        for (stderr, expected) in [
            (
                "time=\"2026-11-30T23:00:00Z\" level=warning msg=\"x\"\ntime=\"…\" level=fatal msg=\"Source image rejected: a \\\"b\\\"\"\n",
                "Source image rejected: a \"b\"",
            ),
            ("time=\"…\" level=fatal msg=EOF\n", "EOF"),
            (
                "time=\"…\" level=fatal msg=\"Get \\\"https://joe:pw@r.example/v2/\\\": EOF\"\n",
                "Get \"https://<hidden>@r.example/v2/\": EOF",
            ),
            ("panic: x\n\n", "panic: x"),
            ("", "it gave no reason"),
        ] {
            assert_eq!(reason(stderr), expected);
        }
    }

    #[test]
    fn a_missing_skopeo_names_its_package() {
        let fault = spawn_fault(&std::io::Error::from(std::io::ErrorKind::NotFound));
        assert_eq!(fault.next.as_deref(), Some("install the package skopeo"));
    }
}
