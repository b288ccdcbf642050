//! Observations for preflight: room, kernels, and what libostree would fail on at the shutdown, when
//! nobody looks any more. Decisions are made elsewhere; nothing is changed here.

use std::collections::HashMap;

use anyhow::{Context, Result};
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;
use ostree::gio::{self, prelude::*};
use ostree::{ObjectType, glib};
use rustix::fs::StatVfs;
use sha2::Digest as _;

use super::sysroot::Host;
use crate::model::observed::{Checkout, CommitFacts, EtcLayout, KernelPair, Room, Rooms};

const KERNELS: &str = "usr/lib/modules";
/// Where trees made before `/usr/lib/modules` was agreed on keep the pair, named with its checksum.
const OLD_KERNELS: [&str; 2] = ["usr/lib/ostree-boot", "boot"];
/// The attributes that a walk of a commit needs.
const ATTRIBUTES: &str = "standard::name,standard::type,standard::size";

impl Host {
    /// Room where the repo is and in `/boot`.
    #[context("Measuring free space of {}", self.path())]
    pub fn rooms(&self) -> Result<Rooms> {
        let folder = self.root().open_dir("ostree/repo")?;
        let boot = self.root().open_dir("boot").context("Opening boot")?;
        let reserve = self.repo()?.min_free_space_bytes()?;
        let device = |folder: &Dir| Ok::<_, anyhow::Error>(rustix::fs::fstat(folder)?.st_dev);
        Ok(Rooms {
            repo: room(&rustix::fs::fstatvfs(&folder)?, reserve),
            boot: room(&rustix::fs::fstatvfs(&boot)?, 0),
            boot_is_on_repo: device(&folder)? == device(&boot)?,
        })
    }

    /// Whether `/boot` has this pair already, for a deployment of `stateroot`.
    pub fn boot_has(&self, stateroot: &str, pair: &KernelPair) -> bool {
        self.root().is_dir(format!("boot/ostree/{stateroot}-{}", pair.bootcsum))
    }
}

fn room(numbers: &StatVfs, reserve: u64) -> Room {
    Room {
        bytes: numbers.f_bavail * numbers.f_frsize,
        // Btrfs and its like make inodes as they need them, and report none.
        inodes: (numbers.f_files > 0).then_some(numbers.f_favail),
        reserve,
    }
}

/// Reads what decides whether `commit` can be deployed and booted.
#[context("Examining commit {commit}")]
pub fn commit_facts(repo: &ostree::Repo, commit: &str) -> Result<CommitFacts> {
    let (root, _) = repo.read_commit(commit, gio::Cancellable::NONE)?;
    let is_folder = |path: &str| kind_of(&root, path) == Some(gio::FileType::Directory);
    let etc = match (is_folder("etc"), is_folder("usr/etc")) {
        (true, true) => EtcLayout::Both,
        (false, false) => EtcLayout::Neither,
        _ => EtcLayout::Sound,
    };
    let defaults = if etc == EtcLayout::Sound && is_folder("etc") { "etc" } else { "usr/etc" };
    let releases = ["usr/lib/os-release".to_owned(), format!("{defaults}/os-release")];
    Ok(CommitFacts {
        kernel: kernel_pair(&root)?,
        kernel_versions: kernel_versions(&root)?,
        has_os_release: releases.iter().any(|path| kind_of(&root, path).is_some()),
        etc,
        demands_signed_composefs: demands_signed_composefs(&root, defaults)?,
        checkout: checkout(repo, commit, &root, defaults)?,
    })
}

/// The kernel pair of a commit, as libostree picks it when it deploys.
#[context("Measuring the kernel of commit {commit}")]
pub fn kernel_pair_of(repo: &ostree::Repo, commit: &str) -> Result<Option<KernelPair>> {
    let (root, _) = repo.read_commit(commit, gio::Cancellable::NONE)?;
    kernel_pair(&root)
}

