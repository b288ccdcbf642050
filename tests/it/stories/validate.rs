//! `mcd validate`: offline, everything at once, exit code 3.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Outcome, program};

const GOOD: &str = "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-good
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  kernelArguments: [nosmt]
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
        - path: /etc/motd
          mode: 420
          contents: {source: 'data:,welcome%0A'}
    systemd:
      units: [{name: a.service, enabled: true}]
";

const BAD: &str = "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-bad
spec:
  kernelType: fast
  config:
    ignition: {version: 3.4.0}
    storage:
      disks: [{}]
      files:
        - path: /etc//secret
          mode: 600
          contents: {source: 'data:,topsecret%'}
    passwd:
      users: [{name: core, passwordHash: topsecret}]
";

struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn validate(&self, args: &[&str], stdin: &str) -> Outcome {
        let mut child = Command::new(program())
            .arg("validate")
            .args(args)
            .current_dir(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that ended early has read enough.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Outcome::of(child.wait_with_output().unwrap())
    }
}

#[test]
fn validate_tells_what_a_good_config_holds() {
    let files = Files::new(&[("good.yaml", GOOD)]);
    let outcome = files.validate(&["good.yaml"], "");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout, "valid: 99-good (1 file, 1 unit)\n");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn validate_tells_all_problems_at_once() {
    let files = Files::new(&[("good.yaml", GOOD), ("bad.yaml", BAD)]);
    let outcome = files.validate(&["good.yaml", "bad.yaml"], "");
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    insta::assert_snapshot!("validate_problems", outcome.stdout);
    insta::assert_snapshot!("validate_warnings", outcome.stderr);
    assert!(!format!("{outcome:?}").contains("topsecret"));
}

#[test]
fn validate_reads_standard_input_beside_files() {
    let files = Files::new(&[("good.yaml", GOOD)]);
    let ignition =
        r#"{"ignition": {"version": "3.2.0"}, "storage": {"links": [{"path": "/etc/a", "target": "b"}]}}"#;
    let outcome = files.validate(&["-", "good.yaml"], ignition);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout, "valid: 99-good, standard input (2 files, 1 unit)\n");
    let outcome = files.validate(&["-"], "kind: Pod");
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(outcome.stdout.starts_with("error: standard input: kind\n"), "{outcome:?}");
}

#[test]
fn validate_answers_a_program_in_one_document() {
    let files = Files::new(&[("good.yaml", GOOD), ("bad.yaml", BAD)]);
    let good = files.validate(&["--json", "good.yaml"], "");
    assert_eq!(good.code, Some(0), "{good:?}");
    let answer: Value = serde_json::from_str(&good.stdout).unwrap();
    assert_eq!(
        answer,
        serde_json::json!({"version": 1, "valid": true, "names": ["99-good"], "files": 1, "units": 1,
                           "problems": [], "warnings": []})
    );
    let bad = files.validate(&["--json", "bad.yaml"], "");
    assert_eq!(bad.code, Some(3), "{bad:?}");
    let answer: Value = serde_json::from_str(&bad.stdout).unwrap();
    assert_eq!(answer["valid"], false);
    assert_eq!(answer["problems"][0]["field"], "bad.yaml: spec.kernelType");
    assert_eq!(answer["problems"].as_array().unwrap().len(), 5);
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn validate_names_a_file_that_is_not_there() {
    let files = Files::new(&[]);
    files.validate(&["no.yaml"], "").fails(1, &["no.yaml", "No such file"]);
    files.validate(&["."], "").fails(1, &["directory"]);
    files.validate(&[], "").fails(2, &["no file is named"]);
    files.validate(&["-", "-"], "").fails(2, &["twice"]);
}
