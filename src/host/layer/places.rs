//! Where a path of a config is on the running system, and whether a config may say what is there.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::target::{Target, Unresolvable, resolve};
use crate::model::manifest::Scope;

/// Why a path is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) String);

/// Folders that are somewhere else on a running system.
const ELSEWHERE: [(&str, &str); 3] = [
    ("/usr/etc", "the image's defaults are not to be edited; name the path below /etc"),
    ("/var/run", "it leads to /run, which is empty after each boot"),
    ("/var/lock", "it leads to /run, which is empty after each boot"),
];
/// Folders that are ours.
const OURS: [&str; 3] = ["/usr/lib/mcd", "/var/lib/mcd", "/etc/mcd/originals"];
/// Files that are ours.
const RECORDS: [&str; 3] =
    ["/etc/mcd/applied.json", "/etc/mcd/converging.json", "/etc/systemd/system-preset/20-mcd.preset"];
/// Files that many write to: a user is asked for in `passwd`, not by replacing them.
const ACCOUNTS: [&str; 6] =
    ["/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/subuid", "/etc/subgid"];

/// The path with the links above its last part followed, if a config may have it.
pub(super) fn place_of(target: &dyn Target, asked: &Utf8Path) -> Result<Result<Utf8PathBuf, Refused>> {
    let path = match resolve(target, asked)? {
        Ok(path) => path,
        Err(Unresolvable::Through(file)) => {
            return Ok(Err(Refused(format!("{file} is no directory on the target"))));
        }
        Err(Unresolvable::Circle) => {
            return Ok(Err(Refused("the links on the way lead in a circle".to_owned())));
        }
    };
    let led = if path == *asked { String::new() } else { format!(" (it leads to {path})") };
    let refuse = |why: &str| Ok(Err(Refused(format!("{why}{led}"))));
    if Scope::of(&path).is_none() {
        return refuse(
            "only files below /etc, /usr and /var belong to a deployment; this one would be gone, or not be the host's",
        );
    }
    if path.components().count() < 3 {
        return refuse("the folder itself is the image's");
    }
    if let Some((_, why)) = ELSEWHERE.iter().find(|(folder, _)| path.starts_with(folder)) {
        return refuse(why);
    }
    if OURS.iter().any(|folder| path.starts_with(folder)) || RECORDS.iter().any(|file| path == *file) {
        return refuse("mcd keeps its own records there");
    }
    if ACCOUNTS.iter().any(|file| path == *file) {
        return refuse("many programs write to this file; name users in passwd.users");
    }
    Ok(Ok(path))
}
