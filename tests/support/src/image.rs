//! An OS image builder: what the exporters of this field write, and what no honest one would.
//!
//! ```no_run
//! # use mcd_test_support::{compress::Compression, entry::Entry, image::Image};
//! # fn story(repo: &ostree::Repo, commit: &str, dir: &std::path::Path) -> anyhow::Result<()> {
//! let image = Image::of(repo, commit)
//!     .chunks(4)
//!     .compression(Compression::Zstd)
//!     .derived(vec![Entry::file("etc/motd", "hello\n"), Entry::whiteout("etc/fixture.conf")])
//!     .write(dir, "v1")?;
//! println!("{} is {}", image.reference(), image.digest);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ostree::gio;
use ostree::glib;
use serde_json::{Value, json};

use crate::compress::Compression;
use crate::encapsulate::{self, BaseLayer, XattrStyle};
use crate::entry::{Entry, TarStyle};
use crate::layer::{Content, Layer, Lie};
use crate::layout::{DOCKER_LIST, DOCKER_MANIFEST, Layout, OCI_INDEX, OCI_MANIFEST};

/// The manifest's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OCI image manifest.
    Oci,
    /// Docker image manifest, version 2, schema 2.
    Docker,
}

/// The media types of a format, and whether it has annotations.
impl Format {
    fn manifest(self) -> &'static str {
        match self {
            Self::Oci => OCI_MANIFEST,
            Self::Docker => DOCKER_MANIFEST,
        }
    }

    fn config(self) -> &'static str {
        match self {
            Self::Oci => "application/vnd.oci.image.config.v1+json",
            Self::Docker => "application/vnd.docker.container.image.v1+json",
        }
    }

    fn index(self) -> &'static str {
        match self {
            Self::Oci => OCI_INDEX,
            Self::Docker => DOCKER_LIST,
        }
    }

    fn layer(self, compression: Compression) -> &'static str {
        match self {
            Self::Oci => compression.oci_media_type(),
            Self::Docker => compression.docker_media_type(),
        }
    }
}

type Edit<T> = Box<dyn FnOnce(&mut T)>;
type ChunkOf = Box<dyn Fn(&str) -> Option<usize>>;

/// An image to be written.
#[must_use]
pub struct Image {
    base: Option<(ostree::Repo, String)>,
    chunks: usize,
    chunk_of: Option<ChunkOf>,
    xattrs: XattrStyle,
    upper: Vec<(String, Content, TarStyle)>,
    compression: Compression,
    layer_compressions: BTreeMap<usize, Compression>,
    format: Format,
    architecture: String,
    created: Option<i64>,
    labels: BTreeMap<String, String>,
    removed_labels: Vec<String>,
    annotations: BTreeMap<String, String>,
    repeated: Option<usize>,
    lies: Vec<(usize, Lie)>,
    edits: Vec<(usize, Edit<Vec<Entry>>)>,
    edit_config: Option<Edit<Value>>,
    edit_manifest: Option<Edit<Value>>,
}

/// A written image.
#[derive(Debug, Clone)]
pub struct Written {
    /// The OCI layout directory.
    pub dir: PathBuf,
    /// Its tag there.
    pub tag: String,
    /// The manifest's (or the index's) digest.
    pub digest: String,
    /// The manifest's media type.
    pub media_type: String,
    /// The manifest's length.
    pub size: u64,
    /// The layers, the lowest first, as the manifest has them.
    pub layers: Vec<WrittenLayer>,
}

/// A layer as manifest and config tell it.
#[derive(Debug, Clone)]
pub struct WrittenLayer {
    /// Digest of the blob.
    pub digest: String,
    /// Length of the blob.
    pub size: u64,
    /// Digest of the tar stream.
    pub diff_id: String,
}

impl Written {
    /// `oci:DIR:TAG`.
    pub fn reference(&self) -> String {
        format!("oci:{}:{}", self.dir.display(), self.tag)
    }

    /// The same image as `dir:` has it, written to `path`; gives `dir:PATH`.
    pub fn copy_to_dir(&self, path: &Path) -> Result<String> {
        Layout::open(&self.dir)?.copy_to_dir(&self.digest, path)?;
        Ok(format!("dir:{}", path.display()))
    }

    /// Length of all blobs together, as the manifest tells it.
    pub fn layer_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).sum()
    }
}

/// The architecture of this machine, as images name it.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// An architecture that this machine certainly does not have.
pub fn foreign_architecture() -> &'static str {
    if host_architecture() == "s390x" { "amd64" } else { "s390x" }
}

