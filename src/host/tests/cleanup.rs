//! What a cleanup takes and what it leaves.

use mcd_test_support::tree::Tree;
use ostree::gio;
use ostree::glib::prelude::*;

use super::*;
use crate::host::{Freed, PruneOptions, Pruned};
use crate::model::repo_refs::{blob_ref, image_ref};

fn layer(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

/// An image of these layers, as an importer leaves it.
fn pulled(sysroot: &Sysroot, tree: &Tree, name: &str, layers: &[&str]) -> String {
    let list: Vec<_> =
        layers.iter().map(|one| format!(r#"{{"digest":"{}","size":1}}"#, layer(one))).collect();
    let manifest = format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, list.join(","));
    let tree = tree
        .clone()
        .metadata("ostree.manifest", manifest.to_variant())
        .metadata("ostree.manifest-digest", Digest::of(manifest.as_bytes()).to_string().to_variant());
    let repo = sysroot.repo().unwrap();
    let commit = tree.commit(&repo, "test/tmp").unwrap();
    let set = |name: &str, to: Option<&str>| {
        repo.set_ref_immediate(None, name, to, gio::Cancellable::NONE).unwrap()
    };
    set("test/tmp", None);
    set(&image_ref(&format!("docker://host.example/os:{name}").parse().unwrap()), Some(&commit));
    for one in layers {
        set(&blob_ref(&layer(one)), Some(&commit));
    }
    // Which pull is the newest goes by time stamps.
    std::thread::sleep(std::time::Duration::from_millis(20));
    commit
}

fn prune(host: &Host, dry_run: bool) -> Pruned {
    host.prune(&PruneOptions { dry_run, idle: true, leftovers: &|_, _| Ok(5) }).unwrap()
}

fn done(pruned: Pruned) -> Freed {
    match pruned {
        Pruned::Done(freed) => freed,
        Pruned::PutOff { holder } => panic!("put off by {holder}"),
    }
}

#[test]
fn root_keeps_what_a_deployment_a_change_or_the_newest_pull_needs() {
    let sysroot = installed();
    let host = open(&sysroot);
    let deployed = pulled(&sysroot, &Tree::v2(), "deployed", &["base", "two"]);
    let prepared = pulled(&sysroot, &Tree::v3(), "prepared", &["base", "three"]);
    pulled(&sysroot, &Tree::v3().version("old"), "old", &["base", "old"]);
    pulled(&sysroot, &Tree::v3().version("new"), "new", &["base", "new"]);
    carry_out(&lock(&host), &intent("one", &deployed));
    lock(&host).prepare(&intent("two", &prepared)).unwrap();
    lock(&host).set_keep_ref("forgotten", &deployed).unwrap();

    let would = done(prune(&host, true));
    assert!(sysroot.refs().unwrap().contains_key("mcd/keep/forgotten"), "a dry run changes nothing");
    let went = done(prune(&host, false));
    assert_eq!(went, would, "a dry run tells what will be");
    assert_eq!((went.images.len(), went.layers, went.changes), (1, 1, 1), "{went:?}");
    assert!(went.objects > 0 && went.bytes > 5, "{went:?}");

    let refs = sysroot.refs().unwrap();
    let has = |name: &str| refs.contains_key(&blob_ref(&layer(name)));
    assert_eq!(["base", "two", "three", "old", "new"].map(has), [true, true, true, false, true]);
    assert!(refs.contains_key("mcd/keep/two") && !refs.contains_key("mcd/keep/forgotten"));
    sysroot.fsck().unwrap();
    let again = done(prune(&host, false));
    assert_eq!(again, Freed { bytes: 5, ..Freed::default() });
}

#[test]
fn root_folders_of_dropped_deployments_go() {
    let sysroot = installed();
    let host = open(&sysroot);
    for (id, tree) in [("two", Tree::v2()), ("three", Tree::v3()), ("four", Tree::v2().version("4"))] {
        carry_out(&lock(&host), &intent(id, &commit(&sysroot, &tree, id)));
    }
    let folders = || std::fs::read_dir(sysroot.deployment("x").parent().unwrap()).unwrap().count() / 2;
    assert_eq!((folders(), sysroot.deployments().unwrap().len()), (4, 3));
    done(prune(&host, false));
    assert_eq!(folders(), 3);
}

#[test]
fn root_a_running_pull_or_change_puts_it_off() {
    let sysroot = installed();
    let host = open(&sysroot);
    let repo = sysroot.repo().unwrap();
    let transaction = repo.auto_transaction(gio::Cancellable::NONE).unwrap();
    let Pruned::PutOff { holder } = prune(&host, false) else { panic!("pruned under a pull") };
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    drop(transaction);
    drop(repo);
    let held = lock(&host);
    assert!(matches!(prune(&host, false), Pruned::PutOff { .. }));
    drop(held);
    done(prune(&host, false));
}

#[test]
fn root_an_unreadable_manifest_stops_it() {
    let sysroot = installed();
    let host = open(&sysroot);
    pulled(&sysroot, &Tree::v3().version("old"), "old", &["old"]);
    let bad = Tree::v2().metadata("ostree.manifest", "{}".to_variant());
    carry_out(&lock(&host), &intent("bad", &commit(&sysroot, &bad, "bad")));
    let refused = host.prune(&PruneOptions { dry_run: false, idle: false, leftovers: &|_, _| Ok(0) });
    assert!(format!("{:#}", refused.unwrap_err()).contains("Reading the manifest"));
    assert!(sysroot.refs().unwrap().contains_key(&blob_ref(&layer("old"))));
}
