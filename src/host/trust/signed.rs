//! Fetching an image that the policy wants signed, on a host whose proxy would not check it.
//!
//! `skopeo copy` enforces `containers-policy.json(5)` in every version. It copies the image into a
//! `dir:` folder, from which the importer then reads it; nothing is in the OSTree repo before that.
//!
//! The image is copied under the name that was asked for, not under the digest that a tag was
//! resolved to: scopes may name a tag, and `matchRepoDigestOrExact`, the default, compares a tag
//! with the one in the signature but lets *any* tag of the repository pass for a digest. By digest,
//! a registry could pass off a signed `os:test` for `os:stable`. A tag that moves between resolving
//! and copying is found by comparing what was copied with what was resolved.
//!
//! An image of a local storage never comes here: copied out of it, it is not the same image.
//!
//! It costs what the proxy path does not: the whole image is fetched, layers that the repo already
//! has included, and a copy that breaks off starts anew.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use camino::Utf8Path;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use fn_error_context::context;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::credentials::Credentials;
use super::policy::POLICY_PATH;
use super::skopeo;
use crate::error::Fault;
use crate::model::digest::Digest;
use crate::model::event::{Event, EventSink};
use crate::model::image_ref::ImageReference;

/// A manifest may be this large, as everywhere in `mcd`.
const MAX_MANIFEST_SIZE: u64 = 4 << 20;

/// How much of what skopeo prints is kept: its last words are what counts.
const MAX_STDERR_SIZE: usize = 64 << 10;

/// How long skopeo may take to clean up after it was asked to end, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// How often the folder is looked at, to see whether anything still arrives.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// A copy that receives nothing for this long is given up: skopeo itself waits for ever.
const STALL_LIMIT: Duration = Duration::from_secs(180);

/// What to copy.
#[derive(Debug, Clone, Copy)]
pub struct CopyRequest<'a> {
    /// The image as it was asked for: with its tag, if it had one and no digest.
    pub image: &'a ImageReference,
    /// The manifest (of this architecture) that it was resolved to.
    pub resolved: &'a Digest,
    /// An empty folder, or one to be made. On failure the caller removes what is in it.
    pub to: &'a Utf8Path,
    /// With whose credentials.
    pub credentials: &'a Credentials,
    /// For tests: accept plain HTTP and unknown certificates.
    pub insecure_skip_tls_verification: bool,
}

/// Copies an image into a `dir:` folder, if the policy accepts it and its signatures.
///
/// A refusal by the policy is a refused [`Fault`] with skopeo's reason; everything else that goes
/// wrong may pass and is a failed one. Call it on a thread that outlives the copy.
#[context("Copying {} with its signatures checked", request.image.to_skopeo())]
pub async fn copy_verified(
    request: &CopyRequest<'_>,
    cancel: &CancellationToken,
    sink: &dyn EventSink,
) -> Result<()> {
    let name = request.image.to_skopeo();
    sink.event(Event::Step { what: format!("checking the signatures of {name} and copying it") });
    let mut child = copy_command(request).spawn().map_err(|error| skopeo::spawn_fault(&error))?;
    let mut stderr = child.stderr.take().context("skopeo has no standard error")?;
    let output = async {
        let mut kept = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
            kept.extend_from_slice(&buffer[..length]);
            let excess = kept.len().saturating_sub(MAX_STDERR_SIZE);
            kept.drain(..excess);
        }
        String::from_utf8_lossy(&kept).into_owned()
    };
    let ended = tokio::select! {
        ended = async { tokio::join!(child.wait(), output) } => Ok(ended),
        () = cancel.cancelled() => Err(Fault::failed(format!("copying {name} was cancelled"))),
        () = stalled(request.to, WATCH_INTERVAL, STALL_LIMIT) => Err(stalled_fault(&name)),
    };
    let (status, stderr) = match ended {
        Ok(ended) => ended,
        Err(fault) => {
            end(&mut child).await;
            return Err(fault.into());
        }
    };
    if !status.context("Waiting for skopeo")?.success() {
        return Err(copy_fault(&name, &skopeo::reason(&stderr)).into());
    }
    check_copied(request)
}

