//! Objects and documents that are refused, and what is warned of.

use super::refusals::file;
use super::*;

#[test]
fn fields_of_a_machine_config() {
    let config = |spec: &str| problems(&machine_config("a", "worker", spec));
    for (spec, field, message) in [
        ("  kernelType: fast", "kernelType", "it must be default, realtime or 64k-pages"),
        ("  kernelArguments: nosmt", "kernelArguments", "it must be a list, not text"),
        (
            "  kernelArguments: ['ostree=/x']",
            "kernelArguments[0]",
            "'ostree=' is set by OSTree for each deployment and cannot be changed",
        ),
        ("  kernelArguments: [ok, 'a=\"b']", "kernelArguments[1]", "a double quote is never closed"),
        (
            "  kernelArguments: [\"a\\nb\"]",
            "kernelArguments[0]",
            "it holds a line end or another control character",
        ),
        ("  kernelArguments: ['=x']", "kernelArguments[0]", "an argument has no key"),
        ("  fips: 1", "fips", "it must be true or false, not text"),
        ("  extensions: ['a b']", "extensions[0]", "it is no name of an extension"),
        ("  osImageUrl: x", "osImageUrl", "there is no such field; is osImageURL meant?"),
        ("  config: x", "config", "it must be an object, not text"),
        (
            "  config: {ignition: {version: 3.4.0}, storage: {disks: [{}]}}",
            "config.storage.disks[0]",
            "it says nothing",
        ),
    ] {
        assert_eq!(config(spec), format!("x.yaml: spec.{field}: {message}"));
    }
    let image = config("  osImageURL: os:1");
    assert!(image.starts_with("x.yaml: spec.osImageURL: "), "{image}");
    let secret = config("  osImageURL: https://me:topsecret@registry.example/os");
    assert!(secret.starts_with("x.yaml: spec.osImageURL: ") && !secret.contains("topsecret"), "{secret}");
}

#[test]
fn objects_that_are_no_config() {
    for (text, message) in [
        ("", "it is empty"),
        ("---\n---\n# nothing\n", "it is empty"),
        ("hello", "it must be an object, not text"),
        ("[a]", "it must be an object, not a list"),
        (
            "a: b",
            "it is neither a MachineConfig (kind: MachineConfig) nor an Ignition config (ignition.version)",
        ),
        (
            "variant: fcos\nversion: 1.5.0",
            "it is a Butane config; make an Ignition config of it with `butane`",
        ),
        ("a: b: c", "line 1: no YAML: mapping values are not allowed in this context"),
        ("{\"a\": 1", "line 1: no JSON: it ends too early"),
        ("{\"a\": 1,, \"topsecret\": 2}", "line 1: no JSON: a syntax error"),
        ("a: !include b", "line 1: a tag (!…) that has no meaning in a config"),
        ("a: &a [*a]", "line 1: an alias stands inside of what it repeats"),
        ("? [a]\n: b", "line 1: a key is not text"),
        ("{\"a\": 1} {", "line 1: no JSON: a syntax error"),
    ] {
        assert_eq!(problems(text), format!("x.yaml: {message}"), "{text}");
    }
    assert_eq!(
        problems("kind: ConfigMap"),
        "x.yaml: kind: ConfigMap is nothing that mcd applies; give MachineConfigs or Ignition configs"
    );
    assert_eq!(
        problems("kind: MachineConfig\nmetadata: {name: a}\nspec: {}"),
        "x.yaml: apiVersion: it must be machineconfiguration.openshift.io/v1"
    );
    assert_eq!(
        problems("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nsepc: {}"),
        "x.yaml: metadata.name: every MachineConfig has a name: several are merged by it\n\
         x.yaml: spec: it is missing: all that a MachineConfig wants stands there\n\
         x.yaml: sepc: there is no such field"
    );
    assert_eq!(
        problems("kind: List\nitems: [{kind: List}, x, {kind: Pod}]"),
        "x.yaml: items[0]: it must be a MachineConfig\n\
         x.yaml: items[1]: it must be a MachineConfig\n\
         x.yaml: items[2].kind: Pod is nothing that mcd applies; give MachineConfigs or Ignition configs"
    );
    let binary = read(vec![Input { name: "b".to_owned(), bytes: vec![0xff, 0xfe] }]).unwrap_err();
    assert_eq!(binary.to_string(), "b: it is not text (UTF-8)");
    assert_eq!(read(vec![]).unwrap_err().to_string(), "input: there is no config in it");
}

