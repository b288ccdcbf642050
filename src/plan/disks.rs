//! Whether what a config says of disks can stand.
//!
//! Partitions, arrays, file systems and encryption are made by Ignition when a machine is installed. A
//! config that says of them what it said before changes nothing; another one asks for what nobody can
//! do to disks in use.

use crate::error::Fault;
use crate::model::config::{Disks, DisksSaid, SECTIONS};

/// What is said of disks by a config that is the first on this host: told, and taken as it is.
///
/// # Errors
///
/// A section that says something else than the config that is applied now, or that is gone.
pub fn disks(wanted: &Disks, before: Option<&DisksSaid>) -> Result<Vec<String>, Fault> {
    let Some(before) = before else {
        let told = wanted.values().map(|section| {
            let field = &section.field;
            format!("{field} is not carried out: Ignition does that when a machine is installed. It is taken as what this machine was given")
        });
        return Ok(told.collect());
    };
    for name in SECTIONS {
        let refuse = |what: String, next: &str| {
            Err(Fault::refused(what)
                .why("disks are laid out when a machine is installed, and not changed after that")
                .next(next))
        };
        match (wanted.get(name), before.get(name)) {
            (Some(section), Some(said)) if section.digest() == *said => {}
            (Some(section), Some(_)) => {
                return refuse(
                    format!("{} says something else than the config that is applied now", section.field),
                    "leave it as it was, or install the machine anew",
                );
            }
            (Some(section), None) => {
                return refuse(
                    format!("{} is new: the config that is applied now does not have it", section.field),
                    "leave it out, or install the machine anew",
                );
            }
            (None, Some(_)) => {
                return refuse(
                    format!("storage.{name} is gone: the config that is applied now has it"),
                    "leave it in as it was; `mcd forget` gives up all that is managed",
                );
            }
            (None, None) => {}
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::config::{DiskSection, said};

    fn section(label: &str) -> DiskSection {
        DiskSection {
            field: "a.yaml: spec.config.storage.disks".to_owned(),
            items: vec![json!({ "device": "/dev/vda", "label": label })],
        }
    }

    fn disks_of(label: &str) -> Disks {
        Disks::from([("disks".to_owned(), section(label))])
    }

    #[test]
    fn the_first_one_is_taken_and_told() {
        assert_eq!(disks(&Disks::new(), None).unwrap(), Vec::<String>::new());
        let told = disks(&disks_of("var"), None).unwrap();
        assert_eq!(
            told,
            [
                "a.yaml: spec.config.storage.disks is not carried out: Ignition does that when a machine is installed. It is taken as what this machine was given"
            ]
        );
    }

    #[test]
    fn what_was_said_before_may_be_said_again() {
        let before = said(&disks_of("var"));
        assert_eq!(disks(&disks_of("var"), Some(&before)).unwrap(), Vec::<String>::new());
        assert_eq!(disks(&Disks::new(), Some(&DisksSaid::new())).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_change_is_refused_whatever_it_is() {
        let before = said(&disks_of("var"));
        let what = |wanted: &Disks, before: &DisksSaid| disks(wanted, Some(before)).unwrap_err().what;
        assert_eq!(
            what(&disks_of("data"), &before),
            "a.yaml: spec.config.storage.disks says something else than the config that is applied now"
        );
        assert_eq!(
            what(&disks_of("var"), &DisksSaid::new()),
            "a.yaml: spec.config.storage.disks is new: the config that is applied now does not have it"
        );
        assert_eq!(
            what(&Disks::new(), &before),
            "storage.disks is gone: the config that is applied now has it"
        );
    }
}
