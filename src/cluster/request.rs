//! From a step to the request that the host understands, and back for what runs there already.

use std::hash::{BuildHasher as _, RandomState};

use crate::model::wire::{
    FIRST_WIRE_VERSION, HostRequest, RunningRequest, SOURCE_CONTROLLER_CONFIG, SOURCE_MACHINE_CONFIG, Verb,
    WIRE_VERSION, Wanted,
};
use crate::plan::cluster::{Step, Target};

use super::controller_config;

/// What a step needs besides itself.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// The MachineConfig that was fetched.
    pub(super) machine_config: String,
    /// That of the ControllerConfig.
    pub(super) controller_config: String,
}

/// The request for `step`, under an id of its own, in the protocol of a host that speaks `protocol` (0: it
/// does not say).
pub(super) fn request(step: &Step, texts: &Texts, who: &str, protocol: u32) -> HostRequest {
    let (word, verb) = match step {
        Step::Prepare { target, .. } => ("prepare", Verb::Prepare(wanted(target, texts))),
        Step::Commit { change, .. } => ("commit", Verb::Commit { change: change.clone(), reboot: false }),
        Step::ApplyLive { target, .. } => ("apply", Verb::ApplyLive(wanted(target, texts))),
        Step::Verify { repair } => ("verify", Verb::Verify { repair: *repair }),
        Step::Cancel => ("cancel", Verb::Cancel),
        Step::ControllerConfig { version } => (
            "certificates",
            Verb::ApplyLive(Wanted {
                machine_config: texts.controller_config.clone(),
                name: controller_config::name(version),
                image: None,
                source: SOURCE_CONTROLLER_CONFIG.to_owned(),
            }),
        ),
        Step::Reboot { config } => {
            ("reboot", Verb::Reboot { why: format!("Node will reboot into config {config}") })
        }
    };
    let id = format!("{word}-{:016x}", RandomState::new().hash_one(word));
    HostRequest { version: spoken(protocol), id, who: who.to_owned(), force: step.force(), verb }
}

/// The newest protocol that both know. A host that is newer understands all older ones.
pub(super) fn spoken(protocol: u32) -> u32 {
    protocol.clamp(FIRST_WIRE_VERSION, WIRE_VERSION)
}

fn wanted(target: &Target, texts: &Texts) -> Wanted {
    Wanted {
        machine_config: texts.machine_config.clone(),
        name: target.config.clone(),
        image: target.image.clone(),
        source: SOURCE_MACHINE_CONFIG.to_owned(),
    }
}

/// The step that a running request carries out; none if it is none of ours.
pub(super) fn step(running: &RunningRequest) -> Option<(Step, Target)> {
    let target = Target { config: running.config.clone(), image: running.image.clone() };
    let of = target.clone();
    let step = match running.verb.as_str() {
        "prepare" => Step::Prepare { target, force: false },
        "commit" => Step::Commit { target, change: String::new(), force: false },
        "apply-live" => match running.config.strip_prefix(&controller_config::name("")) {
            Some(version) => Step::ControllerConfig { version: version.to_owned() },
            None => Step::ApplyLive { target, force: false },
        },
        "verify" => Step::Verify { repair: false },
        "cancel" => Step::Cancel,
        "reboot" => Step::Reboot { config: running.config.clone() },
        _ => return None,
    };
    Some((step, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_spoken_to_in_a_protocol_that_it_knows() {
        for (host, spoken_to) in [(0, 1), (1, 1), (WIRE_VERSION, WIRE_VERSION), (u32::MAX, WIRE_VERSION)] {
            let request = request(&Step::Cancel, &Texts::default(), "daemon", host);
            assert_eq!((spoken(host), request.version), (spoken_to, spoken_to));
        }
    }
}
