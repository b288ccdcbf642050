//! What a machine is to become at its first boot: the request, and how it is known again.
//!
//! * [`ENCAPSULATED`]: written by Ignition on a cluster's machine, a MachineConfig whose own config section
//!   is empty, because Ignition has laid its files down already. Image, kernel arguments and the rest of
//!   the spec are what is asked for. Source: OpenShift's Machine Config Server and Go daemon, 4.3 and later.
//! * [`WHOLE`]: a whole config, for a machine without a cluster.
//!
//! Both live in `/etc`, which a rollback brings back. So a request has a digest, by which the boot file
//! remembers that it was carried out.

use super::config::{Config, Managed};
use super::digest::Digest;

/// What Ignition leaves, seen from the root.
pub const ENCAPSULATED: &str = "etc/ignition-machine-config-encapsulated.json";
/// A whole config, seen from the root.
pub const WHOLE: &str = "etc/mcd/firstboot.yaml";
/// After the name of a request that is carried out. Other tools look for this name.
pub const CARRIED_OUT: &str = ".bak";

/// What a request speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The spec; its config section only if that says something.
    Encapsulated,
    /// Everything.
    Whole,
}

/// The identity of a request.
pub fn request_digest(bytes: &[u8]) -> Digest {
    let mut canonical = b"mcd first boot 1\n".to_vec();
    canonical.extend_from_slice(bytes);
    Digest::of(&canonical)
}

/// Takes an empty config section for an absent one: Ignition wrote the files, and they are not ours.
pub fn absent_if_empty(config: &mut Config, form: Form) {
    if form == Form::Encapsulated && config.managed == Some(Managed::default()) {
        config.managed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Unit;

    #[test]
    fn an_empty_section_counts_as_absent_only_where_ignition_wrote_the_files() {
        let empty = Config { managed: Some(Managed::default()), ..Config::default() };
        let mut config = empty.clone();
        absent_if_empty(&mut config, Form::Encapsulated);
        assert_eq!(config.managed, None);
        config = empty.clone();
        absent_if_empty(&mut config, Form::Whole);
        assert_eq!(config, empty);
        let units = [("a.service".to_owned(), Unit::default())].into();
        config.managed = Some(Managed { units, ..Managed::default() });
        absent_if_empty(&mut config, Form::Encapsulated);
        assert!(config.managed.is_some());
    }

    #[test]
    fn a_request_is_known_by_its_bytes() {
        assert_eq!(request_digest(b"a"), request_digest(b"a"));
        assert_ne!(request_digest(b"a"), request_digest(b"b"));
        assert_ne!(request_digest(b""), Digest::of(b""));
    }
}