#[test]
fn text_that_multiplies() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (this, last) in ('b'..='j').zip('a'..) {
        bomb.push_str(&format!("{this}: &{this} [*{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}]\n"));
    }
    assert!(problems(&bomb).ends_with("aliases multiply the text beyond what a config may have"));
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(problems(&deep).starts_with("x.yaml: "), "{open}");
    }
    let block: String = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(problems(&block).starts_with("x.yaml: line "));
}

#[test]
fn all_problems_are_told_at_once_and_not_without_end() {
    let files: String = (0..1500).map(|i| format!("    - path: etc/{i}\n")).collect();
    let invalid = one(&ignition("3.0.0", &format!("storage:\n  files:\n{files}"))).unwrap_err();
    assert_eq!(invalid.problems.len(), 1001);
    assert_eq!(invalid.problems[1000].to_string(), "…: 500 more problems are not listed");
}

#[test]
fn two_documents_and_lists_name_their_fields() {
    let bad = |name: &str| machine_config(name, "worker", "  fips: 1");
    assert_eq!(
        problems(&format!("{}---\n{}", bad("a"), bad("b"))),
        "x.yaml: document 1: spec.fips: it must be true or false, not text\n\
         x.yaml: document 2: spec.fips: it must be true or false, not text"
    );
    assert_eq!(
        problems(
            "kind: List\nitems: [{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, metadata: {name: a}, spec: {fips: 1}}]"
        ),
        "x.yaml: items[0].spec.fips: it must be true or false, not text"
    );
}

#[test]
fn what_is_taken_and_probably_not_meant() {
    for (rest, warning) in [
        (
            file("mode: 644"),
            "storage.files[0].mode: /etc/x: 644 is octal 1204; for 0644 write 0644 in YAML, 420 in JSON",
        ),
        (
            file("overwrite: true"),
            "storage.files[0].overwrite: /etc/x: without contents it overwrites with nothing: the file will be empty",
        ),
        (
            "systemd: {units: [{name: a.service, enabled: true, contents: \"[Unit]\\n\"}]}".to_owned(),
            "systemd.units[0].enabled: a.service: its contents have no [Install], so that nothing enables it",
        ),
        (
            "systemd: {units: [{name: a.service, mask: true, contents: \"[Unit]\\n\"}]}".to_owned(),
            "systemd.units[0].mask: a.service: a masked unit has no contents; they are not written",
        ),
        (
            "systemd: {units: [{name: a.service, mask: true, enabled: true}]}".to_owned(),
            "systemd.units[0].enabled: a.service: a masked unit is not started, enabled or not",
        ),
    ] {
        assert_eq!(warnings(&ignition("3.4.0", &rest)), [format!("x.yaml: {warning}")]);
    }
    assert_eq!(
        warnings("ignition: {version: 3.4.0, timeouts: {httpTotal: 3}}"),
        ["x.yaml: ignition.timeouts: it is not used: mcd has time-outs of its own"]
    );
    let text = machine_config("a", "worker", "  fips: false")
        .replace("metadata:\n", "metadata:\n  uid: x\n  lables: {}\n");
    assert_eq!(warnings(&text), ["x.yaml: metadata.lables: there is no such field; it is not used"]);
    assert_eq!(
        warnings(&machine_config("a", "worker", "  kernelArguments: [' ']")),
        ["x.yaml: spec.kernelArguments[0]: it is empty and adds nothing"]
    );
}
