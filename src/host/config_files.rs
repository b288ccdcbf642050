//! The files of a request, and the contents that they point to.
//!
//! What is fetched is known by its hash, so it does not matter who serves it, and it may come over
//! plain HTTP. Addresses may hold credentials: none is shown but host and path.

mod fetch;
mod proxy;

use std::io::{self, Read};
use std::path::Path;

use anyhow::Result;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::File;

pub use fetch::fetch_remote;

use crate::error::Fault;
use crate::model::config::{Config, Input};
use crate::options::config::ConfigFile;

/// The largest file that is read: etcd holds no object above 1.5 MiB, but a List may join hundreds.
const FILE_MAX: u64 = 128 << 20;

/// `HOST:PORT` of the proxy through which a registry is reached; none where there is none to use.
///
/// # Errors
///
/// The variable that is no address of a proxy.
pub(super) fn proxy_for(registry: &str) -> Result<Option<String>, String> {
    let proxy = proxy::choose(|name| std::env::var(name).ok(), &format!("https://{registry}/"))?;
    Ok(proxy.map(|proxy| format!("{}:{}", proxy.host(), proxy.port())))
}

/// Reads the files of a request.
///
/// # Errors
///
/// A file that is not there, cannot be read or is larger than a config may be; it is named.
pub fn read(files: &[ConfigFile]) -> Result<Vec<Input>> {
    Ok(files.iter().map(read_one).collect::<Result<Vec<_>, Fault>>()?)
}

/// Reads the files of a request and what they say; the contents that are elsewhere are not fetched.
///
/// # Errors
///
/// As [`read`], and everything that is wrong with what they say.
pub fn load(files: &[ConfigFile]) -> Result<Config> {
    Ok(crate::model::config::read(read(files)?).map_err(Fault::from)?)
}

fn read_one(file: &ConfigFile) -> Result<Input, Fault> {
    match file {
        ConfigFile::Stdin => bounded(io::stdin().lock(), "standard input", FILE_MAX),
        ConfigFile::Path(path) => from_path(path),
    }
}

fn from_path(path: &Path) -> Result<Input, Fault> {
    let name = path.display().to_string();
    let fail = |error: io::Error| {
        Fault::failed(format!("{name} cannot be read"))
            .why(error.to_string())
            .next("name a MachineConfig or Ignition config that is there, or - for standard input")
    };
    let file = File::open_ambient(path, ambient_authority()).map_err(fail)?;
    if file.metadata().map_err(fail)?.is_dir() {
        return Err(Fault::failed(format!("{name} is a directory"))
            .next(format!("name the files in it: {}", path.join("*.yaml").display())));
    }
    bounded(file, &name, FILE_MAX)
}

fn bounded(reader: impl Read, name: &str, limit: u64) -> Result<Input, Fault> {
    let mut bytes = Vec::new();
    reader
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Fault::failed(format!("{name} cannot be read")).why(error.to_string()))?;
    if bytes.len() as u64 > limit {
        return Err(Fault::refused(format!("{name} is refused"))
            .why(format!("it is larger than {} MiB, and so no config", limit >> 20))
            .next("name a MachineConfig or Ignition config"));
    }
    Ok(Input { name: name.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_in_order_under_the_names_they_were_typed_by() {
        let folder = tempfile::tempdir().unwrap();
        let dir =
            cap_std_ext::cap_std::fs::Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let paths: Vec<_> = ["b.yaml", "a.yaml"]
            .map(|name| {
                dir.write(name, name).unwrap();
                folder.path().join(name)
            })
            .into();
        let files: Vec<ConfigFile> = paths.iter().cloned().map(ConfigFile::Path).collect();
        let read = read(&files).unwrap();
        let names: Vec<&str> = read.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, [paths[0].to_str().unwrap(), paths[1].to_str().unwrap()]);
        assert_eq!(read[0].bytes, b"b.yaml");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = from_path(&folder.path().join("no.yaml")).unwrap_err();
        assert!(missing.what.ends_with("no.yaml cannot be read"), "{missing:?}");
        assert_eq!(missing.why.as_deref(), Some("No such file or directory (os error 2)"));
        let directory = from_path(folder.path()).unwrap_err();
        assert!(directory.what.ends_with(" is a directory"), "{directory:?}");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let fault = bounded(io::repeat(b'x'), "endless", 4096).unwrap_err();
        assert_eq!(fault.what, "endless is refused");
        assert_eq!(bounded(io::repeat(b'x').take(4096), "full", 4096).unwrap().bytes.len(), 4096);
    }
}
