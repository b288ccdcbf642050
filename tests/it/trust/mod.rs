//! Trust on the machine's own skopeo: what the policy refuses is refused, by whom, and in which words.

mod fixture;
mod verdicts;

use std::process::Command;

use camino::Utf8PathBuf;
use mcd::error::{ExitKind, Fault, to_fault};
use mcd::host::trust::signed::{CopyRequest, copy_verified};
use mcd::host::trust::{Credentials, Policy, Trust, decide, skopeo};
use mcd::model::digest::Digest;
use mcd::model::event::Silent;
use mcd::model::image_ref::{ImageReference, OsImage};
use tokio_util::sync::CancellationToken;

use fixture::{
    Key, Machine, Registry, isolated, path, publish, publish_all, root_dir, run, write_image, write_index,
};

const REJECT: &str = r#"[{"type":"reject"}]"#;
const ANYTHING: &str = r#"[{"type":"insecureAcceptAnything"}]"#;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn image(text: &str) -> ImageReference {
    text.to_owned().try_into().unwrap()
}

/// Copies with the policy of the machine; the folder is new each time.
fn copy(
    machine: &Machine,
    from: &str,
    resolved: &Digest,
    credentials: &Credentials,
) -> Result<Utf8PathBuf, Fault> {
    let to = machine.folder.join("copied");
    if machine.dir.exists("copied") {
        machine.dir.remove_dir_all("copied").unwrap();
    }
    let image = image(from);
    let request =
        CopyRequest { image: &image, resolved, to: &to, credentials, insecure_skip_tls_verification: true };
    match block_on(copy_verified(&request, &CancellationToken::new(), &Silent)) {
        Ok(()) => Ok(to),
        Err(error) => Err(to_fault(&error)),
    }
}

fn signed_policy(registry: &Registry, key: &Key) -> String {
    format!(
        r#"{{"default":{REJECT},"transports":{{"docker":{{"{}":{}}}}}}}"#,
        registry.host,
        key.requirement()
    )
}

/// Why a refused copy was refused.
fn refusal(result: Result<Utf8PathBuf, Fault>) -> String {
    let fault = result.unwrap_err();
    assert_eq!(fault.kind, ExitKind::Refused, "{fault:?}");
    fault.why.unwrap()
}

#[test]
fn root_signatures_are_checked() {
    isolated("trust::root_signatures_are_checked", &[], |machine| {
        let registry = Registry::start(&machine.folder, None);
        let (key, layout) = (Key::generate(&machine.folder), machine.folder.join("image"));
        machine.lookaside();
        machine.registries("");
        machine.policy(&signed_policy(&registry, &key));
        let digest = write_image(&layout, "stable");
        let local = format!("oci:{layout}:1");
        let (signed, unsigned) =
            (format!("docker://{}/os:stable", registry.host), format!("docker://{}/bare:1", registry.host));
        key.sign(&local, &signed);
        publish(&local, &unsigned);

        // mcd sends both through the copy, whatever the verification says.
        let policy = Policy::load(&root_dir()).unwrap();
        let requirement = policy.requirement(&image(&signed)).unwrap();
        assert!(requirement.asks_for_signature());
        let spelled = format!("ostree-image-signed:{signed}");
        for text in [signed.clone(), spelled] {
            let os: OsImage = text.try_into().unwrap();
            assert_eq!(decide(&os, &requirement, false).unwrap(), Trust::CopyVerified);
        }

        let copied = copy(machine, &signed, &digest, &Credentials::Anonymous).unwrap();
        assert!(copied.join("manifest.json").exists());
        let by_digest = format!("docker://{}/os@{digest}", registry.host);
        copy(machine, &by_digest, &digest, &Credentials::Anonymous).unwrap();
        assert!(
            refusal(copy(machine, &unsigned, &digest, &Credentials::Anonymous))
                .contains("no signature exists")
        );

        // A signed image of another tag is not what was asked for, and a tag that moved is told.
        let other = write_image(&layout, "testing");
        let testing = format!("docker://{}/os:testing", registry.host);
        key.sign(&local, &testing);
        publish(&testing, &signed);
        assert!(refusal(copy(machine, &signed, &other, &Credentials::Anonymous)).contains("is not accepted"));
        let moved = copy(machine, &testing, &digest, &Credentials::Anonymous).unwrap_err();
        assert_eq!(moved.kind, ExitKind::Failed);
        assert!(moved.what.contains("changed while it was fetched"), "{moved:?}");

        // Another key, and no key at all.
        machine.policy(&signed_policy(&registry, &key).replace("key.gpg", "missing.gpg"));
        assert!(refusal(copy(machine, &testing, &other, &Credentials::Anonymous)).contains("missing.gpg"));
    });
}

