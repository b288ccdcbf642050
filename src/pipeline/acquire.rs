//! From a reference to an image commit in the repo: policy, resolve, first preflight gate, import.
//! Holds no host lock.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::Session;
use crate::error::Fault;
use crate::host::pull::{self, Access, PullOptions, PullPlan, PulledImage, Resolved};
use crate::host::trust::{self, Trust};
use crate::model::digest::Digest;
use crate::model::event::Event;
use crate::model::image_ref::{ImageReference, OsImage, Transport, Verification};
use crate::plan::{Plan, Step, preflight};

/// How to fetch.
#[derive(Debug, Clone, Default)]
pub struct PullSettings {
    /// Credentials file; none: the usual places.
    pub authfile: Option<PathBuf>,
    /// Accept any certificate, and plain HTTP. For tests.
    pub insecure_skip_tls_verification: bool,
    /// Idle I/O and CPU priority.
    pub background: bool,
    /// Bytes a second.
    pub rate_limit: Option<u64>,
}

/// What [`pull()`] did.
#[derive(Debug, Clone)]
pub enum Pulled {
    /// The repo had the image.
    Present(PulledImage),
    /// It was fetched.
    Fetched(PulledImage),
    /// `--dry-run`: what would be fetched, and the checks.
    WouldFetch(Box<Fetch>),
}

/// An image that is known but not fetched: what a dry run shows and an import starts from.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// The reference.
    pub image: OsImage,
    /// Manifest and config.
    pub resolved: Resolved,
    /// Which layers are missing.
    pub layers: PullPlan,
    /// The first preflight gate.
    pub checks: Vec<preflight::Check>,
    options: PullOptions,
    grant: Grant,
}

/// Where a change gets its image from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The repo has it.
    Present(PulledImage),
    /// It must be fetched.
    Fetch(Box<Fetch>),
}

impl Source {
    pub(super) fn digest(&self) -> &Digest {
        match self {
            Self::Present(pulled) => &pulled.digest,
            Self::Fetch(fetch) => &fetch.resolved.digest,
        }
    }

    pub(super) fn checks(&self) -> &[preflight::Check] {
        match self {
            Self::Present(_) => &[],
            Self::Fetch(fetch) => &fetch.checks,
        }
    }

    /// The plan's step for it; nothing where nothing is fetched.
    pub(super) fn step(&self) -> Option<Step> {
        match self {
            Self::Present(_) => None,
            Self::Fetch(fetch) => Some(fetch.step()),
        }
    }
}

