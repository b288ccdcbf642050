//! What a live apply works on: the running deployment of an OSTree host, or a root without OSTree.

use anyhow::Result;

use super::content::objects;
use super::next;
use crate::host::converge::{Contents, Root};
use crate::host::{HostLocked, RecordsFolder};
use crate::model::live::Live;
use crate::model::manifest::Scope;
use crate::model::records::HistoryEntry;

/// Where a live apply works, with the lock of the place held.
pub(super) trait Ground: std::fmt::Debug {
    /// The root.
    fn root(&self) -> &Root;
    /// Whether the services of the root run.
    fn runs(&self) -> bool;
    /// What of it is laid down.
    fn scopes(&self) -> &'static [Scope];
    /// What holds the contents.
    fn contents(&self) -> Result<Box<dyn Contents>>;
    /// Replaces the record.
    fn write_live(&self, live: &Live) -> Result<()>;
    /// Removes the record.
    fn clear_live(&self) -> Result<()>;
    /// Tells the history.
    fn append_history(&self, entry: HistoryEntry) -> Result<()>;
    /// Makes the next boot what it is to be.
    fn bring_forward(&self, live: &Live) -> Result<()>;
    /// The next boot is what it was again.
    fn bring_back(&self, live: &Live) -> Result<()>;
}

/// The running deployment.
#[derive(Debug)]
pub(super) struct Deployed<'a> {
    pub(super) locked: &'a HostLocked<'a>,
    pub(super) root: Root,
}

/// A root without OSTree.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    pub(super) root: &'a Root,
    pub(super) runs: bool,
    pub(super) records: &'a RecordsFolder,
}

impl Ground for Deployed<'_> {
    fn root(&self) -> &Root {
        &self.root
    }

    fn runs(&self) -> bool {
        true
    }

    fn scopes(&self) -> &'static [Scope] {
        &Scope::OF_DEPLOYMENT
    }

    fn contents(&self) -> Result<Box<dyn Contents>> {
        Ok(Box::new(objects(self.locked.host())?))
    }

    fn write_live(&self, live: &Live) -> Result<()> {
        self.locked.write_live(live)
    }

    fn clear_live(&self) -> Result<()> {
        self.locked.clear_live()
    }

    fn append_history(&self, entry: HistoryEntry) -> Result<()> {
        self.locked.append_history(entry)
    }

    fn bring_forward(&self, live: &Live) -> Result<()> {
        match &live.next {
            Some(next) => next::bring_forward(self.locked, next, live),
            None => Ok(()),
        }
    }

    fn bring_back(&self, live: &Live) -> Result<()> {
        match &live.next {
            Some(next) => next::bring_back(self.locked, next),
            None => Ok(()),
        }
    }
}

impl Ground for Plain<'_> {
    fn root(&self) -> &Root {
        self.root
    }

    fn runs(&self) -> bool {
        self.runs
    }

    fn scopes(&self) -> &'static [Scope] {
        &Scope::ALL
    }

    fn contents(&self) -> Result<Box<dyn Contents>> {
        super::store::contents(self.root)
    }

    fn write_live(&self, live: &Live) -> Result<()> {
        self.records.write_live(live)
    }

    fn clear_live(&self) -> Result<()> {
        self.records.clear_live()
    }

    fn append_history(&self, entry: HistoryEntry) -> Result<()> {
        self.records.append_history(entry)
    }

    fn bring_forward(&self, _live: &Live) -> Result<()> {
        Ok(())
    }

    fn bring_back(&self, _live: &Live) -> Result<()> {
        Ok(())
    }
}
