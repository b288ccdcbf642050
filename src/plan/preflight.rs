//! Preflight: the numbers that decide whether a change may start, each with what is needed, what
//! is there and what to do. Pure; the host only measures.
//!
//! Two gates (design section 2). Before the first byte only the manifest and the running host are
//! known, so sizes are estimates and called so. After the import everything is known exactly.

use std::fmt;

use serde::Serialize;

use super::Bytes;
use crate::model::oci::{Compression, ImageFacts, Layer};

/// Bytes in the repo for one compressed byte of a layer, in tenths. Measured on Debian and Fedora
/// trees of 1 to 1.8 GB: 451 MB of gzip became 1034 MB, 415 MB of zstd the same
/// (`docs/decisions.md`, "Preflight estimates").
const RATIO_TENTHS_GZIP: u64 = 23;
const RATIO_TENTHS_ZSTD: u64 = 25;
const RATIO_TENTHS_PLAIN: u64 = 11;

/// What the file systems of a sysroot offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that the repo's file system can still give.
    pub repo_free: u64,
    /// Bytes of those that must stay free (`core.min-free-space-*` of the repo's config).
    pub repo_reserve: u64,
    /// Free inodes of the repo's file system; none where it has no such limit.
    pub repo_inodes: Option<u64>,
    /// Bytes that `/boot` can still give.
    pub boot_free: u64,
    /// Whether `/boot` is on the repo's file system.
    pub boot_is_on_root: bool,
}

/// A kernel and its initramfs in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelPair {
    /// Bytes of both together, device trees included.
    pub bytes: u64,
    /// `/boot` has this very pair already: deploying copies nothing.
    pub in_boot: bool,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Fits.
    Passed,
    /// Refuses the change.
    Failed,
}

/// One number against its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What is counted: "space for the image in the repo".
    pub name: &'static str,
    /// Needed.
    pub needed: u64,
    /// There.
    pub available: u64,
    /// Bytes, else a plain count.
    pub is_bytes: bool,
    /// `needed` is an estimate.
    pub is_estimate: bool,
    /// The outcome.
    pub verdict: Verdict,
    /// What to do when it fails.
    pub next: &'static str,
}

impl Check {
    fn bytes(name: &'static str, needed: u64, available: u64, is_estimate: bool, next: &'static str) -> Self {
        Self {
            name,
            needed,
            available,
            is_bytes: true,
            is_estimate,
            verdict: verdict(needed, available),
            next,
        }
    }

    fn count(name: &'static str, needed: u64, available: u64, is_estimate: bool, next: &'static str) -> Self {
        Self {
            name,
            needed,
            available,
            is_bytes: false,
            is_estimate,
            verdict: verdict(needed, available),
            next,
        }
    }

    /// Whether it stops the change.
    pub fn is_failed(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}

fn verdict(needed: u64, available: u64) -> Verdict {
    if needed <= available { Verdict::Passed } else { Verdict::Failed }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let estimate = if self.is_estimate { " (estimate)" } else { "" };
        if self.is_bytes {
            write!(f, "{}: needs {}{estimate}, has {}", self.name, Bytes(self.needed), Bytes(self.available))
        } else {
            write!(f, "{}: needs {}{estimate}, has {}", self.name, self.needed, self.available)
        }
    }
}

const FREE_THE_REPO: &str =
    "free space: `mcd cleanup` removes images that nothing uses; `mcd status` shows pinned ones";
const FREE_BOOT: &str = "free space in /boot: `mcd cleanup` removes kernels that no deployment uses; \
                         `ostree admin undeploy INDEX` gives up an old deployment";

/// The first gate: what can be told before a byte of a layer is fetched.
///
/// `to_fetch` are the layers that the repo does not have; `twice` says that they are kept once more
/// in their compressed form while the image is verified; `booted` is the kernel pair that runs, the
/// best guess at the size of the next one.
pub fn before_download(
    to_fetch: &[&Layer],
    twice: bool,
    space: Space,
    booted: Option<KernelPair>,
) -> Vec<Check> {
    let compressed = to_fetch.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.size));
    let unpacked = to_fetch.iter().fold(0u64, |sum, layer| sum.saturating_add(estimate_unpacked(layer)));
    let pair = booted.map_or(0, |pair| pair.bytes);
    let in_repo = unpacked
        .saturating_add(if twice { compressed } else { 0 })
        .saturating_add(if space.boot_is_on_root { pair } else { 0 });
    let usable = space.repo_free.saturating_sub(space.repo_reserve);
    let mut checks = Vec::new();
    if !to_fetch.is_empty() {
        checks.push(Check::bytes("space for the image in the repo", in_repo, usable, true, FREE_THE_REPO));
        if !space.boot_is_on_root {
            checks.push(Check::bytes(
                "space for its kernel in /boot",
                pair,
                space.boot_free,
                true,
                FREE_BOOT,
            ));
        }
    }
    checks
}

