//! OCI layout directories: blobs by digest, and an index that knows tags.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Media type of an OCI index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a Docker manifest list.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Media type of an OCI manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of a Docker manifest, version 2, schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// An OCI layout directory.
#[derive(Debug, Clone)]
pub struct Layout {
    dir: PathBuf,
}

/// `sha256:` and the digest of `bytes`.
pub fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

impl Layout {
    /// Opens `dir`, made if it is not there.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir.join("blobs/sha256")).with_context(|| format!("Making {}", dir.display()))?;
        let layout = Self { dir: dir.to_owned() };
        fs::write(dir.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}")?;
        if !dir.join("index.json").exists() {
            layout.write_index(&json!({ "schemaVersion": 2, "manifests": [] }))?;
        }
        Ok(layout)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the blob with this digest is, or would be.
    pub fn blob_path(&self, digest: &str) -> PathBuf {
        self.dir.join("blobs").join(digest.replace(':', "/"))
    }

    /// Writes a small blob. Gives its digest.
    pub fn write_blob(&self, bytes: &[u8]) -> Result<String> {
        let digest = digest_of(bytes);
        fs::write(self.blob_path(&digest), bytes)?;
        Ok(digest)
    }

    /// Writes a blob as it comes.
    pub fn blob_writer(&self) -> Result<BlobWriter> {
        let file = tempfile::NamedTempFile::new_in(self.dir.join("blobs"))?;
        Ok(BlobWriter { hash: Sha256::new(), size: 0, file: BufWriter::with_capacity(1 << 18, file) })
    }

    /// Puts a finished blob in its place, under `name` if it shall lie about its content.
    pub fn keep(&self, blob: BlobWriter, name: Option<&str>) -> Result<(String, u64)> {
        let digest = format!("sha256:{}", hex::encode(blob.hash.finalize()));
        let file = blob.file.into_inner()?;
        file.persist(self.blob_path(name.unwrap_or(&digest)))?;
        Ok((digest, blob.size))
    }

    /// Lets `tag` mean this manifest or index.
    pub fn tag(&self, tag: &str, media_type: &str, digest: &str, size: u64) -> Result<()> {
        let mut index = self.index()?;
        let manifests = index["manifests"].as_array_mut().context("index.json has no manifests")?;
        manifests.retain(|entry| entry["annotations"]["org.opencontainers.image.ref.name"] != tag);
        manifests.push(json!({
            "mediaType": media_type,
            "digest": digest,
            "size": size,
            "annotations": { "org.opencontainers.image.ref.name": tag },
        }));
        self.write_index(&index)
    }

    /// `index.json`.
    pub fn index(&self) -> Result<Value> {
        let path = self.dir.join("index.json");
        let text = fs::read(&path).with_context(|| format!("Reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("Parsing {}", path.display()))
    }

    /// Media type and digest of what `tag` or a digest names.
    pub fn resolve(&self, reference: &str) -> Result<Option<(String, String)>> {
        if reference.starts_with("sha256:") {
            return self.resolve_digest(reference);
        }
        let index = self.index()?;
        let entries = index["manifests"].as_array().into_iter().flatten();
        let mut named =
            entries.filter(|entry| entry["annotations"]["org.opencontainers.image.ref.name"] == reference);
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Ok(named.next().map(|entry| (text(entry, "mediaType"), text(entry, "digest"))))
    }

    /// A manifest says itself what it is, or what it holds does.
    fn resolve_digest(&self, digest: &str) -> Result<Option<(String, String)>> {
        let Ok(bytes) = fs::read(self.blob_path(digest)) else { return Ok(None) };
        let Ok(manifest) = serde_json::from_slice::<Value>(&bytes) else { return Ok(None) };
        let media_type = match manifest["mediaType"].as_str() {
            Some(named) => named,
            None if manifest.get("manifests").is_some() => OCI_INDEX,
            None => OCI_MANIFEST,
        };
        Ok(Some((media_type.to_owned(), digest.to_owned())))
    }

    /// Copies one image to `path` in the form that `dir:` reads. skopeo finds images of Docker's
    /// format there only: in an OCI layout it passes over media types that are not OCI's.
    pub fn copy_to_dir(&self, digest: &str, path: &Path) -> Result<()> {
        fs::create_dir_all(path)?;
        fs::write(path.join("version"), "Directory Transport Version: 1.1\n")?;
        let manifest = fs::read(self.blob_path(digest))?;
        fs::write(path.join("manifest.json"), &manifest)?;
        let manifest: Value = serde_json::from_slice(&manifest)?;
        let layers = manifest["layers"].as_array().into_iter().flatten();
        for blob in layers.chain([&manifest["config"]]) {
            let digest = blob["digest"].as_str().context("A descriptor has no digest")?;
            let target = path.join(digest.trim_start_matches("sha256:"));
            if !target.exists() {
                fs::hard_link(self.blob_path(digest), &target)
                    .with_context(|| format!("Linking blob {digest}"))?;
            }
        }
        Ok(())
    }

    fn write_index(&self, index: &Value) -> Result<()> {
        let path = self.dir.join("index.json");
        fs::write(&path, serde_json::to_vec_pretty(index)?)
            .with_context(|| format!("Writing {}", path.display()))
    }
}

/// A blob that is being written: counted and hashed on its way.
pub struct BlobWriter {
    hash: Sha256,
    size: u64,
    file: BufWriter<tempfile::NamedTempFile>,
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlobWriter({} bytes)", self.size)
    }
}

impl Write for BlobWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write_all(data)?;
        self.hash.update(data);
        self.size += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
