//! An Ignition config of spec 2.0–2.2 or 3.0–3.6. What each section holds is read by its own module;
//! the versions differ so little in what can be honoured that one reader serves all.

use super::document::Value;
use super::draft::Draft;
use super::field::{Field, Object, Report};
use super::{passwd, storage, units};

/// The newest minor version of each major one that is read.
const NEWEST: [(u64, u64); 2] = [(2, 2), (3, 6)];

/// Why other configs are not read in.
const ELSEWHERE: &str = "other configs are not fetched; give them to mcd as files of their own";

/// Reads a whole config.
pub(super) fn read(value: &Value<'_>, at: &Field<'_>, into: &mut Draft, report: &mut Report) {
    let Some(mut config) = Object::read(Some(value), at, report) else { return };
    into.is_managed = true;
    let Some(major) = header(&mut config, at, report) else { return };
    let storage = config.take("storage", at, report);
    storage::read(storage, major, &at.name("storage"), into, report);
    let systemd = config.take("systemd", at, report);
    units::read(systemd, major, &at.name("systemd"), into, report);
    let passwd = config.take("passwd", at, report);
    passwd::read(passwd, major, &at.name("passwd"), into, report);
    if major == 2 {
        config.refuse(
            "networkd",
            "write the files below /etc/systemd/network with storage.files",
            at,
            report,
        );
    } else if let Some(mut arguments) = config.object("kernelArguments", at, report) {
        let at = at.name("kernelArguments");
        for name in ["shouldExist", "shouldNotExist"] {
            arguments.refuse(name, "use spec.kernelArguments of a MachineConfig", &at, report);
        }
        arguments.end(&at, report);
    }
    config.end(at, report);
}

/// Reads `ignition` and tells the major version.
fn header(config: &mut Object<'_, '_>, at: &Field<'_>, report: &mut Report) -> Option<u64> {
    let Some(mut ignition) = config.object("ignition", at, report) else {
        if !config.has("ignition") {
            report.refuse(
                at.name("ignition"),
                "an Ignition config has it: ignition.version says which spec it follows",
            );
        }
        return None;
    };
    let at = at.name("ignition");
    let major = match ignition.text("version", &at, report).map(major) {
        Some(Ok(major)) => Some(major),
        Some(Err(reason)) => {
            report.refuse(at.name("version"), reason);
            None
        }
        None => {
            report.refuse(at.name("version"), "it is missing: write the version of the spec, such as 3.4.0");
            None
        }
    };
    if let Some(mut other) = ignition.object("config", &at, report) {
        let at = at.name("config");
        other.refuse("append", ELSEWHERE, &at, report);
        other.refuse("merge", ELSEWHERE, &at, report);
        other.refuse("replace", ELSEWHERE, &at, report);
        other.end(&at, report);
    }
    let trust = "mcd takes the certificates that the host trusts; add this one there";
    ignition.refuse("security", trust, &at, report);
    let proxy = "mcd takes the proxy from its environment (HTTPS_PROXY, NO_PROXY)";
    ignition.refuse("proxy", proxy, &at, report);
    if ignition.take("timeouts", &at, report).is_some() {
        report.warn(at.name("timeouts"), "it is not used: mcd has time-outs of its own");
    }
    ignition.end(&at, report);
    major
}

fn major(version: &str) -> Result<u64, String> {
    let refuse = || "mcd reads Ignition 2.0.0 to 2.2.0 and 3.0.0 to 3.6.0".to_owned();
    if version.contains('-') {
        return Err(format!("an experimental version may change its meaning; {}", refuse()));
    }
    let numbers: Option<Vec<u64>> = version.split('.').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some([major, minor, _]) if NEWEST.iter().any(|(known, newest)| known == major && minor <= newest) => {
            Ok(*major)
        }
        Some([_, _, _]) => Err(refuse()),
        _ => Err("it has three numbers, such as 3.4.0".to_owned()),
    }
}
