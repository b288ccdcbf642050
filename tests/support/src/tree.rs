//! Small OS trees: what a deployment needs and every kind of entry that an importer meets, in a
//! few dozen files.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use ostree::gio;
use ostree::glib;
use ostree::prelude::*;

use crate::entry::{Body, Entry, Node};

/// The kernel version of the fixture trees.
pub const KERNEL: &str = "6.1.0-mcd";

/// The instant of every fixture commit: two runs give the same commit ids.
pub const EPOCH: u64 = 1_700_000_000;

/// A tree: entries by path, as they stand in a commit (`usr/etc`, not `etc`).
#[derive(Debug, Clone, Default)]
pub struct Tree {
    entries: BTreeMap<String, Entry>,
    metadata: Vec<(String, glib::Variant)>,
}

/// `length` bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    })
    .take(length)
    .collect()
}

impl Tree {
    /// An empty tree.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Version 1 of the fixture OS.
    pub fn v1() -> Self {
        let mut tree = Self::layout("1");
        tree.add_kernel(KERNEL, 1);
        tree.add_programs();
        tree.add_etc();
        tree
    }

    /// Version 2: another os-release, one changed, one new and one removed program, a new and a
    /// changed default in `/etc`. The kernel is the same.
    pub fn v2() -> Self {
        Self::v1()
            .with(os_release("2"))
            .with(Entry::program("usr/lib/fixture/tool", noise(77, 30_000)))
            .with(Entry::program("usr/lib/fixture/new-tool", noise(78, 5_000)))
            .without("usr/lib/fixture/old-tool")
            .with(Entry::file("usr/etc/fixture.conf", "level = 2\n"))
            .with(Entry::file("usr/etc/new-in-2.conf", "new\n"))
            .version("2")
    }

    /// Version 3: as version 2, with another kernel.
    pub fn v3() -> Self {
        let mut tree = Self::v2().with(os_release("3")).version("3");
        tree.add_kernel(KERNEL, 3);
        tree
    }

    /// The directories and links that an OSTree host's root has.
    fn layout(version: &str) -> Self {
        let mut tree = Self::empty().version(version).with(os_release(version));
        for path in ["boot", "dev", "proc", "run", "sys", "sysroot", "var"] {
            tree = tree.with(Entry::dir(path));
        }
        tree = tree.with(Entry::dir("tmp").mode(0o1777));
        // Where the host's own programs and libraries are mounted when a fixture tree is "booted".
        for path in ["usr/bin", "usr/sbin", "usr/lib64", "usr/share"] {
            tree = tree.with(Entry::dir(path));
        }
        tree = tree.with(Entry::dir(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)));
        for (path, target) in [
            ("bin", "usr/bin"),
            ("sbin", "usr/sbin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
            ("home", "var/home"),
            ("root", "var/roothome"),
            ("opt", "var/opt"),
            ("srv", "var/srv"),
            ("mnt", "var/mnt"),
            ("media", "run/media"),
            ("ostree", "sysroot/ostree"),
            ("usr/local", "../var/usrlocal"),
        ] {
            tree = tree.with(Entry::symlink(path, target));
        }
        tree
    }

    fn add_kernel(&mut self, version: &str, seed: u64) {
        let folder = format!("usr/lib/modules/{version}");
        self.insert(Entry::program(format!("{folder}/vmlinuz"), noise(1000 + seed, 20_000)));
        self.insert(Entry::file(format!("{folder}/initramfs.img"), noise(2000 + seed, 30_000)));
        self.insert(Entry::file(format!("{folder}/modules.dep"), "kernel/fs/ext4/ext4.ko:\n"));
        self.insert(Entry::file(format!("{folder}/kernel/fs/ext4/ext4.ko"), noise(3000 + seed, 8_000)));
        self.metadata.retain(|(key, _)| key != "ostree.linux");
        self.metadata.push(("ostree.linux".to_owned(), version.to_variant()));
        self.metadata.retain(|(key, _)| key != "ostree.bootable");
        self.metadata.push(("ostree.bootable".to_owned(), true.to_variant()));
    }

