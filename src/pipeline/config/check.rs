//! What a configuration may ask of this host at all.

use anyhow::Result;

use super::ConfigRequest;
use super::observe::Observed;
use crate::error::Fault;
use crate::model::config::DisksSaid;
use crate::model::event::{Event, EventSink};
use crate::model::manifest::Source;
use crate::pipeline::Session;
use crate::plan;

/// Whether the running kernel is in FIPS mode; missing where it knows none.
const FIPS_ENABLED: &str = "proc/sys/crypto/fips_enabled";
/// The argument that a host which does not run would be booted with.
const FIPS_ARGUMENT: &str = "fips=1";

/// Refuses what cannot be had on this host, before anything is fetched or written.
pub(super) fn host(session: &Session, observed: &Observed, request: &ConfigRequest) -> Result<()> {
    only_files_of_others(request)?;
    fips(session, observed, request)?;
    packages(observed, request)?;
    disks(request, observed.next.configured.carried.disks.as_ref(), session.sink.as_ref())
}

/// Disks stay as they were said to be; the first to say it is taken at its word.
pub(super) fn disks(request: &ConfigRequest, before: Option<&DisksSaid>, sink: &dyn EventSink) -> Result<()> {
    // Another source brings none (see above), and one that gives everything up says nothing of them.
    let Some(managed) = &request.config.managed else { return Ok(()) };
    if request.source != Source::MachineConfig || request.drops_others {
        return Ok(());
    }
    for message in plan::disks::disks(&managed.disks, before)? {
        sink.event(Event::Warning { message });
    }
    Ok(())
}

/// Image, arguments, packages and disks are the MachineConfig's; other sources bring files.
fn only_files_of_others(request: &ConfigRequest) -> Result<(), Fault> {
    if request.source == Source::MachineConfig {
        return Ok(());
    }
    let config = &request.config;
    let asks = [
        ("osImageURL", config.image.is_some()),
        ("kernelArguments", config.kernel_arguments.as_ref().is_some_and(|list| !list.is_empty())),
        ("kernelType", config.kernel_type.is_some()),
        ("extensions", !config.extensions.is_empty()),
        ("config.storage.disks", config.managed.as_ref().is_some_and(|managed| !managed.disks.is_empty())),
    ];
    match asks.iter().find(|(_, is_asked)| *is_asked) {
        Some((field, _)) => Err(Fault::refused(format!("spec.{field} is refused from this source"))
            .why("only a MachineConfig decides on image, kernel arguments, packages and disks")
            .next("leave the field out, or leave --source out")),
        None => Ok(()),
    }
}

fn fips(session: &Session, observed: &Observed, request: &ConfigRequest) -> Result<()> {
    let Some(wanted) = request.config.fips else { return Ok(()) };
    let present = if observed.running.is_some() {
        session.host.running_root()?.read_to_string(FIPS_ENABLED).is_ok_and(|text| text.trim() == "1")
    } else {
        observed.next.kernel_arguments.contains(FIPS_ARGUMENT)
    };
    if wanted == present {
        return Ok(());
    }
    let (wanted, present) = if wanted { ("true", "off") } else { ("false", "on") };
    Err(Fault::refused(format!("spec.fips is {wanted}, and FIPS mode is {present} on this host"))
        .why("it is decided when a host is installed, and never changed after that")
        .next("set the field to what the host has, or install the host anew")
        .into())
}

/// Kernel types and extensions would need packages layered by rpm-ostree, which would drop our commit.
fn packages(observed: &Observed, request: &ConfigRequest) -> Result<(), Fault> {
    let present = &observed.next.configured.carried;
    let config = &request.config;
    if config.kernel_type.is_some() && config.kernel_type != present.kernel_type {
        let wanted = config.kernel_type.as_deref().unwrap_or_default();
        return Err(refused("kernelType", wanted));
    }
    if !config.extensions.is_empty() && config.extensions != present.extensions {
        return Err(refused("extensions", &config.extensions.join(", ")));
    }
    Ok(())
}

fn refused(field: &str, wanted: &str) -> Fault {
    Fault::refused(format!("spec.{field} asks for {wanted}, which this host does not have"))
        .why("it takes packages on top of the image, and `mcd` installs none")
        .next("build an image that has them, and name it in spec.osImageURL")
}

/// The arguments of a config that no boot loader of ours can be given.
pub(super) fn no_boot_parts(request: &ConfigRequest) -> Result<(), Fault> {
    let config = &request.config;
    let arguments = config.kernel_arguments.as_ref().is_some_and(|list| !list.is_empty());
    let asks = [
        ("osImageURL", config.image.is_some()),
        ("kernelArguments", arguments),
        ("kernelType", config.kernel_type.is_some()),
        ("extensions", !config.extensions.is_empty()),
        ("fips", config.fips == Some(true)),
    ];
    match asks.iter().find(|(_, is_asked)| *is_asked) {
        Some((field, _)) => Err(Fault::refused(format!("spec.{field} is refused for --root"))
            .why("a root without OSTree has neither image nor boot entries that mcd could change")
            .next("leave the field out")),
        None => Ok(()),
    }
}
