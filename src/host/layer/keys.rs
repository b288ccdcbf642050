//! Where sshd looks for the keys of `core`.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::accounts::Accounts;
use super::target::{Kind, Target};
use super::wish::KeyPlace;

/// The user whose keys a MachineConfig holds.
const USER: &str = "core";
/// sshd's configuration.
const CONFIG: &str = "/etc/ssh/sshd_config";
/// Folders of more of it.
const DROPINS: [&str; 2] = ["/etc/ssh/sshd_config.d", "/usr/lib/ssh/sshd_config.d"];
/// Words in it that say that a folder of fragments is read: the folder, or Fedora's helper for it.
const FRAGMENTS: [&str; 2] = ["authorized_keys.d", "ssh-key-dir"];

/// Where the keys of `core` belong on this target.
pub(super) fn place(target: &dyn Target, accounts: &Accounts) -> Result<KeyPlace> {
    let Some(core) = accounts.user(USER) else { return Ok(KeyPlace::NoUser) };
    let name = if reads_fragments(target)? { "authorized_keys.d/ignition" } else { "authorized_keys" };
    let path = Utf8PathBuf::from(&core.home).join(".ssh").join(name);
    Ok(KeyPlace::At { path, uid: core.uid, gid: core.gid })
}

fn reads_fragments(target: &dyn Target) -> Result<bool> {
    let mut files = vec![Utf8PathBuf::from(CONFIG)];
    for folder in DROPINS {
        let folder = Utf8Path::new(folder);
        files.extend(target.names(folder)?.iter().map(|name| folder.join(name)));
    }
    for file in files {
        if !target.look(&file)?.is_some_and(|found| matches!(found.kind, Kind::File(_))) {
            continue;
        }
        let text = target.read(&file)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
        if lines.any(|line| FRAGMENTS.iter().any(|word| line.contains(word))) {
            return Ok(true);
        }
    }
    Ok(false)
}
