//! What the operator's ControllerConfig carries and nobody else brings to the host: the kubelet's and
//! the cloud's certificate authorities, those of image registries, and the merged pull secret of the
//! internal registry.
//!
//! They become a MachineConfig of their own, applied live under their own source, so that what is no
//! longer carried is removed and everything else is left alone.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use serde_json::{Value, json};

use super::api::Cluster;
use super::node::Watch;

/// The one that there is.
const NAME: &str = "machine-config-controller";
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
const REGISTRIES: &str = "/etc/docker/certs.d";

/// Watches it: one object.
pub(super) fn watch(cluster: &Cluster) -> Watch<DynamicObject> {
    let kind = GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", "ControllerConfig");
    let api = Api::<DynamicObject>::all_with(cluster.client(), &ApiResource::from_gvk(&kind));
    Box::pin(watch_object(api, NAME).default_backoff())
}

/// The MachineConfig that lays it down, as JSON text. Its name is the version's.
///
/// # Errors
///
/// The field that cannot be read.
pub(super) fn machine_config(object: &Value, version: &str) -> Result<String, String> {
    let spec = &object["spec"];
    let mut files = Vec::new();
    let mut add = |path: String, mode: u32, field: &str, data: &Value| -> Result<(), String> {
        if let Some(data) = text(field, data)? {
            files.push(json!({
                "path": path,
                "mode": mode,
                "overwrite": true,
                "contents": { "source": format!("data:;base64,{data}") },
            }));
        }
        Ok(())
    };
    add(KUBELET_CA.to_owned(), 0o644, "kubeAPIServerServingCAData", &spec["kubeAPIServerServingCAData"])?;
    add(CLOUD_CA.to_owned(), 0o644, "cloudProviderCAData", &spec["cloudProviderCAData"])?;
    // World-readable in the Go daemon; it holds credentials.
    add(PULL_SECRET.to_owned(), 0o600, "internalRegistryPullSecret", &spec["internalRegistryPullSecret"])?;
    for list in ["imageRegistryBundleData", "imageRegistryBundleUserData"] {
        for (index, bundle) in spec[list].as_array().into_iter().flatten().enumerate() {
            let field = format!("{list}[{index}]");
            let host = host(&bundle["file"]).ok_or_else(|| {
                format!("ControllerConfig {NAME}: spec.{field}.file: not a registry's host and port")
            })?;
            add(format!("{REGISTRIES}/{host}/ca.crt"), 0o644, &format!("{field}.data"), &bundle["data"])?;
        }
    }
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": name(version) },
        "spec": { "config": { "ignition": { "version": "3.4.0" }, "storage": { "files": files } } },
    });
    Ok(config.to_string())
}

/// The name of the MachineConfig of a version.
pub(super) fn name(version: &str) -> String {
    format!("{NAME}-{version}")
}

/// Base64 as the API has it for bytes.
fn text<'a>(field: &str, data: &'a Value) -> Result<Option<&'a str>, String> {
    let wrong = || format!("ControllerConfig {NAME}: spec.{field}: not base64");
    match data {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) if text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)) => {
            Ok(Some(text))
        }
        _ => Err(wrong()),
    }
}

/// `registry..5000` is what a key that may hold no colon says for `registry:5000`.
fn host(file: &Value) -> Option<String> {
    let host = file.as_str()?.replace("..", ":");
    let is_plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:_[]".contains(&b));
    (is_plain && !host.is_empty() && !host.starts_with('.')).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(config: &str) -> Vec<String> {
        let config: Value = serde_json::from_str(config).unwrap();
        let files = config["spec"]["config"]["storage"]["files"].as_array().unwrap().clone();
        files.iter().map(|file| format!("{} {}", file["path"].as_str().unwrap(), file["mode"])).collect()
    }

    #[test]
    fn everything_that_it_carries_is_laid_down() {
        let object = json!({ "spec": {
            "kubeAPIServerServingCAData": "QQ==",
            "cloudProviderCAData": null,
            "internalRegistryPullSecret": "e30=",
            "imageRegistryBundleData": [{ "file": "registry.test..5000", "data": "Qg==" }],
            "imageRegistryBundleUserData": [{ "file": "other.test", "data": "Qw==" }],
        }});
        let config = machine_config(&object, "7").unwrap();
        assert_eq!(
            paths(&config),
            [
                "/etc/kubernetes/kubelet-ca.crt 420",
                "/etc/mco/internal-registry-pull-secret.json 384",
                "/etc/docker/certs.d/registry.test:5000/ca.crt 420",
                "/etc/docker/certs.d/other.test/ca.crt 420",
            ]
        );
        let input = crate::model::config::Input { name: "test".to_owned(), bytes: config.into_bytes() };
        assert!(crate::model::config::read(vec![input]).is_ok());
    }

    #[test]
    fn a_field_that_cannot_be_read_is_named_and_not_shown() {
        let object = json!({ "spec": { "internalRegistryPullSecret": "pass word" } });
        assert_eq!(
            machine_config(&object, "7").unwrap_err(),
            "ControllerConfig machine-config-controller: spec.internalRegistryPullSecret: not base64"
        );
        let object =
            json!({ "spec": { "imageRegistryBundleData": [{ "file": "../../etc", "data": "QQ==" }] } });
        assert_eq!(
            machine_config(&object, "7").unwrap_err(),
            "ControllerConfig machine-config-controller: spec.imageRegistryBundleData[0].file: not a registry's host and port"
        );
    }
}
