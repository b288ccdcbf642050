//! Making derived commits, protected from a cleanup until a ref of ours holds them.

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

use crate::error::Fault;
use crate::host::layer::{LayerRequest, Layered, layer};
use crate::host::repo_lock::{self, RepoLock};
use crate::model::boot_order::merge_source;
use crate::model::config::{Config, Invalid};
use crate::model::event::Event;
use crate::model::manifest::{Manifest, Source};
use crate::pipeline::Session;

/// Makes derived commits. While it lives, no cleanup runs.
#[derive(Debug)]
pub(in crate::pipeline) struct Layering<'s> {
    session: &'s Session,
    /// The `/etc` that a new deployment starts from: its users and groups stay.
    etc: Option<Dir>,
    _lock: RepoLock,
}

/// What is managed on a derived commit.
#[derive(Debug, Clone, Copy)]
pub(in crate::pipeline) struct Content<'a> {
    /// What a request asks for; none carries over what is there.
    pub(in crate::pipeline) config: Option<(&'a Config, &'a Source)>,
    /// What is managed before, and the image commit that it was worked out on.
    pub(in crate::pipeline) previous: Option<(&'a Manifest, &'a str)>,
}

impl<'s> Layering<'s> {
    /// Waits for a cleanup that runs. Not with the host lock held.
    pub(in crate::pipeline) fn begin(session: &'s Session) -> Result<Self> {
        session.host.require_writable()?;
        let repo = session.host.root().open_dir("ostree/repo")?;
        let token = session.interrupt.token();
        let lock = repo_lock::shared(&repo, session.sink.as_ref(), &|| token.is_cancelled())?;
        let Some(lock) = lock else { anyhow::bail!("stopped while waiting for a cleanup") };
        let status = session.host.status()?;
        let etc = match merge_source(&status.deployments) {
            Some(source) => Some(session.host.deployment_root(source)?.open_dir("etc")?),
            None => None,
        };
        Ok(Self { session, etc, _lock: lock })
    }

    /// Makes the derived commit of an image commit.
    pub(in crate::pipeline) fn make(&self, image_commit: &str, content: Content<'_>) -> Result<Layered> {
        let layered = layer(
            &self.session.host.repo()?,
            &LayerRequest {
                image_commit,
                config: content.config.map(|(config, _)| config),
                source: content.config.map_or_else(Source::default, |(_, source)| source.clone()),
                previous: content.previous.map(|(manifest, _)| manifest),
                previous_image_commit: content.previous.map(|(_, commit)| commit),
                etc: self.etc.as_ref(),
            },
        )
        .map_err(refused)?;
        for message in &layered.warnings {
            self.session.sink.event(Event::Warning { message: message.clone() });
        }
        Ok(layered)
    }
}

/// What an image or a root cannot honour, as a refusal.
pub(super) fn refused(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Invalid>() {
        Ok(invalid) => Fault::from(invalid).into(),
        Err(error) => error,
    }
}