    fn add_programs(&mut self) {
        let shared = noise(5, 12_000);
        for entry in [
            Entry::program("usr/lib/fixture/tool", noise(6, 30_000)),
            Entry::program("usr/lib/fixture/old-tool", noise(7, 4_000)),
            Entry::program("usr/lib/fixture/sudo", noise(8, 6_000)).mode(0o4755),
            Entry::program("usr/lib/fixture/write", noise(9, 2_000)).mode(0o2755).owner(0, 5),
            // cap_net_raw+ep, revision 2: what `setcap` writes for ping.
            Entry::program("usr/lib/fixture/ping", noise(10, 3_000)).xattr(
                "security.capability",
                b"\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            ),
            // The same content at two paths is one object; with another mode it is two.
            Entry::file("usr/lib/fixture/same-1", &shared),
            Entry::file("usr/lib/fixture/same-2", &shared),
            Entry::program("usr/lib/fixture/same-but-executable", &shared),
            Entry::file("usr/lib/fixture/empty", ""),
            Entry::file("usr/lib/fixture/also-empty", ""),
            Entry::file("usr/lib/fixture/tagged", "with attributes\n")
                .xattr("user.one", "1")
                .xattr("user.two", [0, 255, 1]),
            Entry::file("usr/lib/fixture/naïve—файл-名.txt", "a name beyond ASCII\n"),
            Entry::file(
                format!("usr/lib/fixture/{}/deep", "a-long-folder-name/".repeat(8).trim_end_matches('/')),
                "deep\n",
            ),
            Entry::symlink("usr/lib/fixture/link", "tool"),
            Entry::symlink("usr/lib/fixture/double-slash", "..//fixture//tool"),
            Entry::symlink("usr/lib/fixture/dangling", "/nowhere/ünd"),
            Entry::dir("usr/lib/fixture/empty-folder"),
            Entry::dir("usr/lib/fixture/private").mode(0o700),
            Entry::file("usr/lib/fixture/private/key", "not one\n").mode(0o600),
            // Most of a real tree's bytes compress well.
            Entry::file("usr/lib/fixture/words", "the quick brown fox ".repeat(4000)),
        ] {
            self.insert(entry);
        }
    }

    fn add_etc(&mut self) {
        let policy = "{ \"default\": [ { \"type\": \"insecureAcceptAnything\" } ] }\n";
        for entry in [
            Entry::file(
                "usr/etc/passwd",
                "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000::/var/home/core:/bin/bash\n",
            ),
            Entry::file("usr/etc/group", "root:x:0:\nwheel:x:10:core\ncore:x:1000:\n"),
            Entry::file("usr/etc/shadow", "root:*:19000:0:99999:7:::\n").mode(0o640),
            Entry::symlink("usr/etc/os-release", "../usr/lib/os-release"),
            Entry::file("usr/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
            Entry::file("usr/etc/fixture.conf", "level = 1\n"),
            Entry::file("usr/etc/ssh/sshd_config", "PermitRootLogin no\n").mode(0o600),
            Entry::file("usr/etc/containers/policy.json", policy),
            Entry::file("usr/etc/containers/registries.conf", "unqualified-search-registries = []\n"),
        ] {
            self.insert(entry);
        }
    }

    fn insert(&mut self, entry: Entry) {
        self.entries.insert(entry.name(), entry);
    }

    /// With this entry, in place of what was there.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Self {
        self.insert(entry);
        self
    }

    /// Without `path` and what is below it.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        let below = format!("{path}/");
        self.entries.retain(|name, _| name != path && !name.starts_with(&below));
        self
    }

    /// With this version in the commit's metadata (not in os-release).
    #[must_use]
    pub fn version(self, version: &str) -> Self {
        self.metadata("version", version.to_variant())
    }

