//! The installed host that every story begins with: a Debian with systemd, D-Bus, logind, ostree,
//! skopeo and the program under test, as `make install` ships it, running version 1 from an image.
//!
//! It is made once per built program and kept in the cache folder; a story works on a copy of it.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mcd_test_support::compress::Compression;
use mcd_test_support::entry::Entry;
use mcd_test_support::image::Image;
use mcd_test_support::layout::digest_of;
use mcd_test_support::process::run;
use mcd_test_support::sysroot::{STATEROOT, Sysroot, ostree};
use mcd_test_support::tree::{create_repo, noise};
use ostree::gio;
use ostree::glib;
use ostree::prelude::*;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcd");
const TREE: &str = env!("CARGO_MANIFEST_DIR");
/// Beside what tests/tree.sh installs by itself.
const PACKAGES: [&str; 8] =
    ["systemd", "systemd-sysv", "dbus", "ostree", "ostree-boot", "skopeo", "bubblewrap", "procps"];
/// Part of the cache's key: to be changed when this file makes another host.
const EDITION: &str = "3";
/// Nothing here is about these, and they cost seconds of every boot.
const MASKED: [&str; 10] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "ldconfig.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-tmpfiles-clean.timer",
];

/// What is in the cache folder.
#[derive(Debug)]
pub(super) struct Installation {
    folder: PathBuf,
    /// Held (shared) while this process lives: nobody clears it away.
    _lock: File,
}

impl Installation {
    /// The one of the program under test; the first caller makes it.
    pub(super) fn get() -> &'static Self {
        static INSTALLATION: OnceLock<Installation> = OnceLock::new();
        INSTALLATION.get_or_init(Self::find_or_make)
    }

    /// A copy to work on, which goes with the value.
    pub(super) fn copy(&self) -> Sysroot {
        Sysroot::kept_in(&self.folder).unwrap().copy().unwrap()
    }

    /// The folder with the images `v1`, `v2` and `v3`.
    pub(super) fn images(&self) -> PathBuf {
        self.folder.join("images")
    }

    fn find_or_make() -> Self {
        let script = Command::new(Path::new(TREE).join("tests/tree.sh")).args(PACKAGES).output().unwrap();
        assert!(script.status.success(), "tests/tree.sh: {}", String::from_utf8_lossy(&script.stderr));
        let tree = PathBuf::from(String::from_utf8(script.stdout).unwrap().trim());
        let parts = [digest_of(&fs::read(PROGRAM).unwrap()), tree.display().to_string(), EDITION.to_owned()];
        let key = digest_of(parts.join("\n").as_bytes()).replace("sha256:", "");
        let cache = tree.ancestors().nth(3).unwrap().join("nspawn");
        fs::create_dir_all(&cache).unwrap();
        clear_others(&cache, &key[..16]);
        let folder = cache.join(&key[..16]);
        let lock = File::create(cache.join(format!("{}.lock", &key[..16]))).unwrap();
        lock.lock().unwrap();
        if !folder.join("complete").exists() {
            remove(&folder);
            fs::create_dir_all(&folder).unwrap();
            make(&folder, &tree);
            File::create(folder.join("complete")).unwrap();
        }
        lock.lock_shared().unwrap();
        Self { folder, _lock: lock }
    }
}

