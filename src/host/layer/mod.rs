//! Stub until part B is merged.
#![allow(missing_docs)]

use anyhow::Result;

use crate::error::Fault;
use crate::model::config::Config;
use crate::model::manifest::{Manifest, Source};

#[derive(Debug)]
pub struct LayerRequest<'a> {
    pub image_commit: &'a str,
    pub config: Option<&'a Config>,
    pub source: Source,
    pub previous: Option<&'a Manifest>,
    pub previous_image_commit: Option<&'a str>,
}

#[derive(Debug, Clone)]
pub struct Layered {
    pub commit: String,
    pub manifest: Manifest,
    pub written: usize,
    pub warnings: Vec<String>,
}

pub fn layer(_repo: &ostree::Repo, _request: &LayerRequest<'_>) -> Result<Layered> {
    Err(Fault::failed("layering is being built").into())
}

pub fn manifest_of_commit(_repo: &ostree::Repo, _commit: &str) -> Result<Option<Manifest>> {
    Ok(None)
}

pub fn compose_for_root(
    _root: &cap_std_ext::cap_std::fs::Dir,
    _config: &Config,
    _source: &Source,
    _previous: &Manifest,
) -> Result<(Manifest, std::collections::BTreeMap<crate::model::digest::Digest, crate::model::config::Blob>)> {
    Err(Fault::failed("layering is being built").into())
}
