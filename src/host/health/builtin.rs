//! The checks that `mcd` brings along. What is shared by a fleet (a registry, a route) is only wanted,
//! so that an outage of it never sends a fleet back.

use std::process::Command;
use std::time::{Duration, Instant};

use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;

use crate::host::boot_note;
use crate::host::child::{self, Ended};
use crate::host::doctor::connect;
use crate::host::reboot::is_systemd;
use crate::model::health::Weight;
use crate::model::image_ref::OsImage;
use crate::model::status::DeploymentName;

/// The certificate that kubelet shows the API server, once it has joined a cluster.
const KUBELET_CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const KUBELET_HEALTHZ: &str = "http://127.0.0.1:10248/healthz";
const KUBELET: &str = "kubelet.service";
/// What is reached when everything that the boot starts has been started.
const UP: &str = "multi-user.target";
/// How long a registry may take to answer.
const CONNECT: Duration = Duration::from_secs(10);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Builtin {
    /// The boot came to its end.
    Boot,
    /// What belongs on the deployment was laid down.
    Configuration(DeploymentName),
    /// No unit has failed.
    FailedUnits,
    /// There is a way out.
    DefaultRoute,
    /// The registry (host and port) of the running image can be reached.
    Registry(String),
    /// kubelet says that it is well.
    Kubelet(Weight),
}

impl Builtin {
    /// Those that make sense here.
    pub(super) fn of_host(image: Option<&OsImage>, deployment: Option<&DeploymentName>) -> Vec<Self> {
        let mut all = vec![Self::DefaultRoute];
        all.extend(deployment.cloned().map(Self::Configuration));
        if is_systemd() {
            all.extend([Self::Boot, Self::FailedUnits]);
            all.extend(kubelet());
        }
        let registry = image.and_then(|image| image.image.registry_host());
        all.extend(registry.map(|host| Self::Registry(host.to_owned())));
        all
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Configuration(_) => "configuration",
            Self::FailedUnits => "failed-units",
            Self::DefaultRoute => "default-route",
            Self::Registry(_) => "registry",
            Self::Kubelet(_) => "kubelet",
        }
    }

    pub(super) fn weight(&self) -> Weight {
        match self {
            Self::Boot | Self::Configuration(_) => Weight::Required,
            Self::Kubelet(weight) => *weight,
            _ => Weight::Wanted,
        }
    }

    pub(super) fn run(&self, timeout: Duration, is_stopped: &dyn Fn() -> bool) -> Ended {
        let begun = Instant::now();
        let found = match self {
            Self::Boot => boot(timeout, is_stopped),
            Self::Configuration(deployment) => configuration(deployment),
            Self::FailedUnits => failed_units(timeout, is_stopped),
            Self::DefaultRoute => default_route(),
            Self::Registry(host) => registry(host, timeout.min(CONNECT)),
            Self::Kubelet(_) => healthz(timeout),
        };
        let (passed, said) = match found {
            Ok(said) => (true, said),
            Err(why) => (false, why),
        };
        Ended { passed, said, output: String::new(), took: begun.elapsed() }
    }
}

fn systemctl(arguments: &[&str], timeout: Duration, is_stopped: &dyn Fn() -> bool) -> Ended {
    child::run(Command::new("systemctl").args(arguments), timeout, is_stopped)
}

/// Whether the boot is complete.
pub(super) fn is_up(timeout: Duration) -> bool {
    systemctl(&["is-active", "--quiet", UP], timeout, &|| false).passed
}

/// Waits for nothing: whoever judges asks again. Our own units (a first boot, a request that waits for a
/// registry) hold the target up without saying anything about the deployment.
fn boot(timeout: Duration, is_stopped: &dyn Fn() -> bool) -> Result<String, String> {
    if systemctl(&["is-active", "--quiet", UP], timeout, is_stopped).passed {
        return Ok(String::new());
    }
    let jobs = systemctl(&["list-jobs", "--plain", "--no-legend"], timeout, is_stopped).output;
    only_ours(&jobs)
}

/// Judges the jobs of systemd, each of which is a number, a unit, a type and a state.
fn only_ours(jobs: &str) -> Result<String, String> {
    let words: Vec<&str> = jobs.split_whitespace().collect();
    let jobs = words.chunks_exact(4);
    if !jobs.clone().any(|job| job[1] == UP) {
        return Err(format!("{UP} was not reached"));
    }
    let running: Vec<&str> = jobs.filter(|job| job[3] == "running").map(|job| job[1]).collect();
    let others: Vec<&str> = running
        .iter()
        .copied()
        .filter(|unit| !unit.starts_with("mcd-") && !unit.starts_with("machine-config-daemon"))
        .collect();
    match (others.is_empty(), running.is_empty()) {
        (true, false) => Ok("only units of mcd are still at work".to_owned()),
        (true, true) => Err(format!("{UP} is not reached yet")),
        (false, _) => Err(format!("{UP} is not reached yet: still starting {}", others.join(", "))),
    }
}

