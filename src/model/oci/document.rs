//! The JSON documents themselves, within limits.
//!
//! Only the fields that an OS needs are kept, so that memory stays bounded whatever else a document
//! carries.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::Fault;
use crate::model::digest::Digest;

use super::{Compression, refuse, title_line};

/// Largest document that is read, in bytes: what registries accept for a manifest.
pub const DOCUMENT_SIZE_MAX: usize = 4 * 1024 * 1024;
/// Most layers, labels, annotations, history or index entries in a document. Images have some 70.
pub const COUNT_MAX: usize = 1000;

const MANIFEST_TYPES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
const INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const CONFIG_TYPES: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
const LAYER_TYPES: [(&str, Compression); 6] = [
    ("application/vnd.oci.image.layer.v1.tar", Compression::None),
    ("application/vnd.oci.image.layer.v1.tar+gzip", Compression::Gzip),
    ("application/vnd.oci.image.layer.v1.tar+zstd", Compression::Zstd),
    ("application/vnd.docker.image.rootfs.diff.tar", Compression::None),
    ("application/vnd.docker.image.rootfs.diff.tar.gzip", Compression::Gzip),
    ("application/vnd.docker.image.rootfs.diff.tar.zstd", Compression::Zstd),
];

/// An image manifest, OCI or Docker schema 2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u64,
    #[serde(default)]
    media_type: Option<String>,
    pub(super) config: Descriptor,
    #[serde(deserialize_with = "list")]
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, deserialize_with = "map")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default, deserialize_with = "map")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// An image configuration.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) architecture: String,
    pub(super) os: String,
    #[serde(default)]
    pub(super) created: Option<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) config: Execution,
    pub(super) rootfs: RootFs,
    #[serde(default, deserialize_with = "list")]
    pub(super) history: Vec<History>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Execution {
    #[serde(default, rename = "Labels", deserialize_with = "map")]
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RootFs {
    #[serde(deserialize_with = "list")]
    pub(super) diff_ids: Vec<Digest>,
}

#[derive(Debug, Deserialize)]
pub(super) struct History {
    #[serde(default)]
    created_by: Option<String>,
    #[serde(default)]
    empty_layer: bool,
}

/// A list of manifests, one per platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The image manifests in it, in its order. Other things (indexes, unknown types) are left out.
    pub manifests: Vec<IndexEntry>,
}

/// One manifest in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// As images name it: `amd64`.
    pub architecture: Option<String>,
    /// `linux`.
    pub os: Option<String>,
    /// `v8`, for an `arm64` for example.
    pub variant: Option<String>,
}

#[derive(Deserialize)]
struct RawIndex {
    #[serde(rename = "schemaVersion")]
    schema_version: u64,
    #[serde(deserialize_with = "list")]
    manifests: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry {
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default, deserialize_with = "null_is_default")]
    platform: Platform,
}

#[derive(Default, Deserialize)]
struct Platform {
    architecture: Option<String>,
    os: Option<String>,
    variant: Option<String>,
}

/// Tells documents apart without reading them whole into memory.
#[derive(Deserialize)]
struct Probe {
    #[serde(rename = "schemaVersion")]
    schema_version: Option<u64>,
    manifests: Option<IgnoredAny>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<IgnoredAny>,
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        const NAME: &str = "manifest";
        let probe: Probe = document(NAME, bytes)?;
        if probe.manifests.is_some() {
            return Err(refuse(NAME, "manifests", "it is an index of several images, not an image"));
        }
        if probe.fs_layers.is_some() || probe.schema_version == Some(1) {
            return Err(refuse(NAME, "schemaVersion", "Docker schema 1 is obsolete and cannot be verified"));
        }
        let manifest: Self = document(NAME, bytes)?;
        if manifest.schema_version != 2 {
            let why = format!("{} is unknown, expected 2", manifest.schema_version);
            return Err(refuse(NAME, "schemaVersion", why));
        }
        if let Some(other) = manifest.media_type.as_deref().filter(|it| !MANIFEST_TYPES.contains(it)) {
            return Err(refuse(NAME, "mediaType", unknown_type(other, "an image manifest")));
        }
        let config = manifest.config.media_type.as_str();
        if !CONFIG_TYPES.contains(&config) {
            return Err(refuse(NAME, "config.mediaType", unknown_type(config, "an image configuration")));
        }
        if manifest.layers.is_empty() {
            return Err(refuse(NAME, "layers", "there is none"));
        }
        Ok(manifest)
    }
}

impl Config {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let config: Self = document("config", bytes)?;
        for (field, value) in [("architecture", &config.architecture), ("os", &config.os)] {
            if value.is_empty() {
                return Err(refuse("config", field, "it is empty"));
            }
        }
        Ok(config)
    }
}

impl Index {
    /// Whether these bytes are an index rather than a manifest. Malformed ones are neither.
    pub fn is_index(bytes: &[u8]) -> bool {
        bytes.len() <= DOCUMENT_SIZE_MAX
            && serde_json::from_slice::<Probe>(bytes).is_ok_and(|probe| probe.manifests.is_some())
    }

