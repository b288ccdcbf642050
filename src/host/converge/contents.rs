//! Where the contents of managed files are read from.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

use anyhow::Result;
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;

use crate::model::config::Blob;
use crate::model::digest::Digest;

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
    /// The content, if it is held here.
    fn open(&self, wanted: &Wanted<'_>) -> Result<Option<Box<dyn Read>>>;
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

/// The first of several that has it.
#[derive(Debug, Default)]
pub struct Several(pub Vec<Box<dyn Contents>>);