/// An index is signed as a whole and per architecture; the manifest of this one is copied.
#[test]
fn root_the_manifest_of_an_index_is_checked() {
    isolated("trust::root_the_manifest_of_an_index_is_checked", &[], |machine| {
        let registry = Registry::start(&machine.folder, None);
        let (key, layout) = (Key::generate(&machine.folder), machine.folder.join("image"));
        machine.lookaside();
        machine.registries("");
        machine.policy(&signed_policy(&registry, &key));
        let digest = write_image(&layout, "indexed");
        let index = write_index(&layout, &digest);
        let (signed, unsigned) =
            (format!("docker://{}/os:1", registry.host), format!("docker://{}/bare:1", registry.host));
        key.sign_all(&format!("oci:{layout}:1"), &signed);
        publish_all(&format!("oci:{layout}:1"), &unsigned);
        let by_digest = format!("docker://{}/os@{index}", registry.host);
        for from in [signed, by_digest] {
            copy(machine, &from, &digest, &Credentials::Anonymous).unwrap();
        }
        assert!(
            refusal(copy(machine, &unsigned, &digest, &Credentials::Anonymous))
                .contains("no signature exists")
        );
    });
}

#[test]
fn root_signed_images_come_through_mirrors() {
    isolated("trust::root_signed_images_come_through_mirrors", &[], |machine| {
        let registry = Registry::start(&machine.folder, None);
        let (key, layout) = (Key::generate(&machine.folder), machine.folder.join("image"));
        machine.lookaside();
        let digest = write_image(&layout, "mirrored");
        key.sign(&format!("oci:{layout}:1"), &format!("docker://{}/copy/os:1", registry.host));
        // The publisher signed it under its real name; the signature store has that name too.
        run(Command::new("mkdir").arg(machine.folder.join("signatures/ns")));
        let store = |name: &str| machine.folder.join(format!("signatures/{name}@sha256={}", digest.hex()));
        run(Command::new("mv").arg(store("copy/os")).arg(store("ns/os")));
        let exact = r#""keyPath""#;
        let identity = format!(
            r#""signedIdentity":{{"type":"exactReference","dockerReference":"{}/copy/os:1"}},{exact}"#,
            registry.host
        );
        let requirement = key.requirement().replace(exact, &identity);
        machine.policy(&format!(
            r#"{{"default":{REJECT},"transports":{{"docker":{{"os.example.test/ns":{requirement}}}}}}}"#
        ));
        machine.registries(&format!(
            "[[registry]]\nprefix = \"os.example.test/ns\"\nlocation = \"os.example.test/ns\"\n\
             [[registry.mirror]]\nlocation = \"{}/copy\"\ninsecure = true\n\
             [[registry]]\nlocation = \"blocked.example.test\"\nblocked = true\n",
            registry.host
        ));
        run(Command::new("cp").arg("-r").arg(store("ns/os")).arg(store("copy/os")));
        copy(machine, "docker://os.example.test/ns/os:1", &digest, &Credentials::Anonymous).unwrap();

        let told = mcd::host::trust::registries::configured_candidates(
            &root_dir(),
            &image("docker://os.example.test/ns/os:1"),
        );
        assert_eq!(told.mirrors, [format!("{}/copy", registry.host)]);
        machine.policy(&format!("{{\"default\":{ANYTHING}}}"));
        let blocked = copy(machine, "docker://blocked.example.test/os:1", &digest, &Credentials::Anonymous)
            .unwrap_err();
        assert!(blocked.why.as_ref().unwrap().contains("blocked"), "{blocked:?}");
    });
}

