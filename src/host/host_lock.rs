//! The host lock: OSTree's own `/ostree/lock`, so that other tools are kept out as well.
//!
//! It covers deploy, converge and records, for as long as these take. A download never holds it.
//! [`HostLocked`] is the proof of holding it: everything that changes the host is a method of it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::Result;
use fn_error_context::context;
use ostree::{gio, glib};
use rustix::fs::StatVfsMountFlags;

use super::lock_holder::{UNKNOWN_HOLDER, describe_holder};
use super::reboot;
use super::sysroot::{Host, read_only};
use crate::error::{ExitKind, Fault};
use crate::model::event::{Event, EventSink};

/// What the lock is called in messages.
const NAME: &str = "the OSTree sysroot lock (/ostree/lock)";
/// How often a held lock is tried again. libostree offers no wait that can be interrupted; a lock is
/// held for seconds, and a person notices no quarter of one.
const POLL: Duration = Duration::from_millis(250);

/// How often making `/sysroot` writable is tried again: a file system that is frozen (by a snapshot, or
/// by libostree when it switches) cannot be remounted. Twenty times is five seconds.
const FROZEN_TRIES: u32 = 20;

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
    /// Holds the lock.
    lock: ostree::Sysroot,
    /// The deployments. Replaced as a whole when they change: libostree's own reloading goes by a
    /// time stamp, and misses what changes within one tick of the clock.
    sysroot: RefCell<ostree::Sysroot>,
    /// Something was staged under it.
    staged: Cell<bool>,
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
                // Let go of between the try and the look, it has no holder: that is nothing to tell.
                Wait::Telling(sink) if holder != said && (said.is_empty() || holder != UNKNOWN_HOLDER) => {
                    sink.event(Event::Waiting { what: NAME.to_owned(), holder: holder.clone() });
                    said = holder;
                }
                Wait::Telling(_) => {}
            }
            std::thread::sleep(POLL);
        }
    }

    /// Makes the running host's `/sysroot` writable in this process's mount namespace, for work on
    /// the repo that holds no host lock. libostree does it on the way to its lock, got or not.
    pub(crate) fn make_writable(&self) -> Result<()> {
        let flags = rustix::fs::statvfs("/sysroot").map(|stat| stat.f_flag);
        if self.is_booted() && flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY)) {
            self.try_lock()?;
        }
        Ok(())
    }

    /// Takes the host lock if nobody holds it.
    #[context("Locking the sysroot {}", self.path())]
    pub(crate) fn try_lock(&self) -> Result<Option<HostLocked<'_>>> {
        // A new object for each lock: what libostree loaded before is not looked at again.
        let lock = self.sysroot();
        lock.initialize()?;
        let mut tries = 0;
        let taken = loop {
            match lock.try_lock() {
                Err(error) if error.matches(gio::IOErrorEnum::Busy) && tries < FROZEN_TRIES => tries += 1,
                taken => break taken.map_err(|error| self.explain(error))?,
            }
            std::thread::sleep(POLL);
        };
        if !taken {
            return Ok(None);
        }
        // The guard first: it must let go when loading fails.
        let locked = HostLocked {
            host: self,
            sysroot: RefCell::new(Clone::clone(&lock)),
            staged: Cell::new(false),
            lock,
        };
        locked.reload()?;
        Ok(Some(locked))
    }

    /// Who holds the host lock, as text.
    pub(crate) fn lock_holder(&self) -> String {
        self.root().open("ostree/lock").map_or_else(|_| UNKNOWN_HOLDER.to_owned(), describe_holder)
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
    pub(crate) fn sysroot(&self) -> ostree::Sysroot {
        Clone::clone(&self.sysroot.borrow())
    }

    /// Reads the deployments again.
    pub(crate) fn reload(&self) -> Result<()> {
        self.sysroot.replace(self.host.load()?);
        Ok(())
    }

    /// Remembers to make sure, once the lock is free, that what was staged is finalised.
    pub(super) fn note_staged(&self) {
        self.staged.set(true);
    }
}

impl Drop for HostLocked<'_> {
    fn drop(&mut self) {
        self.lock.unlock();
        // Never before: systemd starts the finalising service after OSTree's ostree-boot-complete.service,
        // which takes this lock. Waiting for one while holding the other would end only with the boot.
        if self.staged.get()
            && let Err(error) = reboot::finalise_at_shutdown()
        {
            tracing::warn!("{error:#}");
        }
    }
}

/// The fault of a lock that another process holds.
pub(crate) fn busy(holder: &str) -> Fault {
    Fault::new(ExitKind::Busy, "another change of this host is under way")
        .why(format!("{NAME} is held by {holder}"))
        .next("try again later, or leave --no-wait out to wait for it")
}
