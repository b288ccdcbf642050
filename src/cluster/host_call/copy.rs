//! The pod's own program for a host that has none: the first migration to an image with `mcd`.
//!
//! ```text
//! /run/mcd/pod/VERSION-SIZE-TIME/
//!     mcd          this program
//!     lib/         the libraries that it is linked with here, and the loader
//! ```
//!
//! It is started by its own loader with its own libraries, because one that was built for this distribution
//! does not start with another's. It is gone with the next boot, which brings the image's own.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use fn_error_context::context;

use crate::error::Fault;
use crate::host::durable;

/// Where copies are, below the host's root.
const FOLDER: &str = "run/mcd/pod";
const PROGRAM: &str = "mcd";
const LIBRARIES: &str = "lib";
/// What this process has mapped: its loader among it.
const MAPS: &str = "/proc/self/maps";
/// Whose names begin so is the loader.
const LOADER: &str = "ld-";
/// The loader, in a copy.
const LOADER_COPY: &str = "loader";
/// There where the host's kernel runs SELinux.
const SELINUX: &str = "sys/fs/selinux/enforce";
/// What systemd may start as a service that is not confined.
const LABEL: &[u8] = b"system_u:object_r:bin_t:s0\0";
const LABEL_NAME: &str = "security.selinux";

/// Puts a copy of the program at `own` onto the host with this root, unless it is there, and gives the words
/// that start it.
///
/// # Errors
///
/// The host has no room for it, or this process's libraries cannot be read.
#[context("Bringing the pod's own mcd to the host")]
pub(super) fn bring(root: &Dir, own: &Path) -> Result<Vec<String>> {
    let here = Dir::open_ambient_dir("/", ambient_authority())?;
    // Not by its path, which has no meaning below a root of ours: /proc/self/exe leads anywhere.
    let program =
        File::open_ambient(own, ambient_authority()).with_context(|| format!("Opening {}", own.display()))?;
    let name = name_of(&program)?;
    let maps = here.read_to_string(MAPS.trim_start_matches('/'))?;
    let unknown = |why: String| {
        Fault::failed("the pod's own mcd cannot be copied to the host")
            .why(why)
            .next("install mcd on the host, or use the image that manifests/Containerfile makes")
    };
    let loader = loader(&maps).ok_or_else(|| unknown("it has no loader".to_owned()))?;
    let copies = durable::folders(root, FOLDER)?;
    if !copies.try_exists(&name)? {
        let listed = Command::new(loader).arg("--list").arg(own).stdin(Stdio::null()).output()?;
        let mut libraries = libraries(&String::from_utf8_lossy(&listed.stdout));
        if !listed.status.success() {
            return Err(unknown(String::from_utf8_lossy(&listed.stderr).trim().to_owned()).into());
        }
        libraries.insert(LOADER_COPY.to_owned(), loader.to_owned());
        make(&copies, &name, program, &here, &libraries, root.exists(SELINUX))?;
    }
    let folder = format!("/{FOLDER}/{name}");
    let words = [
        &format!("{folder}/{LIBRARIES}/{LOADER_COPY}"),
        "--inhibit-cache",
        "--library-path",
        &format!("{folder}/{LIBRARIES}"),
        &format!("{folder}/{PROGRAM}"),
    ];
    Ok(words.map(str::to_owned).into())
}

/// Another build is another copy, also under the same version.
fn name_of(program: &File) -> Result<String> {
    let found = program.metadata()?;
    let changed = found.modified()?.into_std().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{}-{:x}-{:x}", env!("CARGO_PKG_VERSION"), found.len(), changed.as_nanos()))
}

/// The loader that this process was started by.
fn loader(maps: &str) -> Option<&Path> {
    let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    paths.find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(LOADER))
    })
}

/// What the loader would load for a program, by the names that are asked for.
fn libraries(listed: &str) -> BTreeMap<String, PathBuf> {
    let lines = listed.lines().filter_map(|line| line.trim().rsplit_once(" (").map(|(line, _)| line));
    lines
        .filter_map(|line| {
            let (name, path) = line.split_once(" => ").unwrap_or((line, line));
            let name = Path::new(name).file_name()?.to_str()?;
            // The kernel's own has no file.
            path.starts_with('/').then(|| (name.to_owned(), PathBuf::from(path)))
        })
        .collect()
}

fn make(
    copies: &Dir,
    name: &str,
    program: File,
    here: &Dir,
    libraries: &BTreeMap<String, PathBuf>,
    labels: bool,
) -> Result<()> {
    // Those of other builds: what still runs from one goes on without its name.
    for entry in copies.entries()? {
        copies.remove_dir_all(entry?.file_name())?;
    }
    let unfinished = format!(".{name}");
    copies.create_dir_all(format!("{unfinished}/{LIBRARIES}"))?;
    let folder = copies.open_dir(&unfinished)?;
    copy(program, &folder, PROGRAM, labels)?;
    for (name, path) in libraries {
        let library = here
            .open(path.strip_prefix("/").unwrap_or(path))
            .with_context(|| format!("Opening {}", path.display()))?;
        copy(library, &folder.open_dir(LIBRARIES)?, name, labels)?;
    }
    copies.rename(&unfinished, copies, name)?;
    Ok(())
}

fn copy(mut from: File, folder: &Dir, name: &str, labels: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o755);
    let mut to = folder.open_with(name, &options).with_context(|| format!("Making {name}"))?;
    std::io::copy(&mut from.by_ref(), &mut to).with_context(|| format!("Writing {name}"))?;
    if labels {
        rustix::fs::fsetxattr(&to, LABEL_NAME, LABEL, rustix::fs::XattrFlags::empty())
            .with_context(|| format!("Labelling {name}, so that it may be started"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_and_libraries_are_told() {
        let maps = "55d0-55d1 r-xp 00000000 08:01 12  /usr/bin/mcd\n\
                    7f00-7f01 r-xp 00000000 08:01 13  /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    7f02-7f03 r-xp 00000000 08:01 14  /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n\
                    7ffd-7ffe rw-p 00000000 00:00 0   [stack]\n";
        assert_eq!(loader(maps), Some(Path::new("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")));
        let listed = "\tlinux-vdso.so.1 (0x00007ffe)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6a)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f6b)\n";
        let found = libraries(listed);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["ld-linux-x86-64.so.2", "libc.so.6"]);
        assert_eq!(found["libc.so.6"], Path::new("/lib/x86_64-linux-gnu/libc.so.6"));
    }

    #[test]
    fn a_copy_is_made_once_and_starts() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        let words = bring(&root, Path::new("/bin/true")).unwrap();
        let copies = root.open_dir(FOLDER).unwrap();
        let names = |folder: &Dir| {
            folder.entries().unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        let first = names(&copies);
        assert_eq!(first.len(), 1, "{first:?}");
        assert_eq!(bring(&root, Path::new("/bin/true")).unwrap(), words);
        assert_eq!(names(&copies), first);
        // As it stands in the scratch folder, its own loader starts it with nothing of this system's.
        let here: Vec<String> = words
            .iter()
            .map(|word| {
                if word.starts_with('/') {
                    format!("{}{word}", scratch.path().display())
                } else {
                    word.clone()
                }
            })
            .collect();
        let status = std::process::Command::new(&here[0]).args(&here[1..]).status().unwrap();
        assert!(status.success());
        bring(&root, Path::new("/bin/false")).unwrap();
        assert_eq!(names(&copies).len(), 1, "another build replaces it");
    }
}
