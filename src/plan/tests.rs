use super::*;
use crate::model::status::STATUS_VERSION;

const A: &str = "a";
const B: &str = "b";

fn digest(seed: &str) -> Digest {
    Digest::of(seed.as_bytes())
}

fn deployment(index: usize, seed: &str, arguments: &str) -> DeploymentStatus {
    DeploymentStatus {
        index,
        name: DeploymentName { checksum: digest(seed).hex().to_owned(), serial: 0 },
        stateroot: "os".to_owned(),
        booted: false,
        staged: false,
        rollback: false,
        pinned: false,
        kept: false,
        image: Some("registry.example/os:1".parse().unwrap()),
        digest: Some(digest(seed)),
        asked_digest: None,
        image_commit: None,
        version: None,
        timestamp: 0,
        kernel_arguments: arguments.to_owned(),
        id: None,
        other_origin: None,
        state: None,
        cause: None,
        config: None,
    }
}

fn host(deployments: Vec<DeploymentStatus>) -> HostStatus {
    HostStatus {
        version: STATUS_VERSION,
        sysroot: "/".into(),
        deployments,
        prepared: None,
        went_back: None,
        health: None,
        hold: None,
        notices: Vec::new(),
    }
}

/// Booted A; with `staged`, B is what the next boot starts.
pub(super) fn running_a(staged: bool) -> HostStatus {
    let mut a = DeploymentStatus { booted: true, ..deployment(0, A, "quiet") };
    if !staged {
        return host(vec![a]);
    }
    a.index = 1;
    host(vec![DeploymentStatus { staged: true, ..deployment(0, B, "quiet nosmt") }, a])
}

fn by_digest(seed: &str) -> Desired {
    let image = format!("registry.example/os@{}", digest(seed)).parse().unwrap();
    Desired { image: Some(image), resolved: None, kargs: Vec::new() }
}

fn by_tag(resolved: Option<&str>) -> Desired {
    Desired {
        image: Some("registry.example/os:1".parse().unwrap()),
        resolved: resolved.map(digest),
        kargs: Vec::new(),
    }
}

fn decided(desired: &Desired, host: &HostStatus) -> Decision {
    decide(desired, host).unwrap().unwrap()
}

#[test]
fn a_tag_is_resolved_then_compared_by_digest() {
    let host = running_a(false);
    assert_eq!(decided(&by_tag(None), &host), Decision::Resolve);
    assert_eq!(decided(&by_tag(Some(A)), &host), Decision::NothingToDo);
    let Decision::Deploy(deploy) = decided(&by_tag(Some(B)), &host) else { panic!() };
    assert_eq!(deploy.digest, Some(digest(B)));
}

#[test]
fn nothing_to_do_is_judged_by_what_boots_next() {
    // B is staged: asking for it again is nothing, although A runs.
    assert_eq!(decided(&by_digest(B), &running_a(true)), Decision::NothingToDo);
}

#[test]
fn asking_for_what_runs_drops_what_is_staged() {
    let host = running_a(true);
    assert_eq!(
        decided(&by_digest(A), &host),
        Decision::ReturnToBooted {
            booted: host.deployments[1].name.clone(),
            dropped: host.deployments[0].name.clone()
        }
    );
    // With another argument it is a change of its own.
    let kargs = vec![KargEdit::Append("debug".to_owned())];
    assert!(matches!(decided(&Desired { kargs, ..by_digest(A) }, &host), Decision::Deploy(_)));
}

#[test]
fn the_digest_of_an_index_counts_as_well_as_the_manifests() {
    let mut host = running_a(false);
    host.deployments[0].asked_digest = Some(digest("index"));
    assert_eq!(decided(&by_digest("index"), &host), Decision::NothingToDo);
    assert_eq!(decided(&by_digest(A), &host), Decision::NothingToDo);
    // An index that the origin does not name is looked up; then its manifest is known.
    let other = by_digest("another index");
    assert!(matches!(decided(&other, &host), Decision::Deploy(_)));
    assert_eq!(decided(&Desired { resolved: Some(digest(A)), ..other }, &host), Decision::NothingToDo);
}

#[test]
fn arguments_are_part_of_the_comparison() {
    let host = running_a(false);
    let with = |edit: KargEdit| Desired { kargs: vec![edit], ..by_digest(A) };
    assert_eq!(decided(&with(KargEdit::Append("quiet".to_owned())), &host), Decision::NothingToDo);
    assert_eq!(decided(&with(KargEdit::Delete("nosmt".to_owned())), &host), Decision::NothingToDo);
    let Decision::Deploy(deploy) = decided(&with(KargEdit::Append("nosmt".to_owned())), &host) else {
        panic!()
    };
    assert_eq!(deploy.kernel_arguments.to_string(), "quiet nosmt");
    assert_eq!(deploy.base, host.deployments[0].name);
}

#[test]
fn arguments_alone_keep_the_image() {
    let desired =
        Desired { image: None, resolved: None, kargs: vec![KargEdit::Replace("quiet=1".to_owned())] };
    let Decision::Deploy(deploy) = decided(&desired, &running_a(false)) else { panic!() };
    assert_eq!((deploy.image, deploy.digest), (None, None));
}

#[test]
fn a_stricter_verification_of_the_same_bytes_is_a_change() {
    let mut host = running_a(false);
    let signed: OsImage =
        format!("ostree-image-signed:docker://registry.example/os@{}", digest(A)).parse().unwrap();
    let desired = Desired { image: Some(signed.clone()), resolved: None, kargs: Vec::new() };
    assert!(matches!(decided(&desired, &host), Decision::Deploy(_)));
    host.deployments[0].image = Some(signed);
    assert_eq!(decided(&desired, &host), Decision::NothingToDo);
}

#[test]
fn a_malformed_argument_is_named() {
    let desired =
        Desired { image: None, resolved: None, kargs: vec![KargEdit::Append("ostree=/x".to_owned())] };
    let invalid = decide(&desired, &running_a(false)).unwrap_err().to_string();
    assert!(invalid.contains("ostree="), "{invalid}");
}

#[test]
fn a_host_without_deployment_has_nothing_to_compare_with() {
    assert_eq!(decide(&by_digest(A), &host(Vec::new())), Ok(None));
}

#[test]
fn bytes_are_for_people() {
    for (bytes, text) in
        [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_540, "1.0 MiB"), (u64::MAX, "16384.0 PiB")]
    {
        assert_eq!(Bytes(bytes).to_string(), text);
    }
}
