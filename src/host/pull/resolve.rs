//! From a reference to a manifest and a configuration: all that is known before a layer is read.

use std::sync::Arc;

use anyhow::{Context as _, Error, Result, anyhow};
use camino::Utf8PathBuf;
use sha2::{Digest as _, Sha256};

use super::explain::explain;
use super::retry::{Verdict, delays, judge};
use super::source::Source;
use super::staging::Staging;
use super::{PullOptions, Resolved};
use crate::error::Fault;
use crate::host::trust::redact;
use crate::host::trust::skopeo::raw_manifest;
use crate::model::digest::Digest;
use crate::model::event::{Event, EventSink};
use crate::model::image_ref::{ImageReference, Transport};
use crate::model::oci::{ImageFacts, Index, oci_architecture};

/// This machine's architecture, as images name it.
pub fn machine_architecture() -> &'static str {
    oci_architecture(std::env::consts::ARCH)
}

/// Marks errors of sources that could not be reached: an older copy may do instead.
#[derive(Debug, Clone, Copy)]
struct Unreachable;

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the source cannot be reached")
    }
}

impl std::error::Error for Unreachable {}

/// Whether an error means that the source could not be reached, as opposed to a refusal.
pub fn is_unreachable(error: &Error) -> bool {
    error.downcast_ref::<Unreachable>().is_some()
}

/// Finds out what an image is. What may pass is tried again.
pub async fn resolve(
    image: &ImageReference,
    options: &PullOptions,
    sink: &dyn EventSink,
) -> Result<Resolved> {
    let scratch = scratch_of(image, options)?;
    let temp = match &scratch {
        Some(staging) => Some(staging.make_folder("skopeo")?),
        None => None,
    };
    let source = source_of(image, options, temp.clone());
    let mut pauses = delays(options.first_pause, options.tries);
    let mut attempt = 0;
    let (digest, manifest, config) = loop {
        attempt += 1;
        let error = match open_in_thread(source.clone()).await {
            Ok(opened) => break opened,
            Err(error) => error,
        };
        let may_pass = judge(&error) == Verdict::MayPass;
        match pauses.next().filter(|_| may_pass) {
            Some(pause) => {
                sink.event(Event::Retry {
                    what: format!("looking up {image}"),
                    why: redact(&format!("{error:#}")),
                    delay_seconds: pause.as_secs(),
                    attempt,
                });
                tokio::time::sleep(pause).await;
            }
            None => return Err(not_found(error, image, may_pass, options)),
        }
    };
    let facts = ImageFacts::parse(&manifest, &config)?;
    let asked_digest = image.digest.clone().filter(|asked| *asked != digest);
    if let Some(asked) = &asked_digest
        && matches!(image.transport, Transport::OciDir | Transport::OciArchive)
    {
        check_asked(image, asked, &digest, temp)?;
    }
    Ok(Resolved { asked_digest, digest, manifest, config, facts })
}

/// A folder for what skopeo unpacks, where it does.
fn scratch_of(image: &ImageReference, options: &PullOptions) -> Result<Option<Staging>> {
    match &options.scratch {
        Some(repo) if image.transport == Transport::OciArchive => Ok(Some(Staging::create(repo)?)),
        _ => Ok(None),
    }
}

/// A layout cannot be opened by digest: what was opened by its name must be what was asked for, or
/// be listed in an index that is.
fn check_asked(
    image: &ImageReference,
    asked: &Digest,
    found: &Digest,
    temp: Option<Utf8PathBuf>,
) -> Result<()> {
    let source = image.to_skopeo();
    // In a thread of its own: skopeo ends with it, not with the caller's.
    let raw = std::thread::scope(|scope| scope.spawn(|| raw_manifest(&source, temp.as_deref())).join());
    let raw = raw.map_err(|_| anyhow!("the thread that reads the manifest panicked"))??;
    let is_asked = Digest::from_raw(Sha256::digest(&raw).into()) == *asked;
    if is_asked
        && Index::is_index(&raw)
        && Index::parse(&raw)?.manifests.iter().any(|entry| entry.digest == *found)
    {
        return Ok(());
    }
    Err(Fault::refused(format!("image {image} is not what was asked for"))
        .why(format!("what lies there has the digest {found}, not {asked}"))
        .next("name the digest that is there, or put the wanted image back")
        .into())
}

/// Where the bytes come from.
pub(super) fn source_of(image: &ImageReference, options: &PullOptions, temp: Option<Utf8PathBuf>) -> Source {
    Source {
        temp,
        reference: options.fetch_from.clone().unwrap_or_else(|| image.to_skopeo()),
        access: options.access.clone(),
        idle: options.idle_timeout,
    }
}

type Documents = (Digest, Vec<u8>, Vec<u8>);

/// Asks in a thread of its own: when that ends, so does its proxy, even one that hangs.
async fn open_in_thread(source: Source) -> Result<Documents> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("mcd-resolve".to_owned()).spawn(move || {
        let result = with_runtime(async {
            let opened = source.open().await?;
            let config = opened.config().await?;
            Ok((opened.digest.clone(), opened.manifest.clone(), config))
        });
        // Nobody listens if the caller was cancelled.
        let _ = sender.send(result);
    })?;
    receiver.await.map_err(|_| anyhow!("the thread that looks the image up is gone"))?
}

/// Runs a future on this thread and does not wait for what it leaves blocked.
pub(super) fn with_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("Starting a runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

fn not_found(error: Error, image: &ImageReference, may_pass: bool, options: &PullOptions) -> Error {
    if error.chain().any(|cause| cause.is::<Fault>()) {
        return error;
    }
    let what = format!("image {image} cannot be looked up");
    let fault = explain(what, &error, options.configured.as_deref());
    if may_pass { Error::new(fault).context(Unreachable) } else { fault.into() }
}

/// The sink of an import, shared by its threads.
pub(super) type Sink = Arc<dyn EventSink>;
