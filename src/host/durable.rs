//! Replacing a record so that a power cut leaves either the old one or the new one.

use std::io::Write;
use std::os::fd::OwnedFd;

#[cfg(feature = "ostree")]
use anyhow::Context as _;
use anyhow::Result;
use cap_std_ext::cap_std::fs::{Dir, DirBuilder, DirBuilderExt, File, OpenOptions, OpenOptionsExt};
use fn_error_context::context;
use rustix::fs::{Mode, OFlags};

/// Records hold image names and reasons: root's business only.
const FILE_MODE: u32 = 0o600;
/// The attribute that holds a SELinux label.
const LABEL: &str = "security.selinux";
/// The folder that records stand in.
const FOLDER_MODE: u32 = 0o700;

/// Writes `content` to `name` in `folder`, on disk when this returns.
#[context("Writing {name}")]
pub(crate) fn replace(folder: &Dir, name: &str, content: &[u8]) -> Result<()> {
    let written = write_temporary(folder, name, content).and_then(|file| file.sync_all());
    if let Err(error) = written.and_then(|()| folder.rename(temporary(name), folder, name)) {
        // A full disk needs the room.
        let _ = folder.remove_file_if_there(&temporary(name));
        return Err(error.into());
    }
    sync_folder(folder)
}

/// Writes several files to `folder`, on disk when this returns: with one sync for all of them, before any
/// has its name.
#[cfg(feature = "ostree")]
pub(crate) fn replace_all<'a>(
    folder: &Dir,
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<()> {
    let mut begun = Vec::new();
    let written = || -> Result<()> {
        for (name, content) in files {
            begun.push(name);
            write_temporary(folder, name, content).with_context(|| format!("Writing {name}"))?;
        }
        if !begun.is_empty() {
            rustix::fs::syncfs(folder.open(".")?)?;
        }
        begun.iter().try_for_each(|name| Ok(folder.rename(temporary(name), folder, name)?))
    };
    if let Err(error) = written() {
        for name in begun {
            let _ = folder.remove_file_if_there(&temporary(name));
        }
        return Err(error);
    }
    sync_folder(folder)
}

fn write_temporary(folder: &Dir, name: &str, content: &[u8]) -> std::io::Result<File> {
    // One writer: whoever writes a record holds the host lock, so the name needs no randomness, and
    // what a crash left is replaced by the next write.
    let temporary = temporary(name);
    folder.remove_file_if_there(&temporary)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    let mut file = folder.open_with(&temporary, &options)?;
    inherit_label(folder, &file);
    file.write_all(content)?;
    Ok(file)
}

/// The name that `name` has while it is being written.
pub(crate) fn temporary(name: &str) -> String {
    format!(".{name}.new")
}

/// The kernel does this where it runs SELinux, but in an initramfs it does not yet.
fn inherit_label(folder: &Dir, made: impl std::os::fd::AsFd) {
    let mut label = [0; 4096];
    let Ok(folder) = open_whole(folder, ".") else { return };
    if let Ok(length) = rustix::fs::fgetxattr(folder, LABEL, label.as_mut_slice()) {
        // A file system without labels, or no right to set them: nothing that a record depends on.
        let _ = rustix::fs::fsetxattr(made, LABEL, &label[..length], rustix::fs::XattrFlags::empty());
    }
}

/// Opens the folder `name` in `above`, made with this mode if it is missing.
pub(crate) fn folder(above: &Dir, name: &str, mode: u32) -> Result<Dir> {
    let mut builder = DirBuilder::new();
    builder.mode(mode);
    match above.create_dir_with(name, &builder) {
        Ok(()) => {
            let made = open_whole(above, name)?;
            // Not what the umask makes of it.
            rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
            inherit_label(above, &made);
            sync_folder(above)?;
            Ok(Dir::from_std_file(made.into()))
        }
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.into()),
        Err(_) => Ok(Dir::from_std_file(open_whole(&above.open_dir(name)?, ".")?.into())),
    }
}

/// Opens a folder for more than looking up names in it, which is all that cap-std's handles allow.
fn open_whole(above: &Dir, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

/// Opens the folder at `path` below `above`, made with mode 0755 where it is missing.
pub(crate) fn folders(above: &Dir, path: &str) -> Result<Dir> {
    let mut here = above.try_clone()?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        here = folder(&here, name, 0o755)?;
    }
    Ok(here)
}

/// Whether a file of this name is a record that [`replace`] did not finish.
#[cfg(feature = "ostree")]
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".new")
}

/// Removes `name` from `folder`, if it is there, on disk when this returns.
#[context("Removing {name}")]
pub(crate) fn remove(folder: &Dir, name: &str) -> Result<()> {
    if folder.remove_file_if_there(name)? {
        sync_folder(folder)?;
    }
    Ok(())
}

/// Opens the folder at `path`, made with mode 0700 if it is missing (parents with 0755).
#[context("Making the folder {path}")]
pub(crate) fn private_folder(root: &Dir, path: &str) -> Result<Dir> {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    folder(&folders(root, parent)?, name, FOLDER_MODE)
}

/// The content of `name` in `folder`, if it is there.
#[context("Reading {name}")]
pub(crate) fn read(folder: &Dir, name: &str) -> Result<Option<Vec<u8>>> {
    match folder.read(name) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the folder's entries durable.
pub(crate) fn sync_folder(folder: &Dir) -> Result<()> {
    Ok(rustix::fs::fsync(folder.open(".")?)?)
}

pub(super) trait RemoveFile {
    /// Whether there was one.
    fn remove_file_if_there(&self, name: &str) -> std::io::Result<bool>;
}

impl RemoveFile for Dir {
    fn remove_file_if_there(&self, name: &str) -> std::io::Result<bool> {
        match self.remove_file(name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;
    use cap_std_ext::cap_std::fs::PermissionsExt;

    use super::*;

    #[test]
    fn replaces_and_removes_privately() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        let folder = private_folder(&root, "var/lib/mcd").unwrap();
        assert_eq!(root.metadata("var/lib/mcd").unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(read(&folder, "intent.json").unwrap(), None);

        folder.write(".intent.json.new", "half a record of a run that was cut").unwrap();
        replace(&folder, "intent.json", b"one").unwrap();
        replace(&folder, "intent.json", b"two").unwrap();
        assert_eq!(read(&folder, "intent.json").unwrap().unwrap(), b"two");
        assert_eq!(folder.metadata("intent.json").unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(folder.entries().unwrap().count(), 1, "no temporary file stays");

        #[cfg(feature = "ostree")]
        {
            folder.create_dir("a").unwrap();
            replace_all(&folder, [("a", &b"1"[..]), ("b", b"2")]).unwrap_err();
            assert_eq!(folder.entries().unwrap().count(), 2, "no temporary file stays");
            folder.remove_dir("a").unwrap();
            replace_all(&folder, [("a", &b"1"[..]), ("b", b"2")]).unwrap();
            assert_eq!(read(&folder, "b").unwrap().unwrap(), b"2");
            assert_eq!(folder.entries().unwrap().count(), 3);
            folder.remove_file("a").unwrap();
            folder.remove_file("b").unwrap();
        }

        remove(&folder, "intent.json").unwrap();
        remove(&folder, "intent.json").unwrap();
        assert_eq!(read(&folder, "intent.json").unwrap(), None);
        private_folder(&root, "var/lib/mcd").unwrap();
    }
}
