use cap_std::ambient_authority;

use super::*;
use crate::error::{ExitKind, to_fault};
use crate::host::trust::{Trust, decide};
use crate::model::image_ref::{OsImage, Transport, Verification};

const ANYTHING: &str = r#"[{"type":"insecureAcceptAnything"}]"#;
const REJECT: &str = r#"[{"type":"reject"}]"#;
const SIGNED: &str = r#"[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/etc/pki/os.gpg"}]"#;

fn image(location: &str) -> ImageReference {
    ImageReference {
        transport: Transport::Registry,
        location: location.to_owned(),
        tag: Some("1".to_owned()),
        digest: None,
    }
}

fn demanded(policy: &str, image: &ImageReference) -> (String, Demand) {
    let requirement = Policy::parse(policy).unwrap().requirement(image).unwrap();
    (requirement.scope, requirement.demand)
}

fn refusal(policy: &str) -> Fault {
    let fault = to_fault(&Policy::parse(policy).unwrap_err());
    assert_eq!(fault.kind, ExitKind::Refused);
    assert!(fault.what.contains(POLICY_PATH));
    fault
}

#[test]
fn the_narrowest_scope_decides_alone() {
    let policy = format!(
        r#"{{"default":{REJECT},"transports":{{"docker":{{"":{SIGNED},"h.example":{ANYTHING},"h.example/os:1":{REJECT},"*.example":{REJECT}}},
            "oci":{{"":{ANYTHING}}}}}}}"#
    );
    for (location, scope, demand) in [
        ("h.example/os", "transports.docker[\"h.example/os:1\"]", Demand::Reject),
        ("h.example/other", "transports.docker[\"h.example\"]", Demand::AcceptAnything),
        ("i.example/other", "transports.docker[\"*.example\"]", Demand::Reject),
        ("elsewhere.test/os", "transports.docker[\"\"]", Demand::Signed),
    ] {
        assert_eq!(demanded(&policy, &image(location)), (scope.to_owned(), demand), "{location}");
    }
    let archive =
        ImageReference { transport: Transport::OciDir, location: "/".to_owned(), tag: None, digest: None };
    assert_eq!(demanded(&policy, &archive), ("transports.oci[\"\"]".to_owned(), Demand::AcceptAnything));
    let archive = ImageReference { transport: Transport::OciArchive, ..archive };
    assert_eq!(demanded(&policy, &archive), ("default".to_owned(), Demand::Reject));
}

