//! Our reading of a policy against skopeo's: for each policy and each image, the same verdict.

use std::process::Command;

use camino::Utf8Path;
use mcd::host::trust::{Demand, Policy};
use mcd::model::image_ref::ImageReference;

use super::fixture::{Registry, publish, tempdir, utf8, write_image};

const ANYTHING: &str = r#"[{"type":"insecureAcceptAnything"}]"#;
const REJECT: &str = r#"[{"type":"reject"}]"#;
const MANY: &str = r#"[{"type":"insecureAcceptAnything"},{"type":"reject"}]"#;
/// A demand that no image here fulfils.
const SIGNED: &str =
    r#"[{"type":"insecureAcceptAnything"},{"type":"signedBy","keyType":"GPGKeys","keyData":"AAAA"}]"#;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Invalid,
    Judged(Demand),
}

/// What `skopeo copy` does with an image under a policy.
fn skopeo_verdict(folder: &Utf8Path, policy: &str, image: &str) -> Verdict {
    let dir = cap_std::fs::Dir::open_ambient_dir(folder, cap_std::ambient_authority()).unwrap();
    dir.write("policy.json", policy).unwrap();
    if dir.exists("copied") {
        dir.remove_dir_all("copied").unwrap();
    }
    let output = Command::new("skopeo")
        .arg("--registries-conf")
        .arg(folder.join("registries.conf"))
        .arg("--policy")
        .arg(folder.join("policy.json"))
        .args(["copy", "--quiet", "--src-no-creds", "--src-tls-verify=false", image])
        .arg(format!("dir:{folder}/copied"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Verdict::Judged(Demand::AcceptAnything)
    } else if stderr.contains("is rejected by policy") {
        Verdict::Judged(Demand::Reject)
    } else if stderr.contains("signature was required") || stderr.contains("signedBaseLayer") {
        Verdict::Judged(Demand::Signed)
    } else if stderr.contains("loading trust policy") {
        Verdict::Invalid
    } else {
        panic!("{policy}\n{image}\n{stderr}");
    }
}

fn our_verdict(policy: &str, image: &str) -> Verdict {
    let image: ImageReference = image.to_owned().try_into().unwrap();
    match Policy::parse(policy) {
        Ok(policy) => Verdict::Judged(policy.requirement(&image).unwrap().demand),
        Err(_) => Verdict::Invalid,
    }
}

fn assert_agreed(folder: &Utf8Path, policies: &[String], images: &[String]) {
    for policy in policies {
        for image in images {
            assert_eq!(
                our_verdict(policy, image),
                skopeo_verdict(folder, policy, image),
                "{policy}\n{image}"
            );
        }
    }
}

/// A policy with one scope that demands something else than the default.
fn scoped(transport: &str, scope: &str, demand: &str) -> String {
    let default = if demand == REJECT { ANYTHING } else { REJECT };
    format!(r#"{{"default":{default},"transports":{{"{transport}":{{"{scope}":{demand}}}}}}}"#)
}

#[test]
fn files_are_judged_as_skopeo_judges_them() {
    let temp = tempdir();
    let folder = &utf8(temp.path()).canonicalize_utf8().unwrap();
    write_image(&folder.join("image"), "files");
    publish(&format!("oci:{folder}/image:1"), &format!("oci-archive:{folder}/image.tar:1"));
    std::os::unix::fs::symlink("image", folder.join("link")).unwrap();
    std::os::unix::fs::symlink(folder, folder.join("self")).unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.join("registries.conf")).unwrap();

    let scopes = [
        "image",
        "image:1",
        "image.tar",
        "image.tar:1",
        "link",
        "self",
        "self/image",
        "imag",
        "image/",
        "./image",
        "",
        "other",
    ];
    let scopes = scopes.map(|scope| format!("{folder}/{scope}"));
    let scopes =
        scopes.iter().map(|scope| if scope.ends_with("//") { folder.as_str() } else { scope.as_str() });
    let policies: Vec<String> = scopes
        .chain([folder.as_str(), "/tmp", "/", "", "image", "*"])
        .flat_map(|scope| ["oci", "oci-archive"].map(|transport| scoped(transport, scope, ANYTHING)))
        .collect();
    let images = [
        "oci:FOLDER/image:1",
        "oci:FOLDER/link:1",
        "oci:FOLDER/self/link:1",
        "oci-archive:FOLDER/image.tar:1",
    ];
    assert_agreed(folder, &policies, &images.map(|image| image.replace("FOLDER", folder.as_str())));
}

#[test]
fn policies_are_valid_for_skopeo_and_us_alike() {
    let temp = tempdir();
    let folder = utf8(temp.path());
    write_image(&folder.join("image"), "policies");
    std::os::unix::fs::symlink("/dev/null", folder.join("registries.conf")).unwrap();
    let policies = [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"default":[]}"#,
        r#"{"default":null}"#,
        r#"{"default":{"type":"reject"}}"#,
        r#"{"default":[null]}"#,
        r#"{"default":[{}]}"#,
        r#"{"default":[{"type":"Reject"}]}"#,
        r#"{"default":[{"TYPE":"reject"}]}"#,
        r#"{"default":[{"type":null}]}"#,
        r#"{"default":[{"type":"reject","type":"insecureAcceptAnything"}]}"#,
        r#"{"default":[{"type":"reject","comment":"x"}]}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"default":[{"type":"reject"}]}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"comment":"x"}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}]} x"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":null}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":null}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"x":[]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"a b*":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"nonsense":{"x":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"nonsense":{"x":[{"type":"x"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"dir":{"x":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"oci":{},"docker":{}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"containers-storage":{"x":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"containers-storage":{"[x]":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"containers-storage":{"[/x":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"containers-storage":{"[o@/x]q.io/n":[{"type":"reject"}]}}}"#,
        r#"{"default":[{"type":"signedBaseLayer","baseLayerIdentity":{"type":"matchExact"}}]}"#,
    ];
    let mut policies = policies.map(str::to_owned).to_vec();
    policies.extend([ANYTHING, REJECT, MANY, SIGNED].map(|list| format!("{{\"default\":{list}}}")));
    assert_agreed(folder, &policies, &[format!("oci:{folder}/image:1")]);
}

