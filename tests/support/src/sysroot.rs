//! Scratch sysroots: real ones of libostree's, without a boot loader.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process::run;
use crate::scratch::Scratch;

/// The stateroot of every scratch sysroot.
pub const STATEROOT: &str = "fixture";

/// A sysroot. Dropping it removes it.
#[derive(Debug)]
pub struct Sysroot {
    path: PathBuf,
    scratch: Scratch,
}

/// One entry of the boot menu, the next boot's first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    /// Its title.
    pub title: String,
    /// The kernel command line, as written.
    pub options: String,
    /// The kernel's path below `/boot`.
    pub linux: String,
    /// The initramfs' path there.
    pub initrd: String,
    /// The deployment that its `ostree=` leads to.
    pub deployment: PathBuf,
}

impl BootEntry {
    /// The kernel arguments without `ostree=`.
    pub fn kernel_arguments(&self) -> Vec<&str> {
        self.options
            .split(' ')
            .filter(|argument| !argument.starts_with("ostree=") && !argument.is_empty())
            .collect()
    }

    /// `CHECKSUM.SERIAL` of the deployment.
    pub fn deployment_name(&self) -> String {
        self.deployment.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl Sysroot {
    /// An initialised sysroot with the stateroot [`STATEROOT`] and no deployment.
    pub fn empty() -> Result<Self> {
        let scratch = Scratch::new()?;
        Self::initialise(scratch)
    }

    /// The same on a file system of its own of `size` bytes.
    pub fn empty_on_disk_of(size: u64) -> Result<Self> {
        Self::empty_on(&format!("size={size}"))
    }

    /// The same on a tmpfs of its own with these mount options (`size=`, `nr_inodes=`).
    pub fn empty_on(options: &str) -> Result<Self> {
        let scratch = Scratch::new()?;
        fs::create_dir(scratch.join("sysroot"))?;
        mount_tmpfs(&scratch.join("sysroot"), options)?;
        Self::initialise(scratch)
    }

    /// The same in the folder `name` of `scratch`, where something is mounted perhaps.
    pub fn empty_at(scratch: Scratch, name: &str) -> Result<Self> {
        Self::initialise_at(scratch, name)
    }

    /// A sysroot with `commit` of `source` deployed with these kernel arguments: a host after its
    /// installation.
    pub fn with_deployment(source: &ostree::Repo, commit: &str, kernel_arguments: &[&str]) -> Result<Self> {
        let sysroot = Self::empty()?;
        sysroot.deploy(source, commit, kernel_arguments)?;
        Ok(sysroot)
    }

    /// The sysroot in `folder/sysroot`, made if it is not there. It stays.
    pub fn kept_in(folder: &Path) -> Result<Self> {
        let scratch = Scratch::kept(folder)?;
        let path = scratch.join("sysroot");
        if path.exists() { Ok(Self { path, scratch }) } else { Self::initialise(scratch) }
    }

    /// A copy in memory, on a file system of its own: what runs in it may remount that, as libostree
    /// does with `/sysroot`.
    pub fn copy(&self) -> Result<Self> {
        let scratch = Scratch::new()?;
        let path = scratch.join("sysroot");
        fs::create_dir(&path)?;
        mount_tmpfs(&path, "size=4g")?;
        run(Command::new("cp").arg("-a").arg(self.path.join(".")).arg(&path))?;
        Ok(Self { path, scratch })
    }

    fn initialise(scratch: Scratch) -> Result<Self> {
        Self::initialise_at(scratch, "sysroot")
    }

    fn initialise_at(scratch: Scratch, name: &str) -> Result<Self> {
        let path = scratch.join(name);
        let sysroot = Self { path, scratch };
        let path = sysroot.path.to_str().context("The scratch folder's name is not UTF-8")?;
        fs::create_dir_all(path)?;
        run(ostree().args(["admin", "init-fs", "--modern", path]))?;
        run(ostree().args(["admin", "os-init", STATEROOT, &format!("--sysroot={path}")]))?;
        // A mark that installers leave: /boot/boot leads into itself, so that paths of boot entries
        // hold whether or not /boot is a file system of its own.
        let link = sysroot.path.join("boot/boot");
        if !link.exists() {
            symlink(".", link)?;
        }
        sysroot.configure("sysroot.bootloader", "none")?;
        Ok(sysroot)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder beside it that lives as long.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Its repo.
    pub fn repo(&self) -> Result<ostree::Repo> {
        crate::image::open_repo(&self.path.join("ostree/repo"))
    }

    /// Sets a key of the repo's configuration.
    pub fn configure(&self, key: &str, value: &str) -> Result<()> {
        let repo = self.path.join("ostree/repo");
        run(ostree().args(["config", "set", key, value]).arg(format!("--repo={}", repo.display())))?;
        Ok(())
    }

    /// Gives `/boot` a file system of its own of `size` bytes. Before the first deployment.
    pub fn mount_boot(&self, size: u64) -> Result<()> {
        let boot = self.path.join("boot");
        mount_tmpfs(&boot, &format!("size={size}"))?;
        symlink(".", boot.join("boot"))?;
        Ok(())
    }

    /// Fills the file system that `folder` (below the sysroot) is on, but for `left` bytes.
    pub fn fill(&self, folder: &str, left: u64) -> Result<()> {
        let folder = self.path.join(folder);
        let stat = rustix::fs::statvfs(&folder)?;
        let free = stat.f_bavail * stat.f_frsize;
        let file = fs::File::create(folder.join(".filled-by-a-test"))?;
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::empty(),
            0,
            free.saturating_sub(left).max(1),
        )?;
        Ok(())
    }

    /// Deploys `commit` of `source`, as an installer or another tool does. Gives `CHECKSUM.SERIAL`.
    pub fn deploy(&self, source: &ostree::Repo, commit: &str, kernel_arguments: &[&str]) -> Result<String> {
        self.deploy_as(source, commit, kernel_arguments, "[origin]\nrefspec=fixture/installed\n")
    }

    /// The same with this origin.
    pub fn deploy_as(
        &self,
        source: &ostree::Repo,
        commit: &str,
        kernel_arguments: &[&str],
        origin: &str,
    ) -> Result<String> {
        let source = ostree::prelude::FileExt::path(&source.path()).context("The source repo has no path")?;
        let repo = format!("--repo={}", self.path.join("ostree/repo").display());
        run(ostree().args(["pull-local", &repo]).arg(source).arg(commit))?;
        let origin_file = self.scratch.join("origin");
        fs::write(&origin_file, origin)?;
        let mut command = ostree();
        command.args(["admin", "deploy", &format!("--sysroot={}", self.path.display())]);
        command.arg(format!("--os={STATEROOT}")).arg(format!("--origin-file={}", origin_file.display()));
        command.args(kernel_arguments.iter().map(|argument| format!("--karg={argument}"))).arg(commit);
        run(&mut command)?;
        Ok(self.next_boot()?.deployment_name())
    }

    /// The boot menu, in the order that a boot loader shows it.
    pub fn boot_entries(&self) -> Result<Vec<BootEntry>> {
        let folder = self.path.join("boot/loader/entries");
        let mut found = Vec::new();
        if !folder.exists() {
            return Ok(Vec::new());
        }
        for file in fs::read_dir(&folder)? {
            let text = fs::read_to_string(file?.path())?;
            let field = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                line.map(|value| value.trim().to_owned())
                    .with_context(|| format!("A boot entry has no {name}:\n{text}"))
            };
            let options = field("options")?;
            let link = options.split(' ').find_map(|argument| argument.strip_prefix("ostree=/"));
            let link = link.with_context(|| format!("A boot entry has no ostree=: {options}"))?;
            let deployment =
                self.path.join(link).canonicalize().with_context(|| format!("Following /{link}"))?;
            let version: u64 = field("version")?.parse()?;
            let (title, linux, initrd) = (field("title")?, field("linux")?, field("initrd")?);
            let entry = BootEntry { title, linux, initrd, deployment, options };
            found.push((version, entry));
        }
        found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
        Ok(found.into_iter().map(|(_, entry)| entry).collect())
    }

    /// What the next boot starts.
    pub fn next_boot(&self) -> Result<BootEntry> {
        self.boot_entries()?.into_iter().next().context("Nothing to boot")
    }

    /// `CHECKSUM.SERIAL` of all deployments, the next boot's first.
    pub fn deployments(&self) -> Result<Vec<String>> {
        Ok(self.boot_entries()?.iter().map(BootEntry::deployment_name).collect())
    }

    /// The folder of a deployment.
    pub fn deployment(&self, name: &str) -> PathBuf {
        self.path.join("ostree/deploy").join(STATEROOT).join("deploy").join(name)
    }

    /// A deployment's origin file.
    pub fn origin(&self, name: &str) -> Result<String> {
        let path = self.deployment(&format!("{name}.origin"));
        fs::read_to_string(&path).with_context(|| format!("Reading {}", path.display()))
    }

    /// All refs of the repo with their commits.
    pub fn refs(&self) -> Result<std::collections::BTreeMap<String, String>> {
        let refs = self.repo()?.list_refs(None, ostree::gio::Cancellable::NONE)?;
        Ok(refs.into_iter().collect())
    }

    /// `ostree fsck`: every object that a ref leads to is there and is what its name says.
    pub fn fsck(&self) -> Result<()> {
        run(ostree()
            .args(["fsck", "--quiet"])
            .arg(format!("--repo={}", self.path.join("ostree/repo").display())))?;
        Ok(())
    }
}

/// Debian's command, told to leave deployment roots removable.
pub fn ostree() -> Command {
    let mut command = Command::new("ostree");
    command.env("OSTREE_SYSROOT_DEBUG", "mutable-deployments");
    command
}

/// Mounts a file system in memory.
pub(crate) fn mount_tmpfs(path: &Path, options: &str) -> Result<()> {
    run(Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("{options},mode=0755"), "tmpfs"])
        .arg(path))?;
    Ok(())
}
