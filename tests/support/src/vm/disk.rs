//! A disk image: partition table, `/boot`, root and, if wanted, `/var`, each an ext4.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::run;
use crate::scratch::Scratch;
use crate::sysroot::{STATEROOT, Sysroot};

const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
/// Where partitioning tools of today begin the first one.
const FIRST: u64 = MIB;

/// A part of the disk that holds a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// The file system's label.
    pub label: &'static str,
    /// Its first byte on the disk.
    pub offset: u64,
    /// Its length in bytes.
    pub size: u64,
}

/// What is on a disk, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Kernels and boot menu.
    pub boot: Partition,
    /// The physical root.
    pub root: Partition,
    /// A `/var` of its own.
    pub var: Option<Partition>,
}

impl Layout {
    /// `/boot` and root of so many MiB.
    pub fn new(boot: u64, root: u64) -> Self {
        let boot = Partition { label: "boot", offset: FIRST, size: boot * MIB };
        let root = Partition { label: "root", offset: boot.offset + boot.size, size: root * MIB };
        Self { boot, root, var: None }
    }

    /// With a `/var` of so many MiB on a file system of its own.
    #[must_use]
    pub fn with_var(mut self, var: u64) -> Self {
        let offset = self.root.offset + self.root.size;
        self.var = Some(Partition { label: "var", offset, size: var * MIB });
        self
    }

    /// All partitions in order.
    pub fn partitions(&self) -> Vec<Partition> {
        [Some(self.boot), Some(self.root), self.var].into_iter().flatten().collect()
    }

    fn size(&self) -> u64 {
        self.partitions().last().map_or(0, |last| last.offset + last.size) + MIB
    }

    /// What `/etc/fstab` says of it. The root is the kernel command line's business.
    pub fn fstab(&self) -> String {
        let others = self.partitions().into_iter().filter(|partition| partition.label != "root");
        others.map(|Partition { label, .. }| format!("LABEL={label} /{label} ext4 defaults 0 2\n")).collect()
    }
}

/// A disk.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    layout: Layout,
}

impl Disk {
    /// A new disk with empty file systems.
    pub fn create(image: &Path, layout: Layout) -> Result<Self> {
        let file = File::create(image).with_context(|| format!("Creating {}", image.display()))?;
        file.set_len(layout.size())?;
        file.write_all_at(&partition_table(&layout.partitions()), 0)?;
        for partition in layout.partitions() {
            make_file_system(image, partition)?;
        }
        Ok(Self { image: image.to_owned(), layout })
    }

    /// The disk in this image.
    pub fn open(image: &Path, layout: Layout) -> Self {
        Self { image: image.to_owned(), layout }
    }

