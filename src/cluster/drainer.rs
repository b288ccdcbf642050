//! Who carries drain orders out where no controller does.

use anyhow::Result;
use tokio::sync::mpsc::UnboundedSender;

/// Carries drain orders out.
#[expect(async_fn_in_trait, reason = "only this program implements it, on one thread")]
pub trait Drainer {
    /// Carries `drain-NAME` or `uncordon-NAME` out and returns when it is done; what does not leave goes
    /// to `blocked`, one line for people each time. Dropped when another order replaces it.
    ///
    /// # Errors
    ///
    /// It cannot go on; it is asked again after a while.
    async fn carry_out(&self, order: &str, blocked: &UnboundedSender<String>) -> Result<()>;
}

/// For clusters whose controller drains: is never asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDrainer;

impl Drainer for NoDrainer {
    async fn carry_out(&self, order: &str, _: &UnboundedSender<String>) -> Result<()> {
        anyhow::bail!("{order}: this process does not drain")
    }
}
