//! Where sshd looks for the keys of `core`.

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

use super::accounts::Accounts;
use super::target::{Kind, Target};
use super::wish::KeyPlace;
use crate::model::config::{Contents, Managed, RequestKind};

/// The user whose keys a MachineConfig holds.
const USER: &str = "core";
/// sshd's configuration.
const CONFIG: &str = "/etc/ssh/sshd_config";
/// Folders of more of it.
const DROPINS: [&str; 2] = ["/etc/ssh/sshd_config.d", "/usr/lib/ssh/sshd_config.d"];
/// Words in it that say that a folder of fragments is read: the folder, or Fedora's helper for it.
const FRAGMENTS: [&str; 2] = ["authorized_keys.d", "ssh-key-dir"];

/// Where the keys of `core` belong on this target.
pub(super) fn place(target: &dyn Target, accounts: &Accounts, managed: Option<&Managed>) -> Result<KeyPlace> {
    let Some(core) = accounts.user(USER) else { return Ok(KeyPlace::NoUser) };
    let name =
        if reads_fragments(target, managed)? { "authorized_keys.d/ignition" } else { "authorized_keys" };
    let path = Utf8PathBuf::from(&core.home).join(".ssh").join(name);
    Ok(KeyPlace::At { path, uid: core.uid, gid: core.gid })
}

fn reads_fragments(target: &dyn Target, managed: Option<&Managed>) -> Result<bool> {
    let is_read = |path: &Utf8Path| {
        path == CONFIG || path.parent().is_some_and(|folder| DROPINS.iter().any(|dropins| folder == *dropins))
    };
    for (path, request) in managed.iter().flat_map(|managed| &managed.entries) {
        if is_read(path)
            && let RequestKind::File { contents: Some(Contents::Inline(text)), .. } = &request.kind
            && says_fragments(text.bytes())
        {
            return Ok(true);
        }
    }
    let mut files = vec![Utf8PathBuf::from(CONFIG)];
    for folder in DROPINS {
        let folder = Utf8Path::new(folder);
        files.extend(target.names(folder)?.iter().map(|name| folder.join(name)));
    }
    for file in files {
        let is_file = target.look(&file)?.is_some_and(|found| matches!(found.kind, Kind::File(_)));
        if is_file && says_fragments(&target.read(&file)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn says_fragments(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    lines.any(|line| FRAGMENTS.iter().any(|word| line.contains(word)))
}