impl Image {
    fn new(base: Option<(ostree::Repo, String)>) -> Self {
        Self {
            base,
            chunks: 0,
            chunk_of: None,
            xattrs: XattrStyle::Shared,
            upper: Vec::new(),
            compression: Compression::Gzip,
            layer_compressions: BTreeMap::new(),
            format: Format::Oci,
            architecture: host_architecture().to_owned(),
            created: None,
            labels: BTreeMap::new(),
            removed_labels: Vec::new(),
            annotations: BTreeMap::new(),
            repeated: None,
            lies: Vec::new(),
            edits: Vec::new(),
            edit_config: None,
            edit_manifest: None,
        }
    }

    /// An OSTree-native image of `commit`: one layer, gzip, unless told otherwise.
    pub fn of(repo: &ostree::Repo, commit: &str) -> Self {
        Self::new(Some((Clone::clone(repo), commit.to_owned())))
    }

    /// A plain image: one layer with these entries, nothing of OSTree.
    pub fn plain(entries: Vec<Entry>) -> Self {
        Self::new(None).derived(entries)
    }

    /// The obsolete format: one plain layer with an archive repo at `/srv/repo`, and a label that
    /// names the commit. `refs` are the repo's branches; the first one's commit is the label.
    pub fn legacy(repo: &ostree::Repo, refs: &[&str]) -> Result<Self> {
        let (entries, commit) = crate::legacy::repo_entries(repo, refs)?;
        Ok(Self::new(None).derived(entries).label("com.coreos.ostree-commit", &commit))
    }

    /// So many chunks after the first layer; objects go to them by their paths' hashes.
    pub fn chunks(mut self, chunks: usize) -> Self {
        self.chunks = chunks;
        self
    }

    /// Which chunk an object goes to, by the first path it stands at. A chunk that nothing goes to
    /// is an empty layer.
    pub fn chunk_by(mut self, chunk_of: impl Fn(&str) -> Option<usize> + 'static) -> Self {
        self.chunk_of = Some(Box::new(chunk_of));
        self
    }

    /// How extended attributes are written.
    pub fn xattrs(mut self, style: XattrStyle) -> Self {
        self.xattrs = style;
        self
    }

    /// A layer on top, as a container builder writes it.
    pub fn derived(self, entries: Vec<Entry>) -> Self {
        self.derived_in(TarStyle::Pax, entries)
    }

    /// A layer on top, with names in this style.
    pub fn derived_in(mut self, style: TarStyle, entries: Vec<Entry>) -> Self {
        let title = format!("RUN step {}", self.upper.len());
        self.upper.push((title, Content::Entries(entries), style));
        self
    }

    /// A layer on top, from a tar file as it is.
    pub fn derived_tar(mut self, path: &Path) -> Self {
        let title = format!("COPY {}", path.display());
        self.upper.push((title, Content::File(path.to_owned()), TarStyle::Gnu));
        self
    }

    /// The compression of all layers.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The compression of one layer.
    pub fn layer_compression(mut self, layer: usize, compression: Compression) -> Self {
        self.layer_compressions.insert(layer, compression);
        self
    }

    /// The manifest's format.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// What the config names as the architecture.
    pub fn architecture(mut self, architecture: &str) -> Self {
        self.architecture = architecture.to_owned();
        self
    }

    /// When the config says that the image was made, in seconds since the epoch. Without this it is
    /// the commit's time.
    pub fn created(mut self, seconds: i64) -> Self {
        self.created = Some(seconds);
        self
    }

    /// With this label in the config.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without a label that it would have.
    pub fn without_label(mut self, key: &str) -> Self {
        self.removed_labels.push(key.to_owned());
        self
    }

    /// With this annotation in the manifest.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Whether the labels call it bootable. Without this the commit's metadata decides.
    pub fn bootable(self, bootable: bool) -> Self {
        if bootable {
            self.label("ostree.bootable", "true").label("containers.bootc", "1")
        } else {
            self.without_label("ostree.bootable").without_label("containers.bootc")
        }
    }

    /// The manifest lists this layer a second time, on top.
    pub fn repeat_layer(mut self, layer: usize) -> Self {
        self.repeated = Some(layer);
        self
    }

    /// A layer that is not what manifest or config say.
    pub fn lie(mut self, layer: usize, lie: Lie) -> Self {
        self.lies.push((layer, lie));
        self
    }

    /// Changes a layer's entries before they are written: order, names, content, more, fewer.
    pub fn edit_entries(mut self, layer: usize, edit: impl FnOnce(&mut Vec<Entry>) + 'static) -> Self {
        self.edits.push((layer, Box::new(edit)));
        self
    }

    /// Changes the config before it is written.
    pub fn edit_config(mut self, edit: impl FnOnce(&mut Value) + 'static) -> Self {
        self.edit_config = Some(Box::new(edit));
        self
    }

