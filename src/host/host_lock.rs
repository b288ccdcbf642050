//! The host lock: OSTree's own `/ostree/lock`, so that other tools are kept out as well.
//!
//! It covers deploy, converge and records, for as long as these take. A download never holds it.
//! [`HostLocked`] is the proof of holding it: everything that changes the host is a method of it.

use std::time::Duration;

use anyhow::{Context, Result};
use fn_error_context::context;
use ostree::{gio, glib};

use super::lock_holder::describe_holder;
use super::sysroot::{Host, read_only};
use crate::error::{ExitKind, Fault};
use crate::model::event::{Event, EventSink};

/// What the lock is called in messages.
const NAME: &str = "the OSTree sysroot lock (/ostree/lock)";
/// How often a held lock is tried again. libostree offers no wait that can be interrupted; a lock is
/// held for seconds, and a person notices no quarter of one.
const POLL: Duration = Duration::from_millis(250);

/// What to do when another process holds a lock.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// Fail at once, naming the holder.
    No,
    /// Wait, and say for whom.
    Telling(&'a dyn EventSink),
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::No) { "Wait::No" } else { "Wait::Telling" })
    }
}

/// A host whose lock this process holds, with the deployments as they were after taking it.
#[derive(Debug)]
pub struct HostLocked<'h> {
    host: &'h Host,
    sysroot: ostree::Sysroot,
}

impl Host {
    /// Takes the host lock and reads the deployments.
    pub fn lock(&self, wait: Wait<'_>) -> Result<HostLocked<'_>> {
        self.require_writable()?;
        let mut said = String::new();
        loop {
            if let Some(locked) = self.try_lock()? {
                return Ok(locked);
            }
            let holder = self.lock_holder();
            match wait {
                Wait::No => return Err(busy(&holder).into()),
                Wait::Telling(sink) if holder != said => {
                    sink.event(Event::Waiting { what: NAME.to_owned(), holder: holder.clone() });
                    said = holder;
                }
                Wait::Telling(_) => {}
            }
            std::thread::sleep(POLL);
        }
    }

    /// Takes the host lock if nobody holds it.
    #[context("Locking the sysroot {}", self.path())]
    pub(crate) fn try_lock(&self) -> Result<Option<HostLocked<'_>>> {
        // A new object for each lock: what libostree loaded before is not looked at again.
        let sysroot = self.sysroot();
        sysroot.initialize()?;
        let taken = sysroot.try_lock().map_err(|error| self.explain(error))?;
        if !taken {
            return Ok(None);
        }
        let locked = HostLocked { host: self, sysroot };
        locked.sysroot.load(gio::Cancellable::NONE).context("Reading the deployments")?;
        Ok(Some(locked))
    }

    /// Who holds the host lock, as text.
    pub(crate) fn lock_holder(&self) -> String {
        self.root()
            .open("ostree/lock")
            .map_or_else(|_| super::lock_holder::UNKNOWN_HOLDER.to_owned(), describe_holder)
    }

    fn explain(&self, error: glib::Error) -> anyhow::Error {
        if error.matches(gio::IOErrorEnum::ReadOnly) { read_only(self.path()).into() } else { error.into() }
    }
}

impl<'h> HostLocked<'h> {
    /// The host.
    pub fn host(&self) -> &'h Host {
        self.host
    }

    /// libostree's sysroot, loaded under the lock.
    pub(crate) fn sysroot(&self) -> &ostree::Sysroot {
        &self.sysroot
    }
}

impl Drop for HostLocked<'_> {
    fn drop(&mut self) {
        self.sysroot.unlock();
    }
}

/// The fault of a lock that another process holds.
pub(crate) fn busy(holder: &str) -> Fault {
    Fault::new(ExitKind::Busy, "another change of this host is under way")
        .why(format!("{NAME} is held by {holder}"))
        .next("try again later, or leave --no-wait out to wait for it")
}
