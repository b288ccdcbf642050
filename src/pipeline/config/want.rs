//! A request, worked out for this host: the next boot that it asks for, what of it can be had without
//! one, and what that changes.

use anyhow::Result;

use super::ConfigRequest;
use super::content::OnDisk;
use super::image::{self, WantedImage};
use super::layering::{Content, Layering};
use super::observe::{Observed, Side};
use crate::host::layer::Layered;
use crate::host::policies::policies;
use crate::model::kargs::KernelArguments;
use crate::model::manifest::{Manifest, Scope};
use crate::model::records::Intent;
use crate::pipeline::Session;
use crate::plan::apply::{Alike, Facts, Way, means_the_same, way};
use crate::plan::config::{ArgumentsChange, Changes, EntryChange, ImageChange};
use crate::plan::disruption::Verdict;

/// A request, worked out.
#[derive(Debug)]
pub(super) struct Wanted<'s> {
    pub(super) observed: Observed,
    pub(super) image: WantedImage,
    /// All kernel arguments of the next boot.
    pub(super) kernel_arguments: KernelArguments,
    /// What the next boot would be made of.
    pub(super) next: Layered,
    /// What the running root would be made of; none where nothing runs.
    pub(super) live: Option<Layered>,
    /// What changes, against what runs where the change is live, else against the next boot.
    pub(super) changes: Changes,
    pub(super) verdict: Verdict,
    pub(super) way: Way,
    pub(super) layering: Layering<'s>,
}

impl<'s> Wanted<'s> {
    /// Works a request out. Fetches and makes commits, but no ref and no record: what is not used is
    /// gone with the next cleanup.
    pub(super) fn work_out(session: &'s Session, request: &ConfigRequest) -> Result<Self> {
        let observed = Observed::look(&session.host)?;
        super::check::host(session, &observed, request)?;
        let image = image::find(session, &observed, request)?;
        let kernel_arguments = wanted_arguments(&observed.next, request)?;
        let layering = Layering::begin(session)?;
        let next = layering.make(&image.commit, content(&observed.next, request))?;
        let live = match &observed.running {
            Some(running) if observed.next_runs() && image.runs => Some(next.clone()),
            Some(running) => {
                Some(layering.make(&running.configured.image_commit, content(running, request))?)
            }
            None => None,
        };
        let mut wanted = Self {
            changes: Changes::default(),
            verdict: Verdict::default(),
            way: Way::NothingToDo,
            observed,
            image,
            kernel_arguments,
            next,
            live,
            layering,
        };
        wanted.judge(session, request)?;
        Ok(wanted)
    }

    fn judge(&mut self, session: &Session, request: &ConfigRequest) -> Result<()> {
        let policies = policies(&self.root(session)?)?;
        let on_running = match (&self.observed.running, &self.live) {
            (Some(running), Some(live)) => Some((running, live)),
            _ => None,
        };
        let live_changes = match on_running {
            Some((running, live)) => Some(changes_of(session, running, &live.manifest)?),
            None => None,
        };
        let disk = OnDisk::of(session, self.side())?;
        let verdict_of = |changes: &Changes| disk.verdict(changes, &policies);
        let live_will_do = match &live_changes {
            Some(changes) => !verdict_of(changes).needs_reboot() && !touches_usr(changes),
            None => false,
        };
        self.way = way(&self.facts(live_will_do));
        self.changes = match (self.way, live_changes) {
            (Way::Live(_), Some(changes)) => changes,
            (Way::NothingToDo, _) => Changes::default(),
            _ => self.changes_of_next(session, request)?,
        };
        self.verdict = verdict_of(&self.changes);
        Ok(())
    }

    /// What the changes are told against: what runs, else what the next boot would start.
    pub(super) fn side(&self) -> &Side {
        self.observed.running.as_ref().unwrap_or(&self.observed.next)
    }

    /// The intent with the wanted image, kernel arguments and names.
    pub(super) fn named_in(&self, request: &ConfigRequest, intent: Intent) -> Intent {
        Intent {
            asked: self.image.asked.clone(),
            kept_image: self.image.kept.clone(),
            digest: self.image.digest.clone(),
            asked_digest: self.image.asked_digest.clone(),
            image_commit: self.image.commit.clone(),
            kernel_arguments: self.kernel_arguments.to_string(),
            config: Some(request.config.names.clone()),
            request_digest: request.request_digest.clone(),
            ..intent
        }
    }