    /// Changes the manifest before it is written.
    pub fn edit_manifest(mut self, edit: impl FnOnce(&mut Value) + 'static) -> Self {
        self.edit_manifest = Some(Box::new(edit));
        self
    }

    /// Writes the image into the OCI layout `dir` (made if it is not there) as `tag`.
    pub fn write(self, dir: &Path, tag: &str) -> Result<Written> {
        let layout = Layout::open(dir)?;
        let written = self.write_untagged(&layout, tag)?;
        layout.tag(tag, &written.media_type, &written.digest, written.size)?;
        Ok(written)
    }

    fn write_untagged(mut self, layout: &Layout, tag: &str) -> Result<Written> {
        let (layers, base_layers) = self.layers()?;
        let repo = self.base.as_ref().map(|(repo, _)| Clone::clone(repo));
        let mut written = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            written
                .push(layer.write(layout, repo.as_ref()).with_context(|| format!("Writing layer {index}"))?);
        }
        if let Some(index) = self.repeated {
            written.push(written.get(index).context("The repeated layer does not exist")?.clone());
        }
        let format = self.format;
        let labels = self.labels(&written, base_layers)?;
        let titles = layers.iter().map(|layer| layer.title.clone()).chain(["repeated".to_owned()]);
        let mut config = self.config(&labels, &written, titles);
        if let Some(edit) = self.edit_config.take() {
            edit(&mut config);
        }
        let config = serde_json::to_vec(&config)?;
        let config_digest = layout.write_blob(&config)?;
        let mut manifest = self.manifest(&labels, &written, &layers, (&config_digest, config.len()));
        if let Some(edit) = self.edit_manifest.take() {
            edit(&mut manifest);
        }
        let manifest = serde_json::to_vec(&manifest)?;
        Ok(Written {
            dir: layout.dir().to_owned(),
            tag: tag.to_owned(),
            digest: layout.write_blob(&manifest)?,
            media_type: format.manifest().to_owned(),
            size: manifest.len() as u64,
            layers: written,
        })
    }

    /// All layers as they will be written, and how many belong to the base.
    fn layers(&mut self) -> Result<(Vec<Layer>, usize)> {
        let mut layers = Vec::new();
        if let Some((repo, commit)) = &self.base {
            let by_path = |path: &str| encapsulate::chunk_by_path(path, self.chunks);
            let chunk_of = self.chunk_of.as_deref().unwrap_or(&by_path);
            for BaseLayer { title, entries } in
                encapsulate::encapsulate(repo, commit, self.chunks, chunk_of, self.xattrs)?
            {
                layers.push((title, Content::Entries(entries), TarStyle::Ostree));
            }
        }
        let base_layers = layers.len();
        layers.append(&mut self.upper);
        for (index, edit) in self.edits.drain(..) {
            match layers.get_mut(index) {
                Some((_, Content::Entries(entries), _)) => edit(entries),
                _ => anyhow::bail!("layer {index} has no entries to edit"),
            }
        }
        let layers = layers.into_iter().enumerate().map(|(index, (title, content, style))| Layer {
            title,
            content,
            style,
            compression: *self.layer_compressions.get(&index).unwrap_or(&self.compression),
            lies: self.lies.iter().filter(|(layer, _)| *layer == index).map(|(_, lie)| lie.clone()).collect(),
        });
        Ok((layers.collect(), base_layers))
    }

    fn labels(&self, written: &[WrittenLayer], base_layers: usize) -> Result<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        if let Some((repo, commit)) = &self.base {
            let metadata = glib::VariantDict::new(Some(&repo.load_commit(commit)?.0.child_value(0)));
            labels.insert("ostree.commit".to_owned(), commit.clone());
            labels.insert("ostree.final-diffid".to_owned(), written[base_layers - 1].diff_id.clone());
            if let Some(version) = metadata.lookup::<String>("version")? {
                labels.insert("org.opencontainers.image.version".to_owned(), version.clone());
                labels.insert("version".to_owned(), version);
            }
            if let Some(kernel) = metadata.lookup::<String>("ostree.linux")? {
                labels.insert("ostree.linux".to_owned(), kernel);
            }
            if metadata.lookup::<bool>("ostree.bootable")?.unwrap_or(false) {
                labels.insert("ostree.bootable".to_owned(), "true".to_owned());
                labels.insert("containers.bootc".to_owned(), "1".to_owned());
            }
        }
        labels.extend(self.labels.clone());
        labels.retain(|key, _| !self.removed_labels.contains(key));
        Ok(labels)
    }

    fn config(
        &self,
        labels: &BTreeMap<String, String>,
        written: &[WrittenLayer],
        titles: impl Iterator<Item = String>,
    ) -> Value {
        let created = rfc3339(self.created.unwrap_or_else(|| self.base_time()));
        let history =
            titles.take(written.len()).map(|title| json!({ "created": created, "created_by": title }));
        json!({
            "created": created,
            "architecture": self.architecture,
            "os": "linux",
            "config": { "Labels": labels },
            "rootfs": {
                "type": "layers",
                "diff_ids": written.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>(),
            },
            "history": history.collect::<Vec<_>>(),
        })
    }

    fn base_time(&self) -> i64 {
        let commit = self.base.as_ref().and_then(|(repo, commit)| repo.load_commit(commit).ok());
        let seconds = commit.map_or(crate::tree::EPOCH, |(object, _)| ostree::commit_get_timestamp(&object));
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }

    fn manifest(
        &self,
        labels: &BTreeMap<String, String>,
        written: &[WrittenLayer],
        layers: &[Layer],
        (config, config_size): (&str, usize),
    ) -> Value {
        let media_type = |index: usize| {
            let layer = &layers[if index < layers.len() { index } else { self.repeated.unwrap_or(0) }];
            self.format.layer(layer.compression)
        };
        let descriptors = written.iter().enumerate().map(|(index, layer)| {
            json!({ "mediaType": media_type(index), "digest": layer.digest, "size": layer.size })
        });
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": self.format.manifest(),
            "config": { "mediaType": self.format.config(), "digest": config, "size": config_size },
            "layers": descriptors.collect::<Vec<_>>(),
        });
        // Docker's format has no annotations.
        if self.format == Format::Oci {
            let mut annotations = labels.clone();
            annotations.extend(self.annotations.clone());
            manifest["annotations"] = json!(annotations);
        }
        manifest
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("base", &self.base.as_ref().map(|(_, commit)| commit))
            .finish_non_exhaustive()
    }
}