fn estimate_unpacked(layer: &Layer) -> u64 {
    let tenths = match layer.media {
        Compression::Gzip => RATIO_TENTHS_GZIP,
        Compression::Zstd => RATIO_TENTHS_ZSTD,
        Compression::None => RATIO_TENTHS_PLAIN,
    };
    (layer.size / 10).saturating_mul(tenths)
}

/// The second gate: the image is in the repo, nothing is deployed yet. A deployment is a tree of
/// hard links, so it costs an inode for each directory (`directories`) and the copy of `/etc`
/// (`etc_files`, `etc_bytes`).
pub fn before_commit(pair: KernelPair, tree: TreeSize, space: Space) -> Vec<Check> {
    let kernel = if pair.in_boot { 0 } else { pair.bytes };
    let on_root = tree.etc_bytes.saturating_add(if space.boot_is_on_root { kernel } else { 0 });
    let mut checks =
        vec![Check::bytes("space for the deployment", on_root, space.repo_free, false, FREE_THE_REPO)];
    if !space.boot_is_on_root {
        checks.push(Check::bytes("space for its kernel in /boot", kernel, space.boot_free, false, FREE_BOOT));
    }
    if let Some(inodes) = space.repo_inodes {
        let needed = tree.directories.saturating_add(tree.etc_files);
        checks.push(Check::count("inodes for the deployment", needed, inodes, false, FREE_THE_REPO));
    }
    checks
}

/// Bytes of a kernel command line that count: x86-64 and arm64 cut it at 2048 with the closing zero
/// (`COMMAND_LINE_SIZE`), s390x and ppc64le later.
const COMMAND_LINE_MAX: u64 = 2047;
/// Bytes that OSTree adds at the end: `ostree=/ostree/boot.B/STATEROOT/BOOTCSUM/INDEX`, with room for
/// the longest name of a stateroot that anybody uses. Cut off, the machine does not boot.
const OSTREE_ARGUMENT: u64 = 128;

/// Whether the kernel will see the whole command line.
pub fn command_line(arguments: &str) -> Check {
    Check::count(
        "bytes of the kernel command line, ostree= included",
        (arguments.len() as u64).saturating_add(OSTREE_ARGUMENT),
        COMMAND_LINE_MAX,
        false,
        "delete arguments (--karg-delete), or shorten them",
    )
}

/// What checking out a commit makes anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeSize {
    /// Directories of the whole tree.
    pub directories: u64,
    /// Files below `usr/etc`: copied, not linked.
    pub etc_files: u64,
    /// Their bytes.
    pub etc_bytes: u64,
}

/// Why this machine cannot run the image at all, if so.
pub fn wrong_architecture(facts: &ImageFacts, machine: &str) -> Option<String> {
    (facts.architecture != machine)
        .then(|| format!("it is built for {}, this machine is {machine}", facts.architecture))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Space = Space {
        repo_free: 10_000_000_000,
        repo_reserve: 300_000_000,
        repo_inodes: Some(1_000_000),
        boot_free: 200_000_000,
        boot_is_on_root: false,
    };

    #[test]
    fn exact_needs_count_only_what_boot_lacks() {
        let tree = TreeSize { directories: 3000, etc_files: 900, etc_bytes: 2_000_000 };
        let pair = KernelPair { bytes: 300_000_000, in_boot: false };
        let failed: Vec<_> = before_commit(pair, tree, ROOMY).into_iter().filter(Check::is_failed).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].to_string(), "space for its kernel in /boot: needs 286.1 MiB, has 190.7 MiB");
        let there = KernelPair { in_boot: true, ..pair };
        assert!(!before_commit(there, tree, ROOMY).iter().any(Check::is_failed));
    }

    #[test]
    fn boot_on_the_root_file_system_is_counted_there() {
        let space = Space { boot_is_on_root: true, repo_free: 250_000_000, ..ROOMY };
        let pair = KernelPair { bytes: 300_000_000, in_boot: false };
        let checks = before_commit(pair, TreeSize::default(), space);
        assert!(checks[0].is_failed(), "{checks:?}");
        assert_eq!(checks.len(), 2);
    }

    #[test]
    fn a_command_line_that_the_kernel_would_cut_is_refused() {
        assert!(!command_line(&"a".repeat(1900)).is_failed());
        let check = command_line(&"a".repeat(5000));
        assert!(check.is_failed());
        assert_eq!(
            check.to_string(),
            "bytes of the kernel command line, ostree= included: needs 5128, has 2047"
        );
    }

    #[test]
    fn too_few_inodes_are_refused_with_both_numbers() {
        let space = Space { repo_inodes: Some(10), ..ROOMY };
        let tree = TreeSize { directories: 3000, etc_files: 900, etc_bytes: 0 };
        let checks = before_commit(KernelPair::default(), tree, space);
        let failed: Vec<_> = checks.iter().filter(|check| check.is_failed()).collect();
        assert_eq!(failed[0].to_string(), "inodes for the deployment: needs 3900, has 10");
    }
}
