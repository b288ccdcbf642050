//! What a manifest, an image configuration and an index tell about an OS image.
//!
//! Formats: OCI image spec 1.1 (manifest, index, config) and Docker schema 2 ("v2s2"), which differ
//! in media types only. An OSTree-native container says in labels of its config which of its layers
//! hold the base commit: `ostree.final-diffid` names the last of them by its diff id; the first
//! holds the commit and the directories, those between hold files, those after it come from a
//! Containerfile. Nothing is believed because it is written: sizes, counts and names have limits,
//! and a refusal names the field.
//!
//! Nothing here reads a layer, nor checks that a document has the digest it was asked by.

mod document;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::error::Fault;

use super::digest::Digest;
pub use document::{COUNT_MAX, DOCUMENT_SIZE_MAX, Index, IndexEntry};
use document::{Config, Manifest};

/// Label: the last layer of the OSTree base, by diff id.
const LABEL_FINAL_DIFF_ID: &str = "ostree.final-diffid";
/// Label: the base commit of an OSTree-native container.
const LABEL_BASE_COMMIT: &str = "ostree.commit";
/// Label: the commit in the repo that a legacy oscontainer carries.
const LABEL_LEGACY_COMMIT: &str = "com.coreos.ostree-commit";
/// Labels of which one says that the image is meant to boot; the value does not matter.
const LABELS_BOOTABLE: [&str; 2] = ["ostree.bootable", "containers.bootc"];
/// Labels that hold the OS version, the more general one last.
const LABELS_VERSION: [&str; 2] = ["org.opencontainers.image.version", "version"];
/// Annotation of the manifest that wins over the config's `created`.
const ANNOTATION_CREATED: &str = "org.opencontainers.image.created";
/// Annotation of a layer: the packages that are in it.
const ANNOTATION_COMPONENTS: &str = "ostree.components";
/// Characters of a layer's title that are kept: it is for a progress line.
const TITLE_LENGTH_MAX: usize = 200;

/// What is known about an image before its layers are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// The machine it is for, as Go and OCI name it: `amd64`, `arm64`, `ppc64le`, `s390x`.
    pub architecture: String,
    /// The operating system: `linux`.
    pub os: String,
    /// The OS version that its labels name.
    pub version: Option<String>,
    /// When it was made, in seconds since the epoch. Absent if not written, malformed or before it.
    pub created: Option<i64>,
    /// The digest of the configuration, as the manifest names it.
    pub config_digest: Digest,
    /// The layers from the lowest.
    pub layers: Vec<Layer>,
    /// Where the OS is in it.
    pub kind: ImageKind,
    /// All labels of the configuration.
    pub labels: BTreeMap<String, String>,
    /// Whether a label says that it is meant to boot.
    pub bootable_label: bool,
    /// The OSTree commit that a label names: the base of a native image, the commit in the repo of
    /// a legacy one. 64 hex digits.
    pub base_commit: Option<String>,
}

/// Where the OS is in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// An OSTree-native container: a commit in its first layers, perhaps derived layers above.
    Native,
    /// No OSTree base: all layers are plain. One without a label may still turn out, on reading it,
    /// to hold a repo at `/srv/repo`.
    Plain,
    /// A legacy oscontainer: an archive repo at `/srv/repo`, spread over plain layers.
    Legacy,
}

/// How a layer's tar is compressed, as its media type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// A plain tar.
    None,
    /// gzip.
    Gzip,
    /// zstd, also in several frames.
    Zstd,
}

/// What a layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// The base commit and its directories, and files that are in no component.
    Commit,
    /// Files of the base commit.
    Component,
    /// A plain tar that lies over what is below it.
    Derived,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The digest of the blob, compressed.
    pub digest: Digest,
    /// The size of the blob in bytes, compressed.
    pub size: u64,
    /// How it is compressed.
    pub media: Compression,
    /// The digest of the tar in it.
    pub diff_id: Digest,
    /// What it holds.
    pub kind: LayerKind,
    /// For people: the packages in it, or the line that made it. May be empty.
    pub title: String,
}

impl ImageFacts {
    /// What these two documents tell.
    ///
    /// # Errors
    ///
    /// A refusal that names document, field and reason: malformed JSON, an unknown or foreign
    /// media type, more than the limits allow, counts that do not agree, a label that names a layer
    /// or commit that cannot be.
    pub fn parse(manifest: &[u8], config: &[u8]) -> Result<Self, Fault> {
        let manifest = Manifest::parse(manifest)?;
        let config = Config::parse(config)?;
        let labels = config.config.labels;
        let diff_ids = config.rootfs.diff_ids;
        let (expected, found) = (manifest.layers.len(), diff_ids.len());
        if expected != found {
            return Err(refuse(
                "config",
                "rootfs.diff_ids",
                format!("{found} diff ids, but the manifest has {expected} layers"),
            ));
        }
        let base_end = base_end(&labels, &diff_ids)?;
        let kind = match base_end {
            Some(_) => ImageKind::Native,
            None if labels.contains_key(LABEL_LEGACY_COMMIT) => ImageKind::Legacy,
            None => ImageKind::Plain,
        };
        let titles = document::history_titles(&config.history, expected);
        let mut layers = Vec::with_capacity(expected);
        for (index, (descriptor, diff_id)) in manifest.layers.into_iter().zip(diff_ids).enumerate() {
            let made_by = titles.get(index).copied().unwrap_or_default();
            let components = descriptor.annotations.get(ANNOTATION_COMPONENTS);
            let title = components.map(String::as_str).filter(|text| !text.is_empty()).unwrap_or(made_by);
            layers.push(Layer {
                media: document::compression(&descriptor.media_type, index)?,
                digest: descriptor.digest,
                size: descriptor.size,
                diff_id,
                kind: LayerKind::at(index, base_end),
                title: title_line(title),
            });
        }
        check_layers(&layers)?;
        let created = manifest.annotations.get(ANNOTATION_CREATED).or(config.created.as_ref());
        Ok(Self {
            architecture: config.architecture,
            os: config.os,
            version: LABELS_VERSION.iter().find_map(|label| labels.get(*label)).cloned(),
            created: created.and_then(|text| seconds(text)),
            config_digest: manifest.config.digest,
            layers,
            kind,
            bootable_label: LABELS_BOOTABLE.iter().any(|label| labels.contains_key(*label)),
            base_commit: base_commit(kind, &labels)?,
            labels,
        })
    }

