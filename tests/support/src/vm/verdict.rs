//! What must be true of a disk whenever the power may go: the next boot is wholly the old or wholly
//! the new one.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use ostree::gio;

use crate::layout::digest_of;
use crate::sysroot::Sysroot;
use crate::vm::boot_menu;
use crate::vm::disk::{Disk, Mounted};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// What ran before the change.
    Old,
    /// What the change is to.
    New,
}

/// What the raw blocks show to a boot loader that replays no journal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RawView {
    /// An entry, with its kernel and initramfs whole.
    Boots(Side),
    /// No such thing, and why.
    Nothing(String),
}

/// One bootable state, whole.
#[derive(Debug, Clone)]
pub struct State {
    /// The kernel command line but for the boot version in `ostree=`.
    options: String,
    /// Digests of kernel and initramfs.
    kernel: [String; 2],
    /// Every file of the deployment's `/usr`: kind and length, or a link's target.
    files: BTreeMap<String, String>,
    /// Lengths of the repo's objects.
    objects: BTreeMap<String, u64>,
}

/// The two states between which a change moves a machine.
#[derive(Debug)]
pub struct Change {
    old: State,
    new: State,
}

impl Change {
    /// From the disks before it and after it.
    pub fn between(before: &Disk, after: &Disk) -> Result<Self> {
        let change = Self { old: State::of(before)?, new: State::of(after)? };
        ensure!(change.old.kernel != change.new.kernel, "old and new have the same kernel pair");
        Ok(change)
    }

    fn side(&self, kernel: &[String; 2], options: &str) -> Result<Side> {
        for (side, state) in [(Side::Old, &self.old), (Side::New, &self.new)] {
            if state.kernel == *kernel {
                ensure!(state.options == options, "the {side:?} kernel pair with the arguments: {options}");
                return Ok(side);
            }
        }
        bail!("a kernel pair that is neither the old nor the new one")
    }

    /// What a boot loader sees. Before anything mounts the disk.
    pub fn raw_view(&self, disk: &Disk) -> RawView {
        let look = || -> Result<Side> {
            let entry = boot_menu::first(disk)?;
            let folder = tempfile::tempdir()?;
            let [kernel, initramfs] = ["kernel", "initramfs"].map(|name| folder.path().join(name));
            entry.extract(disk, &kernel, &initramfs)?;
            let kernel = [digest_of(&fs::read(kernel)?), digest_of(&fs::read(initramfs)?)];
            self.side(&kernel, &without_boot_version(&entry.options))
        };
        match look() {
            Ok(side) => RawView::Boots(side),
            // The first line: what follows is a listing.
            Err(error) => {
                RawView::Nothing(format!("{error:#}").lines().next().unwrap_or_default().to_owned())
            }
        }
    }

    /// What the mounted disk boots next. An error if that is not wholly one of the two.
    pub fn next_boot(&self, mounted: &Mounted) -> Result<Side> {
        let sysroot = mounted.sysroot()?;
        let found = Boot::of(&sysroot)?;
        let side = self.side(&found.kernel, &found.options)?;
        let state = if side == Side::Old { &self.old } else { &self.new };
        let files = files(&found.deployment.join("usr"))?;
        if let Some((path, wanted)) =
            state.files.iter().find(|(path, wanted)| files.get(*path) != Some(wanted))
        {
            bail!("{side:?}: usr/{path} should be {wanted}, and is {:?}", files.get(path));
        }
        ensure!(files.len() == state.files.len(), "{side:?}: files in /usr that are not the image's");
        ensure!(found.deployment.join("etc/passwd").exists(), "{side:?}: the deployment has no /etc");
        Ok(side)
    }

    /// Every ref of the repo leads to objects that are all there and not short. Gives their number.
    pub fn check_refs(&self, mounted: &Mounted) -> Result<usize> {
        let repo = mounted.sysroot()?.repo()?;
        let none = gio::Cancellable::NONE;
        let mut seen: HashSet<String> = HashSet::new();
        for (name, commit) in repo.list_refs(None, none)? {
            let reachable = repo
                .traverse_commit(&commit, 0, none)
                .with_context(|| format!("The ref {name} leads to a missing object of {commit}"))?;
            for object in reachable {
                seen.insert(object_path(object.checksum(), object.object_type()));
            }
        }
        let found = objects(&mounted.path())?;
        for path in &seen {
            let size = found.get(path).with_context(|| format!("The object {path} is not there"))?;
            let known = self.new.objects.get(path).or_else(|| self.old.objects.get(path));
            ensure!(
                known.is_none_or(|known| known == size),
                "The object {path} has {size} bytes of {known:?}"
            );
        }
        Ok(seen.len())
    }
}

impl State {
    fn of(disk: &Disk) -> Result<Self> {
        let mounted = disk.mount()?;
        let boot = Boot::of(&mounted.sysroot()?)?;
        let state = Self {
            files: files(&boot.deployment.join("usr"))?,
            objects: objects(&mounted.path())?,
            options: boot.options,
            kernel: boot.kernel,
        };
        mounted.unmount()?;
        Ok(state)
    }
}

/// The first entry of the boot menu, followed to its ends.
struct Boot {
    options: String,
    kernel: [String; 2],
    deployment: std::path::PathBuf,
}

impl Boot {
    fn of(sysroot: &Sysroot) -> Result<Self> {
        let entry = sysroot.next_boot()?;
        let read = |path: &str| -> Result<String> {
            let path = path.trim_start_matches("/boot").trim_start_matches('/');
            let bytes = fs::read(sysroot.path().join("boot").join(path))
                .with_context(|| format!("Reading {path} of the boot entry"))?;
            Ok(digest_of(&bytes))
        };
        let kernel = [read(&entry.linux)?, read(&entry.initrd)?];
        Ok(Self { options: without_boot_version(&entry.options), kernel, deployment: entry.deployment })
    }
}

/// `ostree=/ostree/boot.0/…` and `boot.1` take turns, and have subversions: neither is part of what boots.
fn without_boot_version(options: &str) -> String {
    options.split(' ').filter(|word| !word.starts_with("ostree=")).collect::<Vec<_>>().join(" ")
}

fn files(folder: &Path) -> Result<BTreeMap<String, String>> {
    fn walk(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                found.insert(path.clone(), "a folder".to_owned());
                walk(&entry.path(), &format!("{path}/"), found)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(entry.path())?;
                found.insert(path, format!("a link to {}", target.display()));
            } else {
                found.insert(path, format!("{} bytes, mode {:o}", metadata.len(), metadata.mode()));
            }
        }
        Ok(())
    }
    let mut found = BTreeMap::new();
    walk(folder, "", &mut found).with_context(|| format!("Walking {}", folder.display()))?;
    Ok(found)
}

fn objects(sysroot: &Path) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for folder in fs::read_dir(sysroot.join("ostree/repo/objects"))? {
        let folder = folder?;
        for object in fs::read_dir(folder.path())? {
            let object = object?;
            let name =
                format!("{}/{}", folder.file_name().to_string_lossy(), object.file_name().to_string_lossy());
            found.insert(name, object.metadata()?.len());
        }
    }
    Ok(found)
}

fn object_path(checksum: &str, kind: ostree::ObjectType) -> String {
    let suffix = match kind {
        ostree::ObjectType::File => "file",
        ostree::ObjectType::DirTree => "dirtree",
        ostree::ObjectType::DirMeta => "dirmeta",
        _ => "commit",
    };
    format!("{}/{}.{suffix}", &checksum[..2], &checksum[2..])
}
