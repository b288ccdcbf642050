//! The booted host: staging, finalising at shutdown, power cuts, policy.

use mcd_test_support::booted::Booted;
use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::image::Written;
use serde_json::Value;

use super::{Host, Outcome, program};

fn boot(host: &Host) -> Booted<'_> {
    Booted::boot(&host.sysroot, program(), &[host.scratch.path()]).unwrap()
}

fn mcd(booted: &Booted<'_>, arguments: &[&str]) -> Outcome {
    Outcome::of(booted.mcd(arguments).unwrap())
}

fn version(booted: &Booted<'_>) -> String {
    booted.shell(". /etc/os-release; echo -n $VERSION_ID").unwrap()
}

fn status(booted: &Booted<'_>) -> Value {
    mcd(booted, &["status", "--json"]).ok().json()
}

/// A host that runs version 1 *as an image*, with the image of version 2 at hand.
fn running_v1(host: &Host) -> (Booted<'_>, Written, Written) {
    let (v1, v2) = (host.v1(), host.v2());
    host.mcd(&["pivot", &v1.reference()]).ok();
    (boot(host), v1, v2)
}

#[test]
fn root_a_pivot_is_staged_and_finalised_at_shutdown() {
    let host = Host::new();
    let (booted, _, v2) = running_v1(&host);
    let menu = host.sysroot.boot_entries().unwrap();
    mcd(&booted, &["pivot", &v2.reference(), "--karg-append", "mitigations=auto"]).ok();
    assert!(booted.is_staged().unwrap());
    assert_eq!(host.sysroot.boot_entries().unwrap(), menu);
    let deployments = status(&booted)["deployments"].clone();
    assert_eq!(
        (&deployments[0]["staged"], &deployments[0]["booted"]),
        (&Value::Bool(true), &Value::Bool(false))
    );
    assert_eq!(
        (&deployments[1]["staged"], &deployments[1]["booted"]),
        (&Value::Bool(false), &Value::Bool(true))
    );
    mcd(&booted, &["pivot", &v2.reference(), "--unchanged-exit-77"]).fails(77, &[]);
    // Late edits of /etc are merged at shutdown.
    booted.shell("echo late > /etc/late").unwrap();
    let booted = booted.reboot().unwrap();
    assert_eq!(version(&booted), "2");
    assert_eq!(booted.shell("cat /etc/late").unwrap(), "late\n");
    assert!(booted.entry().options.contains("mitigations=auto"));
    assert_eq!(status(&booted)["deployments"][0]["booted"], true);
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_with_b_staged_a_pivot_to_the_booted_a_drops_b() {
    let host = Host::new();
    let (booted, v1, v2) = running_v1(&host);
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    mcd(&booted, &["pivot", &v1.reference()]).ok();
    assert!(!booted.is_staged().unwrap());
    let booted = booted.reboot().unwrap();
    assert_eq!(version(&booted), "1");
}

#[test]
fn root_what_is_staged_can_be_cancelled() {
    let host = Host::new();
    let (booted, _, v2) = running_v1(&host);
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    mcd(&booted, &["cancel"]).ok();
    assert!(!booted.is_staged().unwrap());
    let booted = booted.reboot().unwrap();
    assert_eq!(version(&booted), "1");
    assert!(status(&booted)["prepared"].is_null());
}

#[test]
fn root_a_power_cut_before_the_shutdown_is_noticed() {
    let host = Host::new();
    let (booted, _, v2) = running_v1(&host);
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    let booted = booted.power_cut().unwrap();
    assert_eq!(version(&booted), "1");
    let seen = status(&booted);
    assert!(!seen["notices"].as_array().unwrap().is_empty() || seen["prepared"].is_object(), "{seen:#}");
    // Asked again, it is done from what is there.
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    let booted = booted.reboot().unwrap();
    assert_eq!(version(&booted), "2");
}

#[test]
fn root_a_read_only_sysroot_of_a_booted_host_is_no_hindrance() {
    let host = Host::new();
    host.sysroot.configure("sysroot.readonly", "true").unwrap();
    let (booted, _, v2) = running_v1(&host);
    assert!(booted.shell("touch /sysroot/x 2>/dev/null && echo yes || echo no").unwrap().contains("no"));
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    // The private mount namespace of mcd left the host's as it was.
    assert!(booted.shell("touch /sysroot/x 2>/dev/null && echo yes || echo no").unwrap().contains("no"));
    booted
        .shell("unshare -m bash -ec 'mount -o remount,bind,rw /sysroot; ostree admin finalize-staged'")
        .unwrap();
    let booted = booted.power_cut().unwrap();
    assert_eq!(version(&booted), "2");
}

#[test]
fn root_a_booted_rollback_and_back() {
    let host = Host::new();
    let (booted, _, v2) = running_v1(&host);
    mcd(&booted, &["pivot", &v2.reference(), "--karg-append", "a=b"]).ok();
    let booted = booted.reboot().unwrap();
    mcd(&booted, &["rollback"]).ok();
    let booted = booted.reboot().unwrap();
    assert_eq!(version(&booted), "1");
    assert!(!booted.entry().options.contains("a=b"));
    mcd(&booted, &["rollback"]).ok();
    let booted = booted.reboot().unwrap();
    assert_eq!(version(&booted), "2");
}

#[test]
fn root_the_first_boot_prunes_what_nothing_needs() {
    let host = Host::new();
    let (booted, v1, v2) = running_v1(&host);
    let v3 = host.write(host.image_of(&mcd_test_support::tree::Tree::v3()), "v3");
    mcd(&booted, &["pull", &v3.reference()]).ok();
    mcd(&booted, &["pull", &v2.reference()]).ok();
    mcd(&booted, &["pivot", &v2.reference()]).ok();
    let has = |digest: &str| {
        let name = format!("ostree/container/blob/{}", digest.replace(':', "_3A_"));
        host.sysroot.refs().unwrap().contains_key(&name)
    };
    let only_in_v3 = v3
        .layers
        .iter()
        .filter(|layer| !v2.layers.iter().chain(&v1.layers).any(|other| other.digest == layer.digest));
    let only_in_v3: Vec<_> = only_in_v3.map(|layer| layer.digest.as_str()).collect();
    let booted = booted.reboot().unwrap();
    assert!(
        !only_in_v3.is_empty() && only_in_v3.iter().all(|digest| has(digest)),
        "pruned before the first boot"
    );
    mcd(&booted, &["cleanup", "--after-boot"]).ok();
    assert!(!only_in_v3.iter().any(|digest| has(digest)));
    // What runs and what it can go back to are whole.
    assert!(v1.layers.iter().chain(&v2.layers).all(|layer| has(&layer.digest)));
    host.sysroot.fsck().unwrap();
    mcd(&booted, &["rollback"]).ok();
    assert_eq!(version(&booted.reboot().unwrap()), "1");
}

#[test]
fn root_the_policy_of_the_running_system_is_obeyed() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let booted = boot(&host);
    let name = server.image("os:v2");
    let insecure = "--insecure-skip-tls-verification";
    let policy = "/etc/containers/policy.json";

    booted.shell(&format!("echo '{{\"default\": [{{\"type\": \"reject\"}}]}}' > {policy}")).unwrap();
    mcd(&booted, &["pivot", &name, insecure]).fails(3, &[policy, "reject"]);
    // Asked before the network.
    assert_eq!(server.requests(), []);

    booted.shell(&format!("rm {policy}")).unwrap();
    mcd(&booted, &["pivot", &name, insecure]).fails(3, &[policy]);

    // A link that is absolute leads inside the system's own root.
    booted
        .shell(&format!("cp /usr{policy} /etc/elsewhere.json; ln -s /etc/elsewhere.json {policy}"))
        .unwrap();
    let signed = format!("ostree-image-signed:docker://{name}");
    mcd(&booted, &["pivot", &signed, insecure]).fails(3, &[policy]);
    assert_eq!(server.requests(), []);
    mcd(&booted, &["pivot", &name, insecure]).ok();
    assert!(booted.is_staged().unwrap());
}
