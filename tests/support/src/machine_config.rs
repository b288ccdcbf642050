//! MachineConfigs, written as YAML.
//!
//! ```
//! # use mcd_test_support::machine_config::MachineConfig;
//! let text = MachineConfig::new("99-worker-motd")
//!     .file("/etc/motd", "hello\n")
//!     .kernel_arguments(&["mitigations=auto"])
//!     .yaml();
//! assert!(text.contains("data:;base64,aGVsbG8K"));
//! ```

use serde_json::{Value, json};

/// A MachineConfig that is being written.
#[derive(Debug, Clone)]
#[must_use]
pub struct MachineConfig {
    name: String,
    role: String,
    spec: Value,
}

/// A `data:` URL with these bytes.
pub fn data_url(bytes: impl AsRef<[u8]>) -> String {
    format!("data:;base64,{}", base64(bytes.as_ref()))
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number =
            group.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { letter as char } else { '=' });
        }
    }
    text
}

impl MachineConfig {
    /// One with this name, for workers, that asks for nothing.
    pub fn new(name: &str) -> Self {
        let spec = json!({ "config": { "ignition": { "version": "3.4.0" } } });
        Self { name: name.to_owned(), role: "worker".to_owned(), spec }
    }

    /// One from JSON as [`MachineConfig::json`] writes it.
    ///
    /// # Panics
    ///
    /// It is not that.
    pub fn parse(json: &str) -> Self {
        let value: Value = serde_json::from_str(json).expect("JSON of a MachineConfig");
        let text = |place: &Value| place.as_str().expect("a text").to_owned();
        Self {
            name: text(&value["metadata"]["name"]),
            role: text(&value["metadata"]["labels"]["machineconfiguration.openshift.io/role"]),
            spec: value["spec"].clone(),
        }
    }

    /// For this role.
    pub fn role(mut self, role: &str) -> Self {
        self.role = role.to_owned();
        self
    }

    /// With this in `spec`.
    pub fn spec(mut self, key: &str, value: Value) -> Self {
        self.spec[key] = value;
        self
    }

    /// Without this in `spec`.
    pub fn without(mut self, key: &str) -> Self {
        if let Some(fields) = self.spec.as_object_mut() {
            fields.remove(key);
        }
        self
    }

    /// With `osImageURL`.
    pub fn image(self, image: &str) -> Self {
        self.spec("osImageURL", json!(image))
    }

    /// With these kernel arguments.
    pub fn kernel_arguments(self, arguments: &[&str]) -> Self {
        self.spec("kernelArguments", json!(arguments))
    }

    /// With one more in a list of the Ignition config.
    pub fn ignition(mut self, list: [&str; 2], value: Value) -> Self {
        let place = &mut self.spec["config"][list[0]][list[1]];
        match place.as_array_mut() {
            Some(there) => there.push(value),
            None => *place = json!([value]),
        }
        self
    }

    /// With a file, 0644 root.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.file_as(path, content, 0o644, "root")
    }

    /// With a file of this mode and owner: a name, user and group alike.
    pub fn file_as(self, path: &str, content: impl AsRef<[u8]>, mode: u32, owner: &str) -> Self {
        self.ignition(
            ["storage", "files"],
            json!({
                "path": path,
                "mode": mode,
                "overwrite": true,
                "user": { "name": owner },
                "group": { "name": owner },
                "contents": { "source": data_url(content) },
            }),
        )
    }

    /// With what is appended to the image's file.
    pub fn append(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.ignition(
            ["storage", "files"],
            json!({ "path": path, "append": [{ "source": data_url(content) }] }),
        )
    }

    /// With a directory.
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.ignition(["storage", "directories"], json!({ "path": path, "mode": mode, "overwrite": true }))
    }

    /// With a symbolic link.
    pub fn link(self, path: &str, target: &str) -> Self {
        self.ignition(["storage", "links"], json!({ "path": path, "target": target, "overwrite": true }))
    }

    /// With a unit: any of Ignition's keys.
    pub fn unit(self, name: &str, mut keys: Value) -> Self {
        keys["name"] = json!(name);
        self.ignition(["systemd", "units"], keys)
    }

    /// With a small service that is enabled.
    pub fn service(self, name: &str) -> Self {
        let text = format!(
            "[Unit]\nDescription={name}\n[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n"
        );
        self.unit(name, json!({ "enabled": true, "contents": text }))
    }

    /// With a drop-in of a unit.
    pub fn drop_in(self, unit: &str, name: &str, contents: &str) -> Self {
        self.unit(unit, json!({ "dropins": [{ "name": name, "contents": contents }] }))
    }

    /// With the user `core` and these keys.
    pub fn keys(self, keys: &[&str]) -> Self {
        self.ignition(["passwd", "users"], json!({ "name": "core", "sshAuthorizedKeys": keys }))
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": self.name,
                "labels": { "machineconfiguration.openshift.io/role": self.role },
            },
            "spec": self.spec,
        })
    }

    /// As YAML, in blocks, every text in quotes.
    pub fn yaml(&self) -> String {
        let mut text = String::new();
        block(&self.json(), 0, &mut text);
        text
    }

    /// Only the Ignition config, as JSON.
    pub fn ignition_json(&self) -> String {
        self.spec["config"].to_string()
    }
}

/// YAML takes JSON's scalars as they are.
fn block(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let nested = |inner: &Value| match inner {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    let mut item = |key: String, inner: &Value| {
        if nested(inner) {
            text.push_str(&format!("{indent}{key}\n"));
            block(inner, depth + 1, text);
        } else {
            text.push_str(&format!("{indent}{key} {inner}\n"));
        }
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, inner)| item(format!("{key}:"), inner)),
        Value::Array(items) => items.iter().for_each(|inner| item("-".to_owned(), inner)),
        scalar => text.push_str(&format!("{indent}{scalar}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn yaml_is_in_blocks() {
        let text = MachineConfig::new("a").directory("/etc/x", 0o755).kernel_arguments(&["a=b"]).yaml();
        assert!(
            text.contains("    storage:\n      directories:\n        -\n          mode: 493\n"),
            "{text}"
        );
        assert!(text.contains("  kernelArguments:\n    - \"a=b\"\n"), "{text}");
    }
}