    /// Copies what is on it, holes left as holes.
    pub fn copy_to(&self, image: &Path) -> Result<Self> {
        run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(&self.image).arg(image))?;
        Ok(Self::open(image, self.layout))
    }

    /// Gives it a `/var` of so many MiB on a file system of its own, with what is in `/var` now. The
    /// machine must be off.
    pub fn separate_var(&mut self, size: u64) -> Result<()> {
        let layout = self.layout.with_var(size);
        let var = layout.var.context("It was just added")?;
        let file = File::options().write(true).open(&self.image)?;
        file.set_len(layout.size())?;
        file.write_all_at(&partition_table(&layout.partitions()), 0)?;
        make_file_system(&self.image, var)?;
        let mut mounted = self.mount()?;
        let old = mounted.path().join("ostree/deploy").join(STATEROOT).join("var");
        let new = mounted.scratch.join("var");
        fs::create_dir(&new)?;
        mounted.attach(&self.image, var, &new)?;
        run(Command::new("cp").arg("-a").arg(old.join(".")).arg(&new))?;
        let next = mounted.sysroot()?.next_boot()?;
        fs::write(next.deployment.join("etc/fstab"), layout.fstab())?;
        mounted.unmount()?;
        self.layout = layout;
        Ok(())
    }

    /// The image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// What is where.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// How tools of e2fsprogs name a partition of the image.
    pub fn device(&self, partition: Partition) -> String {
        format!("{}?offset={}", self.image.display(), partition.offset)
    }

    /// Mounts it, journals replayed: the root at `sysroot` below a folder of its own, the others where
    /// a boot puts them. The machine must be off.
    pub fn mount(&self) -> Result<Mounted> {
        let mut mounted = Mounted { scratch: Scratch::new()?, targets: Vec::new() };
        let sysroot = mounted.path();
        fs::create_dir(&sysroot)?;
        mounted.attach(&self.image, self.layout.root, &sysroot)?;
        for partition in self.layout.partitions() {
            let target = match partition.label {
                "boot" => sysroot.join("boot"),
                "var" => sysroot.join("ostree/deploy").join(STATEROOT).join("var"),
                _ => continue,
            };
            fs::create_dir_all(&target)?;
            mounted.attach(&self.image, partition, &target)?;
        }
        Ok(mounted)
    }

    /// Whether each file system is whole, by `e2fsck`; nothing is changed. After a mount: a journal
    /// that waits to be replayed is not looked at.
    pub fn check_file_systems(&self) -> Result<()> {
        for partition in self.layout.partitions() {
            run(Command::new("e2fsck").args(["-f", "-n"]).arg(self.device(partition)))
                .with_context(|| format!("The file system {} is damaged", partition.label))?;
        }
        Ok(())
    }
}

/// A disk while it is mounted. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    scratch: Scratch,
    targets: Vec<PathBuf>,
}

impl Mounted {
    /// The folder that `sysroot` is in.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Where the physical root is.
    pub fn path(&self) -> PathBuf {
        self.scratch.join("sysroot")
    }

    /// The same as a sysroot.
    pub fn sysroot(&self) -> Result<Sysroot> {
        Sysroot::kept_in(self.scratch.path())
    }

    fn attach(&mut self, image: &Path, partition: Partition, target: &Path) -> Result<()> {
        let Partition { offset, size, .. } = partition;
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", &format!("loop,offset={offset},sizelimit={size}")])
            .arg(image)
            .arg(target))?;
        self.targets.push(target.to_owned());
        Ok(())
    }

    /// Unmounts, and says if that fails.
    pub fn unmount(mut self) -> Result<()> {
        while let Some(target) = self.targets.pop() {
            run(Command::new("umount").arg(&target))?;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for target in self.targets.drain(..).rev() {
            let _ = Command::new("umount").arg("-l").arg(target).output();
        }
    }
}

fn make_file_system(image: &Path, Partition { label, offset, size }: Partition) -> Result<()> {
    // What boot loaders have trouble with is off in /boot; no lazy work is left to the guest.
    let features = if label == "boot" { "^64bit,^metadata_csum" } else { "^orphan_file" };
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-L", label, "-O", features, "-E"])
        .arg(format!("offset={offset},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"))
        .arg(image)
        .arg(format!("{}k", size / 1024)))?;
    Ok(())
}

/// The first sector: a table of four partitions, of Linux' type, by sector numbers.
fn partition_table(partitions: &[Partition]) -> [u8; SECTOR as usize] {
    const TABLE: usize = 446;
    const ENTRY: usize = 16;
    const LINUX: u8 = 0x83;
    let mut sector = [0; SECTOR as usize];
    for (index, partition) in partitions.iter().enumerate() {
        let entry = &mut sector[TABLE + index * ENTRY..][..ENTRY];
        let number =
            |bytes: u64| u32::try_from(bytes / SECTOR).expect("a test's disk is small").to_le_bytes();
        entry[4] = LINUX;
        entry[8..12].copy_from_slice(&number(partition.offset));
        entry[12..16].copy_from_slice(&number(partition.size));
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}
