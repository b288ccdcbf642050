//! A root file system as a capability.

use anyhow::Result;
use cap_std_ext::cap_std::fs::Dir;

/// A root, and where its `/var` is if that is not below it.
#[derive(Debug)]
pub struct Root {
    dir: Dir,
    var: Option<Dir>,
}

impl Root {
    /// The root at `dir`.
    pub fn new(dir: Dir) -> Self {
        Self { dir, var: None }
    }

    /// The root with its `/var` elsewhere: a deployment that is not booted.
    #[must_use]
    pub fn with_var(self, var: Dir) -> Self {
        Self { var: Some(var), ..self }
    }

    /// The root at a path of this machine.
    pub fn open(path: &std::path::Path) -> Result<Self> {
        Ok(Self::new(Dir::open_ambient_dir(path, cap_std_ext::cap_std::ambient_authority())?))
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// `/var` where it is not below the folder.
    pub fn var(&self) -> Option<&Dir> {
        self.var.as_ref()
    }
}