    fn facts(&self, live_will_do: bool) -> Facts {
        let same_arguments = |side: &Side| side.kernel_arguments.is_equivalent(&self.kernel_arguments);
        let alike = |side: &Side, image: bool, layered: &Layered| Alike {
            image,
            arguments: same_arguments(side),
            config: means_the_same(&side.configured.manifest, &layered.manifest),
        };
        let next = alike(&self.observed.next, self.image.is_next, &self.next);
        Facts {
            booted: self.observed.running.is_some(),
            next_runs: self.observed.next_runs(),
            next,
            running: match (&self.observed.running, &self.live) {
                (Some(running), Some(live)) => alike(running, self.image.runs, live),
                _ => next,
            },
            live_will_do,
        }
    }

    /// What changes against the next boot, image and kernel arguments among it.
    fn changes_of_next(&self, session: &Session, request: &ConfigRequest) -> Result<Changes> {
        let next = &self.observed.next;
        let mut changes = changes_of(session, next, &self.next.manifest)?;
        if !self.image.is_next {
            changes.image = Some(ImageChange {
                before: next.status.image.as_ref().map(|image| described(image, next.status.digest.as_ref())),
                after: match self.image.asked.as_ref().or(self.image.kept.as_ref()) {
                    Some(image) => described(image, self.image.digest.as_ref()),
                    None => self.image.commit.clone(),
                },
            });
        }
        if !next.kernel_arguments.is_equivalent(&self.kernel_arguments) {
            let before = next.configured.carried.kernel_arguments.clone();
            let after = request.kernel_arguments().map_or_else(|| before.clone(), <[String]>::to_vec);
            changes.kernel_arguments = Some(ArgumentsChange { before, after });
        }
        Ok(changes)
    }

    /// The root whose policy counts: the running one, else that of the next boot.
    fn root(&self, session: &Session) -> Result<cap_std_ext::cap_std::fs::Dir> {
        if self.observed.running.is_some() {
            return session.host.running_root();
        }
        session.host.deployment_root(&self.observed.next.status)
    }
}

/// What differs between what belongs on a deployment and a manifest; what is there as wanted already is
/// adopted.
pub(super) fn changes_of(session: &Session, side: &Side, manifest: &Manifest) -> Result<Changes> {
    let disk = OnDisk::of(session, side)?;
    let mut changes = Changes::between(&side.configured.manifest, manifest, &|entry| disk.found(entry));
    // What counts is whether the kernel gets them, whoever asked for them before.
    changes.kernel_arguments = None;
    Ok(changes)
}

fn touches_usr(changes: &Changes) -> bool {
    paths(changes).any(|change| change.is_visible() && Scope::of(&change.path) == Some(Scope::Usr))
}

/// How many paths change on disk.
pub(super) fn changed_paths(changes: &Changes) -> usize {
    paths(changes).filter(|change| change.is_visible()).count()
}

fn paths(changes: &Changes) -> impl Iterator<Item = &EntryChange> {
    let all = changes.files.iter().chain(changes.units.values().flatten()).chain(&changes.keys);
    all.chain(&changes.derived)
}

fn content<'a>(side: &'a Side, request: &'a ConfigRequest) -> Content<'a> {
    let carried = (&side.configured.carried, side.configured.image_commit.as_str());
    Content {
        config: Some((&request.config, &request.source)),
        previous: (!request.drops_others && side.configured.is_managed()).then_some(carried),
    }
}

/// The arguments of the next boot with the managed ones replaced.
fn wanted_arguments(next: &Side, request: &ConfigRequest) -> Result<KernelArguments> {
    match request.kernel_arguments() {
        Some(new) => {
            let old = &next.configured.carried.kernel_arguments;
            let wanted = next.kernel_arguments.replace_managed(old, new);
            Ok(wanted.map_err(crate::error::Fault::from)?)
        }
        None => Ok(next.kernel_arguments.clone()),
    }
}

fn described(
    image: &crate::model::image_ref::OsImage,
    digest: Option<&crate::model::digest::Digest>,
) -> String {
    match digest {
        Some(digest) => format!("{image} ({})", digest.short()),
        None => image.to_string(),
    }
}
