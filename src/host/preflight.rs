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
use crate::error::Fault;
use crate::model::status::DeploymentStatus;
use crate::plan::preflight::{self, Space, TreeSize};

const KERNELS: &str = "usr/lib/modules";
/// Where trees made before `/usr/lib/modules` was agreed on keep the pair, named with its checksum.
const OLD_KERNELS: [&str; 2] = ["usr/lib/ostree-boot", "boot"];
/// The attributes that a walk of a commit needs.
const ATTRIBUTES: &str = "standard::name,standard::type,standard::size";

/// A kernel, its initramfs and its device trees: what a deployment puts into `/boot`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KernelPair {
    /// The kernel's version: the name of its folder.
    pub version: String,
    /// Bytes that it takes in `/boot`.
    pub bytes: u64,
    /// libostree's checksum over the content. Deployments with equal ones share one copy in `/boot`.
    pub bootcsum: String,
    /// Whether there is an initramfs.
    pub has_initramfs: bool,
}

impl Host {
    /// Room where the repo is and in `/boot`.
    #[context("Measuring free space of {}", self.path())]
    pub fn observe_space(&self) -> Result<Space> {
        let folder = self.root().open_dir("ostree/repo")?;
        let boot = self.root().open_dir("boot").context("Opening boot")?;
        let numbers = rustix::fs::fstatvfs(&folder)?;
        let of_boot = rustix::fs::fstatvfs(&boot)?;
        let device = |folder: &Dir| Ok::<_, anyhow::Error>(rustix::fs::fstat(folder)?.st_dev);
        Ok(Space {
            repo_free: free_bytes(&numbers),
            repo_reserve: self.repo()?.min_free_space_bytes()?,
            // Btrfs and its like make inodes as they need them, and report none.
            repo_inodes: (numbers.f_files > 0).then_some(numbers.f_favail),
            boot_free: free_bytes(&of_boot),
            boot_is_on_root: device(&folder)? == device(&boot)?,
        })
    }

    /// The kernel pair of what the next boot starts: the best guess at the size of another one.
    pub fn next_boot_kernel(&self) -> Result<Option<preflight::KernelPair>> {
        let deployments = self.load()?.deployments();
        let Some(next) = deployments.first() else { return Ok(None) };
        let repo = self.repo()?;
        // Its commit may be gone from the repo; then there is nothing to guess from.
        if !repo.has_object(ObjectType::Commit, &next.csum(), gio::Cancellable::NONE)? {
            return Ok(None);
        }
        let found = kernel_pair_of(&repo, &next.csum())?;
        Ok(found.map(|pair| preflight::KernelPair { bytes: pair.bytes, in_boot: true }))
    }

    /// The kernel pair of a commit, and whether `/boot` has it already.
    pub fn kernel_pair(&self, commit: &str) -> Result<preflight::KernelPair> {
        let pair = kernel_pair_of(&self.repo()?, commit)?.ok_or_else(|| no_kernel(commit))?;
        let stateroot = self.stateroot().unwrap_or_default();
        let in_boot = self.root().is_dir(format!("boot/ostree/{stateroot}-{}", pair.bootcsum));
        Ok(preflight::KernelPair { bytes: pair.bytes, in_boot })
    }

    /// Tells kernels and initramfs images of deployments apart, as libostree does.
    pub(super) fn boot_sum(&self, deployment: &DeploymentStatus) -> Result<Option<String>> {
        Ok(kernel_pair_of(&self.repo()?, &deployment.name.checksum)?.map(|pair| pair.bootcsum))
    }

    /// What checking out a commit makes anew: files are hard links into the repo, folders and the
    /// copy of `/etc` are not.
    #[context("Counting the folders of commit {commit}")]
    pub fn tree_size(&self, commit: &str) -> Result<TreeSize> {
        let repo = self.repo()?;
        let (variant, _) = repo.load_commit(commit)?;
        let tree = hex::encode(variant.child_value(6).data_as_bytes());
        let directories = folders(&repo, &tree, &mut HashMap::new())?;
        let mut size = TreeSize { directories, ..TreeSize::default() };
        add_copy(&etc_defaults(&repo, commit)?, &mut size)?;
        Ok(size)
    }

    /// Refuses a commit that libostree could not deploy, or whose deployment could not boot.
    pub fn refuse_unbootable(&self, commit: &str) -> Result<()> {
        let facts = commit_facts(&self.repo()?, commit)?;
        facts.refusal(commit).map_or(Ok(()), |fault| Err(fault.into()))
    }
}

fn free_bytes(numbers: &StatVfs) -> u64 {
    numbers.f_bavail.saturating_mul(numbers.f_frsize)
}

/// What a commit holds that decides whether it can be deployed and booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFacts {
    /// Whether libostree finds a kernel, and what it is called.
    pub kernel: Option<String>,
    /// Versions of all kernels in `/usr/lib/modules`. With several, which one boots is chance.
    pub kernel_versions: Vec<String>,
    /// Whether there is an os-release file; without one no boot entry can be written.
    pub has_os_release: bool,
    /// Where the defaults of `/etc` stand.
    pub etc: EtcLayout,
    /// Whether the image demands a signed composefs, which a local commit cannot have.
    pub demands_signed_composefs: bool,
}

/// Where a commit keeps the defaults of `/etc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcLayout {
    /// In one place, as it must be.
    Sound,
    /// In `/etc` and in `/usr/etc`: libostree refuses to deploy it.
    Both,
    /// Nowhere: libostree deploys it, and the deployment has no `/etc`.
    Neither,
}