    /// Reads an OCI index or a Docker manifest list.
    ///
    /// # Errors
    ///
    /// A refusal that names the field.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let raw: RawIndex = document("index", bytes)?;
        if raw.schema_version != 2 {
            let why = format!("{} is unknown, expected 2", raw.schema_version);
            return Err(refuse("index", "schemaVersion", why));
        }
        let images = raw.manifests.into_iter();
        let images = images.filter(|entry| MANIFEST_TYPES.contains(&entry.media_type.as_str()));
        let manifests = images.map(|entry| IndexEntry {
            digest: entry.digest,
            size: entry.size,
            architecture: entry.platform.architecture,
            os: entry.platform.os,
            variant: entry.platform.variant,
        });
        Ok(Self { manifests: manifests.collect() })
    }

    /// The manifest for an architecture, named as in images: the plainest one, without a variant,
    /// else the first.
    ///
    /// # Errors
    ///
    /// A refusal that lists what there is.
    pub fn choose(&self, architecture: &str) -> Result<&IndexEntry, Fault> {
        let fits = |entry: &&IndexEntry| {
            entry.architecture.as_deref() == Some(architecture)
                && entry.os.as_deref().is_none_or(|os| os == "linux")
        };
        let plain = self.manifests.iter().filter(fits).find(|entry| entry.variant.is_none());
        plain.or_else(|| self.manifests.iter().find(fits)).ok_or_else(|| {
            let there: Vec<String> = self.manifests.iter().filter_map(IndexEntry::platform).collect();
            let there = if there.is_empty() { "no platform".to_owned() } else { there.join(", ") };
            Fault::refused(format!("the image is not made for this machine's architecture, {architecture}"))
                .why(format!("its index has {there}"))
                .next("ask for an image that is built for this architecture")
        })
    }
}

impl IndexEntry {
    /// `os/architecture[/variant]`, unless nothing is known, as for a signature or an attestation.
    fn platform(&self) -> Option<String> {
        let architecture = self.architecture.as_deref().filter(|name| *name != "unknown")?;
        let os = self.os.as_deref().unwrap_or("linux");
        let variant = self.variant.iter().map(|variant| format!("/{variant}"));
        Some(title_line(&format!("{os}/{architecture}{}", variant.collect::<String>())))
    }
}

/// The compression that a layer's media type says.
pub(super) fn compression(media_type: &str, index: usize) -> Result<Compression, Fault> {
    if let Some((_, compression)) = LAYER_TYPES.iter().find(|(name, _)| *name == media_type) {
        return Ok(*compression);
    }
    let why = if media_type.contains("nondistributable") || media_type.contains("foreign") {
        format!("'{}' is a foreign layer: its bytes are not in the registry", title_line(media_type))
    } else if media_type.ends_with("+encrypted") {
        format!("'{}' is an encrypted layer", title_line(media_type))
    } else {
        unknown_type(media_type, "a layer")
    };
    Err(refuse("manifest", &format!("layers[{index}].mediaType"), why))
}

fn unknown_type(media_type: &str, wanted: &str) -> String {
    if INDEX_TYPES.contains(&media_type) {
        return "it is an index of several images, not an image".to_owned();
    }
    format!("'{}' is not {wanted} that is known", title_line(media_type))
}

/// The line that made each layer; nothing if the history does not fit the layers, as it may (the
/// spec makes it optional).
pub(super) fn history_titles(history: &[History], layers: usize) -> Vec<&str> {
    let made = history.iter().filter(|entry| !entry.empty_layer);
    let titles: Vec<&str> = made.map(|entry| entry.created_by.as_deref().unwrap_or_default()).collect();
    if titles.len() == layers { titles } else { Vec::new() }
}

/// Parses within the size limit; the error names the field.
fn document<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, Fault> {
    if bytes.len() > DOCUMENT_SIZE_MAX {
        let why = format!("{} bytes, at most {DOCUMENT_SIZE_MAX} are read", bytes.len());
        return Err(refuse(name, "its size", why));
    }
    let json = &mut serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut *json).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => "the document".to_owned(),
            path => title_line(&path),
        };
        refuse(name, &field, title_line(&error.into_inner().to_string()))
    })?;
    json.end().map_err(|error| refuse(name, "the document", error.to_string()))?;
    Ok(value)
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A list of at most [`COUNT_MAX`] items; `null` is an empty one.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_any(Bounded(PhantomData::<Vec<T>>))
}

/// A map of at most [`COUNT_MAX`] texts; `null` is an empty one.
fn map<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_any(Bounded(PhantomData::<BTreeMap<String, String>>))
}

struct Bounded<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {COUNT_MAX}")
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == COUNT_MAX {
                return Err(serde::de::Error::invalid_length(COUNT_MAX + 1, &self));
            }
            list.push(item);
        }
        Ok(list)
    }
}

impl<'de> Visitor<'de> for Bounded<BTreeMap<String, String>> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of at most {COUNT_MAX} texts")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            map.insert(key, value);
            if map.len() > COUNT_MAX {
                return Err(serde::de::Error::invalid_length(map.len(), &self));
            }
        }
        Ok(map)
    }
}
