//! From a reference to a manifest and a configuration: all that is known before a layer is read.

use std::sync::Arc;

use anyhow::{Context as _, Error, Result, anyhow};

use super::retry::{Verdict, delays, judge};
use super::source::Source;
use super::{PullOptions, Resolved};
use crate::error::Fault;
use crate::host::trust::redact;
use crate::model::event::{Event, EventSink};
use crate::model::image_ref::ImageReference;
use crate::model::oci::{ImageFacts, oci_architecture};

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
    let source = source_of(image, options);
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
            None => return Err(explain(error, image, may_pass)),
        }
    };
    let facts = ImageFacts::parse(&manifest, &config)?;
    let asked_digest = image.digest.clone().filter(|asked| *asked != digest);
    Ok(Resolved { asked_digest, digest, manifest, config, facts })
}

/// Where the bytes come from.
pub(super) fn source_of(image: &ImageReference, options: &PullOptions) -> Source {
    Source {
        reference: options.fetch_from.clone().unwrap_or_else(|| image.to_skopeo()),
        access: options.access.clone(),
        idle: options.idle_timeout,
    }
}

type Documents = (crate::model::digest::Digest, Vec<u8>, Vec<u8>);

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

fn explain(error: Error, image: &ImageReference, may_pass: bool) -> Error {
    if error.downcast_ref::<Fault>().is_some() {
        return error;
    }
    let text = redact(&format!("{error:#}"));
    let lower = text.to_lowercase();
    let next = match () {
        () if may_pass => "check the network, the name and the registry, then run the same command again",
        () if lower.contains("unauthorized")
            || lower.contains("denied")
            || lower.contains("authentication required") =>
        {
            "check the credentials: `--authfile`, or one of the usual files"
        }
        () if lower.contains("no image found in") => {
            "name an image, or an index with an image, for this architecture"
        }
        () if lower.contains("http response to https") || lower.contains("x509") => {
            "trust the registry's certificate, or mark the registry insecure in registries.conf"
        }
        () => "check the reference: host, name, tag",
    };
    let fault = Fault::failed(format!("image {image} cannot be looked up")).why(text).next(next);
    if may_pass { Error::new(fault).context(Unreachable) } else { fault.into() }
}

/// The sink of an import, shared by its threads.
pub(super) type Sink = Arc<dyn EventSink>;
