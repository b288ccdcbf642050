//! What is dear to make and the same in every run: a folder in the cache, found by what makes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::layout::digest_of;

/// Such a folder. While the value lives, nobody clears it away.
#[derive(Debug)]
pub struct Cached {
    folder: PathBuf,
    _lock: File,
}

impl Cached {
    /// The folder of `kind` that was made from these `parts`; `make` fills it if it is not there.
    /// Two callers at once: the second waits. What was made from other parts goes, if nobody uses it.
    pub fn find_or_make(kind: &str, parts: &[&str], make: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let key = digest_of(parts.join("\n").as_bytes()).replace("sha256:", "");
        let key = &key[..16];
        let cache = root()?.join(kind);
        fs::create_dir_all(&cache)?;
        clear_others(&cache, key)?;
        let folder = cache.join(key);
        let lock = File::create(cache.join(format!("{key}.lock")))?;
        let is_complete = || folder.join("complete").exists();
        // Whoever uses it holds the lock, shared, for as long: only who must make it waits for them.
        lock.lock_shared()?;
        if !is_complete() {
            lock.lock()?;
            if !is_complete() {
                remove(&folder)?;
                fs::create_dir_all(&folder)?;
                make(&folder)?;
                File::create(folder.join("complete"))?;
            }
            lock.lock_shared()?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The folder that all of the project's caches are in.
fn root() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(cache.context("Neither XDG_CACHE_HOME nor HOME is set")?.join("mcd"))
}

fn clear_others(cache: &Path, key: &str) -> Result<()> {
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(other) = name.strip_suffix(".lock").filter(|other| *other != key) else { continue };
        if File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok()) {
            remove(&cache.join(other))?;
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Removes a folder that may hold deployments: libostree makes each one's root immutable.
pub fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let _ = Command::new("chattr").args(["-R", "-f", "-i"]).arg(folder).output();
    fs::remove_dir_all(folder).with_context(|| format!("Removing {}", folder.display()))
}