fn kernel_pair(root: &gio::File) -> Result<Option<KernelPair>> {
    let new = kernel_versions(root)?
        .into_iter()
        .map(|version| pair_in_modules(&root.resolve_relative_path(format!("{KERNELS}/{version}")), version))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        // Which of several libostree finds first is chance: the biggest is the one to make room for.
        .max_by_key(|pair| pair.bytes);
    let old = pair_in_old_layout(root)?;
    Ok(match (new, old) {
        (Some(new), Some(old)) if !new.has_initramfs && old.has_initramfs => Some(old),
        (new, old) => new.or(old),
    })
}

/// Folders of `/usr/lib/modules` that hold a kernel.
fn kernel_versions(root: &gio::File) -> Result<Vec<String>> {
    let modules = root.resolve_relative_path(KERNELS);
    let mut versions = Vec::new();
    for (name, info) in children(&modules)? {
        let kernel = modules.child(&name).child("vmlinuz");
        if info.file_type() == gio::FileType::Directory && kind_of(&kernel, "") == Some(gio::FileType::Regular) {
            versions.push(name);
        }
    }
    versions.sort();
    Ok(versions)
}

/// Sums up a kernel and what belongs to it, in the order that libostree's checksum takes them.
fn pair_in_modules(folder: &gio::File, version: String) -> Result<KernelPair> {
    let mut sum = BootSum::default();
    sum.add(&folder.child("vmlinuz"))?;
    let initramfs = ["initramfs.img", "initramfs"].map(|name| folder.child(name));
    let initramfs = initramfs.iter().find(|file| kind_of(file, "").is_some());
    if let Some(file) = initramfs {
        sum.add(file)?;
    }
    let tree = folder.child("devicetree");
    if kind_of(&tree, "").is_some() {
        sum.add(&tree)?;
    } else {
        sum.add_folder(&folder.child("dtb"))?;
    }
    Ok(KernelPair {
        version,
        bytes: sum.bytes,
        bootcsum: hex::encode(sum.hash.finalize()),
        has_initramfs: initramfs.is_some(),
    })
}

fn pair_in_old_layout(root: &gio::File) -> Result<Option<KernelPair>> {
    let is_folder = |path: &&str| kind_of(root, path) == Some(gio::FileType::Directory);
    let Some(folder) = OLD_KERNELS.iter().find(is_folder) else { return Ok(None) };
    let mut found: Option<KernelPair> = None;
    let mut others = 0;
    let mut has_initramfs = false;
    for (name, info) in children(&root.resolve_relative_path(folder))? {
        let Some((front, bootcsum)) = name.rsplit_once('-') else { continue };
        let size = u64::try_from(info.size()).unwrap_or(0);
        if let Some(version) = front.strip_prefix("vmlinuz-").filter(|_| is_checksum(bootcsum)) {
            let bootcsum = bootcsum.to_owned();
            found = Some(KernelPair { version: version.to_owned(), bytes: size, bootcsum, has_initramfs: false });
        } else if is_checksum(bootcsum) {
            others += size;
            has_initramfs |= front.starts_with("initramfs-");
        }
    }
    Ok(found.map(|pair| KernelPair { bytes: pair.bytes + others, has_initramfs, ..pair }))
}

