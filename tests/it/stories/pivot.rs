//! Moving an installed host to images, and back.

use mcd_test_support::fake_registry::FakeRegistry;
use mcd_test_support::tree::{KERNEL, Tree};

use super::Host;

#[test]
fn root_a_pivot_from_an_oci_directory_switches_the_next_boot() {
    let host = Host::new();
    let image = host.v2();
    let installed = host.sysroot.next_boot().unwrap();
    host.mcd(&["pivot", &image.reference()]).ok();

    assert_eq!(host.next_version(), "2");
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet");
    // The kernel's files are what the image has, and a boot loader finds them.
    let entry = host.sysroot.next_boot().unwrap();
    assert!(host.sysroot.path().join("boot").join(entry.linux.trim_start_matches('/')).exists(), "{entry:?}");
    assert!(entry.deployment.join("usr/lib/modules").join(KERNEL).join("vmlinuz").exists());
    // What was installed is still there to go back to.
    assert_eq!(host.sysroot.deployments().unwrap()[1..], [installed.deployment_name()]);
    let origin = host.sysroot.origin(&entry.deployment_name()).unwrap();
    let reference = format!("container-image-reference=ostree-unverified-image:{}", image.reference());
    assert!(origin.lines().any(|line| line == reference), "{origin}");
    let refs = host.sysroot.refs().unwrap();
    assert!(refs.keys().any(|name| name.starts_with("ostree/container/image/oci_3A_")), "{refs:?}");
    assert_eq!(
        refs.keys().filter(|name| name.starts_with("ostree/container/blob/")).count(),
        image.layers.len()
    );
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_the_status_names_image_digest_version_and_arguments() {
    let host = Host::new();
    let image = host.v2();
    host.mcd(&["pivot", &image.reference(), "--karg-append", "mitigations=auto"]).ok();
    let status = host.status();
    assert_eq!(status["version"], 1);
    let next = &status["deployments"][0];
    assert_eq!(next["digest"], image.digest.as_str());
    assert_eq!(next["version"], "2");
    assert_eq!(next["kernel_arguments"], "root=LABEL=root quiet mitigations=auto");
    assert_eq!(next["booted"], false);
    assert_eq!(status["deployments"][1]["rollback"], true);
    let page = host.mcd(&["status"]).ok().stdout;
    for part in [image.digest.as_str(), "mitigations=auto", "oci:"] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}

#[test]
fn root_nothing_to_do_is_said_and_changes_nothing() {
    let host = Host::new();
    let image = host.v2();
    host.mcd(&["pivot", &image.reference()]).ok();
    let before = host.switchable();
    host.mcd(&["pivot", &image.reference()]).ok();
    host.mcd(&["pivot", &image.reference(), "--unchanged-exit-77"]).fails(77, &[]);
    // An argument that is there already is nothing to do either; deleting what is not there too.
    host.mcd(&["pivot", &image.reference(), "--karg-delete", "absent", "--unchanged-exit-77"]).fails(77, &[]);
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_nothing_to_do_by_digest_asks_no_network() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let by_digest = server.image(&format!("os@{}", image.digest));
    host.mcd(&["pivot", &by_digest, "--insecure-skip-tls-verification"]).ok();
    server.forget();
    // The fastest of ten: the other tests keep the processors busy, and nothing makes it too fast.
    let took = (0..10).map(|_| {
        let began = std::time::Instant::now();
        host.mcd(&["pivot", &by_digest, "--unchanged-exit-77"]).fails(77, &[]);
        began.elapsed()
    });
    let took = took.min().unwrap();
    assert!(took < std::time::Duration::from_millis(100), "nothing to do took {took:?}");
    assert_eq!(server.requests(), []);
    // A tag must be resolved, but then nothing is fetched.
    let by_tag = server.image("os:v2");
    host.mcd(&["pivot", &by_tag, "--insecure-skip-tls-verification", "--unchanged-exit-77"]).fails(77, &[]);
    assert!(server.requests().iter().any(|request| request.path.contains("/manifests/v2")));
    let layers: Vec<_> = image.layers.iter().map(|layer| layer.digest.as_str()).collect();
    assert!(
        !server.requests().iter().any(|request| layers.iter().any(|digest| request.path.ends_with(digest)))
    );
}

#[test]
fn root_kernel_arguments_switch_with_the_image() {
    let host = Host::new();
    let image = host.v2().reference();
    let arguments = ["pivot", &image, "--karg-delete", "quiet", "--karg-append", "console=tty0"];
    host.mcd(
        &[&arguments[..], &["--karg-append", "console=ttyS0,115200", "--karg-append", "opt=\"a b\""]]
            .concat(),
    )
    .ok();
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root console=tty0 console=ttyS0,115200 opt=\"a b\"");

    // Arguments alone are a change too: of the same image, as a deployment of its own.
    let before = host.sysroot.next_boot().unwrap();
    host.mcd(&["pivot", &image, "--karg-replace", "console=tty0=tty1", "--karg-delete", "opt"]).ok();
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root console=tty1 console=ttyS0,115200");
    let after = host.sysroot.next_boot().unwrap();
    assert_ne!(after.deployment, before.deployment);
    assert_eq!(host.sysroot.deployments().unwrap()[1], before.deployment_name());

    // By key: both.
    host.mcd(&["pivot", "--karg-delete", "console"]).ok();
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root");
}