#[test]
fn registries_are_judged_as_skopeo_judges_them() {
    let temp = tempdir();
    let folder = utf8(temp.path());
    let registry = Registry::start(folder, None);
    let digest = write_image(&folder.join("image"), "registries");
    publish(&format!("oci:{folder}/image:1"), &format!("docker://{}/ns/os:1", registry.host));
    publish(&format!("oci:{folder}/image:1"), &format!("docker://{}/ns/os:latest", registry.host));
    // Names that resolve to nothing are sent to the registry: a policy judges the name as it is asked for.
    let hosts = ["a.b.example.test:5000", "a.b.example.test", "localhost", "docker.io"];
    let entries = hosts.map(|host| {
        format!("[[registry]]\nprefix = \"{host}\"\nlocation = \"{}\"\ninsecure = true\n", registry.host)
    });
    let dir = cap_std::fs::Dir::open_ambient_dir(folder, cap_std::ambient_authority()).unwrap();
    dir.write("registries.conf", entries.concat()).unwrap();

    let scopes = [
        "",
        "a.b.example.test:5000/ns/os:1",
        "a.b.example.test:5000/ns/os:latest",
        "a.b.example.test:5000/ns/os",
        "a.b.example.test:5000/ns",
        "a.b.example.test:5000/n",
        "a.b.example.test:5000",
        "a.b.example.test",
        "a.b.example.test/ns/",
        "*.b.example.test",
        "*.b.example.test:5000",
        "*.example.test",
        "*.test",
        "*.a.b.example.test",
        "*",
        "docker.io",
        "*.io",
        "localhost",
        "ns/os",
    ];
    let mut scopes = scopes.map(str::to_owned).to_vec();
    scopes.push(format!("a.b.example.test:5000/ns/os@{digest}"));
    let policies: Vec<String> = scopes
        .iter()
        .flat_map(|scope| [ANYTHING, SIGNED].map(|demand| scoped("docker", scope, demand)))
        .collect();
    let images = [
        "docker://a.b.example.test:5000/ns/os:1".to_owned(),
        "docker://a.b.example.test:5000/ns/os".to_owned(),
        format!("docker://a.b.example.test:5000/ns/os@{digest}"),
        "docker://a.b.example.test/ns/os:1".to_owned(),
        "docker://docker.io/ns/os:1".to_owned(),
        "docker://localhost/ns/os:1".to_owned(),
    ];
    assert_agreed(folder, &policies, &images);
}
