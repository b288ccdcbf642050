//! The old host API: request files in `/etc/pivot` of the running host, and `/run/pivot/reboot-needed`.
//!
//! A request is cleared by the run that finds it fulfilled. A rollback brings an older `/etc` back,
//! which may hold a request that was carried out long ago: the boot file knows it, and it is set
//! aside, not run. A sysroot that does not run has no requests: what stands there is for its own boot.

use std::io::Read;

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::host_lock::HostLocked;
use super::sysroot::Host;
use crate::error::Fault;
use crate::model::boots::RequestOutcome;
use crate::model::digest::Digest;
use crate::model::host_request::{
    IMAGE_PULLSPEC, KERNEL_ARGUMENTS, REBOOT_NEEDED, REQUEST_SIZE_MAX, parse_image_pullspec,
    parse_kernel_arguments, request_digest,
};
use crate::model::image_ref::OsImage;
use crate::model::kargs::KargEdit;

/// After the name of a request that is not to be run again.
pub(super) const SET_ASIDE: &str = ".rolled-back";

/// What the request files ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRequest {
    /// The image, if one is asked for.
    pub image: Option<OsImage>,
    /// Changes of kernel arguments.
    pub kargs: Vec<KargEdit>,
    /// Whether a reboot is wanted.
    pub reboot: bool,
    /// The identity of the request; none when the files ask for nothing.
    pub digest: Option<Digest>,
    /// It was carried out or rolled back before. It may run again only where the host is what it asks
    /// for already, or by force.
    pub known: Option<RequestOutcome>,
    /// Lines that could not be used.
    pub warnings: Vec<String>,
}

impl Host {
    /// Reads the request files; none when there is neither an image nor an argument file.
    #[context("Reading the request files")]
    pub fn request(&self) -> Result<Option<HostRequest>> {
        if !self.is_booted() {
            return Ok(None);
        }
        let image_text = read(self.root(), IMAGE_PULLSPEC)?;
        let kargs_text = read(self.root(), KERNEL_ARGUMENTS)?;
        if image_text.is_none() && kargs_text.is_none() {
            return Ok(None);
        }
        let image = image_text.as_deref().map(parse_image_pullspec).transpose().map_err(|invalid| {
            Fault::usage(format!("the request /{IMAGE_PULLSPEC} names no image"))
                .why(invalid.to_string())
                .next(format!("write an image reference into /{IMAGE_PULLSPEC}, or remove it"))
        })?;
        let arguments = parse_kernel_arguments(kargs_text.as_deref().unwrap_or_default());
        let digest = request_digest(image_text.as_deref(), kargs_text.as_deref());
        let known = digest.as_ref().map(|digest| self.known_request(digest)).transpose()?.flatten();
        Ok(Some(HostRequest {
            image,
            kargs: arguments.edits,
            reboot: self.root().symlink_metadata(REBOOT_NEEDED).is_ok(),
            digest,
            known,
            warnings: arguments.warnings,
        }))
    }
}

impl HostLocked<'_> {
    /// Removes the request files: the host is what they ask for.
    #[context("Clearing the request files")]
    pub fn clear_request(&self, request: &HostRequest) -> Result<()> {
        if let Some(digest) = &request.digest {
            self.note_carried_out(digest)?;
        }
        for path in [IMAGE_PULLSPEC, KERNEL_ARGUMENTS, REBOOT_NEEDED] {
            ignore_missing(self.host().root().remove_file(path))?;
        }
        Ok(())
    }

    /// Renames the request files: they were carried out or rolled back before, and the host has moved
    /// on. Says how they are called now.
    #[context("Setting the request files aside")]
    pub fn set_request_aside(&self) -> Result<Vec<String>> {
        let root = self.host().root();
        let mut names = Vec::new();
        for path in [IMAGE_PULLSPEC, KERNEL_ARGUMENTS] {
            let aside = format!("{path}{SET_ASIDE}");
            if ignore_missing(root.rename(path, root, &aside))? {
                names.push(format!("/{aside}"));
            }
        }
        Ok(names)
    }
}

fn read(root: &Dir, path: &str) -> Result<Option<String>> {
    let file = match root.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut content = Vec::new();
    file.take(REQUEST_SIZE_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > REQUEST_SIZE_MAX {
        return Err(Fault::usage(format!("the request /{path} is too long"))
            .why(format!("a request is a line or a few; more than {REQUEST_SIZE_MAX} bytes are not read"))
            .next(format!("correct or remove /{path}"))
            .into());
    }
    Ok(Some(String::from_utf8_lossy(&content).into_owned()))
}

/// Whether there was something.
pub(super) fn ignore_missing(result: std::io::Result<()>) -> std::io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