    /// Bytes of all blobs, compressed; a blob that occurs twice counts once.
    pub fn compressed_size(&self) -> u64 {
        let blobs: BTreeMap<&Digest, u64> =
            self.layers.iter().map(|layer| (&layer.digest, layer.size)).collect();
        // Cannot pass u64: the parser refused a greater sum.
        blobs.values().sum()
    }

    /// Whether layers lie over the OSTree base, or there is none.
    pub fn has_derived_layers(&self) -> bool {
        self.layers.iter().any(|layer| layer.kind == LayerKind::Derived)
    }
}

impl LayerKind {
    fn at(index: usize, base_end: Option<usize>) -> Self {
        match base_end {
            Some(_) if index == 0 => Self::Commit,
            Some(end) if index <= end => Self::Component,
            _ => Self::Derived,
        }
    }
}

/// The architecture's name in images, for a machine's name as `uname -m` gives it. A name that is
/// not known to differ is returned as it is.
pub fn oci_architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "i386" | "i486" | "i586" | "i686" => "386",
        "armv6l" | "armv7l" | "armv8l" => "arm",
        "loongarch64" => "loong64",
        other => other,
    }
}

/// The index of the last layer of the OSTree base, if there is a base.
fn base_end(labels: &BTreeMap<String, String>, diff_ids: &[Digest]) -> Result<Option<usize>, Fault> {
    let Some(wanted) = labels.get(LABEL_FINAL_DIFF_ID) else {
        return Ok(None);
    };
    let field = format!("config.Labels.\"{LABEL_FINAL_DIFF_ID}\"");
    let wanted: Digest = wanted
        .parse()
        .map_err(|error: super::digest::InvalidDigest| refuse("config", &field, error.to_string()))?;
    match diff_ids.iter().position(|diff_id| *diff_id == wanted) {
        Some(end) => Ok(Some(end)),
        None => Err(refuse("config", &field, format!("no layer has the diff id {wanted}"))),
    }
}

fn base_commit(kind: ImageKind, labels: &BTreeMap<String, String>) -> Result<Option<String>, Fault> {
    let label = match kind {
        ImageKind::Native => LABEL_BASE_COMMIT,
        ImageKind::Legacy => LABEL_LEGACY_COMMIT,
        ImageKind::Plain => return Ok(None),
    };
    let Some(commit) = labels.get(label) else {
        return Ok(None);
    };
    if commit.len() != 64 || !commit.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        let why = format!("'{}' is no OSTree commit: expected 64 hex digits", title_line(commit));
        return Err(refuse("config", &format!("config.Labels.\"{label}\""), why));
    }
    Ok(Some(commit.clone()))
}

/// A blob that occurs twice must be described alike both times, and the sizes must have a sum.
fn check_layers(layers: &[Layer]) -> Result<(), Fault> {
    let mut seen: BTreeMap<&Digest, (usize, &Layer)> = BTreeMap::new();
    let mut total: u64 = 0;
    for (index, layer) in layers.iter().enumerate() {
        total = total.checked_add(layer.size).ok_or_else(|| {
            let why = format!("with the layers before it, {} bytes are more than 64 bits hold", layer.size);
            refuse("manifest", &format!("layers[{index}].size"), why)
        })?;
        let Some((first, other)) = seen.insert(&layer.digest, (index, layer)) else {
            continue;
        };
        let differs = match () {
            () if other.size != layer.size => "size",
            () if other.media != layer.media => "media type",
            () if other.diff_id != layer.diff_id => "diff id",
            () => continue,
        };
        let why = format!("the same blob as layers[{first}], but with another {differs}");
        return Err(refuse("manifest", &format!("layers[{index}]"), why));
    }
    Ok(())
}

/// Seconds since the epoch. Docker writes the year 1 where it does not know: that is absent too.
fn seconds(text: &str) -> Option<i64> {
    let stamp: jiff::Timestamp = text.parse().ok()?;
    Some(stamp.as_second()).filter(|seconds| *seconds >= 0)
}

/// One short line that cannot harm a terminal.
fn title_line(text: &str) -> String {
    let printable = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(TITLE_LENGTH_MAX).collect()
}

fn refuse(document: &str, field: &str, why: impl Into<String>) -> Fault {
    Fault::refused(format!("the image's {document} cannot be used: {field}"))
        .why(why)
        .next("the image is broken or made for something else: build or push it again")
}