#[test]
fn root_reject_and_accept_need_no_signature() {
    isolated("trust::root_reject_and_accept_need_no_signature", &[], |machine| {
        let layout = machine.folder.join("image");
        let digest = write_image(&layout, "plain");
        let local = format!("oci:{layout}:1");
        machine.registries("");
        machine.policy(&format!("{{\"default\":{REJECT}}}"));
        let os = OsImage::from(image(&local));
        let requirement = Policy::load(&root_dir()).unwrap().requirement(&os.image).unwrap();
        assert_eq!(to_fault(&decide(&os, &requirement, true).unwrap_err()).kind, ExitKind::Refused);
        assert!(
            refusal(copy(machine, &local, &digest, &Credentials::Anonymous))
                .contains("is rejected by policy")
        );

        // What decision 3 is about: an old proxy opens what the policy rejects.
        let enforces = skopeo::probe().unwrap().enforces_policy();
        let opened = block_on(async {
            let proxy = skopeo::start_proxy(&Credentials::Anonymous, false, None).await.unwrap();
            let opened = proxy.open_image(&local).await.is_ok();
            proxy.finalize().await.unwrap();
            opened
        });
        assert_eq!(opened, !enforces);

        machine.policy(&format!("{{\"default\":{ANYTHING}}}"));
        copy(machine, &local, &digest, &Credentials::Anonymous).unwrap();
        machine.policy("{\"default\":[]}");
        assert!(
            refusal(copy(machine, &local, &digest, &Credentials::Anonymous)).contains("must not be empty")
        );
    });
}

/// A bcrypt hash of [`PASSWORD`], as the registry takes it.
const HTPASSWD: &str = "joe:$2y$05$abcdefghijklmnopqrstuu9Avu/WgbsK7g7xfCY1X3pdjsTgxqQLS\n";
const PASSWORD: &str = "s3cr3t";
/// `joe:s3cr3t` as an auth file has it.
const AUTH: &str = "am9lOnMzY3IzdA==";

#[test]
fn root_credentials_are_used_and_never_shown() {
    isolated("trust::root_credentials_are_used_and_never_shown", &[], |machine| {
        let registry = Registry::start(&machine.folder, Some(HTPASSWD));
        let layout = machine.folder.join("image");
        let digest = write_image(&layout, "private");
        let remote = format!("docker://{}/os:1", registry.host);
        machine.registries("");
        machine.policy(&format!("{{\"default\":{ANYTHING}}}"));
        let auth = |name: &str, auth: &str| {
            let content = format!("{{\"auths\":{{\"{}\":{{\"auth\":\"{auth}\"}}}}}}", registry.host);
            machine.dir.write(name, content).unwrap();
            machine.folder.join(name)
        };
        let good = auth("good.json", AUTH);
        run(Command::new("skopeo")
            .args([
                "--insecure-policy",
                "copy",
                "--quiet",
                "--preserve-digests",
                "--dest-tls-verify=false",
                "--authfile",
                good.as_str(),
            ])
            .args([format!("oci:{layout}:1"), remote.clone()]));
        // Root itself is logged in: that must not count.
        machine.dir.create_dir_all("home/.docker").unwrap();
        auth("home/.docker/config.json", AUTH);

        copy(machine, &remote, &digest, &Credentials::File(path(&good))).unwrap();
        let wrong = auth("wrong.json", "am9lOnMzY3IzdHg=");
        let elsewhere = machine.folder.join("elsewhere.json");
        machine
            .dir
            .write("elsewhere.json", format!("{{\"auths\":{{\"r.example\":{{\"auth\":\"{AUTH}\"}}}}}}"))
            .unwrap();
        for credentials in
            [Credentials::Anonymous, Credentials::File(path(&wrong)), Credentials::File(path(&elsewhere))]
        {
            let fault = copy(machine, &remote, &digest, &credentials).unwrap_err();
            assert_eq!(fault.kind, ExitKind::Failed, "{fault:?}");
            assert!(fault.next.as_deref().unwrap().contains("--authfile"), "{fault:?}");
            let text = format!("{fault:?}");
            assert!(!text.contains(PASSWORD) && !text.contains(AUTH), "{text}");
        }
    });
}

