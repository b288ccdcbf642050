//! What stands on a root now, and the bytes behind the nodes of a manifest.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::Result;
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;

use super::observe::Side;
use crate::host::Host;
use crate::host::converge::{Contents, InMemory, RepoObjects, Root, Several, Wanted, found, found_content};
use crate::model::config::Blob;
use crate::model::digest::Digest;
use crate::model::manifest::{Entry, Node};
use crate::model::policy::Policies;
use crate::pipeline::Session;
use crate::plan::config::{Changes, EntryChange};
use crate::plan::content::Versions;
use crate::plan::disruption::{Verdict, judge, registries};

/// A root with what holds the contents of its managed files.
#[derive(Debug)]
pub struct OnDisk {
    root: Option<Root>,
    contents: Box<dyn Contents>,
}

impl OnDisk {
    /// A deployment's root. One that is staged has none yet.
    pub(in crate::pipeline) fn of(session: &Session, side: &Side) -> Result<Self> {
        let root = if side.status.staged { None } else { Some(root_of(&session.host, side)?) };
        Ok(Self { root, contents: Box::new(objects(&session.host)?) })
    }

    /// A root without OSTree.
    pub(in crate::pipeline) fn plain(
        root: Root,
        stored: Box<dyn Contents>,
        new: &BTreeMap<Digest, Blob>,
    ) -> Self {
        let new: Box<dyn Contents> = Box::new(InMemory(new.clone()));
        Self { root: Some(root), contents: Box::new(Several(vec![new, stored])) }
    }

    /// What is at the path of an entry; none where that cannot be told.
    pub(in crate::pipeline) fn found(&self, entry: &Entry) -> Option<Node> {
        found(self.root.as_ref()?, &entry.path).ok().flatten()
    }

    /// What changes ask for.
    pub(in crate::pipeline) fn verdict(&self, changes: &Changes, policies: &Policies) -> Verdict {
        judge(changes, policies, registries(changes, self).as_ref())
    }

    fn read(&self, path: &Utf8Path, node: Option<&Node>) -> Result<Option<Vec<u8>>> {
        let Some(Node::File { digest, object, .. }) = node else { return Ok(None) };
        let wanted = Wanted { path, digest, object: object.as_deref() };
        let Some(mut content) = self.contents.open(&wanted)? else { return Ok(None) };
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

impl Versions for OnDisk {
    fn before(&self, change: &EntryChange) -> Result<Option<Vec<u8>>> {
        let kept = self.read(&change.path, change.from.as_ref())?;
        match (kept, &self.root, &change.from) {
            // Nobody manages it yet: only the root itself has it.
            (None, Some(root), Some(Node::File { digest, .. })) => found_content(root, &change.path, digest),
            (kept, ..) => Ok(kept),
        }
    }

    fn after(&self, change: &EntryChange) -> Result<Option<Vec<u8>>> {
        self.read(&change.path, change.to.as_ref())
    }
}

/// The root of a deployment that is there, with the `/var` that it would see.
pub(in crate::pipeline) fn root_of(host: &Host, side: &Side) -> Result<Root> {
    let root = Root::new(host.deployment_root(&side.status)?);
    if side.status.booted {
        return Ok(root);
    }
    Ok(match host.var()? {
        Some(var) => root.with_var(var),
        None => root,
    })
}

/// The repo's objects.
pub(in crate::pipeline) fn objects(host: &Host) -> Result<RepoObjects> {
    let objects: Dir = host.root().open_dir("ostree/repo/objects")?;
    Ok(RepoObjects(objects))
}
