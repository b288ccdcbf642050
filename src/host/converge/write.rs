//! Writing one new file, link or directory. A file is root's alone until all of it is written.

use std::io::{Cursor, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, bail};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use sha2::Digest as _;

use super::contents::{Contents, Wanted, read_with};
use super::look::{Dress, PIECE, open_file, set_label_of_fd, set_label_of_name};
use super::perform::open_originals;
use super::record::Record;
use super::root::{Root, Way};
use super::survey::{Source, image_path};
use crate::error::Fault;
use crate::model::digest::Digest;

/// A file that is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing<'a> {
    pub(super) digest: &'a Digest,
    pub(super) size: u64,
    /// None: root's alone, as it is made.
    pub(super) dress: Option<&'a Dress>,
}

/// Removes what is in the way of a name of ours.
pub(super) fn make_room(dir: &Dir, name: &str) -> Result<()> {
    super::place::unlink(dir, name)
}

/// Writes the file for `path` under `name`, from its source.
#[expect(clippy::too_many_arguments, reason = "each is a different thing, and there is one caller")]
pub(super) fn put(
    root: &Root,
    contents: &dyn Contents,
    record: Record,
    path: &Utf8Path,
    source: &Source,
    dir: &Dir,
    name: &str,
    writing: &Writing<'_>,
) -> Result<()> {
    let found = match source {
        Source::Contents(object) => {
            let wanted = Wanted { path, digest: writing.digest, object: object.as_deref() };
            let mut is_first = true;
            read_with(contents, &wanted, &mut |reader| {
                if !is_first {
                    super::place::unlink(dir, name)?;
                }
                is_first = false;
                file(dir, name, writing, reader)
            })?
        }
        Source::Bytes(bytes) => file(dir, name, writing, &mut Cursor::new(bytes))?,
        Source::Original => match open_originals(root, record)? {
            Some(folder) => from_file(&folder, writing.digest.hex(), dir, name, writing)?,
            None => false,
        },
        Source::Image => {
            let image = image_path(path).context("Only /etc has defaults in the image")?;
            match root.way_to(image.parent().unwrap_or(&image))? {
                Way::Open(folder) => {
                    from_file(&folder, image.file_name().unwrap_or_default(), dir, name, writing)?
                }
                _ => false,
            }
        }
    };
    if found { Ok(()) } else { Err(no_content(path).into()) }
}

fn from_file(folder: &Dir, from: &str, dir: &Dir, name: &str, writing: &Writing<'_>) -> Result<bool> {
    file(dir, name, writing, &mut std::fs::File::from(open_file(folder, from)?))
}

fn no_content(path: &Utf8Path) -> Fault {
    Fault::failed(format!("{path} cannot be laid down: nothing on this host holds its content"))
        .why("the commit or the store that held it is gone or damaged")
        .next("apply the configuration again: `mcd apply FILE`")
}

/// Writes a new file. `false` if what was read is not what the digest says; then it is still there,
/// and not to be used.
pub(super) fn file(dir: &Dir, name: &str, writing: &Writing<'_>, from: &mut dyn Read) -> Result<bool> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut made = std::fs::File::from(made);
    let mut hasher = sha2::Sha256::new();
    let mut piece = vec![0; usize::try_from(writing.size.saturating_add(1)).unwrap_or(PIECE).min(PIECE)];
    let mut left = writing.size;
    loop {
        let length = match from.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        if length == 0 {
            break;
        }
        // More than there must be: not the content, and not worth the room.
        let Some(rest) = left.checked_sub(length as u64) else { return Ok(false) };
        left = rest;
        hasher.update(&piece[..length]);
        made.write_all(&piece[..length])?;
    }
    if left > 0 || Digest::from_raw(hasher.finalize().into()) != *writing.digest {
        return Ok(false);
    }
    if let Some(wanted) = writing.dress {
        dress(&made, wanted)?;
    }
    Ok(true)
}

/// Gives a file or directory its owner, label and mode, in this order: changing the owner takes setuid
/// away, and nobody else may read it before it is the owner's.
pub(super) fn dress(file: impl AsFd, dress: &Dress) -> Result<()> {
    let stat = rustix::fs::fstat(&file)?;
    // Neither the old owner nor the new one gets more than both modes allow, in between.
    let narrow = stat.st_mode & dress.mode & 0o777;
    if (stat.st_uid, stat.st_gid) != (dress.uid, dress.gid) {
        if stat.st_mode & 0o7777 != narrow {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(narrow))?;
        }
        let (uid, gid) = (Uid::from_raw(dress.uid), Gid::from_raw(dress.gid));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    if let Some(label) = &dress.label {
        set_label_of_fd(&file, label)?;
    }
    Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(dress.mode))?)
}

/// Makes a link.
pub(super) fn link(dir: &Dir, name: &str, target: &str, dress: &Dress) -> Result<()> {
    rustix::fs::symlinkat(target, dir, name)?;
    let (uid, gid) = (Uid::from_raw(dress.uid), Gid::from_raw(dress.gid));
    rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if let Some(label) = &dress.label {
        set_label_of_name(dir, name, label)?;
    }
    Ok(())
}

/// Opens a directory that is one, and no link to one.
pub(super) fn open_directory(dir: &Dir, name: &str) -> Result<(Stat, OwnedFd)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => Ok((rustix::fs::fstat(&fd)?, fd)),
        Err(Errno::LOOP | Errno::NOTDIR) => bail!("{name} is no directory any more"),
        Err(error) => Err(error).with_context(|| format!("Opening the directory {name}")),
    }
}
