//! Configuration: files, units and keys, with the image and the kernel arguments that go with them.
//!
//! A request is worked out against what the next boot would start and what runs ([`want`]), and then
//! made as a new deployment ([`deploy`]), or live ([`live`]). See the table of cuts in
//! `docs/decisions.md`.

mod apply;
mod carry;
mod check;
mod content;
mod deploy;

mod follow;
mod forget;
mod ground;
mod image;
mod later;
mod layering;
mod live;
mod next;
mod observe;
mod propose;
mod recover;

mod root;
mod store;
mod verify;
mod want;

pub use apply::apply;

pub use content::OnDisk;
pub use follow::Following;
pub use forget::{ForgetRequest, forget};
pub use live::Done;
pub use propose::{Proposal, propose};
pub use root::{PlainRoot, RootForgotten, RootOutcome, apply_to_root, forget_root, propose_for_root};
pub use verify::{HostDifference, HostPart, Repaired, Verified, repair, verify, verify_root};

pub(in crate::pipeline) use carry::carried;
pub(in crate::pipeline) use later::resume as resume_live;
pub(in crate::pipeline) use observe::{Observed, changed_meanwhile};
pub(in crate::pipeline) use recover::continue_live;

use super::{PullSettings, Until};
use crate::model::config::Config;
use crate::model::digest::Digest;
use crate::model::manifest::Source;

/// A request to configure a host.
#[derive(Debug, Clone)]
pub struct ConfigRequest {
    /// What is wanted, with nothing left to fetch but the image.
    pub config: Config,
    /// Whose entries it replaces.
    pub source: Source,
    /// Entries of other sources go too: nothing of ours may remain.
    pub drops_others: bool,
    /// How far to go.
    pub until: Until,
    /// Whether the caller will ask for a reboot: an interrupted change then does so as well.
    pub reboot: bool,
    /// Wait for whoever holds the host lock.
    pub wait: bool,
    /// How to fetch an image.
    pub pull: PullSettings,
    /// The digest of the first boot's request that this run carries out.
    pub request_digest: Option<Digest>,
    /// Who asks, for the history: the verb as typed.
    pub who: String,
}

impl ConfigRequest {
    /// The kernel arguments that it manages from now on; none where it does not speak of them. They are
    /// the MachineConfig's business, whatever another source writes.
    pub(super) fn kernel_arguments(&self) -> Option<&[String]> {
        let decides = self.source == Source::MachineConfig;
        self.config.kernel_arguments.as_deref().filter(|_| decides)
    }
}
