//! What a folder holds, in lines that can be compared: everything but times.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Every path below a folder and what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    lines: BTreeMap<String, String>,
}

impl Listing {
    /// Kind, mode, owner, extended attributes, target or content of all below `root`. What is below
    /// `root` at a path that `skip` takes is left out, with all that it holds. Nothing if there is no
    /// `root`.
    pub fn of(root: &Path, skip: &dyn Fn(&str) -> bool) -> Result<Self> {
        let mut listing = Self::default();
        if root.exists() {
            listing.add(root, "", skip, &|path| describe(path))?;
        }
        Ok(listing)
    }

    /// Only the names.
    pub fn names(root: &Path, skip: &dyn Fn(&str) -> bool) -> Result<Self> {
        let mut listing = Self::default();
        if root.exists() {
            listing.add(root, "", skip, &|_| Ok(String::new()))?;
        }
        Ok(listing)
    }

    fn add(
        &mut self,
        folder: &Path,
        below: &str,
        skip: &dyn Fn(&str) -> bool,
        describe: &dyn Fn(&Path) -> Result<String>,
    ) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("Reading {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if skip(&path) {
                continue;
            }
            self.lines.insert(path.clone(), describe(&entry.path())?);
            if entry.file_type()?.is_dir() {
                self.add(&entry.path(), &path, skip, describe)?;
            }
        }
        Ok(())
    }

    /// With other names; what gets the same name becomes one.
    #[must_use]
    pub fn renamed(self, rename: impl Fn(&str) -> String) -> Self {
        Self { lines: self.lines.into_iter().map(|(path, line)| (rename(&path), line)).collect() }
    }

    /// With another line for one path, if it is there.
    pub fn replace(&mut self, path: &str, line: String) {
        if let Some(own) = self.lines.get_mut(path) {
            *own = line;
        }
    }

    /// The line of a path.
    pub fn line(&self, path: &str) -> Option<&str> {
        self.lines.get(path).map(String::as_str)
    }

    /// All paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// What is only here (`-`), only in `other` (`+`), or not the same.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut told = Vec::new();
        for (path, line) in &self.lines {
            match other.lines.get(path) {
                None => told.push(format!("- {path} {line}")),
                Some(theirs) if theirs != line => told.push(format!("! {path} {line} -> {theirs}")),
                Some(_) => {}
            }
        }
        let added = other.lines.iter().filter(|(path, _)| !self.lines.contains_key(*path));
        told.extend(added.map(|(path, line)| format!("+ {path} {line}")));
        told
    }
}

/// One line for what is at `path`, links not followed.
pub fn describe(path: &Path) -> Result<String> {
    let found = fs::symlink_metadata(path).with_context(|| format!("Looking at {}", path.display()))?;
    let kind = found.file_type();
    let content = if kind.is_symlink() {
        format!("-> {}", fs::read_link(path)?.display())
    } else if kind.is_file() {
        let bytes = fs::read(path).with_context(|| format!("Reading {}", path.display()))?;
        format!("{} {}", bytes.len(), hex::encode(Sha256::digest(bytes)))
    } else if kind.is_dir() {
        "folder".to_owned()
    } else {
        format!("{kind:?}")
    };
    let mode = found.permissions().mode() & 0o7777;
    Ok(format!("{mode:04o} {}:{} {content}{}", found.uid(), found.gid(), attributes(path)?))
}

/// Extended attributes. libostree's own say how a file is stored, not what it is.
fn attributes(path: &Path) -> Result<String> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return Ok(String::new()) };
    let mut told = String::new();
    let mut names: Vec<&[u8]> =
        names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    for name in names {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value)?;
        let value = String::from_utf8_lossy(&value[..length]).into_owned();
        told.push_str(&format!(" {}={value:?}", String::from_utf8_lossy(name)));
    }
    Ok(told)
}
