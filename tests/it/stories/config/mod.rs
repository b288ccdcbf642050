//! Configuration: MachineConfigs on hosts that run and hosts that do not.

mod apply;
mod diff;
mod disks;
mod follow;
mod live;
mod random;
mod root;

use std::path::PathBuf;

use base64::Engine as _;

use super::{Host, Outcome, program};

/// A MachineConfig that is built up by a test.
#[derive(Debug, Clone, Default)]
struct Machine {
    name: String,
    files: Vec<String>,
    units: Vec<String>,
    spec: Vec<String>,
}

/// A MachineConfig of this name with nothing in it.
fn machine(name: &str) -> Machine {
    Machine { name: name.to_owned(), ..Machine::default() }
}

impl Machine {
    /// With a file.
    fn file(self, path: &str, content: &str) -> Self {
        self.file_with(path, content, "mode: 420")
    }

    /// With a file and further fields of it, in YAML's flow style.
    fn file_with(mut self, path: &str, content: &str, fields: &str) -> Self {
        let source = base64::engine::general_purpose::STANDARD.encode(content);
        self.files.push(format!(
            "{{path: {path}, {fields}, overwrite: true, contents: {{source: \"data:;base64,{source}\"}}}}"
        ));
        self
    }

    /// With a unit, fields in YAML's flow style.
    fn unit(mut self, name: &str, fields: &str) -> Self {
        self.units.push(format!("{{name: {name}, {fields}}}"));
        self
    }

    /// With a line of `spec`, in YAML's flow style.
    fn spec(mut self, line: &str) -> Self {
        self.spec.push(line.to_owned());
        self
    }

    fn text(&self) -> String {
        let mut text = format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: {}\n  labels: {{machineconfiguration.openshift.io/role: worker}}\nspec:\n  config:\n    ignition: {{version: 3.4.0}}\n",
            self.name
        );
        let list = |key: &str, items: &[String]| {
            let items: String = items.iter().map(|item| format!("      - {item}\n")).collect();
            format!("    {key}:\n{items}")
        };
        if !self.files.is_empty() {
            text += "    storage:\n";
            text += &list("  files", &self.files).replace("      - ", "        - ");
        }
        if !self.units.is_empty() {
            text += "    systemd:\n";
            text += &list("  units", &self.units).replace("      - ", "        - ");
        }
        for line in &self.spec {
            text += &format!("  {line}\n");
        }
        text
    }
}

impl Host {
    /// Writes a MachineConfig beside the host.
    fn config(&self, machine: &Machine) -> PathBuf {
        let path = self.scratch.join(&format!("{}.yaml", machine.name));
        std::fs::write(&path, machine.text()).unwrap();
        path
    }

    /// `mcd apply` of a MachineConfig, with more arguments.
    fn apply(&self, machine: &Machine, more: &[&str]) -> Outcome {
        let path = self.config(machine);
        self.mcd(&[&["apply", path.to_str().unwrap()], more].concat())
    }

    /// A host that runs version 1 as an image.
    fn with_image() -> Self {
        let host = Self::new();
        let v1 = host.v1();
        host.mcd(&["pivot", &v1.reference()]).ok();
        host
    }
}