/// Finds an image: in the repo by its digest, else in the registry. A registry that cannot be
/// reached does not stop a change to an image that was pulled before under the same name.
pub(super) fn find(session: &Session, image: &OsImage, settings: &PullSettings) -> Result<Source> {
    let repo = session.host.repo()?;
    let grant = grant_access(session, image, settings)?;
    let pulled = grant.find_in_repo(&repo, image)?;
    if image.image.digest.is_some()
        && let Some(pulled) = &pulled
    {
        return Ok(Source::Present(pulled.clone()));
    }
    match look_up(session, image, settings, grant, pulled.is_some()) {
        Ok(fetch) => Ok(Source::Fetch(Box::new(fetch))),
        Err(error) if pull::is_unreachable(&error) => match pulled {
            Some(pulled) => {
                session.sink.event(Event::Warning {
                    message: format!(
                        "{image} cannot be looked up ({error:#}): taking {}, which was pulled under this name before",
                        pulled.digest.short()
                    ),
                });
                Ok(Source::Present(pulled))
            }
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Makes sure that the repo has it.
pub(super) fn obtain(session: &Session, source: Source) -> Result<PulledImage> {
    match source {
        Source::Present(pulled) => Ok(pulled),
        Source::Fetch(fetch) => {
            fetch.refuse_failed_checks()?;
            import(session, *fetch)
        }
    }
}

/// Fetches an image ahead of its deployment: a later pivot to it needs no network.
pub fn pull(session: &Session, image: &OsImage, settings: &PullSettings, dry_run: bool) -> Result<Pulled> {
    let grant = grant_access(session, image, settings)?;
    if image.image.digest.is_some()
        && let Some(pulled) = grant.find_in_repo(&session.host.repo()?, image)?
    {
        return Ok(Pulled::Present(pulled));
    }
    let fetch = look_up(session, image, settings, grant, false)?;
    if dry_run {
        return Ok(Pulled::WouldFetch(Box::new(fetch)));
    }
    fetch.refuse_failed_checks()?;
    let had_all = fetch.layers.fetch_layers() == 0;
    let pulled = import(session, fetch)?;
    Ok(if had_all { Pulled::Present(pulled) } else { Pulled::Fetched(pulled) })
}

/// Reads an image's manifest as a pull would, once, and fetches nothing.
///
/// # Errors
///
/// Why it cannot be read, in the words of policy, registry or container tools.
pub fn read_manifest(session: &Session, image: &OsImage, settings: &PullSettings) -> Result<()> {
    let grant = grant_access(session, image, settings)?;
    look_up(session, image, settings, grant, true).map(drop)
}

/// Resolves a reference and says what fetching it means. Policy is asked first: a rejected image
/// causes no network traffic.
#[context("Looking up {image}")]
fn look_up(
    session: &Session,
    image: &OsImage,
    settings: &PullSettings,
    grant: Grant,
    is_quick: bool,
) -> Result<Fetch> {
    let repo = session.host.repo()?;
    let mut options = PullOptions {
        access: grant.access.clone(),
        background: settings.background,
        rate_limit: settings.rate_limit,
        configured: grant.configured.clone(),
        scratch: Some(Arc::new(Dir::reopen_dir(&repo.dfd_borrow())?)),
        ..PullOptions::default()
    };
    if is_quick {
        options.tries = 1;
    }
    session.sink.event(Event::Step { what: format!("resolving {image}") });
    let resolved = session.block_on(pull::resolve(&image.image, &options, session.sink.as_ref()))?;
    options.tries = PullOptions::default().tries;
    if let Some(why) = preflight::wrong_architecture(&resolved.facts, pull::machine_architecture()) {
        return Err(Fault::refused(format!("image {image} cannot run here"))
            .why(why)
            .next("name an image, or an index with an image, for this architecture")
            .into());
    }
    let layers = pull::plan(&repo, &resolved)?;
    let space = session.host.observe_space()?;
    let kernel = session.host.next_boot_kernel()?;
    let checks = preflight::before_download(&layers.missing(&resolved), options.access.signed, space, kernel);
    Ok(Fetch { image: image.clone(), resolved, layers, checks, options, grant })
}

/// What the policy says about an image, and the credentials to fetch it with.
#[derive(Debug, Clone)]
struct Grant {
    /// What it is for.
    image: ImageReference,
    access: Access,
    /// Where the machine's configuration sends requests for the image, for messages.
    configured: Option<String>,
    /// Set where a signature is demanded: the policy that did, so that a proof under one policy
    /// does not count under another.
    demanded_by: Option<Digest>,
    /// The OSTree remote whose keys must have signed the base commit.
    remote: Option<String>,
}

/// What registries.conf and the proxy variables say about requests for an image.
fn configured(root: &Dir, image: &ImageReference) -> Option<String> {
    if image.transport != Transport::Registry {
        return None;
    }
    let mut told: Vec<String> =
        trust::registries::configured_candidates(root, image).describe().into_iter().collect();
    for name in ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"] {
        if let Some(value) = std::env::var(name).ok().filter(|value| !value.is_empty()) {
            // What stands before an '@' is a password, with a scheme or without.
            let host = value.rsplit(['@', '/']).find(|part| !part.is_empty()).unwrap_or_default();
            told.push(format!("{name} is {host}"));
        }
    }
    (!told.is_empty()).then(|| told.join("; "))
}

impl Grant {
    /// The image as it was pulled before, if that passed what this grant asks for.
    fn find_in_repo(&self, repo: &ostree::Repo, image: &OsImage) -> Result<Option<PulledImage>> {
        Ok(pull::image_by_reference(repo, image)?.filter(|pulled| self.is_proved(repo, pulled)))
    }

    /// Whether an image that is in the repo passed the checks that this grant asks for. What was
    /// pulled under a laxer policy has not.
    fn is_proved(&self, repo: &ostree::Repo, pulled: &PulledImage) -> bool {
        let by_policy = match &self.demanded_by {
            Some(policy) => pull::is_verified_under(repo, policy, &self.image, &pulled.digest),
            None => true,
        };
        by_policy
            && self.remote.as_ref().is_none_or(|remote| pull::is_signed_for_remote(repo, pulled, remote))
    }
}

fn grant_access(session: &Session, image: &OsImage, settings: &PullSettings) -> Result<Grant> {
    let root = session.host.running_root()?;
    let policy = trust::Policy::load(&root)?;
    let requirement = policy.requirement(&image.image)?;
    // Asking costs a process: only where the answer counts.
    let enforced = requirement.asks_for_signature() && trust::skopeo::probe()?.enforces_policy();
    let trust = trust::decide(image, &requirement, enforced)?;
    let credentials = trust::Credentials::find(settings.authfile.as_deref(), &root, session.sink.as_ref())?;
    Ok(Grant {
        image: image.image.clone(),
        configured: configured(&root, &image.image),
        access: Access {
            authfile: credentials.into_path(),
            insecure_skip_tls_verification: settings.insecure_skip_tls_verification,
            signed: trust == Trust::CopyVerified,
        },
        demanded_by: requirement.asks_for_signature().then(|| policy.digest().clone()),
        remote: match &image.verification {
            Verification::OstreeRemote(remote) => Some(remote.clone()),
            Verification::PolicyOnly | Verification::Signed => None,
        },
    })
}

impl Fetch {
    /// What a dry run of a pull shows.
    pub fn plan(&self) -> Plan {
        Plan { steps: vec![self.step()], checks: self.checks.clone() }
    }

    fn step(&self) -> Step {
        Step::Pull {
            image: self.image.clone(),
            digest: self.resolved.digest.clone(),
            fetch_bytes: self.layers.bytes_to_fetch(),
            fetch_layers: self.layers.fetch_layers(),
            reuse_bytes: self.layers.bytes_present(),
            reuse_layers: self.layers.layers.len() - self.layers.fetch_layers(),
        }
    }

    /// The first failed check as an error with its numbers.
    pub(super) fn refuse_failed_checks(&self) -> Result<()> {
        refuse_failed(&self.image.to_string(), &self.checks)
    }
}

/// Turns the first failed check into a refusal that names both numbers and what to do.
pub(super) fn refuse_failed(subject: &str, checks: &[preflight::Check]) -> Result<()> {
    match checks.iter().find(|check| check.is_failed()) {
        None => Ok(()),
        Some(check) => Err(Fault::refused(format!("{subject} does not fit on this host"))
            .why(check.to_string())
            .next(check.next)
            .into()),
    }
}

/// Fetches what is missing, and notes the proof where one was asked for.
fn import(session: &Session, fetch: Fetch) -> Result<PulledImage> {
    session.host.require_writable()?;
    let repo = session.host.repo()?;
    session.sink.event(Event::Step {
        what: format!("importing {} ({})", fetch.image, fetch.resolved.digest.short()),
    });
    let pulled = session.block_on(pull::import(
        &repo,
        &fetch.image,
        fetch.resolved,
        &fetch.options,
        Arc::clone(&session.sink),
        session.interrupt.token(),
    ))?;
    if let Some(policy) = &fetch.grant.demanded_by {
        pull::note_verified(&repo, policy, &fetch.image.image, &pulled)?;
    }
    Ok(pulled)
}
