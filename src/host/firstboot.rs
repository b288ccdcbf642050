//! The files with which a first boot asks for an image and a configuration.
//!
//! They are read only on the running host, and renamed only by the run that finds nothing left to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fn_error_context::context;

use super::host_lock::HostLocked;
use super::requests::{SET_ASIDE, ignore_missing};
use super::sysroot::Host;
use crate::host::config_files;
use crate::model::boots::RequestOutcome;
use crate::model::config::Input;
use crate::model::digest::Digest;
use crate::model::firstboot::{CARRIED_OUT, ENCAPSULATED, Form, WHOLE, request_digest};
use crate::options::config::ConfigFile;

/// A request of a first boot.
#[derive(Debug, Clone)]
pub struct FirstBoot {
    /// Its file, from the root; none for one that somebody named, which stays as it is.
    pub path: Option<&'static str>,
    /// What it speaks of.
    pub form: Form,
    /// Its bytes.
    pub input: Input,
    /// Its identity.
    pub digest: Digest,
    /// It was carried out or rolled back before.
    pub known: Option<RequestOutcome>,
    /// The file of the other form is there too, and does not count.
    pub shadows: Option<&'static str>,
}

impl Host {
    /// Reads the request: of the file that somebody `named`, else of those that there are. What Ignition
    /// wrote comes first: such a machine belongs to a cluster.
    #[context("Reading what the first boot asks for")]
    pub fn first_boot(&self, named: Option<&Path>) -> Result<Option<FirstBoot>> {
        let default = |path: &str| Path::new("/").join(path);
        let there = |path: &str| match self.root().symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let (path, form, file) = match named {
            Some(path) if path == default(ENCAPSULATED) => {
                (Some(ENCAPSULATED), Form::Encapsulated, path.into())
            }
            Some(path) => (None, Form::Encapsulated, path.to_owned()),
            None if there(ENCAPSULATED)? => (Some(ENCAPSULATED), Form::Encapsulated, default(ENCAPSULATED)),
            None if there(WHOLE)? => (Some(WHOLE), Form::Whole, default(WHOLE)),
            None => return Ok(None),
        };
        let input = read(file)?;
        let digest = request_digest(&input.bytes);
        let known = self.known_request(&digest)?;
        let shadows = (path == Some(ENCAPSULATED) && there(WHOLE)?).then_some(WHOLE);
        Ok(Some(FirstBoot { path, form, input, digest, known, shadows }))
    }
}

impl HostLocked<'_> {
    /// The machine is what the request asks for: its file is renamed, and it is never run again. Says how
    /// the files are called now.
    #[context("Clearing the request of the first boot")]
    pub fn clear_first_boot(&self, request: &FirstBoot) -> Result<Vec<String>> {
        self.note_carried_out(&request.digest)?;
        self.rename(request, CARRIED_OUT)
    }

    /// It was carried out or rolled back before, and the host has moved on: its file is renamed.
    #[context("Setting the request of the first boot aside")]
    pub fn set_first_boot_aside(&self, request: &FirstBoot) -> Result<Vec<String>> {
        self.rename(request, SET_ASIDE)
    }

    fn rename(&self, request: &FirstBoot, suffix: &str) -> Result<Vec<String>> {
        let root = self.host().root();
        let mut names = Vec::new();
        for path in request.path.into_iter().chain(request.shadows) {
            let to = format!("{path}{suffix}");
            if ignore_missing(root.rename(path, root, &to))? {
                names.push(format!("/{to}"));
            }
        }
        Ok(names)
    }
}

fn read(file: PathBuf) -> Result<Input> {
    let mut inputs = config_files::read(&[ConfigFile::Path(file)])?;
    inputs.pop().ok_or_else(|| anyhow::anyhow!("nothing was read"))
}
