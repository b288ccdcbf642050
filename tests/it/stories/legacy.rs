//! Legacy oscontainers: from them, to them, and what status says.

use mcd_test_support::image::Image;
use mcd_test_support::tree::Tree;

use super::Host;

#[test]
fn root_a_host_moves_between_legacy_and_native_images() {
    let host = Host::new();
    Tree::v2().commit(&host.repo, "fixture/legacy").unwrap();
    let legacy = host.write(Image::legacy(&host.repo, &["fixture/legacy"]).unwrap(), "legacy");
    let native = host.write(host.image_of(&Tree::v3()), "native");

    for (image, version) in [(&legacy, "2"), (&native, "3"), (&legacy, "2")] {
        host.mcd(&["pivot", &image.reference()]).ok();
        assert_eq!(host.next_version(), version);
        let status = host.status();
        let next = &status["deployments"][0];
        assert_eq!(next["digest"], image.digest.as_str(), "{status}");
        assert_eq!(next["version"], version, "{status}");
        assert!(next["image"].as_str().unwrap().contains(&image.reference()), "{status}");
        host.mcd(&["pivot", &image.reference(), "--unchanged-exit-77"]).fails(77, &[]);
        host.sysroot.fsck().unwrap();
    }
    host.mcd(&["cleanup"]).ok();
    host.sysroot.fsck().unwrap();
    host.mcd(&["pivot", &legacy.reference(), "--unchanged-exit-77"]).fails(77, &[]);
}
