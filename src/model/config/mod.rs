//! What a MachineConfig or an Ignition config asks for, in one normal form.
//!
//! Reading is a ladder: bytes become a document (YAML or JSON), the document one of the known shapes
//! (MachineConfig, Ignition 2.x or 3.x), and that a [`Config`] in which nothing is left to decode:
//! contents are bytes, modes are numbers, kernel arguments are single. Everything that is wrong is
//! collected, each with the path of its field.
//!
//! The reader is left out of the small binary of the initramfs, which knows manifests only.
//!
//! *Absent* means "not managed by this request", *empty* means "nothing of ours may remain".

mod disks;
pub mod kargs;
#[cfg(feature = "ostree")]
pub(super) mod read;
#[cfg(feature = "cluster")]
pub mod render;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use camino::Utf8PathBuf;

use super::digest::Digest;
use super::image_ref::OsImage;

pub use disks::{DiskSection, Disks, DisksSaid, SECTIONS, said};
#[cfg(feature = "ostree")]
pub use read::{CONTENT_MAX, CONTENTS_MAX, Input, Invalid, gunzip, read};

/// What is wanted of a host, from all the files of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// The names of the MachineConfigs, for people; in the order in which they were merged.
    pub names: Vec<String>,
    /// `spec.osImageURL`.
    pub image: Option<OsImage>,
    /// `spec.kernelArguments`, single arguments in order with their quotes; none if the request is
    /// an Ignition config, which does not speak of them.
    pub kernel_arguments: Option<Vec<String>>,
    /// `spec.fips`: compared with the running kernel, never changed.
    pub fips: Option<bool>,
    /// `spec.kernelType`, none for the default one. Only what the host has already is accepted.
    pub kernel_type: Option<String>,
    /// `spec.extensions`. Only what the host has already is accepted.
    pub extensions: Vec<String>,
    /// `spec.baseOSExtensionsContainerImage`: kept for `status`, nothing is installed from it.
    pub extensions_image: Option<String>,
    /// Files, units and keys; none where the request does not speak of them.
    pub managed: Option<Managed>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Remark>,
}

/// Files, units and keys that are wanted, and nothing else of ours beside them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed {
    /// By absolute, clean path as it was written.
    pub entries: BTreeMap<Utf8PathBuf, Request>,
    /// By unit name.
    pub units: BTreeMap<String, Unit>,
    /// The user `core`, if the config has it.
    pub core: Option<Core>,
    /// What is said of disks: compared with what was said before, never carried out.
    pub disks: Disks,
}

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it stands in the input: `99-x.yaml: spec.config.storage.files[3]`.
    pub field: String,
    /// What is wanted there.
    pub kind: RequestKind,
    /// Who owns it; root where nothing is said.
    pub owner: Owner,
    /// `false` refuses to replace what the image has at this path; absent replaces it.
    pub overwrite: Option<bool>,
}

/// What is wanted at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestKind {
    /// A file.
    File {
        /// All of it; none appends to what the image has there.
        contents: Option<Contents>,
        /// Added to the end, in order.
        append: Vec<Contents>,
        /// Permissions with setuid, setgid and sticky; 0644 where nothing is said.
        mode: Option<u32>,
    },
    /// A directory.
    Directory {
        /// Permissions with setuid, setgid and sticky; 0755 where nothing is said.
        mode: Option<u32>,
    },
    /// A symbolic link, or a hard link to another path of the same config.
    Link {
        /// As written.
        target: String,
        /// A second name of the file at `target`.
        hard: bool,
    },
}

/// The bytes of a file, or where they are.
#[derive(Clone, PartialEq, Eq)]
pub enum Contents {
    /// Decoded, unpacked and checked.
    Inline(Blob),
    /// To be fetched, unpacked and checked.
    Remote {
        /// `http` or `https`.
        url: String,
        /// Of what is fetched, after unpacking (Ignition's `verification.hash`).
        hash: ContentHash,
        /// It is compressed with gzip.
        gzip: bool,
    },
}

/// Ignition's `verification.hash`.
#[derive(Clone, PartialEq, Eq)]
pub enum ContentHash {
    /// `sha256-HEX`.
    Sha256(Digest),
    /// `sha512-HEX`: 128 lower-case hex digits.
    Sha512(String),
}

/// Bytes that may be a secret: cheap to copy, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob(Arc<[u8]>);

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(blob) => blob.fmt(f),
            Self::Remote { .. } => f.write_str("to be fetched"),
        }
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256(_) => "sha256",
            Self::Sha512(_) => "sha512",
        })
    }
}

impl Blob {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digest of the bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// User and group, each by number or by a name of the target's passwd and group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user; root where nothing is said.
    pub user: Option<Id>,
    /// The group; root where nothing is said.
    pub group: Option<Id>,
}

/// A user or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Id {
    /// Its number.
    Number(u32),
    /// Its name.
    Name(String),
}

/// One systemd unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    /// Where it stands in the input.
    pub field: String,
    /// The unit file; none changes only what is said of a unit that the image has.
    pub contents: Option<Blob>,
    /// `true`: enabled as its `[Install]` says; `false`: disabled; absent: as presets say.
    pub enabled: Option<bool>,
    /// A link to `/dev/null` in its place.
    pub mask: Option<bool>,
    /// By name (`10-x.conf`); an empty one hides the image's drop-in of that name.
    pub dropins: BTreeMap<String, Blob>,
}

/// The user `core`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Where it stands in the input.
    pub field: String,
    /// Authorised keys, one line each.
    pub keys: Vec<String>,
    /// As `/etc/shadow` holds it; absent locks the password.
    pub password_hash: Option<Blob>,
}

/// Something to say about a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// File and field: `99-x.yaml: spec.config.storage.files[3].mode`.
    pub field: String,
    /// What is wrong and what would be right. Never holds contents.
    pub message: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
