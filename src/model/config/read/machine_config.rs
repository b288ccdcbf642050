//! A MachineConfig (`machineconfiguration.openshift.io/v1`).

use super::document::Value;
use super::draft::Draft;
use super::field::{Field, Object, Report, texts};
use super::ignition;
use crate::model::config::kargs;
use crate::model::image_ref::OsImage;

/// What says that an object is one.
pub(super) const KIND: &str = "MachineConfig";
const API_VERSION: &str = "machineconfiguration.openshift.io/v1";
/// The label that says for which pool it is.
const ROLE: &str = "machineconfiguration.openshift.io/role";
/// What Kubernetes itself writes into `metadata`.
const METADATA: [&str; 14] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
];
/// The kernels that OpenShift knows beside the default one.
const KERNEL_TYPES: [&str; 2] = ["realtime", "64k-pages"];

/// Reads a whole object.
pub(super) fn read(value: &Value<'_>, at: &Field<'_>, into: &mut Draft, report: &mut Report) {
    let Some(mut object) = Object::read(Some(value), at, report) else { return };
    into.is_machine_config = true;
    let version = object.text("apiVersion", at, report);
    if version != Some(API_VERSION) {
        report.refuse(at.name("apiVersion"), format!("it must be {API_VERSION}"));
    }
    object.take("kind", at, report);
    metadata(&mut object, at, into, report);
    let value = object.take("spec", at, report);
    let spec_at = at.name("spec");
    match Object::read(value, &spec_at, report) {
        Some(spec_object) => spec(spec_object, &spec_at, into, report),
        None if value.is_none() => {
            report.refuse(spec_at, "it is missing: all that a MachineConfig wants stands there")
        }
        None => {}
    }
    // What a cluster writes.
    object.take("status", at, report);
    object.end(at, report);
}

fn metadata(object: &mut Object<'_, '_>, at: &Field<'_>, into: &mut Draft, report: &mut Report) {
    let metadata = object.object("metadata", at, report);
    let at = at.name("metadata");
    let name = metadata.and_then(|mut metadata| {
        let name = metadata.text("name", &at, report).filter(|name| !name.is_empty());
        let labels = metadata.take("labels", &at, report);
        if let Some(Value::Map(labels)) = labels {
            let role = labels.iter().find(|(key, _)| key == ROLE).map(|(_, value)| value);
            into.is_worker = matches!(role, Some(Value::Text(role) | Value::Plain(role)) if role == "worker");
        }
        for field in METADATA {
            metadata.take(field, &at, report);
        }
        metadata.take("uid", &at, report);
        for key in metadata.unknown() {
            let key: String = key.chars().take(64).collect();
            report.warn(at.name(&key), "there is no such field; it is not used");
        }
        name
    });
    match name {
        Some(name) if name.chars().any(char::is_control) || name.len() > 253 => {
            report.refuse(at.name("name"), "it is no name of an object");
        }
        Some(name) => into.name = name.to_owned(),
        None => report.refuse(at.name("name"), "every MachineConfig has a name: several are merged by it"),
    }
}

fn spec(mut spec: Object<'_, '_>, at: &Field<'_>, into: &mut Draft, report: &mut Report) {
    into.image = image(&mut spec, "osImageURL", at, report);
    let extensions_image = image(&mut spec, "baseOSExtensionsContainerImage", at, report);
    into.extensions_image = extensions_image.map(|image| image.to_string());
    into.fips = spec.boolean("fips", at, report);
    into.kernel_type = match spec.text("kernelType", at, report) {
        None | Some("" | "default") => None,
        Some(kernel) if KERNEL_TYPES.contains(&kernel) => Some(kernel.to_owned()),
        Some(_) => {
            report.refuse(at.name("kernelType"), "it must be default, realtime or 64k-pages");
            None
        }
    };
    let list_at = at.name("extensions");
    for (index, extension) in texts(spec.list("extensions", at, report), &list_at, report) {
        match extension.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
            && !extension.is_empty()
        {
            true => into.extensions.push(extension.to_owned()),
            false => report.refuse(list_at.index(index), "it is no name of an extension"),
        }
    }
    let list_at = at.name("kernelArguments");
    for (index, entry) in texts(spec.list("kernelArguments", at, report), &list_at, report) {
        if entry.trim().is_empty() {
            report.warn(list_at.index(index), "it is empty and adds nothing");
            continue;
        }
        match kargs::split(entry) {
            Ok(arguments) => into.kernel_arguments.extend(arguments),
            Err(invalid) => report.refuse(list_at.index(index), invalid.reason),
        }
    }
    match spec.take("config", at, report) {
        // Nothing at all is an empty Ignition config in a cluster, version or not.
        Some(Value::Map(map)) if map.is_empty() => into.is_managed = true,
        Some(value) => ignition::read(value, &at.name("config"), into, report),
        None => {}
    }
    spec.end(at, report);
}

/// An image; empty is none, as a cluster writes it.
fn image(
    spec: &mut Object<'_, '_>,
    name: &'static str,
    at: &Field<'_>,
    report: &mut Report,
) -> Option<OsImage> {
    let text = spec.text(name, at, report).filter(|text| !text.is_empty())?;
    let image = text.parse::<OsImage>();
    image.map_err(|invalid| report.refuse(at.name(name), invalid.reason)).ok()
}