fn copy_command(request: &CopyRequest<'_>) -> Command {
    let mut command = skopeo::command();
    // What it must unpack goes beside what it copies, and goes with it.
    if let Some(beside) = request.to.parent() {
        command.arg(skopeo::TEMP_OPTION).arg(beside);
    }
    command.args(["copy", "--quiet", "--preserve-digests"]);
    match request.credentials {
        Credentials::Anonymous => command.arg("--src-no-creds"),
        Credentials::File(path) => command.arg("--src-authfile").arg(path),
    };
    if request.insecure_skip_tls_verification {
        command.arg("--src-tls-verify=false");
    }
    command.arg(request.image.to_skopeo()).arg(format!("dir:{}", request.to));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

/// Asks skopeo to end, then makes it.
async fn end(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
        // It is our child and not yet waited for: the number cannot be somebody else's.
        if let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM) {
            tracing::debug!("ending skopeo: {error}");
        }
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err()
        && let Err(error) = child.kill().await
    {
        tracing::warn!("skopeo {:?} could not be killed: {error}", child.id());
    }
}

/// Returns when nothing was added to the folder for as long as `limit`.
async fn stalled(folder: &Utf8Path, interval: Duration, limit: Duration) {
    let (mut size, mut still) = (0, Duration::ZERO);
    while still < limit {
        tokio::time::sleep(interval).await;
        let now = folder_size(folder).unwrap_or(0);
        still = if now == size { still + interval } else { Duration::ZERO };
        size = now;
    }
}

fn stalled_fault(name: &str) -> Fault {
    let why = format!("nothing arrived for {} s", STALL_LIMIT.as_secs());
    Fault::failed(format!("copying {name} was given up")).why(why)
}

/// The size of the files in a folder; skopeo's `dir:` has no folders within.
fn folder_size(folder: &Utf8Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in Dir::open_ambient_dir(folder, ambient_authority())?.entries()? {
        // A temporary file may be gone already.
        sum += entry?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(sum)
}

/// What to tell when skopeo failed with this reason.
fn copy_fault(name: &str, reason: &str) -> Fault {
    // Something about manifest lists may stand before it.
    if let Some((_, why)) = reason.split_once("Source image rejected: ") {
        return Fault::refused(format!("image {name} is not signed as the signature policy demands"))
            .why(why)
            .next(format!(
                "use an image that is signed by a key in {POLICY_PATH}; registries.d(5) tells where \
                 signatures are looked for"
            ));
    }
    if reason.contains("trust policy") {
        return Fault::refused(format!("the signature policy {POLICY_PATH} is not valid for skopeo"))
            .why(reason);
    }
    let fault = Fault::failed(format!("image {name} could not be copied")).why(reason);
    if reason.contains("unauthorized")
        || reason.contains("authentication required")
        || reason.contains("denied")
    {
        fault.next("check the credentials: --authfile, or one of the places in mcd-pivot(8)")
    } else {
        fault
    }
}

/// Whether what was copied is what was resolved before.
fn check_copied(request: &CopyRequest<'_>) -> Result<()> {
    let folder =
        Dir::open_ambient_dir(request.to, ambient_authority()).context("Opening the copied image")?;
    let manifest = super::read_small(&folder, "manifest.json", MAX_MANIFEST_SIZE)
        .context("Reading the copied manifest")?;
    let copied = Digest::of(&manifest);
    if copied != *request.resolved {
        return Err(Fault::failed(format!(
            "image {} changed while it was fetched",
            request.image.to_skopeo()
        ))
        .why(format!("it was {} when it was resolved and {copied} when it was copied", request.resolved))
        .next("run the command again")
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitKind;

    #[test]
    fn refusals_and_failures_differ() {
        for (reason, kind, why) in [
            (
                "Source image rejected: A signature was required, but no signature exists",
                ExitKind::Refused,
                "A signature was required, but no signature exists",
            ),
            (
                "Error loading trust policy: invalid policy",
                ExitKind::Refused,
                "Error loading trust policy: invalid policy",
            ),
            (
                "reading manifest x: unauthorized: authentication required",
                ExitKind::Failed,
                "reading manifest x: unauthorized: authentication required",
            ),
        ] {
            let fault = copy_fault("docker://h/os:1", reason);
            assert_eq!(fault.kind, kind, "{reason}");
            assert_eq!(fault.why.as_deref(), Some(why));
        }
    }
    #[test]
    fn a_folder_that_grows_is_not_stalled() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        let dir = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
        let grow = async {
            for length in 1..20 {
                dir.write("blob", vec![0; length]).unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let stalled = stalled(folder, Duration::from_millis(50), Duration::from_millis(150));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::pin!(stalled);
            tokio::select! {
                () = &mut stalled => panic!("it grew"),
                () = grow => {}
            }
            tokio::time::timeout(Duration::from_secs(5), stalled).await.expect("it has stopped growing");
        });
    }
}
