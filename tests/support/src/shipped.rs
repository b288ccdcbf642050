//! The program under test as it is shipped, put into a tree of an OS.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use ostree::gio;
use ostree::glib;
use ostree::prelude::*;

use crate::cache::remove;
use crate::process::run;

/// Installs into `stage` what `make install` in `source` (the project's tree) ships, with `program`
/// as `mcd`, but without debug information, and `initramfs` as the small program of the initramfs; its
/// services are enabled as the shipped preset says. `scratch` is a folder for what is in between.
pub fn install(program: &Path, initramfs: &Path, source: &Path, stage: &Path, scratch: &Path) -> Result<()> {
    let target = scratch.join("target");
    let stripped = target.join("debug/mcd");
    fs::create_dir_all(target.join("debug"))?;
    run(Command::new("strip").args(["--strip-debug", "-o"]).arg(&stripped).arg(program))?;
    run(Command::new("make")
        // Tests run below `make test`: its variables are not meant for this one.
        .env_remove("MAKEFLAGS")
        .args(["--no-print-directory", "-C"])
        .arg(source)
        .arg("install")
        .arg(format!("BINARY={}", stripped.display()))
        .arg(format!("INITRAMFS_BINARY={}", initramfs.display()))
        .arg(format!("CARGO_TARGET_DIR={}", target.display()))
        .arg(format!("DESTDIR={}", stage.display())))?;
    remove(&target)?;
    run(Command::new("systemctl").arg(format!("--root={}", stage.display())).args([
        "preset",
        "mcd-boot.service",
        "mcd-pivot.service",
        "mcd-cleanup.service",
        "mcd-health.service",
        "mcd-resume.service",
        "mcd-drift.service",
        "mcd-firstboot.service",
    ]))?;
    Ok(())
}

/// The small program of the initramfs, compiled from `source` beside `program`: minutes the first time.
pub fn initramfs_program(program: &Path, source: &Path) -> Result<PathBuf> {
    let target = program.parent().and_then(Path::parent).context("A program is in a target folder")?;
    run(Command::new("make")
        .env_remove("MAKEFLAGS")
        .args(["--no-print-directory", "-C"])
        .arg(source)
        .arg("initramfs")
        .arg(format!("CARGO_TARGET_DIR={}", target.display())))?;
    Ok(target.join("initramfs/mcd"))
}

/// Masks units in `stage`, whose defaults of `/etc` are still at `etc`.
pub fn mask(stage: &Path, units: &[&str]) -> Result<()> {
    let folder = stage.join("etc/systemd/system");
    fs::create_dir_all(&folder)?;
    for unit in units {
        symlink("/dev/null", folder.join(unit))?;
    }
    Ok(())
}

/// Commits `base` without the folders in `removed` and with `stage` on top, as `version` of the OS.
pub fn commit(
    repo: &ostree::Repo,
    base: &str,
    removed: &[String],
    stage: &Path,
    version: &str,
) -> Result<String> {
    let none = gio::Cancellable::NONE;
    let base = repo.require_rev(base)?;
    let metadata = glib::VariantDict::new(Some(&repo.load_commit(&base)?.0.child_value(0)));
    metadata.insert("version", version);
    let transaction = repo.auto_transaction(none)?;
    let root = ostree::MutableTree::from_commit(repo, &base)?;
    for path in removed {
        let (folder, name) = path.rsplit_once('/').context("A folder below the root is meant")?;
        let mut parent = Clone::clone(&root);
        for part in folder.split('/') {
            parent = parent.lookup(part)?.1.with_context(|| format!("{path}: no folder {part}"))?;
        }
        parent.remove(name, true)?;
    }
    repo.write_directory_to_mtree(&gio::File::for_path(stage), &root, None, none)?;
    let root = repo.write_mtree(&root, none)?;
    let root = root.downcast_ref::<ostree::RepoFile>().context("A written tree is a repo file")?;
    let commit = repo.write_commit(None, Some("test"), None, Some(&metadata.end()), root, none)?;
    repo.transaction_set_ref(None, &format!("test/{version}"), Some(&commit));
    transaction.commit(none)?;
    Ok(commit.to_string())
}

/// The kernel's version that a commit's metadata names.
pub fn kernel_of(repo: &ostree::Repo, rev: &str) -> Result<String> {
    let commit = repo.require_rev(rev)?;
    let metadata = glib::VariantDict::new(Some(&repo.load_commit(&commit)?.0.child_value(0)));
    metadata.lookup("ostree.linux")?.context("The commit names no kernel")
}

/// A repo at `path` with `branch` of the repo `from`, and no synchronising of every object: it is
/// thrown away.
pub fn copy_branch(from: &Path, branch: &str, path: &Path) -> Result<ostree::Repo> {
    let repo = crate::tree::create_repo(path, ostree::RepoMode::Bare)?;
    let option = format!("--repo={}", path.display());
    run(crate::sysroot::ostree().args(["config", "set", "core.fsync", "false", &option]))?;
    run(crate::sysroot::ostree().args(["pull-local", &option]).arg(from).arg(branch))?;
    Ok(repo)
}
