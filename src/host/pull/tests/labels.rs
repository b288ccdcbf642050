//! SELinux labels, by a policy made by hand: libostree reads its file contexts, not its rules.

use super::*;

const CONFIG: &str = "SELINUX=enforcing\nSELINUXTYPE=test\n";
const CONTEXTS: &str = "usr/etc/selinux/test/contexts/files/file_contexts";

fn contexts(of_lib: &str) -> String {
    format!(
        "/.*\tsystem_u:object_r:default_t:s0\n\
         /etc(/.*)?\tsystem_u:object_r:etc_t:s0\n\
         /etc/shadow\t--\tsystem_u:object_r:shadow_t:s0\n\
         /usr(/.*)?\tsystem_u:object_r:usr_t:s0\n\
         /usr/lib/fixture(/.*)?\tsystem_u:object_r:{of_lib}:s0\n"
    )
}

/// In a commit; without the first four letters, in an image.
fn policy(of_lib: &str) -> Vec<Entry> {
    vec![
        Entry::file("usr/etc/selinux/config", CONFIG),
        Entry::file(CONTEXTS, contexts(of_lib)),
        Entry::file("usr/etc/selinux/test/policy/policy.33", "a policy of no rules"),
    ]
}

fn in_image(entries: Vec<Entry>) -> Vec<Entry> {
    let strip = |mut entry: Entry| {
        entry.path = entry.path.strip_prefix(b"usr/").unwrap().to_vec();
        entry
    };
    entries.into_iter().map(strip).collect()
}

fn label(listing: &str, path: &str) -> Option<String> {
    let line = listing
        .lines()
        .find(|line| line.ends_with(&format!(" {path}")) || line.contains(&format!(" {path} -> ")))
        .unwrap_or_else(|| panic!("no {path} in\n{listing}"));
    let (_, rest) = line.split_once("object_r:")?;
    Some(rest.split(':').next().unwrap().to_owned())
}

fn with_policy(scene: &Scene) -> Image {
    let tree = policy("lib_t").into_iter().fold(Tree::v1(), Tree::with);
    let commit = tree.commit(&scene.source, "fixture/policy").unwrap();
    Image::of(&scene.source, &commit)
}

#[test]
fn root_derived_layers_get_the_labels_of_the_base() {
    let scene = Scene::new();
    let written = scene.write(
        with_policy(&scene).derived(vec![
            Entry::file("etc/new.conf", "x"),
            Entry::file("etc/shadow", "x"),
            Entry::dir("usr/lib/fixture/new"),
            Entry::symlink("usr/lib/fixture/new/link", "x"),
            Entry::file("usr/lib/other", "x").xattr("security.selinux", "builder_t\0"),
        ]),
        "derived",
    );
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    let listing = scene.listing("repo", &pulled.commit);
    for (path, wanted) in [
        ("/usr/etc/new.conf", Some("etc_t")),
        ("/usr/etc/shadow", Some("shadow_t")),
        ("/usr/lib/fixture/new", Some("lib_t")),
        ("/usr/lib/fixture/new/link", Some("lib_t")),
        ("/usr/lib/other", Some("usr_t")),
        // The base's own are its builder's business.
        ("/usr/lib/fixture/tool", None),
    ] {
        assert_eq!(label(&listing, path).as_deref(), wanted, "{path}");
    }
}

#[test]
fn root_a_layer_that_changes_the_policy_relabels_what_it_must() {
    let scene = Scene::new();
    let before = scene.write(with_policy(&scene).derived(in_image(policy("other_t"))), "changed");
    let (first, _) = scene.pull(&before.reference()).unwrap();
    let listing = scene.listing("repo", &first.commit);
    for (path, wanted) in [
        ("/usr/lib/fixture/tool", "other_t"),
        ("/usr/lib/fixture/link", "other_t"),
        ("/usr/lib/fixture/empty-folder", "other_t"),
        ("/usr/etc/shadow", "shadow_t"),
        ("/usr/etc", "etc_t"),
        ("/usr/lib/os-release", "usr_t"),
        ("/usr/bin", "usr_t"),
    ] {
        assert_eq!(label(&listing, path).as_deref(), Some(wanted), "{path}");
    }
    // All else about the files is as it was.
    let bare = |listing: &str| -> Vec<String> {
        let lines =
            listing.lines().filter(|line| !line.contains("selinux/") && line.contains("/usr/lib/fixture"));
        let kept = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {} {} {} {}", words[0], words[1], words[2], words[3], words.last().unwrap())
        };
        lines.map(kept).collect()
    };
    assert_eq!(bare(&listing), bare(&scene.listing("source", "fixture/policy")));
    let ping = listing.lines().find(|line| line.ends_with("/usr/lib/fixture/ping")).unwrap();
    assert!(ping.contains("security.capability") && ping.contains("other_t"), "{ping}");
}

#[test]
fn root_a_plain_image_is_labelled_by_its_own_policy() {
    let scene = Scene::new();
    let mut entries = in_image(policy("lib_t"));
    entries.extend([
        Entry::file("usr/lib/modules/6.1/vmlinuz", "kernel"),
        Entry::file("etc/shadow", "x"),
        Entry::symlink("bin", "usr/bin"),
        Entry::dir("usr/lib/fixture"),
        Entry::file("usr/lib/fixture/x", "x"),
    ]);
    let written = scene.write(Image::plain(entries), "plain");
    let (pulled, _) = scene.pull(&written.reference()).unwrap();
    let listing = scene.listing("repo", &pulled.commit);
    for (path, wanted) in [
        ("/usr/lib/modules/6.1/vmlinuz", "usr_t"),
        ("/usr/etc/shadow", "shadow_t"),
        ("/usr/etc/selinux/config", "etc_t"),
        ("/usr/lib/fixture/x", "lib_t"),
        ("/bin", "default_t"),
        ("/sysroot", "default_t"),
    ] {
        assert_eq!(label(&listing, path).as_deref(), Some(wanted), "{path}");
    }
}
