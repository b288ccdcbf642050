//! The registry doctor, on a host whose way to the registry is broken in one place after the other.

use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::machine::Machine;
use serde_json::Value;

use super::{Host, fails};

/// What `mcd doctor` finds; `environment` is put before it.
#[track_caller]
fn examine(machine: &Machine<'_>, environment: &str, arguments: &str, code: i32) -> Value {
    let script = format!("{environment} mcd doctor {arguments} --json && code=0 || code=$?; echo $code");
    let said = machine.shell(&script).unwrap();
    let (document, found) = said.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(found, code.to_string(), "{said}");
    serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn root_nspawn_the_doctor_names_what_is_at_fault() {
    let host = Host::new();
    let machine = host.boot();
    let images = host.installation.images();
    let registry = FakeRegistry::serve(&images, vec![]).unwrap();
    let locked = FakeRegistry::serve_with_password(&images, vec![], "me", "s3cr3t0").unwrap();
    let dead = {
        let gone = FakeRegistry::serve(&images, vec![]).unwrap();
        gone.image("os:v1")
    };
    let plain = "--insecure-skip-tls-verification";

    let well = examine(&machine, "", &format!("{} {plain}", registry.image("os:v2")), 0);
    assert!(well["fault"].is_null(), "{well:#}");
    let tried: Vec<&str> =
        well["tried"].as_array().unwrap().iter().map(|one| one["part"].as_str().unwrap()).collect();
    assert_eq!(tried, ["link", "clock", "dns", "registry"]);

    let way_out = machine.shell("awk '$2 == \"00000000\"' /proc/net/route").unwrap();
    let no_name = if way_out.is_empty() { "link" } else { "dns" };
    let reject = "printf '{\"default\":[{\"type\":\"reject\"}]}' > /etc/containers/policy.json;";
    for (environment, arguments, part) in [
        ("", format!("{} {plain}", registry.image("os:v9")), "image"),
        ("", format!("{} {plain}", locked.image("os:v2")), "credentials"),
        ("", format!("{dead} {plain}"), "registry"),
        ("", "no-such-name.invalid/os:1".to_owned(), no_name),
        ("HTTPS_PROXY=http://127.0.0.1:1", "r.example.invalid/os:1".to_owned(), "proxy"),
        (reject, format!("{} {plain}", registry.image("os:v2")), "policy"),
    ] {
        let found = examine(&machine, environment, &arguments, 5);
        assert_eq!(found["fault"]["part"], part, "{arguments}: {found:#}");
        assert!(!found.to_string().contains("s3cr3t"), "{found:#}");
    }
    fails(&machine, &["doctor", "oci:/run/images:v1"], 2, &["not read from a registry"]);
    let text = fails(&machine, &["doctor", &dead], 5, &["cannot be read", "at fault:", "next:"]);
    assert!(text.contains("policy"), "{text}");
}