fn configuration(deployment: &DeploymentName) -> Result<String, String> {
    let note = boot_note::read(deployment);
    if !note.unconverged {
        return Ok(String::new());
    }
    Err(note.degraded.unwrap_or_else(|| "it could not be laid down".to_owned()))
}

fn failed_units(timeout: Duration, is_stopped: &dyn Fn() -> bool) -> Result<String, String> {
    let listed =
        systemctl(&["list-units", "--failed", "--plain", "--no-legend", "--no-pager"], timeout, is_stopped);
    if !listed.passed {
        return Err(listed.said);
    }
    let is_unit = |word: &&str| word.rsplit_once('.').is_some_and(|(_, kind)| KINDS.contains(&kind));
    let units: Vec<&str> = listed.output.split_whitespace().filter(is_unit).collect();
    if units.is_empty() { Ok(String::new()) } else { Err(units.join(", ")) }
}

/// The endings of units that can fail.
const KINDS: [&str; 8] = ["service", "mount", "socket", "timer", "path", "swap", "automount", "scope"];

pub(in crate::host) fn default_route() -> Result<String, String> {
    let folder =
        Dir::open_ambient_dir("/proc/net", ambient_authority()).map_err(|error| error.to_string())?;
    let read = |name: &str| folder.read_to_string(name).unwrap_or_default();
    if has_default_route(&read("route"), &read("ipv6_route")) {
        Ok(String::new())
    } else {
        Err("there is no default route".to_owned())
    }
}

/// `/proc/net/route`: interface, destination, gateway, flags (1: up), …, mask; in hexadecimal.
/// `/proc/net/ipv6_route`: destination, length of its prefix, …, flags, interface.
fn has_default_route(four: &str, six: &str) -> bool {
    let is_up = |flags: &str| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 != 0);
    let four = four.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 7 && fields[1] == "00000000" && fields[7] == "00000000" && is_up(fields[3])
    });
    let six = six.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 9
            && fields[0].bytes().all(|byte| byte == b'0')
            && fields[1] == "00"
            && fields[9] != "lo"
            && is_up(fields[8])
    });
    four || six
}

/// Only whether something answers there: what the registry has to say is the business of the next pull.
fn registry(host: &str, timeout: Duration) -> Result<String, String> {
    connect(host, 443, timeout).map_err(|why| format!("{host} does not answer: {why}"))
}

/// kubelet counts where it is to run and has joined a cluster. Required only while its certificate is
/// known to be valid: one that expired is not this deployment's fault.
fn kubelet() -> Option<Builtin> {
    let no = || false;
    let timeout = Duration::from_secs(10);
    let is_there = rustix::fs::stat(KUBELET_CERTIFICATE).is_ok()
        && systemctl(&["is-enabled", "--quiet", KUBELET], timeout, &no).passed;
    is_there.then(|| {
        let mut valid = Command::new("openssl");
        valid.args(["x509", "-checkend", "0", "-noout", "-in", KUBELET_CERTIFICATE]);
        let is_valid = child::run(&mut valid, timeout, &no).passed;
        Builtin::Kubelet(if is_valid { Weight::Required } else { Weight::Wanted })
    })
}

fn healthz(timeout: Duration) -> Result<String, String> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(timeout)).proxy(None).build().into();
    let mut answer =
        agent.get(KUBELET_HEALTHZ).call().map_err(|error| format!("{KUBELET_HEALTHZ}: {error}"))?;
    let body =
        answer.body_mut().with_config().limit(1024).read_to_string().map_err(|error| error.to_string())?;
    if body.trim() == "ok" { Ok(String::new()) } else { Err(format!("{KUBELET_HEALTHZ} does not say ok")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let way = format!("{head}eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n");
        let near = format!("{head}eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n");
        assert!(has_default_route(&way, ""));
        assert!(!has_default_route(&near, ""));
        let zero = "0".repeat(32);
        let six = |interface: &str| {
            format!(
                "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 1 0 00000003 {interface}\n"
            )
        };
        assert!(has_default_route("", &six("eth0")));
        assert!(!has_default_route("", &six("lo")));
    }

    #[test]
    fn a_registry_that_is_away_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        assert_eq!(registry(&host, Duration::from_secs(5)), Ok(String::new()));
        drop(listener);
        assert!(registry(&host, Duration::from_secs(5)).unwrap_err().starts_with(&host));
        assert_eq!(Builtin::Registry(host).weight(), Weight::Wanted);
    }

    #[test]
    fn a_boot_that_only_waits_for_us_is_up() {
        let target = "12 multi-user.target start waiting";
        assert!(only_ours(&format!("7 mcd-pivot.service start running {target}")).is_ok());
        let slow =
            only_ours(&format!("7 mcd-pivot.service start running 8 slow.service start running {target}"));
        assert!(slow.unwrap_err().ends_with("slow.service"));
        assert!(only_ours("").unwrap_err().contains("was not reached"));
        assert!(only_ours(target).is_err());
    }
}