/// Clears away what was made for older programs and is not in use.
fn clear_others(cache: &Path, key: &str) {
    for entry in fs::read_dir(cache).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(other) = name.strip_suffix(".lock").filter(|other| *other != key) else { continue };
        if File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok()) {
            remove(&cache.join(other));
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn remove(folder: &Path) {
    if folder.exists() {
        // libostree makes each deployment's root immutable.
        let _ = Command::new("chattr").args(["-R", "-f", "-i"]).arg(folder).output();
        fs::remove_dir_all(folder).unwrap();
    }
}

fn make(folder: &Path, tree: &Path) {
    let stage = folder.join("stage");
    install_program(&stage, folder);
    add_settings(&stage);
    let source = create_repo(&folder.join("source"), ostree::RepoMode::Bare).unwrap();
    // Synchronising a thousand objects one by one takes a minute on a busy disk.
    run(ostree()
        .args(["config", "set", "core.fsync", "false"])
        .arg(format!("--repo={}", folder.join("source").display())))
    .unwrap();
    run(ostree()
        .arg("pull-local")
        .arg(format!("--repo={}", folder.join("source").display()))
        .arg(tree)
        .arg("mcd/v1"))
    .unwrap();
    let commit = commit_with(&source, &stage);
    remove(&stage);

    let sysroot = Sysroot::kept_in(folder).unwrap();
    sysroot.configure("sysroot.readonly", "true").unwrap();
    sysroot.configure("core.fsync", "false").unwrap();
    sysroot.deploy(&source, &commit, &["root=LABEL=root", "rw", "quiet"]).unwrap();
    let etc = sysroot.next_boot().unwrap().deployment.join("etc");
    // A host has been up before: else systemd takes this for its first boot, and presets everything.
    fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::create_dir_all(sysroot.path().join("ostree/deploy").join(STATEROOT).join("var/log/journal")).unwrap();

    let images = folder.join("images");
    let image = || Image::of(&source, &commit).chunks(2).compression(Compression::None);
    let v1 = image().write(&images, "v1").unwrap();
    let derived = |tag: &str, version: u64| {
        let entries = vec![
            Entry::file("usr/lib/os-release", os_release(version)),
            Entry::file("usr/lib/fixture", noise(version, 3_000_000)),
            Entry::file("etc/motd", format!("welcome to v{version}\n")),
        ];
        image().derived(entries).layer_compression(3, Compression::Gzip).write(&images, tag).unwrap();
    };
    derived("v2", 2);
    derived("v3", 3);
    remove(&folder.join("source"));
    run(Command::new(PROGRAM)
        .args(["pivot", &v1.reference(), "--sysroot"])
        .arg(sysroot.path())
        .env("OSTREE_SYSROOT_DEBUG", "mutable-deployments"))
    .unwrap();
    sysroot.configure("core.fsync", "true").unwrap();
}

/// What `make install` ships, without the debug information.
fn install_program(stage: &Path, scratch: &Path) {
    let target = scratch.join("target");
    let program = target.join("debug/mcd");
    fs::create_dir_all(target.join("debug")).unwrap();
    run(Command::new("strip").args(["--strip-debug", "-o"]).arg(&program).arg(PROGRAM)).unwrap();
    run(Command::new("make")
        // Tests run below `make test`: its variables are not meant for this one.
        .env_remove("MAKEFLAGS")
        .args(["--no-print-directory", "-C", TREE, "install"])
        .arg(format!("BINARY={}", program.display()))
        .arg(format!("CARGO_TARGET_DIR={}", target.display()))
        .arg(format!("DESTDIR={}", stage.display())))
    .unwrap();
    remove(&target);
}

/// Units as the shipped preset has them, and a quiet system.
fn add_settings(stage: &Path) {
    run(Command::new("systemctl").arg(format!("--root={}", stage.display())).args([
        "preset",
        "mcd-pivot.service",
        "mcd-cleanup.service",
    ]))
    .unwrap();
    let units = stage.join("etc/systemd/system");
    for unit in MASKED {
        symlink("/dev/null", units.join(unit)).unwrap();
    }
    fs::write(stage.join("usr/lib/os-release"), os_release(1)).unwrap();
    fs::rename(stage.join("etc"), stage.join("usr/etc")).unwrap();
}

fn os_release(version: u64) -> String {
    format!("NAME=\"Debian tree\"\nID=debian\nVERSION_ID={version}\nPRETTY_NAME=\"Debian tree v{version}\"\n")
}

/// The tree with the stage on top and without what no container needs, as version 1.
fn commit_with(repo: &ostree::Repo, stage: &Path) -> String {
    let none = gio::Cancellable::NONE;
    let base = repo.require_rev("mcd/v1").unwrap();
    let metadata = glib::VariantDict::new(Some(&repo.load_commit(&base).unwrap().0.child_value(0)));
    let kernel: String = metadata.lookup("ostree.linux").unwrap().unwrap();
    metadata.insert("version", "1");
    let transaction = repo.auto_transaction(none).unwrap();
    let root = ostree::MutableTree::from_commit(repo, &base).unwrap();
    for (folder, name) in [
        (format!("usr/lib/modules/{kernel}"), "kernel"),
        ("usr/share".to_owned(), "zoneinfo"),
        ("usr/share".to_owned(), "i18n"),
        ("usr/lib/udev".to_owned(), "hwdb.d"),
        ("usr/lib/sysimage".to_owned(), "dpkg"),
    ] {
        let (_, parent) = root.lookup(folder.split('/').next().unwrap()).unwrap();
        let mut parent = parent.unwrap();
        for part in folder.split('/').skip(1) {
            parent = parent.lookup(part).unwrap().1.unwrap();
        }
        parent.remove(name, true).unwrap();
    }
    repo.write_directory_to_mtree(&gio::File::for_path(stage), &root, None, none).unwrap();
    let root = repo.write_mtree(&root, none).unwrap();
    let root = root.downcast_ref::<ostree::RepoFile>().unwrap();
    let commit = repo.write_commit(None, Some("nspawn"), None, Some(&metadata.end()), root, none).unwrap();
    repo.transaction_set_ref(None, "nspawn/v1", Some(&commit));
    transaction.commit(none).unwrap();
    commit.to_string()
}
