//! Hosts made by hand, for the tests of what is shown.

use crate::model::digest::Digest;
use crate::model::hold::Hold;
use crate::model::image_ref::OsImage;
use crate::model::status::{DeploymentName, DeploymentStatus, HostStatus, PreparedStatus, STATUS_VERSION};

fn image(text: &str) -> OsImage {
    text.parse().unwrap()
}

fn deployment(index: usize, digit: char, serial: u32) -> DeploymentStatus {
    DeploymentStatus {
        index,
        name: DeploymentName { checksum: digit.to_string().repeat(64), serial },
        stateroot: "debian".to_owned(),
        booted: false,
        staged: false,
        rollback: false,
        pinned: false,
        kept: false,
        image: Some(image("ostree-unverified-registry:registry.example/os:12")),
        digest: Some(Digest::of(&[digit as u8])),
        asked_digest: None,
        image_commit: Some(digit.to_string().repeat(64)),
        version: Some(format!("12.{index}")),
        timestamp: 1_796_079_000,
        kernel_arguments: "root=LABEL=root rw console=ttyS0".to_owned(),
        id: None,
        other_origin: None,
        state: None,
        cause: None,
        config: None,
    }
}

/// A staged deployment, the booted one, the one before, all of images; two of the same commit.
pub(crate) fn staged_over_booted() -> HostStatus {
    let mut staged = deployment(0, '1', 0);
    staged.staged = true;
    staged.asked_digest = Some(Digest::of(b"index"));
    staged.image_commit = Some("c".repeat(64));
    staged.kernel_arguments.push_str(" mitigations=\"auto,nosmt\"");
    staged.id = Some("0f5b2c".to_owned());
    let mut booted = deployment(1, '2', 0);
    booted.booted = true;
    booted.kept = true;
    let mut before = deployment(2, '2', 1);
    before.rollback = true;
    before.pinned = true;
    host(vec![staged, booted, before])
}

/// A boot image that never pivoted, a prepared change, and things to know.
pub(crate) fn prepared_with_notices() -> HostStatus {
    let mut booted = deployment(0, '3', 0);
    booted.booted = true;
    booted.image = None;
    booted.digest = None;
    booted.version = None;
    booted.other_origin = Some("debian/12/x86_64".to_owned());
    let prepared = PreparedStatus {
        id: "7be1d0".to_owned(),
        image: Some(image("ostree-unverified-registry:registry.example/os:13")),
        digest: Some(Digest::of(b"13")),
        kernel_arguments: "root=LABEL=root rw".to_owned(),
        committed: false,
        config: None,
    };
    HostStatus {
        prepared: Some(prepared),
        hold: Some(Hold { why: "disk swap".to_owned(), until: Some(1_796_130_000) }),
        notices: vec![
            "the staged deployment of 2026-11-30 was lost with the power; it was staged again".to_owned(),
        ],
        ..host(vec![booted])
    }
}

/// A sysroot that was only initialised.
pub(crate) fn nothing_deployed() -> HostStatus {
    HostStatus { sysroot: "/sysroot".into(), ..host(Vec::new()) }
}

fn host(deployments: Vec<DeploymentStatus>) -> HostStatus {
    HostStatus {
        version: STATUS_VERSION,
        sysroot: "/".into(),
        deployments,
        prepared: None,
        went_back: None,
        health: None,
        hold: None,
        notices: Vec::new(),
    }
}