#[test]
fn root_an_argument_that_only_starts_alike_is_another_one() {
    let host = Host::new();
    let image = host.v2().reference();
    host.mcd(&["pivot", &image, "--karg-append", "nosmt=force"]).ok();
    host.mcd(&["pivot", &image, "--karg-delete", "nosmt=off", "--unchanged-exit-77"]).fails(77, &[]);
    host.mcd(&["pivot", &image, "--karg-append", "nosmt"]).ok();
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet nosmt=force nosmt");
}

#[test]
fn root_a_rollback_brings_image_and_arguments_back() {
    let host = Host::new();
    let installed = host.sysroot.next_boot().unwrap();
    host.mcd(&["pivot", &host.v2().reference(), "--karg-append", "mitigations=auto"]).ok();
    host.mcd(&["rollback"]).ok();
    assert_eq!(host.next_version(), "1");
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet");
    assert_eq!(host.sysroot.next_boot().unwrap().deployment_name(), installed.deployment_name());
    // And forward again, as a person changes their mind.
    host.mcd(&["rollback"]).ok();
    assert_eq!(host.next_version(), "2");
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet mitigations=auto");
    host.sysroot.fsck().unwrap();
}

#[test]
fn root_a_rollback_says_what_of_etc_goes_back() {
    let host = Host::new();
    host.mcd(&["pivot", &host.v2().reference()]).ok();
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::create_dir_all(etc.join("kubernetes")).unwrap();
    std::fs::write(etc.join("kubernetes/kubeconfig"), "renewed\n").unwrap();
    let before = host.switchable();
    let said = host.mcd(&["rollback", "--dry-run"]).ok();
    assert!(format!("{}{}", said.stdout, said.stderr).contains("kubeconfig"), "{said}");
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_local_edits_of_etc_are_merged() {
    let host = Host::new();
    let etc = host.sysroot.next_boot().unwrap().deployment.join("etc");
    std::fs::write(etc.join("hosts"), "127.0.0.1 edited\n").unwrap();
    std::fs::write(etc.join("mine"), "mine\n").unwrap();
    host.mcd(&["pivot", &host.v2().reference()]).ok();
    assert_eq!(host.next_file("etc/hosts").unwrap(), "127.0.0.1 edited\n");
    assert_eq!(host.next_file("etc/mine").unwrap(), "mine\n");
    // Unchanged here, changed there: the image's new default.
    assert_eq!(host.next_file("etc/fixture.conf").unwrap(), "level = 2\n");
    assert_eq!(host.next_file("etc/new-in-2.conf").unwrap(), "new\n");
}

#[test]
fn root_a_dry_run_prints_the_plan_and_changes_nothing() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let before = (host.switchable(), host.sysroot.refs().unwrap());
    let name = server.image("os:v2");
    let insecure = "--insecure-skip-tls-verification";
    let plan = host.mcd(&["pivot", &name, "--karg-append", "a=b", "--dry-run", insecure]).ok();
    for part in [name.as_str(), "a=b"] {
        assert!(plan.stdout.contains(part), "{part}\n{plan}");
    }
    let plan = host.mcd(&["pivot", &name, "--dry-run", "--json", insecure]).ok();
    assert!(
        plan.stdout.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
        "{plan}"
    );
    assert_eq!((host.switchable(), host.sysroot.refs().unwrap()), before);
    // Manifest and config, no layer.
    assert!(server.blobs_served() <= 3, "{:?}", server.requests());
}

#[test]
fn root_prepared_now_committed_later_without_network() {
    let host = Host::new();
    let image = host.v2();
    let server = FakeRegistry::serve(&image.dir, vec![]).unwrap();
    let before = host.switchable();
    let insecure = "--insecure-skip-tls-verification";
    host.mcd(&["pivot", &server.image("os:v2"), "--karg-append", "a=b", "--until", "prepared", insecure])
        .ok();
    assert_eq!(host.switchable(), before);
    let prepared = host.status()["prepared"].clone();
    assert_eq!(prepared["digest"], image.digest.as_str());
    host.mcd(&["pivot", "--resume=another"]).fails(3, &["another"]);
    drop(server);
    host.mcd(&["pivot", &format!("--resume={}", prepared["id"].as_str().unwrap())]).ok();
    assert_eq!(host.next_version(), "2");
    assert_eq!(host.next_kernel_arguments(), "root=LABEL=root quiet a=b");
}

#[test]
fn root_what_was_overtaken_is_not_resumed() {
    let host = Host::new();
    let v2 = host.v2();
    let v3 = host.write(host.image_of(&Tree::v3()), "v3");
    host.mcd(&["pivot", &v2.reference(), "--until", "prepared"]).ok();
    let id = host.status()["prepared"]["id"].as_str().unwrap().to_owned();
    host.mcd(&["pivot", &v3.reference()]).ok();
    host.mcd(&["pivot", &format!("--resume={id}")]).fails(3, &[]);
    assert_eq!(host.next_version(), "3");
}
