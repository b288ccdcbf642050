//! What stays and what goes: pins, cleanup, cancelled changes, the history.

use mcd_test_support::tree::Tree;

use super::Host;

#[test]
fn root_a_pinned_deployment_stays_until_it_is_unpinned() {
    let host = Host::new();
    let installed = host.sysroot.next_boot().unwrap().deployment_name();
    host.mcd(&["pin", &installed]).ok();
    assert_eq!(host.status()["deployments"][0]["pinned"], true);
    for (tree, tag) in [(Tree::v2(), "v2"), (Tree::v3(), "v3"), (Tree::v1(), "v1")] {
        let image = host.write(host.image_of(&tree), tag);
        host.mcd(&["pivot", &image.reference()]).ok();
    }
    host.mcd(&["cleanup"]).ok();
    assert!(host.sysroot.deployments().unwrap().contains(&installed));
    host.mcd(&["unpin", &installed]).ok();
    assert!(
        host.status()["deployments"]
            .as_array()
            .unwrap()
            .iter()
            .all(|deployment| deployment["pinned"] == false)
    );
    host.mcd(&["pin", "nothing-such"]).fails(2, &["nothing-such"]);
}

#[test]
fn root_an_unpulled_image_is_cleaned_up_and_what_is_deployed_stays() {
    let host = Host::new();
    let v2 = host.v2();
    let v3 = host.write(host.image_of(&Tree::v3()), "v3");
    host.mcd(&["pull", &v3.reference()]).ok();
    host.mcd(&["pivot", &v2.reference()]).ok();
    let before = host.switchable();
    // The newest pull is kept: somebody fetched it for later. An older one is not.
    host.mcd(&["pull", &v2.reference()]).ok();
    let dry = host.mcd(&["cleanup", "--dry-run"]).ok();
    assert!(!format!("{}{}", dry.stdout, dry.stderr).is_empty());
    host.mcd(&["cleanup"]).ok();
    assert_eq!(host.switchable(), before);
    host.sysroot.fsck().unwrap();
    let refs = host.sysroot.refs().unwrap();
    for layer in &v2.layers {
        let name = format!("ostree/container/blob/{}", layer.digest.replace(':', "_3A_"));
        assert!(refs.contains_key(&name), "{name} of a deployed image went");
    }
    let only_in_v3 =
        v3.layers.iter().filter(|layer| !v2.layers.iter().any(|other| other.digest == layer.digest));
    for layer in only_in_v3 {
        let name = format!("ostree/container/blob/{}", layer.digest.replace(':', "_3A_"));
        assert!(!refs.contains_key(&name), "{name} of an image that nothing needs stayed");
    }
}

#[test]
fn root_a_cancelled_change_is_gone() {
    let host = Host::new();
    let before = host.switchable();
    host.mcd(&["pivot", &host.v2().reference(), "--until", "prepared"]).ok();
    assert!(host.status()["prepared"].is_object());
    host.mcd(&["cancel"]).ok();
    assert!(host.status()["prepared"].is_null());
    host.mcd(&["pivot", "--resume"]).fails(3, &[]);
    assert_eq!(host.switchable(), before);
}

#[test]
fn root_the_history_tells_who_did_what() {
    let host = Host::new();
    host.mcd(&["pivot", &host.v2().reference()]).ok();
    host.mcd(&["rollback"]).ok();
    let history = host.mcd(&["history", "--json"]).ok();
    assert!(history.stdout.contains("oci:"), "{history}");
    let page = host.mcd(&["history"]).ok();
    for word in ["pivot", "rollback"] {
        assert!(page.stdout.contains(word), "{word}\n{page}");
    }
    let newest = host.mcd(&["history", "-n", "1"]).ok();
    assert!(newest.stdout.contains("rollback") && newest.stdout.len() < page.stdout.len(), "{newest}");
}
