//! Where the contents of managed files are read from.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Cursor, Read};

use anyhow::{Context, Result};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};

use crate::model::config::Blob;
use crate::model::digest::Digest;
use crate::model::manifest::{CONTENT_FOLDER, DEFAULT_FOLDER};

/// Which content is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The path that it is for.
    pub path: &'a Utf8Path,
    /// Its digest. Readers need not check it: whoever writes the file does.
    pub digest: &'a Digest,
    /// The file object that holds it.
    pub object: Option<&'a str>,
}

/// Something that holds contents.
pub trait Contents: fmt::Debug {
    /// The content, if it is held here. It is as good as what keeps it: see [`read`].
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>>;

    /// Further places that may hold it, for when the first gives something else.
    fn others(&self, _wanted: &Wanted<'_>) -> Result<Vec<Box<dyn Read>>> {
        Ok(Vec::new())
    }
}

/// The whole content, checked against its digest; none if nothing holds it.
pub fn read(contents: &dyn Contents, wanted: &Wanted<'_>) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let found = read_with(contents, wanted, &mut |reader| {
        bytes.clear();
        reader.read_to_end(&mut bytes)?;
        Ok(Digest::of(&bytes) == *wanted.digest)
    })?;
    Ok(found.then_some(bytes))
}

/// Offers what may be the content to `take` until it says that it is.
pub(super) fn read_with(
    contents: &dyn Contents,
    wanted: &Wanted<'_>,
    take: &mut dyn FnMut(&mut dyn Read) -> Result<bool>,
) -> Result<bool> {
    if let Some(mut first) = contents.open(wanted)?
        && take(&mut first)?
    {
        return Ok(true);
    }
    for mut other in contents.others(wanted)? {
        if take(&mut other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The objects of a bare repo: plain files.
#[derive(Debug)]
pub struct RepoObjects(pub Dir);

/// What a root without a repo keeps in `/var/lib/mcd/content`, by digest.
#[derive(Debug)]
pub struct ContentStore(pub Dir);

/// A deployment's own tree: `usr/etc`, `usr/lib/mcd/content` and `usr/lib/mcd/default`.
#[derive(Debug)]
pub struct DeploymentTree(pub Dir);

/// Contents in memory.
#[derive(Debug, Default)]
pub struct InMemory(pub BTreeMap<Digest, Blob>);

/// All of several.
#[derive(Debug, Default)]
pub struct Several(pub Vec<Box<dyn Contents>>);

impl Contents for RepoObjects {
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>> {
        let Some(object) = wanted.object.filter(|object| is_checksum(object)) else { return Ok(None) };
        let (folder, name) = object.split_at(2);
        open_in(&self.0, &format!("{folder}/{name}.file"))
    }
}

impl Contents for ContentStore {
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>> {
        open_in(&self.0, wanted.digest.hex())
    }
}

impl Contents for DeploymentTree {
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>> {
        open_in(&self.0, &format!("{CONTENT_FOLDER}/{}", wanted.digest.hex()))
    }

    fn others(&self, wanted: &Wanted<'_>) -> Result<Vec<Box<dyn Read>>> {
        let below = wanted.path.as_str().trim_start_matches('/');
        let mut found = Vec::new();
        if below.starts_with("etc/") {
            found.extend(open_in(&self.0, &format!("usr/{below}"))?);
        }
        found.extend(open_in(&self.0, &format!("{DEFAULT_FOLDER}/{below}"))?);
        Ok(found)
    }
}

impl Contents for InMemory {
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>> {
        let blob = self.0.get(wanted.digest);
        Ok(blob.map(|blob| Box::new(Cursor::new(blob.bytes().to_vec())) as _))
    }
}

impl Contents for Several {
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>> {
        for contents in &self.0 {
            if let Some(found) = contents.open(wanted)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn others(&self, wanted: &Wanted<'_>) -> Result<Vec<Box<dyn Read>>> {
        let mut found = Vec::new();
        for contents in &self.0 {
            found.extend(contents.open(wanted)?);
            found.extend(contents.others(wanted)?);
        }
        Ok(found)
    }
}

/// Opens a file, if it is there. What is no file is not there: nobody waits for a pipe.
fn open_in(dir: &Dir, path: &str) -> Result<Option<Box<dyn Read>>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    match dir.open_with(path, &options) {
        Ok(file) if file.metadata().is_ok_and(|data| data.is_file()) => Ok(Some(Box::new(file))),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error).with_context(|| format!("Opening {path}")),
    }
}

fn is_checksum(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