impl CommitFacts {
    /// Why the commit is refused, if it is.
    pub fn refusal(&self, commit: &str) -> Option<Fault> {
        let short = commit.get(..12).unwrap_or(commit);
        let refuse = |why: String| {
            let fault = Fault::refused(format!("commit {short} of the image cannot be booted")).why(why);
            Some(fault.next("report it to whoever builds the image; nothing was changed"))
        };
        if self.kernel.is_none() {
            return Some(no_kernel(commit));
        }
        if self.kernel_versions.len() > 1 {
            let all = self.kernel_versions.join(", ");
            return refuse(format!(
                "/{KERNELS} holds several kernels ({all}), and which one boots would be chance"
            ));
        }
        if !self.has_os_release {
            return refuse("it has no os-release file, which a boot entry is named by".to_owned());
        }
        match self.etc {
            EtcLayout::Sound => None,
            EtcLayout::Both => refuse("it holds both /etc and /usr/etc".to_owned()),
            EtcLayout::Neither => refuse("it holds neither /etc nor /usr/etc".to_owned()),
        }
    }
}

fn no_kernel(commit: &str) -> Fault {
    let short = commit.get(..12).unwrap_or(commit);
    Fault::refused(format!("commit {short} of the image cannot be booted"))
        .why(format!("it has no kernel: no vmlinuz in a folder of /{KERNELS}"))
        .next("name an image of an operating system, not of an application")
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
    let kernel_versions = kernel_versions(&root)?;
    let kernel = match kernel_versions.first() {
        Some(version) => Some(version.clone()),
        None => pair_in_old_layout(&root)?.map(|pair| pair.version),
    };
    Ok(CommitFacts {
        kernel,
        kernel_versions,
        has_os_release: releases.iter().any(|path| kind_of(&root, path).is_some()),
        etc,
        demands_signed_composefs: demands_signed_composefs(&root, defaults)?,
    })
}

/// The kernel pair of a commit, as libostree picks it when it deploys.
#[context("Measuring the kernel of commit {commit}")]
fn kernel_pair_of(repo: &ostree::Repo, commit: &str) -> Result<Option<KernelPair>> {
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
        if info.file_type() == gio::FileType::Directory
            && kind_of(&kernel, "") == Some(gio::FileType::Regular)
        {
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
    let is_folder = |path: &&&str| kind_of(root, path) == Some(gio::FileType::Directory);
    let Some(folder) = OLD_KERNELS.iter().find(is_folder) else { return Ok(None) };
    let mut found: Option<KernelPair> = None;
    let mut others = 0;
    let mut has_initramfs = false;
    for (name, info) in children(&root.resolve_relative_path(folder))? {
        let Some((front, bootcsum)) = name.rsplit_once('-') else { continue };
        let size = u64::try_from(info.size()).unwrap_or(0);
        if let Some(version) = front.strip_prefix("vmlinuz-").filter(|_| is_checksum(bootcsum)) {
            let bootcsum = bootcsum.to_owned();
            found =
                Some(KernelPair { version: version.to_owned(), bytes: size, bootcsum, has_initramfs: false });
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
        let stream = open_file(file)?;
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

/// Opens a regular file of a commit.
fn open_file(file: &gio::File) -> Result<gio::InputStream> {
    // Not `read` of the file: the binding takes its result for a stream that can seek.
    let file = file.downcast_ref::<ostree::RepoFile>().context("A file of a commit is a repo file")?;
    // Until it is resolved, libostree reads its checksum through a null pointer.
    file.ensure_resolved()?;
    let (stream, ..) = file.repo().load_file(&file.checksum(), gio::Cancellable::NONE)?;
    stream.context("A kernel or a configuration file of a commit must be a regular file")
}

/// Whether `ostree-prepare-root` of this tree refuses to boot an unsigned composefs.
fn demands_signed_composefs(root: &gio::File, defaults: &str) -> Result<bool> {
    // A file in /etc replaces the one of the image.
    for path in
        [format!("{defaults}/ostree/prepare-root.conf"), "usr/lib/ostree/prepare-root.conf".to_owned()]
    {
        let file = root.resolve_relative_path(&path);
        if kind_of(&file, "") == Some(gio::FileType::Regular) {
            const LONGEST: usize = 1 << 20;
            let text = open_file(&file)?.read_bytes(LONGEST, gio::Cancellable::NONE)?;
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

fn add_copy(folder: &gio::File, size: &mut TreeSize) -> Result<()> {
    for (name, info) in children(folder)? {
        size.etc_files += 1;
        match info.file_type() {
            gio::FileType::Directory => add_copy(&folder.child(name), size)?,
            gio::FileType::Regular => size.etc_bytes += u64::try_from(info.size()).unwrap_or(0),
            _ => {}
        }
    }
    Ok(())
}

/// The entries of a commit's folder; none if it is not there.
fn children(folder: &gio::File) -> Result<Vec<(String, gio::FileInfo)>> {
    if kind_of(folder, "") != Some(gio::FileType::Directory) {
        return Ok(Vec::new());
    }
    let flags = gio::FileQueryInfoFlags::NOFOLLOW_SYMLINKS;
    let entries = folder.enumerate_children(ATTRIBUTES, flags, gio::Cancellable::NONE)?;
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
