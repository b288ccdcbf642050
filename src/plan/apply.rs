//! How a configuration gets onto a host: live, with the next boot, or not at all.
//!
//! Three states are compared: what is *wanted*, what the *next boot* would start, and what *runs*.
//! Whether there is nothing to do is judged against the next boot; whether a change can be made live,
//! against what runs.

use super::config::Changes;
use crate::model::config::DisksSaid;
use crate::model::manifest::Manifest;

/// Whether two manifests ask for the same of a host, and say the same about where it comes from.
/// Labels, and where contents are kept, do not count.
pub fn means_the_same(one: &Manifest, other: &Manifest) -> bool {
    let same_words = one.names == other.names
        && one.kernel_arguments == other.kernel_arguments
        && one.kernel_type == other.kernel_type
        && one.extensions == other.extensions
        && one.extensions_image == other.extensions_image
        && said_of_disks(one) == said_of_disks(other);
    same_words && Changes::between(one, other, &|_| None).is_empty()
}

/// To have said nothing yet is to have said nothing.
fn said_of_disks(manifest: &Manifest) -> Option<&DisksSaid> {
    manifest.disks.as_ref().filter(|said| !said.is_empty())
}

/// What was found when the three were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// A deployment of this sysroot runs: without one, nothing is made live.
    pub booted: bool,
    /// The next boot starts what runs.
    pub next_runs: bool,
    /// Of the image, the kernel arguments and the configuration of the next boot: which are wanted.
    pub next: Alike,
    /// The same of what runs.
    pub running: Alike,
    /// What the configuration changes on the running root needs no reboot and is not below `/usr`.
    pub live_will_do: bool,
}

/// Which parts are as wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alike {
    /// The image.
    pub image: bool,
    /// The kernel arguments.
    pub arguments: bool,
    /// Files, units and keys, and what the records say about them.
    pub config: bool,
}

impl Alike {
    /// All of them.
    pub fn all(self) -> bool {
        self.boot() && self.config
    }

    /// What only a boot can change.
    fn boot(self) -> bool {
        self.image && self.arguments
    }
}

/// How the change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The next boot starts just that.
    NothingToDo,
    /// What runs is just that, and something else would boot: drop that.
    ReturnToBooted,
    /// On the running root, now.
    Live(After),
    /// As a new deployment.
    Deploy,
}

/// What becomes of the next boot after a live apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It starts what runs, as before.
    Stays,
    /// Something else would boot that is not wanted: what runs is the next boot again.
    Drops,
    /// Another image or other arguments wait for the next boot: made again on the new content.
    MadeAgain,
}

/// Decides.
pub fn way(facts: &Facts) -> Way {
    if facts.next.all() {
        return Way::NothingToDo;
    }
    if !facts.booted {
        return Way::Deploy;
    }
    if facts.running.all() {
        return Way::ReturnToBooted;
    }
    // An image or an argument that neither runs nor waits for the next boot needs a boot of its own,
    // and then everything goes with that.
    let boots_anyway = |of: fn(Alike) -> bool| !of(facts.running) && !of(facts.next);
    if boots_anyway(|alike| alike.image) || boots_anyway(|alike| alike.arguments) || !facts.live_will_do {
        return Way::Deploy;
    }
    Way::Live(match facts {
        // Nothing to be laid down live, and yet the next boot is not as wanted: that is no live apply.
        Facts { running: Alike { config: true, .. }, .. } => return Way::Deploy,
        Facts { next_runs: true, .. } => After::Stays,
        Facts { running, .. } if running.boot() => After::Drops,
        _ => After::MadeAgain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `i`, `a`, `c`: image, arguments, configuration are as wanted.
    fn alike(text: &str) -> Alike {
        Alike { image: text.contains('i'), arguments: text.contains('a'), config: text.contains('c') }
    }

    fn of(next: &str, running: &str, live_will_do: bool) -> Way {
        let next_runs = running == "=";
        let (next, running) = (alike(next), alike(if next_runs { next } else { running }));
        way(&Facts { booted: true, next_runs, next, running, live_will_do })
    }

    #[test]
    fn one_deployment_that_runs() {
        assert_eq!(of("iac", "=", true), Way::NothingToDo);
        assert_eq!(of("ia", "=", true), Way::Live(After::Stays));
        assert_eq!(of("ia", "=", false), Way::Deploy);
        for boots in ["i", "a", "ic", "ac", "c", ""] {
            assert_eq!(of(boots, "=", true), Way::Deploy, "{boots}");
        }
    }

    #[test]
    fn something_else_is_staged() {
        for (next, running, way) in [
            // The staged one is just that, whatever runs.
            ("iac", "", Way::NothingToDo),
            ("iac", "ia", Way::NothingToDo),
            // What runs is just that.
            ("", "iac", Way::ReturnToBooted),
            ("ia", "iac", Way::ReturnToBooted),
            // A pull secret, while another image is staged.
            ("ia", "", Way::Live(After::MadeAgain)),
            ("ia", "a", Way::Live(After::MadeAgain)),
            // The image that runs is asked for with another secret, while another image is staged.
            ("", "ia", Way::Live(After::Drops)),
            // Staged is another configuration on the same image: the newer one wins.
            ("ia", "ia", Way::Live(After::Drops)),
            // The image is staged, the arguments are those that run.
            ("i", "a", Way::Live(After::MadeAgain)),
            // A third image.
            ("a", "a", Way::Deploy),
            // What runs has the configuration already; only the next boot lacks it.
            ("ia", "c", Way::Deploy),
        ] {
            assert_eq!(of(next, running, true), way, "{next} {running}");
            if let Way::Live(_) = way {
                assert_eq!(of(next, running, false), Way::Deploy, "{next} {running}");
            }
        }
    }

    #[test]
    fn what_does_not_run_is_deployed() {
        let next = alike("ia");
        let facts = Facts { booted: false, next_runs: false, next, running: alike(""), live_will_do: true };
        assert_eq!(way(&facts), Way::Deploy);
        assert_eq!(way(&Facts { next: alike("iac"), ..facts }), Way::NothingToDo);
    }
}
