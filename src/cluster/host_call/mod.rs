//! The pod's side of the call to the host's program: what the loop needs of it.
//!
//! The pod never touches host files. It hands a [`HostRequest`] over, which the host carries out in a
//! unit of its own that survives the pod, and follows the [`Reply`]s.

mod copy;
mod systemd;
mod watch;

pub use systemd::SystemdHost;
pub(in crate::cluster) use watch::Watch;

use anyhow::Result;

use crate::model::wire::{HostReport, HostRequest, Reply};

/// A host that can be asked.
///
/// Futures of it run on the daemon's only thread, so they need not be `Send`.
#[expect(async_fn_in_trait, reason = "only this program implements it, on one thread")]
pub trait HostCall {
    /// The host as it is now. Quick, changes nothing.
    ///
    /// # Errors
    ///
    /// The host's program cannot be started or does not answer. A host without the program is no error:
    /// [`HostReport::mcd`] is empty.
    async fn status(&self) -> Result<HostReport>;

    /// Hands a request over, or attaches to it if its id is known, and returns once the host holds it.
    ///
    /// # Errors
    ///
    /// It could not be handed over; nothing runs.
    async fn run(&self, request: &HostRequest) -> Result<()>;

    /// The next reply of a request after the one numbered `after` (0: the first); waits for it.
    ///
    /// # Errors
    ///
    /// The request is not known, or its unit ended without a last reply.
    async fn reply(&self, id: &str, after: u64) -> Result<Reply>;

    /// Returns when something on the host changed that [`HostCall::status`] shows: drift, the force
    /// file, a hold, a verdict. May return although nothing changed.
    async fn changed(&self);
}