/// Writes a multi-architecture image as `tag`: an index (a manifest list, if the first image is of
/// Docker's format) of these images, each under the architecture of its config.
pub fn write_index(dir: &Path, tag: &str, images: Vec<Image>) -> Result<Written> {
    let layout = Layout::open(dir)?;
    let format = images.first().context("An index needs an image")?.format;
    let mut entries = Vec::new();
    for image in images {
        let architecture = image.architecture.clone();
        let written = image.write_untagged(&layout, tag)?;
        entries.push(json!({
            "mediaType": written.media_type,
            "digest": written.digest,
            "size": written.size,
            "platform": { "architecture": architecture, "os": "linux" },
        }));
    }
    let index = json!({ "schemaVersion": 2, "mediaType": format.index(), "manifests": entries });
    let index = serde_json::to_vec(&index)?;
    let digest = layout.write_blob(&index)?;
    let size = index.len() as u64;
    layout.tag(tag, format.index(), &digest, size)?;
    Ok(Written {
        dir: dir.to_owned(),
        tag: tag.to_owned(),
        digest,
        media_type: format.index().to_owned(),
        size,
        layers: Vec::new(),
    })
}

/// Writes an index, tagged `tag`, whose only entry is another index.
pub fn write_index_of_index(inner: &Written, tag: &str) -> Result<Written> {
    let layout = Layout::open(&inner.dir)?;
    let media_type = inner.media_type.as_str();
    let entry = json!({
        "mediaType": media_type, "digest": inner.digest, "size": inner.size,
        "platform": { "architecture": host_architecture(), "os": "linux" },
    });
    let index = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": [entry] });
    let index = serde_json::to_vec(&index)?;
    let digest = layout.write_blob(&index)?;
    let size = index.len() as u64;
    layout.tag(tag, media_type, &digest, size)?;
    Ok(Written { tag: tag.to_owned(), digest, size, ..inner.clone() })
}

/// Packs an OCI layout into one tar file: what `oci-archive:` reads.
pub fn write_archive(dir: &Path, path: &Path) -> Result<()> {
    let mut archive = tar::Builder::new(fs::File::create(path)?);
    archive.append_dir_all("", dir)?;
    archive.finish()?;
    Ok(())
}

fn rfc3339(seconds: i64) -> String {
    let time = glib::DateTime::from_unix_utc(seconds).expect("a time that the calendar has");
    time.format("%Y-%m-%dT%H:%M:%SZ").expect("a known format").to_string()
}

/// An open repo's checksum of a branch.
pub fn resolve(repo: &ostree::Repo, rev: &str) -> Result<String> {
    let commit = repo.resolve_rev(rev, false)?.with_context(|| format!("No such revision: {rev}"))?;
    Ok(commit.to_string())
}

/// Opens the repo at `path`.
pub fn open_repo(path: &Path) -> Result<ostree::Repo> {
    let repo = ostree::Repo::new_for_path(path);
    repo.open(gio::Cancellable::NONE).with_context(|| format!("Opening the repo {}", path.display()))?;
    Ok(repo)
}
