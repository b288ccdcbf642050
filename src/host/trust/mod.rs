//! May this image become the operating system, and with whose credentials is it fetched?
//!
//! Two things vouch for an image: `containers-policy.json(5)`, always, and what its reference asks
//! for beside that ([`Verification`]). Who checks the policy depends on skopeo:
//!
//! * Its proxy enforces the policy from protocol 0.2.6 on (skopeo 1.13). Then it is the judge.
//! * An older proxy (Debian 12's 1.9.3) reads the policy and ignores it. Then [`policy`] decides
//!   what needs no cryptography (accept anything, reject), and every scope that asks for a signature
//!   goes through `skopeo copy`, which does enforce it ([`signed`]).
//!
//! Signatures themselves are never checked here: keys, lookaside servers (`registries.d(5)`) and
//! identities are skopeo's job. So are mirrors and certificates; [`registries`] reads
//! `registries.conf(5)` only to name the mirrors in an error message.
//!
//! Nothing below this module reads root's home, and neither does a skopeo that it starts.

pub mod credentials;
pub mod policy;
pub mod registries;
mod scope;
pub mod signed;
pub mod skopeo;

use std::fs::File;
use std::io::{self, Read};

use anyhow::Result;
use cap_std::fs::Dir;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::error::Fault;
use crate::model::image_ref::{OsImage, Transport, Verification};

pub use crate::model::redact::redact;
pub use credentials::Credentials;
pub use policy::{Demand, Policy, Requirement};

/// How an image that may be used has to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Through the proxy: no signature is asked for, or the proxy checks it.
    Accept,
    /// Through `skopeo copy`: a signature is asked for and the proxy would not check it.
    CopyVerified,
}

/// Whether an image may be used at all, and how it is fetched then.
///
/// `proxy_enforces` is [`skopeo::SkopeoVersion::enforces_policy`]. A reject or a missing demand for
/// signatures is refused here even when the proxy would refuse it too: before any network, and with
/// the scope that said it.
pub fn decide(image: &OsImage, requirement: &Requirement, proxy_enforces: bool) -> Result<Trust> {
    let Requirement { file, scope, demand, laxest, .. } = requirement;
    if *laxest == Demand::AcceptAnything && image.verification == Verification::Signed {
        return Err(unsigned_fault(image, requirement).into());
    }
    match demand {
        Demand::Reject => Err(Fault::refused(format!("image {image} is rejected by the signature policy"))
            .why(format!("{file}: {scope} says \"reject\""))
            .next(format!(
                "allow the image in {file}, in a scope as narrow as possible, if it is to be trusted"
            ))
            .into()),
        Demand::Signed if !proxy_enforces && image.image.transport == Transport::ContainersStorage => {
            Err(uncopied_fault(image, requirement).into())
        }
        Demand::Signed if !proxy_enforces => Ok(Trust::CopyVerified),
        Demand::Signed | Demand::AcceptAnything => Ok(Trust::Accept),
    }
}

/// What to tell when a signature is wanted and the policy would not ask for one.
fn unsigned_fault(image: &OsImage, requirement: &Requirement) -> Fault {
    let Requirement { file, scope, demand, .. } = requirement;
    Fault::refused(format!("image {image} must be signed, and the signature policy would not check it"))
        .why(if *demand == Demand::AcceptAnything {
            format!(
                "{file}: {scope} says \"insecureAcceptAnything\", which ostree-image-signed: does not allow"
            )
        } else {
            format!(
                "{file}: it depends on the storage whether a scope holds that says \"insecureAcceptAnything\""
            )
        })
        .next(format!(
            "put a \"signedBy\" or \"sigstoreSigned\" requirement into {file} for {}",
            requirement.suggested_scope()
        ))
}

/// What to tell when an image of a local storage would have to be copied. A storage keeps layers
/// unpacked, and no copy out of it has the digests that the image had (tried with skopeo 1.9.3).
fn uncopied_fault(image: &OsImage, requirement: &Requirement) -> Fault {
    let Requirement { file, scope, laxest, .. } = requirement;
    let fault = Fault::refused(format!("the signatures of {image} cannot be checked with this skopeo"));
    let limit =
        "skopeo before 1.13 checks only while it copies, and a copy out of a local storage is another image";
    if *laxest == Demand::Signed {
        fault
            .why(format!("{file}: {scope} asks for a signature; {limit}"))
            .next("pull the image from its registry, or install skopeo 1.13 or later")
    } else {
        fault
            .why(format!("{file}: which scope of containers-storage holds depends on the storage; {limit}"))
            .next(format!(
                "pull the image from its registry, or say the same for all storages in {file}, in \
                 transports.containers-storage[\"\"]"
            ))
    }
}

/// The content of a small file below `root`, at most `limit` bytes.
///
/// Links are followed, absolute ones too, but never out of `root`. What is not a regular file is an
/// error instead of a hang (a named pipe in place of a configuration file).
fn read_small(root: &Dir, path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = loop {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            // A rename beside it makes the kernel give up on the rooted walk: it says so, try again.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            result => break result?,
        }
    };
    read_limited(File::from(fd), limit)
}

/// The content of an open regular file, at most `limit` bytes.
fn read_limited(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {} KiB", limit / 1024)));
    }
    Ok(content)
}
