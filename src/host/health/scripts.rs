//! The folders of checks.

use std::collections::BTreeMap;
use std::process::Command;

use cap_std_ext::cap_std::fs::{Dir, MetadataExt as _};

use crate::model::health::Weight;

/// Seen from the root; the first wins.
const FOLDERS: [&str; 2] = ["etc/mcd/health", "usr/lib/mcd/health"];
const WEIGHTS: [(Weight, &str); 2] = [(Weight::Required, "required.d"), (Weight::Wanted, "wanted.d")];
/// A link to it masks.
const NOWHERE: &str = "/dev/null";
/// What a check finds in its environment, beside `MCD_CHECK` and `MCD_DEPLOYMENT`.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) weight: Weight,
    path: String,
}

/// What the folders hold.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    pub(super) scripts: Vec<Script>,
    masked: Vec<String>,
    /// Files that are no checks.
    pub(super) warnings: Vec<String>,
}

enum Found {
    Masked,
    Script(Script),
}

impl Scripts {
    pub(super) fn find(root: &Dir) -> Self {
        let mut found: BTreeMap<(&str, String), Found> = BTreeMap::new();
        let mut warnings = Vec::new();
        for folder in FOLDERS {
            for (weight, kind) in WEIGHTS {
                let path = format!("{folder}/{kind}");
                let Ok(dir) = root.open_dir(&path) else { continue };
                for name in names(&dir) {
                    match look(&dir, &path, name.clone(), weight) {
                        Ok(one) => {
                            found.entry((kind, name)).or_insert(one);
                        }
                        Err(why) => warnings.push(why),
                    }
                }
            }
        }
        let mut all = Self { warnings, ..Self::default() };
        for ((_, name), one) in found {
            match one {
                Found::Masked => all.masked.push(name),
                Found::Script(script) => all.scripts.push(script),
            }
        }
        all
    }

    /// Whether a file of this name stands for, or masks, the built-in check.
    pub(super) fn takes_place_of(&self, builtin: &str) -> bool {
        self.masked.iter().any(|name| name == builtin)
            || self.scripts.iter().any(|script| script.name == builtin)
    }
}

impl Script {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env_clear().env("PATH", SEARCH_PATH).env("LANG", "C.UTF-8").current_dir("/");
        command.env("MCD_CHECK", if self.weight == Weight::Required { "required" } else { "wanted" });
        command
    }
}

fn names(dir: &Dir) -> Vec<String> {
    let Ok(entries) = dir.entries() else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    // What editors and package managers leave is no check.
    names.filter(|name| !name.starts_with('.') && !name.ends_with('~') && !name.contains(".rpm")).collect()
}

fn look(dir: &Dir, folder: &str, name: String, weight: Weight) -> Result<Found, String> {
    if dir.read_link_contents(&name).is_ok_and(|to| to.as_os_str() == NOWHERE) {
        return Ok(Found::Masked);
    }
    let path = format!("/{folder}/{name}");
    // A link may lead out of the folder: what it leads to is run by its path all the same.
    let mode = match dir.metadata(&name) {
        Ok(meta) if meta.is_dir() => return Err(format!("{path} is a directory, and no health check")),
        Ok(meta) => meta.mode(),
        Err(_) => 0o111,
    };
    if mode & 0o111 == 0 {
        return Err(format!("{path} is not executable and is not run (chmod +x {path})"));
    }
    Ok(Found::Script(Script { name, weight, path }))
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;
    use cap_std_ext::cap_std::fs::{Permissions, PermissionsExt as _};

    use super::*;

    #[test]
    fn etc_wins_and_a_link_to_nowhere_masks() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(scratch.path(), ambient_authority()).unwrap();
        for (path, mode) in [
            ("etc/mcd/health/required.d/app", 0o755),
            ("usr/lib/mcd/health/required.d/app", 0o755),
            ("usr/lib/mcd/health/required.d/old", 0o755),
            ("usr/lib/mcd/health/wanted.d/README", 0o644),
            ("usr/lib/mcd/health/wanted.d/app", 0o755),
        ] {
            root.create_dir_all(path.rsplit_once('/').unwrap().0).unwrap();
            root.write(path, "#!/bin/sh\n").unwrap();
            root.set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        root.create_dir_all("etc/mcd/health/wanted.d").unwrap();
        root.symlink_contents("/dev/null", "etc/mcd/health/required.d/old").unwrap();
        root.symlink_contents("/dev/null", "etc/mcd/health/wanted.d/registry").unwrap();
        let found = Scripts::find(&root);
        let paths: Vec<&str> = found.scripts.iter().map(|script| script.path.as_str()).collect();
        assert_eq!(paths, ["/etc/mcd/health/required.d/app", "/usr/lib/mcd/health/wanted.d/app"]);
        assert!(found.takes_place_of("registry") && !found.takes_place_of("kubelet"));
        assert!(found.warnings[0].contains("README is not executable"), "{:?}", found.warnings);
    }
}
