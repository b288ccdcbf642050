//! The installed host that every story begins with: a Debian with systemd, D-Bus, logind, ostree,
//! skopeo and the program under test, as `make install` ships it, running version 1 from an image.
//!
//! It is made once per built program and kept in the cache folder; a story works on a copy of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mcd_test_support::cache::{Cached, remove};
use mcd_test_support::compress::Compression;
use mcd_test_support::entry::Entry;
use mcd_test_support::image::Image;
use mcd_test_support::layout::digest_of;
use mcd_test_support::process::run;
use mcd_test_support::shipped;
use mcd_test_support::sysroot::{STATEROOT, Sysroot};
use mcd_test_support::tree::noise;

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
    cached: Cached,
}

impl Installation {
    /// The one of the program under test; the first caller makes it.
    pub(super) fn get() -> &'static Self {
        static INSTALLATION: OnceLock<Installation> = OnceLock::new();
        INSTALLATION.get_or_init(Self::find_or_make)
    }

    /// A copy to work on, which goes with the value.
    pub(super) fn copy(&self) -> Sysroot {
        Sysroot::kept_in(self.cached.folder()).unwrap().copy().unwrap()
    }

    /// The folder with the images `v1`, `v2` and `v3`.
    pub(super) fn images(&self) -> PathBuf {
        self.cached.folder().join("images")
    }

    fn find_or_make() -> Self {
        let script = Command::new(Path::new(TREE).join("tests/tree.sh")).args(PACKAGES).output().unwrap();
        assert!(script.status.success(), "tests/tree.sh: {}", String::from_utf8_lossy(&script.stderr));
        let tree = PathBuf::from(String::from_utf8(script.stdout).unwrap().trim());
        let parts = [&digest_of(&fs::read(PROGRAM).unwrap()), tree.to_str().unwrap(), EDITION];
        let cached = Cached::find_or_make("nspawn", &parts, |folder| {
            make(folder, &tree);
            Ok(())
        });
        Self { cached: cached.unwrap() }
    }
}

fn make(folder: &Path, tree: &Path) {
    let stage = folder.join("stage");
    // No initramfs runs in a container: what would be in it need not be compiled.
    let none = Path::new("/dev/null");
    shipped::install(Path::new(PROGRAM), none, Path::new(TREE), &stage, folder).unwrap();
    shipped::mask(&stage, &MASKED).unwrap();
    fs::write(stage.join("usr/lib/os-release"), os_release(1)).unwrap();
    fs::rename(stage.join("etc"), stage.join("usr/etc")).unwrap();
    let source = shipped::copy_branch(tree, "mcd/v1", &folder.join("source")).unwrap();
    let kernel = shipped::kernel_of(&source, "mcd/v1").unwrap();
    // What no container needs.
    let modules = format!("usr/lib/modules/{kernel}/kernel");
    let removed =
        [&modules, "usr/share/zoneinfo", "usr/share/i18n", "usr/lib/udev/hwdb.d", "usr/lib/sysimage/dpkg"]
            .map(str::to_owned);
    let commit = shipped::commit(&source, "mcd/v1", &removed, &stage, "1").unwrap();
    remove(&stage).unwrap();

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
    remove(&folder.join("source")).unwrap();
    run(Command::new(PROGRAM)
        .args(["pivot", &v1.reference(), "--sysroot"])
        .arg(sysroot.path())
        .env("OSTREE_SYSROOT_DEBUG", "mutable-deployments"))
    .unwrap();
    sysroot.configure("core.fsync", "true").unwrap();
}

fn os_release(version: u64) -> String {
    format!("NAME=\"Debian tree\"\nID=debian\nVERSION_ID={version}\nPRETTY_NAME=\"Debian tree v{version}\"\n")
}
