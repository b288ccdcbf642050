//! Where images come from: skopeo as a child, through `containers-image-proxy`.
//!
//! A child belongs to the thread that started it: the proxy crate has the kernel end it when that
//! thread ends, which is how a stalled one is got rid of.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use camino::Utf8PathBuf;
use containers_image_proxy::{ImageProxy, OpenedImage};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::decode::Piece;
use super::rate::RateLimit;
use super::retry::Stalled;
use super::stop::{Secondary, cancelled};
use crate::host::trust::Credentials;
use crate::host::trust::skopeo::start_proxy;
use crate::model::digest::Digest;
use crate::model::oci::Layer;

/// A pipe holds 64 KiB; a larger buffer never fills.
const READ: usize = 64 * 1024;
/// Progress is told each time that so many bytes came.
const PROGRESS_EVERY: u64 = 512 * 1024;

/// What is allowed when fetching, and with whose credentials.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Credentials file; none means anonymous.
    pub authfile: Option<PathBuf>,
    /// Accept any certificate, and plain HTTP. For tests.
    pub insecure_skip_tls_verification: bool,
    /// The policy asks for signatures and the proxy would not check them: the image is fetched by
    /// `skopeo copy` first, which does.
    pub signed: bool,
}

/// How to reach one image.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// As skopeo takes it.
    pub(super) reference: String,
    pub(super) access: Access,
    /// Where skopeo puts what it must unpack.
    pub(super) temp: Option<Utf8PathBuf>,
    /// How long to wait for a byte.
    pub(super) idle: Duration,
}

/// An open image.
pub(super) struct Opened {
    proxy: ImageProxy,
    image: OpenedImage,
    idle: Duration,
    pub(super) digest: Digest,
    pub(super) manifest: Vec<u8>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Source {
    /// Starts a proxy and opens the image in it.
    pub(super) async fn open(&self) -> Result<Opened> {
        let credentials = Credentials::from_authfile(self.access.authfile.clone());
        let temp = self.temp.as_deref();
        let start = start_proxy(&credentials, self.access.insecure_skip_tls_verification, temp);
        let proxy = tokio::time::timeout(self.idle, start).await.map_err(|_| Stalled(self.idle))??;
        let image = self.patiently(proxy.open_image(&self.reference)).await?;
        let (digest, manifest) = self.patiently(proxy.fetch_manifest_raw_oci(&image)).await?;
        let digest =
            digest.parse().map_err(|error| anyhow!("skopeo gave an unusable manifest digest: {error}"))?;
        Ok(Opened { proxy, image, idle: self.idle, digest, manifest })
    }

    async fn patiently<T>(&self, work: impl Future<Output = containers_image_proxy::Result<T>>) -> Result<T> {
        match tokio::time::timeout(self.idle, work).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Stalled(self.idle).into()),
        }
    }
}

impl Opened {
    /// The image's configuration.
    pub(super) async fn config(&self) -> Result<Vec<u8>> {
        match tokio::time::timeout(self.idle, self.proxy.fetch_config_raw(&self.image)).await {
            Ok(config) => Ok(config?),
            Err(_) => Err(Stalled(self.idle).into()),
        }
    }

    /// Reads a blob into `pieces`. That they are the right ones is the receiver's to see; an error
    /// here is the source's.
    pub(super) async fn fetch(
        &self,
        layer: &Layer,
        pieces: Sender<Piece>,
        rate: Option<&RateLimit>,
        cancel: &CancellationToken,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let digest =
            layer.digest.as_str().parse().map_err(|_| anyhow!("digest {} is unusable", layer.digest))?;
        let open = self.proxy.get_blob_stream(&self.image, &digest, layer.size);
        let stream = tokio::select! {
            stream = open => stream?,
            () = cancel.cancelled() => return Err(cancelled().into()),
            () = tokio::time::sleep(self.idle) => return Err(Stalled(self.idle).into()),
        };
        let (mut reader, driver) = stream.into_parts();
        let read = async {
            let (mut total, mut told) = (0, 0);
            loop {
                let mut buffer = Vec::with_capacity(READ);
                let count = tokio::time::timeout(self.idle, reader.read_buf(&mut buffer))
                    .await
                    .map_err(|_| Stalled(self.idle))?
                    .context("reading from skopeo")?;
                if count == 0 {
                    progress(total);
                    return anyhow::Ok(());
                }
                if let Some(rate) = rate {
                    rate.take(count as u64).await;
                }
                total += count as u64;
                if total - told >= PROGRESS_EVERY {
                    told = total;
                    progress(total);
                }
                if pieces.send(Piece::Data(buffer)).await.is_err() {
                    return Err(Secondary("the layer's reader gave up").into());
                }
            }
        };
        let mut read = std::pin::pin!(read);
        let mut driver = driver;
        let both = async {
            // The driver must be polled beside the reading: the end only comes once it has asked for
            // it. Its word counts before the reader's: it has the registry's error, where the reading
            // only saw an end.
            tokio::select! {
                result = &mut read => {
                    result?;
                    tokio::time::timeout(self.idle, &mut driver).await.map_err(|_| Stalled(self.idle))??;
                }
                result = &mut driver => {
                    result?;
                    (&mut read).await?;
                }
            }
            anyhow::Ok(())
        };
        tokio::select! {
            result = both => result?,
            () = cancel.cancelled() => return Err(cancelled().into()),
        }
        // A reader that is gone has its own error to tell.
        let _ = pieces.send(Piece::End).await;
        Ok(())
    }
}
