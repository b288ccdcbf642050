//! A [`Config`] written as one MachineConfig: what several become when a pool's are rendered.
//!
//! What is written reads back as the same config (Ignition 3.4.0, contents as data URLs), so a host that
//! gets the rendered one ends as a host that merged the files itself. Packing is not part of the
//! name: another gzip gives the same name.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::{Blob, Config, ContentHash, Contents, Id, Managed, Request, RequestKind, Unit};
use crate::model::digest::Digest;
use crate::model::image_ref::OsImage;

/// The oldest spec that has everything that is written here.
const IGNITION: &str = "3.4.0";
/// Smaller contents are not worth packing.
const PACKED_MIN: usize = 1024;

/// How contents are written.
#[derive(Clone, Copy)]
enum Packing {
    /// All as they are: for the name.
    Plain,
    /// Packed where that saves something: an object has at most 1.5 MB.
    Gzip,
}

/// The digest of what a config means, as hex: the same for every spelling.
pub fn digest(config: &Config) -> String {
    Digest::of(spec(config, Packing::Plain).to_string().as_bytes()).hex().to_owned()
}

/// `spec` of the MachineConfig that means `config`.
pub fn rendered(config: &Config) -> Value {
    spec(config, Packing::Gzip)
}

fn spec(config: &Config, packing: Packing) -> Value {
    let mut spec = Map::new();
    let mut put = |name: &str, value: Option<Value>| value.map(|value| spec.insert(name.to_owned(), value));
    put("osImageURL", config.image.as_ref().map(image));
    put("kernelArguments", config.kernel_arguments.as_ref().map(|arguments| json!(arguments)));
    put("fips", config.fips.map(Value::Bool));
    put("kernelType", config.kernel_type.as_ref().map(|kernel| json!(kernel)));
    put("extensions", (!config.extensions.is_empty()).then(|| json!(config.extensions)));
    put("baseOSExtensionsContainerImage", config.extensions_image.as_ref().map(|image| json!(image)));
    put("config", config.managed.as_ref().map(|managed| ignition(managed, packing)));
    Value::Object(spec)
}

/// As other tools write it, where nothing more than the policy must vouch for it.
fn image(image: &OsImage) -> Value {
    let text = image.to_string();
    text.strip_prefix("ostree-unverified-registry:").unwrap_or(&text).into()
}

fn ignition(managed: &Managed, packing: Packing) -> Value {
    let (mut files, mut directories, mut links) = (Vec::new(), Vec::new(), Vec::new());
    for (path, request) in &managed.entries {
        let mut entry = entry(path.as_str(), request);
        match &request.kind {
            RequestKind::File { contents, append, mode } => {
                if let Some(contents) = contents {
                    entry["contents"] = resource(contents, packing);
                }
                if !append.is_empty() {
                    entry["append"] = append.iter().map(|contents| resource(contents, packing)).collect();
                }
                set_mode(&mut entry, *mode);
                files.push(entry);
            }
            RequestKind::Directory { mode } => {
                set_mode(&mut entry, *mode);
                directories.push(entry);
            }
            RequestKind::Link { target, hard } => {
                entry["target"] = json!(target);
                if *hard {
                    entry["hard"] = json!(true);
                }
                links.push(entry);
            }
        }
    }
    let units: Vec<Value> = managed.units.iter().map(|(name, one)| unit(name, one)).collect();
    let mut config = json!({ "ignition": { "version": IGNITION } });
    for (name, list) in [("files", files), ("directories", directories), ("links", links)] {
        if !list.is_empty() {
            config["storage"][name] = Value::Array(list);
        }
    }
    for (name, section) in &managed.disks {
        config["storage"][name] = json!(section.items);
    }
    if !units.is_empty() {
        config["systemd"]["units"] = Value::Array(units);
    }
    if let Some(core) = &managed.core {
        let mut user = json!({ "name": "core", "sshAuthorizedKeys": core.keys });
        if let Some(hash) = &core.password_hash {
            user["passwordHash"] = text(hash);
        }
        config["passwd"]["users"] = json!([user]);
    }
    config
}

fn entry(path: &str, request: &Request) -> Value {
    let mut entry = json!({ "path": path });
    for (name, id) in [("user", &request.owner.user), ("group", &request.owner.group)] {
        match id {
            Some(Id::Number(id)) => entry[name] = json!({ "id": id }),
            Some(Id::Name(id)) => entry[name] = json!({ "name": id }),
            None => {}
        }
    }
    if let Some(overwrite) = request.overwrite {
        entry["overwrite"] = json!(overwrite);
    }
    entry
}

fn set_mode(entry: &mut Value, mode: Option<u32>) {
    if let Some(mode) = mode {
        entry["mode"] = json!(mode);
    }
}

fn resource(contents: &Contents, packing: Packing) -> Value {
    match contents {
        Contents::Inline(blob) => inline(blob, packing),
        Contents::Remote { url, hash, gzip } => {
            let hash = match hash {
                ContentHash::Sha256(digest) => format!("sha256-{}", digest.hex()),
                ContentHash::Sha512(hex) => format!("sha512-{hex}"),
            };
            let mut resource = json!({ "source": url, "verification": { "hash": hash } });
            if *gzip {
                resource["compression"] = json!("gzip");
            }
            resource
        }
    }
}

fn inline(blob: &Blob, packing: Packing) -> Value {
    let bytes = blob.bytes();
    if bytes.is_empty() {
        return json!({ "source": "data:," });
    }
    let source = |bytes: &[u8]| format!("data:;base64,{}", STANDARD.encode(bytes));
    if matches!(packing, Packing::Gzip)
        && bytes.len() >= PACKED_MIN
        && let Some(packed) = gzip(bytes).filter(|packed| packed.len() < bytes.len())
    {
        return json!({ "source": source(&packed), "compression": "gzip" });
    }
    json!({ "source": source(bytes) })
}

/// Writing to memory does not fail; if it did, what is plain serves as well.
fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

fn unit(name: &str, unit: &Unit) -> Value {
    let mut value = json!({ "name": name });
    if let Some(contents) = &unit.contents {
        value["contents"] = text(contents);
    }
    for (name, flag) in [("enabled", unit.enabled), ("mask", unit.mask)] {
        if let Some(flag) = flag {
            value[name] = json!(flag);
        }
    }
    if !unit.dropins.is_empty() {
        let dropin = |(name, contents): (&String, &Blob)| json!({ "name": name, "contents": text(contents) });
        value["dropins"] = unit.dropins.iter().map(dropin).collect();
    }
    value
}

/// Units and hashes were read from text.
fn text(blob: &Blob) -> Value {
    String::from_utf8_lossy(blob.bytes()).into()
}
