//! A scratch folder that goes away even when it holds deployments.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

/// A temporary folder. Dropping it removes it, immutable deployment roots included, and unmounts
/// what was mounted below it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    is_kept: bool,
}

impl Scratch {
    /// A new folder below the system's temporary folder. `MCD_TEST_KEEP=1` leaves it for a look.
    pub fn new() -> Result<Self> {
        let path = tempfile::Builder::new().prefix("mcd-test-").tempdir()?.keep();
        // Tests look at these through symbolic links' targets: one spelling only.
        Ok(Self { path: path.canonicalize()?, is_kept: false })
    }

    /// A folder that is there already and stays.
    pub fn kept(path: &Path) -> Result<Self> {
        Ok(Self { path: path.canonicalize()?, is_kept: true })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if std::env::var_os("MCD_TEST_KEEP").is_some() {
            eprintln!("kept: {}", self.path.display());
            return;
        }
        let below = format!("{}/", self.path.display());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut targets: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        targets.retain(|target| target.starts_with(&below));
        targets.sort_unstable();
        for target in targets.iter().rev() {
            quietly(Command::new("umount").args(["-l", target]));
        }
        if std::fs::remove_dir_all(&self.path).is_err() {
            // libostree makes each deployment's root immutable.
            quietly(Command::new("chattr").args(["-R", "-f", "-i"]).arg(&self.path));
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn quietly(command: &mut Command) {
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
