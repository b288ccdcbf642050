//! The files of a request, and what they point to.

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use crate::error::Fault;
use crate::model::config::{Config, Input};
use crate::options::config::ConfigFile;

/// Reads the files of a request.
///
/// # Errors
///
/// A file that is not there, cannot be read or is larger than a config may be; it is named.
pub fn read(_files: &[ConfigFile]) -> Result<Vec<Input>> {
    Err(Fault::refused("reading configuration is being built").into())
}

/// Reads the files of a request and what they say; the contents that are elsewhere are not fetched.
///
/// # Errors
///
/// As [`read`], and everything that is wrong with what they say.
pub fn load(files: &[ConfigFile]) -> Result<Config> {
    Ok(crate::model::config::read(read(files)?).map_err(Fault::from)?)
}

/// Fetches contents that are elsewhere and puts them in place of their addresses.
///
/// # Errors
///
/// What cannot be fetched, is too large or is not what its hash says: by field and address, without
/// credentials. Nothing is replaced then.
pub fn fetch_remote(_config: &mut Config, _stop: &CancellationToken) -> Result<()> {
    Err(Fault::refused("fetching contents is being built").into())
}