    /// With this in the commit's metadata.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: glib::Variant) -> Self {
        self.metadata.retain(|(other, _)| other != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// The entries as a container builder would write them from scratch: `etc` at its place, every
    /// directory before what it holds.
    pub fn entries(&self) -> Vec<Entry> {
        let mut all = self.entries.clone();
        for path in self.entries.keys() {
            for (end, _) in path.match_indices('/') {
                let parent = &path[..end];
                all.entry(parent.to_owned()).or_insert_with(|| Entry::dir(parent));
            }
        }
        let mut entries: Vec<Entry> = all.into_values().collect();
        for entry in &mut entries {
            if let Some(rest) = entry.path.strip_prefix(b"usr/etc") {
                entry.path = [b"etc", rest].concat();
            }
        }
        entries
    }

    /// Writes the tree into `repo` (of any mode; nothing here needs root) as a commit of `branch`,
    /// and gives the commit's checksum.
    pub fn commit(&self, repo: &ostree::Repo, branch: &str) -> Result<String> {
        let transaction = repo.auto_transaction(gio::Cancellable::NONE)?;
        let root = ostree::MutableTree::new();
        root.set_metadata_checksum(&write_dirmeta(repo, &Entry::dir(""))?);
        for (path, entry) in &self.entries {
            self.write_entry(repo, &root, path, entry).with_context(|| format!("Committing {path}"))?;
        }
        let root = repo.write_mtree(&root, gio::Cancellable::NONE)?;
        let root = root.downcast_ref::<ostree::RepoFile>().context("A written tree is a repo file")?;
        let metadata = glib::VariantDict::new(None);
        for (key, value) in &self.metadata {
            metadata.insert_value(key, value);
        }
        let metadata = metadata.end();
        let none = gio::Cancellable::NONE;
        let commit =
            repo.write_commit_with_time(None, Some("fixture"), None, Some(&metadata), root, EPOCH, none)?;
        repo.transaction_set_ref(None, branch, Some(&commit));
        transaction.commit(none)?;
        Ok(commit.to_string())
    }

    fn write_entry(
        &self,
        repo: &ostree::Repo,
        root: &ostree::MutableTree,
        path: &str,
        entry: &Entry,
    ) -> Result<()> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut folder = Clone::clone(root);
        let mut so_far = String::new();
        for part in parent.split('/').filter(|part| !part.is_empty()) {
            so_far = if so_far.is_empty() { part.to_owned() } else { format!("{so_far}/{part}") };
            let default = Entry::dir(&so_far);
            folder = ensure_dir(repo, &folder, part, self.entries.get(&so_far).unwrap_or(&default))?;
        }
        let none = gio::Cancellable::NONE;
        let xattrs = xattr_variant(&entry.xattrs);
        let checksum = match &entry.node {
            Node::Dir => {
                ensure_dir(repo, &folder, name, entry)?;
                return Ok(());
            }
            Node::File(Body::Bytes(bytes)) => {
                let mode = entry.mode | 0o100_000;
                repo.write_regfile_inline(None, entry.uid, entry.gid, mode, Some(&xattrs), bytes, none)?
            }
            Node::Symlink(target) => {
                let target = std::str::from_utf8(target)?;
                repo.write_symlink(None, entry.uid, entry.gid, Some(&xattrs), target, none)?
            }
            other => bail!("a commit cannot hold {other:?}"),
        };
        folder.replace_file(name, &checksum)?;
        Ok(())
    }
}

fn os_release(version: &str) -> Entry {
    let text = format!(
        "NAME=\"Fixture OS\"\nID=fixture\nVERSION_ID={version}\nPRETTY_NAME=\"Fixture OS {version}\"\n"
    );
    Entry::file("usr/lib/os-release", text)
}

fn ensure_dir(
    repo: &ostree::Repo,
    parent: &ostree::MutableTree,
    name: &str,
    entry: &Entry,
) -> Result<ostree::MutableTree> {
    let folder = parent.ensure_dir(name)?;
    folder.set_metadata_checksum(&write_dirmeta(repo, entry)?);
    Ok(folder)
}

fn write_dirmeta(repo: &ostree::Repo, entry: &Entry) -> Result<String> {
    let info = gio::FileInfo::new();
    info.set_attribute_uint32("unix::uid", entry.uid);
    info.set_attribute_uint32("unix::gid", entry.gid);
    info.set_attribute_uint32("unix::mode", entry.mode | 0o040_000);
    let dirmeta = ostree::create_directory_metadata(&info, Some(&xattr_variant(&entry.xattrs)));
    let checksum =
        repo.write_metadata(ostree::ObjectType::DirMeta, None, &dirmeta, gio::Cancellable::NONE)?;
    Ok(checksum.to_hex())
}

/// `a(ayay)`: names end with NUL, in the order that `flistxattr` users sort them in.
fn xattr_variant(xattrs: &[(String, Vec<u8>)]) -> glib::Variant {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> =
        xattrs.iter().map(|(name, value)| ([name.as_bytes(), b"\0"].concat(), value.clone())).collect();
    pairs.sort();
    pairs.to_variant()
}

/// A new repo at `path`.
pub fn create_repo(path: &std::path::Path, mode: ostree::RepoMode) -> Result<ostree::Repo> {
    std::fs::create_dir_all(path)?;
    let repo = ostree::Repo::new_for_path(path);
    repo.create(mode, gio::Cancellable::NONE)
        .with_context(|| format!("Creating a repo at {}", path.display()))?;
    repo.open(gio::Cancellable::NONE)?;
    Ok(repo)
}
