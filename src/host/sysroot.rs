//! The OSTree sysroot that a verb works on: the running host's, or a directory.
//!
//! A [`Host`] only knows where things are. Each look at the deployments loads libostree's sysroot
//! anew: its own "changed?" test goes by a time stamp, and what was loaded before a lock was taken is
//! stale by definition.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::{ambient_authority, fs::Dir};
use fn_error_context::context;
use ostree::gio;
use rustix::fs::{CWD, Stat, StatVfsMountFlags};

use crate::error::Fault;

/// Says that the running system was started from an OSTree deployment.
const BOOTED_STAMP: &str = "/run/ostree-booted";
/// The running host's sysroot, as libostree sees it.
const RUNNING: &str = "/";
/// Where the running host's physical root is mounted.
const PHYSICAL_ROOT: &str = "/sysroot";

/// An OSTree host: where its sysroot is, and whether it runs.
#[derive(Debug)]
pub struct Host {
    path: Utf8PathBuf,
    booted: bool,
    /// The stateroot that changes are made in: that of the running deployment or of the first.
    stateroot: Option<String>,
    root: Dir,
}

impl Host {
    /// Opens the running host (`None`) or a sysroot that does not run. Nothing is changed.
    ///
    /// Must be called before the process starts threads: on a running host `/sysroot` is mounted
    /// read-only, and libostree writes through a mount namespace of its own, which is a property of
    /// the thread that enters it and of those started later.
    pub fn open(sysroot: Option<&Utf8Path>) -> Result<Self> {
        require_root()?;
        match sysroot {
            Some(path) if !(path == RUNNING && is_running_ostree()) => Self::open_directory(path),
            _ => Self::open_running(),
        }
    }

    fn open_running() -> Result<Self> {
        if !is_running_ostree() {
            return Err(Fault::failed("this is not an OSTree host")
                .why(format!("{BOOTED_STAMP} is not there: the running system was not started by OSTree"))
                .next("name the sysroot to work on with --sysroot DIR")
                .into());
        }
        let sysroot = ostree::Sysroot::new(Some(&gio::File::for_path(RUNNING)));
        sysroot
            .initialize_with_mount_namespace(gio::Cancellable::NONE)
            .context("Entering a mount namespace for the sysroot")?;
        sysroot.load(gio::Cancellable::NONE).context("Reading the sysroot of the running host")?;
        let Some(booted) = sysroot.booted_deployment() else {
            return Err(Fault::failed("no deployment of this host is the running one")
                .why("the root file system is none of the folders below /ostree/deploy")
                .next("boot the host normally, or name the sysroot with --sysroot DIR")
                .into());
        };
        // Opened after the namespace was entered, else writes would go through the read-only mount.
        let root = Dir::open_ambient_dir(RUNNING, ambient_authority()).context("Opening the root folder")?;
        Ok(Self { path: RUNNING.into(), booted: true, stateroot: Some(booted.osname().to_string()), root })
    }

    fn open_directory(path: &Utf8Path) -> Result<Self> {
        let root = Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| {
            Fault::usage(format!("cannot open the sysroot {path}")).why(error.to_string())
        })?;
        if is_running_ostree() && is_same_folder(&rustix::fs::fstat(&root)?, PHYSICAL_ROOT) {
            return Err(Fault::usage(format!("{path} is the sysroot of the running host"))
                .why("changed as if it did not run, it could lose the deployment that runs")
                .next("leave --sysroot out")
                .into());
        }
        if !root.is_dir("ostree/repo") {
            return Err(Fault::failed(format!("{path} is not an OSTree sysroot"))
                .why("it has no folder ostree/repo")
                .next(format!("check the path, or make a sysroot there: ostree admin init-fs {path}"))
                .into());
        }
        let mut host = Self { path: path.to_owned(), booted: false, stateroot: None, root };
        host.stateroot = host.load()?.deployments().first().map(|first| first.osname().to_string());
        Ok(host)
    }

    /// Where the sysroot is: `/` for the running host.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// Whether this is the running host. Then changes are staged for the shutdown.
    pub fn is_booted(&self) -> bool {
        self.booted
    }

    /// The sysroot's folder. `ostree/…` and `boot/…` stand in it in both cases.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// The repo, opened anew: a handle belongs to one thread.
    #[context("Opening the OSTree repo of {}", self.path)]
    pub fn repo(&self) -> Result<ostree::Repo> {
        let repo = ostree::Repo::open_at_dir(std::os::fd::AsFd::as_fd(&self.root), "ostree/repo")?;
        Ok(repo)
    }

    /// libostree's sysroot with the deployments of this moment.
    #[context("Reading the deployments of {}", self.path)]
    pub(crate) fn load(&self) -> Result<ostree::Sysroot> {
        let sysroot = self.sysroot();
        sysroot.load(gio::Cancellable::NONE)?;
        Ok(sysroot)
    }

    /// libostree's sysroot, not loaded yet.
    pub(crate) fn sysroot(&self) -> ostree::Sysroot {
        let sysroot = ostree::Sysroot::new(Some(&gio::File::for_path(&self.path)));
        if self.booted {
            // Entered by `open`; entering it again would be refused once there are threads.
            sysroot.set_mount_namespace_in_use();
        }
        sysroot
    }

    /// The stateroot that changes are made in; none without a deployment.
    pub(crate) fn stateroot(&self) -> Option<&str> {
        self.stateroot.as_deref()
    }

    /// The root of the running system: where policy and credentials are read, also for a sysroot
    /// that does not run.
    #[context("Opening the root folder")]
    pub fn running_root(&self) -> Result<Dir> {
        Ok(Dir::open_ambient_dir("/", ambient_authority())?)
    }

    /// `/var` as the deployments see it; none without a deployment.
    #[context("Opening /var of {}", self.path)]
    pub(crate) fn var(&self) -> Result<Option<Dir>> {
        let Some(stateroot) = &self.stateroot else { return Ok(None) };
        let path = if self.booted { "var".to_owned() } else { format!("ostree/deploy/{stateroot}/var") };
        Ok(Some(self.root.open_dir(path)?))
    }

    /// Refuses a sysroot that cannot be written, before anything is tried.
    pub(crate) fn require_writable(&self) -> Result<()> {
        // libostree makes the running host's writable when it takes the lock.
        let flags = rustix::fs::fstatvfs(&self.root)?.f_flag;
        if !self.booted && flags.contains(StatVfsMountFlags::RDONLY) {
            return Err(read_only(&self.path).into());
        }
        Ok(())
    }
}

/// The fault of a sysroot on a read-only mount.
pub(crate) fn read_only(path: &Utf8Path) -> Fault {
    Fault::failed(format!("the sysroot {path} is read-only"))
        .why("the file system that it is on is mounted read-only")
        .next("mount it writable (mount -o remount,rw …) and try again")
}

fn require_root() -> Result<(), Fault> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Fault::failed("this needs root")
        .why("deployments, boot entries and the repo belong to root")
        .next("use sudo"))
}

fn is_running_ostree() -> bool {
    rustix::fs::stat(BOOTED_STAMP).is_ok()
}

fn is_same_folder(one: &Stat, other: &str) -> bool {
    rustix::fs::statat(CWD, other, rustix::fs::AtFlags::empty())
        .is_ok_and(|other| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