fn is_checksum(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// libostree's checksum of what goes into `/boot`, and its size.
#[derive(Default)]
struct BootSum {
    hash: sha2::Sha256,
    bytes: u64,
}

impl BootSum {
    fn add(&mut self, file: &gio::File) -> Result<()> {
        const CHUNK: usize = 1 << 20;
        let stream = file.read(gio::Cancellable::NONE)?;
        loop {
            let bytes = stream.read_bytes(CHUNK, gio::Cancellable::NONE)?;
            if bytes.is_empty() {
                return Ok(());
            }
            self.hash.update(&bytes);
            self.bytes += bytes.len() as u64;
        }
    }

    /// The files of a folder, sorted, depth first. A folder that is not there adds nothing.
    fn add_folder(&mut self, folder: &gio::File) -> Result<()> {
        let mut entries = children(folder)?;
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, info) in entries {
            match info.file_type() {
                gio::FileType::Directory => self.add_folder(&folder.child(&name))?,
                gio::FileType::Regular => self.add(&folder.child(&name))?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether `ostree-prepare-root` of this tree refuses to boot an unsigned composefs.
fn demands_signed_composefs(root: &gio::File, defaults: &str) -> Result<bool> {
    // A file in /etc replaces the one of the image.
    for path in [format!("{defaults}/ostree/prepare-root.conf"), "usr/lib/ostree/prepare-root.conf".to_owned()] {
        let file = root.resolve_relative_path(&path);
        if kind_of(&file, "") == Some(gio::FileType::Regular) {
            let (text, _) = file.load_contents(gio::Cancellable::NONE).with_context(|| format!("Reading {path}"))?;
            return Ok(says_signed(&String::from_utf8_lossy(&text)));
        }
    }
    Ok(false)
}

fn says_signed(configuration: &str) -> bool {
    let file = glib::KeyFile::new();
    let parsed = file.load_from_data(configuration, glib::KeyFileFlags::NONE);
    parsed.is_ok() && file.string("composefs", "enabled").is_ok_and(|value| value.trim() == "signed")
}

#[context("Counting folders")]
fn checkout(repo: &ostree::Repo, commit: &str, root: &gio::File, defaults: &str) -> Result<Checkout> {
    let (variant, _) = repo.load_commit(commit)?;
    let tree = hex::encode(variant.child_value(6).data_as_bytes());
    let mut cost = Checkout { inodes: folders(repo, &tree, &mut HashMap::new())?, etc_bytes: 0 };
    add_copy(&root.resolve_relative_path(defaults), &mut cost)?;
    Ok(cost)
}

/// The number of folders of a tree. Equal subtrees are looked at once.
fn folders(repo: &ostree::Repo, tree: &str, known: &mut HashMap<String, u64>) -> Result<u64> {
    if let Some(count) = known.get(tree) {
        return Ok(*count);
    }
    let variant = repo.load_variant(ObjectType::DirTree, tree)?;
    let mut count = 1;
    for entry in variant.child_value(1).iter() {
        count += folders(repo, &hex::encode(entry.child_value(1).data_as_bytes()), known)?;
    }
    known.insert(tree.to_owned(), count);
    Ok(count)
}

fn add_copy(folder: &gio::File, cost: &mut Checkout) -> Result<()> {
    for (name, info) in children(folder)? {
        cost.inodes += 1;
        match info.file_type() {
            gio::FileType::Directory => add_copy(&folder.child(name), cost)?,
            gio::FileType::Regular => cost.etc_bytes += u64::try_from(info.size()).unwrap_or(0),
            _ => {}
        }
    }
    Ok(())
}

/// The entries of a commit's folder; none if it is not there.
fn children(folder: &gio::File) -> Result<Vec<(String, gio::FileInfo)>> {
    let entries = match folder.enumerate_children(
        ATTRIBUTES,
        gio::FileQueryInfoFlags::NOFOLLOW_SYMLINKS,
        gio::Cancellable::NONE,
    ) {
        Ok(entries) => entries,
        Err(error) if error.matches(gio::IOErrorEnum::NotFound) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let named = entries.map(|info| info.map(|info| (info.name().to_string_lossy().into_owned(), info)));
    Ok(named.collect::<Result<_, _>>()?)
}

/// The kind of `path` below `root`, links not followed.
pub(super) fn kind_of(root: &gio::File, path: &str) -> Option<gio::FileType> {
    let file = if path.is_empty() { root.clone() } else { root.resolve_relative_path(path) };
    let flags = gio::FileQueryInfoFlags::NOFOLLOW_SYMLINKS;
    file.query_info("standard::type", flags, gio::Cancellable::NONE).ok().map(|info| info.file_type())
}

/// The defaults of `/etc` in a commit.
pub(super) fn etc_defaults(repo: &ostree::Repo, commit: &str) -> Result<gio::File> {
    let (root, _) = repo.read_commit(commit, gio::Cancellable::NONE)?;
    let path = if kind_of(&root, "usr/etc").is_some() { "usr/etc" } else { "etc" };
    Ok(root.resolve_relative_path(Utf8Path::new(path)))
}
