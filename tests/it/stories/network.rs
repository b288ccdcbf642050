//! Registries: real, wanting a password, and failing in every way.

use mcd_test_support::fake_registry::{Act, FakeRegistry, On, Rule};
use mcd_test_support::registry::Registry;

use super::Host;

const INSECURE: &str = "--insecure-skip-tls-verification";

#[test]
fn root_a_real_registry_serves_tags_and_digests() {
    let host = Host::new();
    let image = host.v2();
    let registry = Registry::start().unwrap();
    let name = registry.push(&image, "fixture/os:v2").unwrap();
    host.mcd(&["pivot", &name, INSECURE]).ok();
    assert_eq!(host.next_version(), "2");
    let both = format!("{name}@{}", image.digest);
    host.mcd(&["pivot", &both, INSECURE, "--unchanged-exit-77"]).fails(77, &[]);
    let spelled = format!("ostree-unverified-registry:{name}");
    host.mcd(&["pivot", &spelled, INSECURE, "--unchanged-exit-77"]).fails(77, &[]);
}

#[test]
fn root_credentials_open_a_registry_and_reach_no_output() {
    let host = Host::new();
    let registry = Registry::start_with_password("core", "tr0ub4dor").unwrap();
    let name = registry.push(&host.v2(), "os:v2").unwrap();
    let empty = host.scratch.join("empty.json");
    std::fs::write(&empty, "{}").unwrap();
    // An empty file means nobody, not somebody else's credentials.
    let nobody = host.mcd(&["pivot", &name, INSECURE, "--authfile", empty.to_str().unwrap()]);
    nobody.fails(1, &[&name, "authfile"]);
    let authfile = host.scratch.join("auth.json");
    registry.write_authfile(&authfile).unwrap();
    let outcome = host.mcd(&["pivot", &name, INSECURE, "-vv", "--authfile", authfile.to_str().unwrap()]).ok();
    let secret = std::fs::read_to_string(&authfile).unwrap();
    let encoded = secret.split('"').find(|part| part.len() > 16 && !part.contains(':')).unwrap();
    for word in ["tr0ub4dor", encoded] {
        assert!(!outcome.stdout.contains(word) && !outcome.stderr.contains(word), "{outcome}");
    }
    assert_eq!(host.next_version(), "2");
}

#[test]
fn root_what_a_registry_refuses_is_said_and_not_tried_again() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let name = server.image("os:v2");
    let before = host.switchable();
    // The registry's word or HTTP's own.
    for (status, words) in
        [(401, ["unauthorized", "401"]), (403, ["denied", "403"]), (404, ["not found", "404"])]
    {
        for on in [On::Manifest, On::Blob] {
            server.set_rules(vec![Rule::always(on.clone(), Act::Status(status))]);
            server.forget();
            let outcome = host.mcd(&["pivot", &name, INSECURE]);
            assert_eq!(outcome.code, Some(1), "{status} {on:?}: {outcome}");
            assert!(outcome.stderr.contains(&name), "{status} {on:?}: {outcome}");
            assert!(words.iter().any(|word| outcome.stderr.contains(word)), "{status} {on:?}: {outcome}");
            assert!(server.requests().len() < 20, "{status} {on:?}: {:#?}", server.requests());
            assert_eq!(host.switchable(), before);
        }
    }
}

#[test]
fn root_what_may_pass_is_tried_again() {
    for act in [Act::Status(500), Act::Status(503), Act::Close, Act::EndAfter(2000), Act::ResetAfter(2000)] {
        let host = Host::new();
        let image = host.v2();
        let rule = Rule::first(1, On::BlobOf(image.layers[1].digest.clone()), act.clone());
        let server = FakeRegistry::serve(&image.dir, vec![rule]).unwrap();
        let outcome = host.mcd(&["pivot", &server.image("os:v2"), INSECURE]);
        assert_eq!(outcome.code, Some(0), "{act:?}: {outcome}");
        assert_eq!(host.next_version(), "2", "{act:?}");
        host.sysroot.fsck().unwrap();
    }
}

#[test]
fn root_a_server_that_stays_broken_is_given_up_with_its_last_word() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![Rule::always(On::Manifest, Act::Status(500))]).unwrap();
    let before = host.switchable();
    let name = server.image("os:v2");
    host.mcd(&["pivot", &name, INSECURE]).fails(1, &[&name, "500"]);
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_a_wrong_body_is_refused_by_its_digest() {
    let host = Host::new();
    let image = host.v2();
    let layer = image.layers[2].digest.clone();
    let server =
        FakeRegistry::serve(&image.dir, vec![Rule::always(On::BlobOf(layer), Act::WrongBody)]).unwrap();
    let before = host.switchable();
    let short = &image.layers[2].digest["sha256:".len()..][..12];
    host.mcd(&["pivot", &server.image("os:v2"), INSECURE]).fails(1, &[short]);
    assert_eq!(host.switchable(), before);
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_what_was_pulled_ahead_needs_no_network() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let before = host.switchable();
    let (by_digest, by_tag) = (server.image(&format!("os@{}", image.digest)), server.image("os:v2"));
    host.mcd(&["pull", &by_digest, INSECURE]).ok();
    host.mcd(&["pull", &by_tag, INSECURE]).ok();
    assert_eq!(host.switchable(), before);
    // By tag too, with the server gone: what was pulled under that name is taken, and said so.
    drop(server);
    host.mcd(&["pivot", &by_tag]).ok();
    assert_eq!(host.next_version(), "2");
    host.mcd(&["rollback"]).ok();
    host.mcd(&["pivot", &by_digest]).ok();
    assert_eq!(host.next_version(), "2");
}

#[test]
fn root_the_same_content_in_another_compression_is_not_fetched_again() {
    use mcd_test_support::compress::Compression;
    use mcd_test_support::tree::Tree;
    let host = Host::new();
    let gzip = host.v2();
    let zstd = host.write(host.image_of(&Tree::v2()).compression(Compression::Zstd), "zstd");
    let server = FakeRegistry::serve(&gzip.dir, vec![]).unwrap();
    host.mcd(&["pull", &server.image("os:v2"), INSECURE]).ok();
    server.forget();
    host.mcd(&["pivot", &server.image("os:zstd"), INSECURE]).ok();
    let requests = server.requests();
    for layer in &zstd.layers {
        assert!(!requests.iter().any(|request| request.path.ends_with(&layer.digest)), "{requests:?}");
    }
}

#[test]
fn root_progress_is_json_lines_on_request_and_plain_lines_off_a_terminal() {
    let host = Host::new();
    let image = host.v2();
    let outcome = host.mcd(&["pull", &image.reference(), "--json"]).ok();
    let events: Vec<serde_json::Value> = outcome
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{outcome}")))
        .collect();
    assert!(events.iter().any(|event| event["event"] == "layer-finished"), "{outcome}");
    let host = Host::new();
    let outcome = host.mcd(&["pull", &image.reference()]).ok();
    assert!(!outcome.stderr.contains('\x1b') && !outcome.stderr.contains('\r'), "{outcome}");
}