#[test]
fn root_a_cancelled_copy_ends_at_once() {
    isolated("trust::root_a_cancelled_copy_ends_at_once", &[], |machine| {
        machine.registries("");
        machine.policy(&format!("{{\"default\":{ANYTHING}}}"));
        // Takes the connection and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let image = image(&format!("docker://{}/os:1", silent.local_addr().unwrap()));
        let to = machine.folder.join("copied");
        let request = CopyRequest {
            image: &image,
            resolved: &Digest::of(b""),
            to: &to,
            credentials: &Credentials::Anonymous,
            insecure_skip_tls_verification: true,
        };
        let begun = std::time::Instant::now();
        let error = block_on(async {
            let cancel = CancellationToken::new();
            let copy = copy_verified(&request, &cancel, &Silent);
            let later = async {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                cancel.cancel();
            };
            tokio::join!(copy, later).0.unwrap_err()
        });
        assert!(to_fault(&error).what.contains("was cancelled"), "{error:?}");
        assert!(begun.elapsed().as_secs() < 3);
        let children = format!("/proc/self/task/{}/children", rustix::thread::gettid().as_raw_nonzero());
        assert_eq!(root_dir().read_to_string(children.trim_start_matches('/')).unwrap(), "");
    });
}

#[test]
fn root_a_missing_skopeo_names_its_package() {
    let wrapper = ["env", "PATH=/nonexistent"];
    isolated("trust::root_a_missing_skopeo_names_its_package", &wrapper, |machine| {
        let copied = copy(machine, "docker://r.example/os:1", &Digest::of(b""), &Credentials::Anonymous);
        for fault in [to_fault(&skopeo::probe().unwrap_err()), copied.unwrap_err()] {
            assert_eq!(fault.kind, ExitKind::Failed);
            assert_eq!(fault.next.as_deref(), Some("install the package skopeo"), "{fault:?}");
        }
    });
}

/// Everything that the whole chain opens, seen by strace from outside the namespace's test.
#[test]
fn root_nothing_in_a_home_is_opened() {
    const NAME: &str = "trust::root_nothing_in_a_home_is_opened";
    let keep = fixture::tempdir();
    let trace = fixture::utf8(keep.path()).join("trace").into_string();
    let wrapper = ["strace", "-f", "-qq", "-e", "trace=%file", "-o", &trace];
    isolated(NAME, &wrapper, |machine| {
        machine.registries("");
        machine.policy(&format!("{{\"default\":{ANYTHING}}}"));
        let registry = Registry::start(&machine.folder, None);
        let layout = machine.folder.join("image");
        let digest = write_image(&layout, "home");
        let remote = format!("docker://{}/os:1", registry.host);
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false", "--dest-no-creds"])
            .args([format!("oci:{layout}:1"), remote.clone()])
            .env("HOME", "/proc/nonexistent"));
        machine.dir.write("auth.json", "{\"auths\":{\"r.example\":{\"auth\":\"eDp5\"}}}").unwrap();
        for credentials in
            [Credentials::Anonymous, Credentials::File(path(&machine.folder.join("auth.json")))]
        {
            copy(machine, &remote, &digest, &credentials).unwrap();
            block_on(async {
                let proxy = skopeo::start_proxy(&credentials, true, None).await.unwrap();
                let opened = proxy.open_image(&remote).await.unwrap();
                proxy.fetch_manifest(&opened).await.unwrap();
                proxy.finalize().await.unwrap();
            });
        }
        skopeo::probe().unwrap();
    });
    let dir = cap_std::fs::Dir::open_ambient_dir(keep.path(), cap_std::ambient_authority()).unwrap();
    // The second run of this test, in the namespace, has nothing to look at.
    let Ok(trace) = dir.read_to_string("trace") else { return };
    assert!(trace.contains("/etc/containers/policy.json"), "the trace has nothing of skopeo");
    // The one home that skopeo knows of cannot exist.
    let per_user =
        ["/home/", "/.config/", "/.docker", "/.local/", "/.gnupg", "/run/user/", "/containers/auth.json"];
    let homely = trace.lines().filter(|line| {
        // The test harness asks for colours.
        let mut paths = line
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|path| !path.starts_with("/proc/nonexistent/") && !path.ends_with("/.terminfo"));
        paths.any(|path| per_user.iter().any(|part| path.contains(part)))
    });
    assert_eq!(homely.collect::<Vec<_>>(), Vec::<&str>::new());
}