#[test]
fn all_requirements_of_a_list_must_hold() {
    let one = |list: &str| demanded(&format!("{{\"default\":[{list}]}}"), &image("h/os")).1;
    let (accept, reject) = (r#"{"type":"insecureAcceptAnything"}"#, r#"{"type":"reject"}"#);
    assert_eq!(one(accept), Demand::AcceptAnything);
    assert_eq!(one(&format!("{accept},{reject}")), Demand::Reject);
    for signed in ["signedBy", "sigstoreSigned", "signedBaseLayer"] {
        assert_eq!(one(&format!(r#"{accept},{{"type":"{signed}","x":[1,true,null,1.5]}}"#)), Demand::Signed);
    }
}

#[test]
fn a_store_that_is_not_known_is_left_to_skopeo_where_scopes_disagree() {
    let stored =
        |location: &str| ImageReference { transport: Transport::ContainersStorage, ..image(location) };
    let of = |scopes: &str, default: &str| {
        let policy = format!(r#"{{"default":{default},"transports":{{"containers-storage":{{{scopes}}}}}}}"#);
        Policy::parse(&policy).unwrap().requirement(&stored("quay.io/ns/os")).unwrap()
    };
    let demand = |scopes: &str, default: &str| of(scopes, default).demand;
    assert_eq!(demand(&format!(r#""":{ANYTHING}"#), REJECT), Demand::AcceptAnything);
    assert_eq!(demand(&format!(r#""":{REJECT},"[/a]":{REJECT}"#), ANYTHING), Demand::Reject);
    assert_eq!(demand(&format!(r#""":{ANYTHING},"[/a]quay.io/ns":{SIGNED}"#), REJECT), Demand::Signed);
    assert_eq!(
        demand(&format!(r#""":{ANYTHING},"[/a]quay.io/other":{SIGNED}"#), REJECT),
        Demand::AcceptAnything
    );
    assert_eq!(demand("", SIGNED), Demand::Signed);
    // The store may or may not be /a: skopeo knows.
    let unsure = of(&format!(r#""[/a]":{ANYTHING}"#), REJECT);
    assert_eq!(unsure.demand, Demand::Signed);
    let signed = OsImage { verification: Verification::Signed, image: stored("quay.io/ns/os") };
    assert!(
        to_fault(&decide(&signed, &unsure, true).unwrap_err())
            .why
            .unwrap()
            .contains("depends on the storage")
    );
    let plain = OsImage { verification: Verification::PolicyOnly, ..signed };
    assert_eq!(decide(&plain, &unsure, true).unwrap(), Trust::Accept);
    // An old skopeo would have to copy, which a storage does not bear.
    for (requirement, part) in
        [(&unsure, "depends on the storage"), (&of("", SIGNED), "default asks for a signature")]
    {
        let fault = to_fault(&decide(&plain, requirement, false).unwrap_err());
        assert!(fault.kind == ExitKind::Refused && fault.why.as_deref().unwrap().contains(part), "{fault:?}");
    }
}

#[test]
fn a_bad_policy_is_refused_by_place() {
    let table = [
        ("{", "line 1, column 1: EOF"),
        ("{\n  \"default\": [,\n", "line 2, column 15"),
        (r#"{"default":[],"default":[]}"#, "the key \"default\" is there twice"),
        (r#"{"transports":{}}"#, "default: missing"),
        (r#"{"default":[]}"#, "default: the list is empty"),
        (r#"{"default":null}"#, "default: expected a list"),
        (r#"[]"#, "the policy: expected an object"),
        (r#"{"default":[{"type":"reject"}],"transport":{}}"#, "transport: unknown key"),
        (r#"{"default":[{"type":"signedby"}]}"#, "default[0].type: unknown requirement type \"signedby\""),
        (r#"{"default":[{"type":"reject"},{"type":1}]}"#, "default[1].type: expected a text"),
        (r#"{"default":[{"Type":"reject"}]}"#, "default[0].type: missing"),
        (r#"{"default":[{"type":"reject","why":"x"}]}"#, "default[0].why: unknown key"),
        (
            r#"{"default":[{"type":"reject"}],"transports":{"docker":{"h/os":[{"type":"x"}]}}}"#,
            "transports.docker[\"h/os\"][0].type",
        ),
        (
            r#"{"default":[{"type":"reject"}],"transports":{"oci":{"img":[{"type":"reject"}]}}}"#,
            "transports.oci[\"img\"]: a scope",
        ),
        (r#"{"default":[{"type":"reject"}],"transports":null}"#, "transports: expected an object"),
    ];
    for (policy, part) in table {
        let fault = refusal(policy);
        assert!(fault.why.as_deref().unwrap().contains(part), "{policy}: {fault:?}");
        assert!(fault.next.is_some());
    }
}

#[test]
fn the_file_is_followed_through_links_within_the_root() {
    let temp = tempfile::tempdir().unwrap();
    let root = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
    let fault = |root: &Dir| to_fault(&Policy::load(root).unwrap_err());
    assert!(fault(&root).why.unwrap().contains("no such file"));
    assert!(
        fault(&root).what.contains(POLICY_PATH) && fault(&root).next.unwrap().contains("containers-common")
    );

    root.create_dir_all("etc/containers").unwrap();
    root.create_dir_all("usr/share/containers").unwrap();
    root.symlink_contents("/usr/share/containers/policy.json", "etc/containers/policy.json").unwrap();
    assert!(fault(&root).why.unwrap().contains("leads nowhere"));
    root.write("usr/share/containers/policy.json", format!("{{\"default\":{REJECT}}}")).unwrap();
    let policy = Policy::load(&root).unwrap();
    assert_eq!(policy.requirement(&image("h/os")).unwrap().demand, Demand::Reject);
    assert_eq!(policy.digest(), &Digest::of(format!("{{\"default\":{REJECT}}}").as_bytes()));

    // Out of the root there is nothing: ".." ends at the root.
    root.remove_file("etc/containers/policy.json").unwrap();
    root.symlink_contents("../../../../../../../etc/containers/policy.json", "etc/containers/policy.json")
        .unwrap();
    assert!(fault(&root).why.unwrap().contains("cannot be read"));
    root.remove_file("etc/containers/policy.json").unwrap();
    root.write("etc/containers/policy.json", b"{\"default\":\n\xff").unwrap();
    assert!(fault(&root).why.unwrap().contains("byte 12 is not UTF-8"));
}

#[test]
fn decisions() {
    let decided = |verification: &Verification, list: &str, enforces: bool| {
        let image = OsImage { verification: verification.clone(), image: image("h.example/os") };
        let policy = Policy::parse(&format!(
            r#"{{"default":{REJECT},"transports":{{"docker":{{"h.example":{list}}}}}}}"#
        ))
        .unwrap();
        decide(&image, &policy.requirement(&image.image).unwrap(), enforces).map_err(|error| to_fault(&error))
    };
    let (plain, signed, remote) =
        (Verification::PolicyOnly, Verification::Signed, Verification::OstreeRemote("fedora".to_owned()));
    for (verification, list, enforces, expected) in [
        (&plain, ANYTHING, false, Some(Trust::Accept)),
        (&remote, ANYTHING, false, Some(Trust::Accept)),
        (&signed, ANYTHING, false, None),
        (&signed, ANYTHING, true, None),
        (&plain, SIGNED, false, Some(Trust::CopyVerified)),
        (&signed, SIGNED, false, Some(Trust::CopyVerified)),
        (&remote, SIGNED, true, Some(Trust::Accept)),
        (&signed, SIGNED, true, Some(Trust::Accept)),
        (&plain, REJECT, false, None),
        (&plain, REJECT, true, None),
    ] {
        match (decided(verification, list, enforces), expected) {
            (Ok(trust), Some(expected)) => assert_eq!(trust, expected, "{verification:?} {list}"),
            (Err(fault), None) => {
                assert_eq!(fault.kind, ExitKind::Refused);
                assert!(fault.what.contains("h.example/os:1"), "{fault:?}");
                let why = fault.why.unwrap();
                assert!(
                    why.contains(POLICY_PATH) && why.contains("transports.docker[\"h.example\"]"),
                    "{why}"
                );
                assert!(fault.next.unwrap().contains(POLICY_PATH));
            }
            (result, _) => panic!("{verification:?} {list} {enforces}: {result:?}"),
        }
    }
}

#[test]
fn a_missing_signature_demand_is_explained() {
    let image = OsImage { verification: Verification::Signed, image: image("h.example/ns/os") };
    let policy = Policy::parse(&format!("{{\"default\":{ANYTHING}}}")).unwrap();
    let fault = to_fault(&decide(&image, &policy.requirement(&image.image).unwrap(), false).unwrap_err());
    assert!(fault.why.unwrap().contains("default says \"insecureAcceptAnything\""));
    assert!(fault.next.unwrap().contains("transports.docker[\"h.example/ns/os\"]"));
}
