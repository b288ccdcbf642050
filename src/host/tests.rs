//! The host's effects on real sysroots, as root. Each test makes a sysroot of its own.

// Tests look at the host by plain paths, from outside.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod booted;
mod cleanup;
mod unbooted;

use std::path::Path;

use camino::Utf8Path;
use mcd_test_support::sysroot::Sysroot;
use mcd_test_support::tree::{Tree, create_repo};

use super::{DeployRequest, Deployed, Host, HostLocked, Wait, now};
use crate::error::to_fault;
use crate::model::digest::Digest;
use crate::model::records::{Intent, IntentState, RECORD_VERSION};
use crate::model::status::DeploymentName;

const ARGUMENTS: [&str; 3] = ["root=UUID=0a1b", "rw", "console=ttyS0,115200n8"];

/// A host after its installation: version 1, from a plain OSTree remote.
fn installed() -> Sysroot {
    let sysroot = Sysroot::empty().unwrap();
    let source = create_repo(&sysroot.scratch().join("source"), ostree::RepoMode::BareUser).unwrap();
    let commit = Tree::v1().commit(&source, "fixture/installed").unwrap();
    sysroot.deploy(&source, &commit, &ARGUMENTS).unwrap();
    sysroot
}

fn open(sysroot: &Sysroot) -> Host {
    Host::open(Some(Utf8Path::from_path(sysroot.path()).unwrap())).unwrap()
}

fn commit(sysroot: &Sysroot, tree: &Tree, name: &str) -> String {
    tree.commit(&sysroot.repo().unwrap(), &format!("test/{name}")).unwrap()
}

fn name(text: &str) -> DeploymentName {
    text.parse().unwrap()
}

fn intent(id: &str, commit: &str) -> Intent {
    Intent {
        version: RECORD_VERSION,
        id: id.to_owned(),
        state: IntentState::Committed,
        asked: Some(format!("ostree-unverified-registry:host.example/os:{id}").parse().unwrap()),
        digest: Some(Digest::of(id.as_bytes())),
        asked_digest: None,
        image_commit: commit.to_owned(),
        commit: commit.to_owned(),
        kernel_arguments: format!("{} mcd.id={id}", ARGUMENTS.join(" ")),
        base: None,
        request_digest: None,
        reboot: false,
        kept_image: None,
        config: None,
        live: false,
        restaged: 0,
        who: "a test".to_owned(),
        when: now(),
        extra: serde_json::Map::new(),
    }
}

/// Prepares and commits, as the pipeline does.
fn carry_out(locked: &HostLocked<'_>, intent: &Intent) -> Deployed {
    locked.prepare(intent).unwrap();
    locked.deploy(&DeployRequest::from(intent)).unwrap()
}

fn lock(host: &Host) -> HostLocked<'_> {
    host.lock(Wait::No).unwrap()
}

/// The three lines that a person sees.
fn lines<T: std::fmt::Debug>(result: anyhow::Result<T>) -> String {
    let fault = to_fault(&result.unwrap_err());
    format!("{} | {} | {}", fault.what, fault.why.unwrap_or_default(), fault.next.unwrap_or_default())
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}
