//! The boot menu as a boot loader reads it: from the raw blocks of `/boot`, without replaying the
//! journal, through the link `loader` to the entries of the Boot Loader Specification.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::run;
use crate::vm::disk::Disk;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place: the greatest is what boots.
    pub version: u64,
    /// Its title.
    pub title: String,
    /// The kernel command line.
    pub options: String,
    /// The kernel's path on the `/boot` partition.
    pub linux: String,
    /// The initramfs' path there.
    pub initrd: String,
}

impl Entry {
    fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.map(|value| value.trim().to_owned()).with_context(|| format!("No {name} in:\n{text}"))
        };
        // Paths are below the partition's root, or below /boot where that leads back to it.
        let file = |name: &str| -> Result<String> {
            let path = field(name)?;
            Ok(path.strip_prefix("/boot/").map_or_else(|| path.clone(), |rest| format!("/{rest}")))
        };
        Ok(Self {
            version: field("version")?.parse().context("Reading an entry's version")?,
            title: field("title")?,
            options: field("options")?,
            linux: file("linux")?,
            initrd: file("initrd")?,
        })
    }

    /// The value of an argument on the kernel command line.
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.options.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Copies kernel and initramfs out of the raw `/boot`.
    pub fn extract(&self, disk: &Disk, kernel: &Path, initramfs: &Path) -> Result<()> {
        for (from, to) in [(&self.linux, kernel), (&self.initrd, initramfs)] {
            if to.exists() {
                fs::remove_file(to)?;
            }
            debugfs(disk, &format!("dump {from} {}", to.display()))?;
            let size = fs::metadata(to).map_or(0, |found| found.len());
            ensure!(size > 0, "{from} is not in the raw /boot");
        }
        Ok(())
    }
}

/// All entries, what boots first.
pub fn read(disk: &Disk) -> Result<Vec<Entry>> {
    let loader = link_target(disk, "/loader")?;
    let folder = format!("/{loader}/entries");
    let listing = debugfs(disk, &format!("ls -p {folder}"))?;
    let mut entries = Vec::new();
    // A line is /inode/mode/owner/group/name/size/.
    for name in listing.lines().filter_map(|line| line.split('/').nth(5)) {
        if name.ends_with(".conf") {
            entries.push(Entry::parse(&debugfs(disk, &format!("cat {folder}/{name}"))?)?);
        }
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.version));
    Ok(entries)
}

/// What a boot loader starts.
pub fn first(disk: &Disk) -> Result<Entry> {
    read(disk)?.into_iter().next().context("A boot loader finds no entry in the raw /boot")
}

fn link_target(disk: &Disk, path: &str) -> Result<String> {
    let text = debugfs(disk, &format!("stat {path}"))?;
    let target =
        text.lines().find_map(|line| line.trim().strip_prefix("Fast link dest: \"")?.strip_suffix('"'));
    match target {
        Some(target) => Ok(target.trim_end_matches('/').to_owned()),
        None => bail!("{path} is no link in the raw /boot:\n{text}"),
    }
}

/// `debugfs` ends with success whatever happens; a file that is not there is an empty answer.
fn debugfs(disk: &Disk, request: &str) -> Result<String> {
    let boot = disk.layout().boot;
    let output = run(Command::new("debugfs").args(["-R", request]).arg(disk.device(boot)))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_parsed() {
        let text = "title Debian 13 (ostree:0)\nversion 2\noptions root=LABEL=root ostree=/ostree/boot.1/os/12/0\nlinux /boot/ostree/os-12/vmlinuz-6\ninitrd /ostree/os-12/initramfs-6.img\n";
        let entry = Entry::parse(text).unwrap();
        assert_eq!(entry.version, 2);
        assert_eq!(entry.linux, "/ostree/os-12/vmlinuz-6");
        assert_eq!(entry.initrd, "/ostree/os-12/initramfs-6.img");
        assert_eq!(entry.argument("root"), Some("LABEL=root"));
        assert_eq!(entry.argument("ostree"), Some("/ostree/boot.1/os/12/0"));
        assert_eq!(entry.argument("quiet"), None);
        assert!(Entry::parse("title only\n").is_err());
    }
}
