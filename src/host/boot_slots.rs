//! The bytes of the boot file, read and written without libostree: in the initramfs too, and on a disk
//! that is full.
//!
//! It has its whole size from the start. A write goes to the slot that is not the newest valid one, so
//! that a power cut leaves the other.

use std::io::Write;

use anyhow::{Context, Result};
use cap_std_ext::cap_std::fs::{Dir, File, FileExt, OpenOptions, OpenOptionsExt};
use fn_error_context::context;

use super::durable;
use crate::model::boots::{BootFile, BootRecord, FILE_SIZE};

const FOLDER: &str = "ostree";
const FILE: &str = "mcd-boots";

/// The boot file of the physical root `root`; an empty one where there is none.
#[context("Reading the boot file /{FOLDER}/{FILE}")]
pub(crate) fn read(root: &Dir) -> Result<BootFile> {
    Ok(BootFile::decode(&durable::read(&root.open_dir(FOLDER)?, FILE)?.unwrap_or_default()))
}

/// Changes the boot file. Durable when this returns. The caller holds the host lock, or is all that runs.
#[context("Writing the boot file /{FOLDER}/{FILE}")]
pub(crate) fn edit(root: &Dir, edit: impl FnOnce(&mut BootRecord)) -> Result<()> {
    let before = read(root)?;
    let mut record = before.record.clone();
    edit(&mut record);
    let write = before.encode_next(&record)?;
    let file = match open(root)? {
        Some(file) => file,
        None => create(root)?,
    };
    file.write_all_at(&write.bytes, write.slot.offset())?;
    Ok(file.sync_data()?)
}

fn open(root: &Dir) -> Result<Option<File>> {
    match root.open_dir(FOLDER)?.open_with(FILE, OpenOptions::new().read(true).write(true)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the file with all its blocks, before it is of use to anybody.
fn create(root: &Dir) -> Result<File> {
    let folder = root.open_dir(FOLDER)?;
    let temporary = format!("{FILE}.new");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    let mut file = folder.open_with(&temporary, &options)?;
    file.write_all(&[0; FILE_SIZE]).context("Filling it")?;
    file.sync_all()?;
    folder.rename(&temporary, &folder, FILE)?;
    durable::sync_folder(&folder)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;

    use super::*;
    use crate::model::boots::{BootEntry, BootState};

    #[test]
    fn a_write_keeps_the_size_and_the_record_before() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        assert!(read(&root).is_err(), "this is no sysroot");
        root.create_dir(FOLDER).unwrap();
        assert_eq!(read(&root).unwrap().record, BootRecord::default());
        for number in 1..4 {
            let id = format!("change-{number}");
            edit(&root, |boots| boots.note(BootEntry::new(id, None, BootState::Booted, number))).unwrap();
            let found = read(&root).unwrap();
            assert_eq!((found.record.entries.len(), found.warning), (usize::try_from(number).unwrap(), None));
            assert_eq!(root.metadata("ostree/mcd-boots").unwrap().len(), FILE_SIZE as u64);
        }
        assert!(!root.exists("ostree/mcd-boots.new"));
    }
}
