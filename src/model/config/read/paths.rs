//! Paths that a config may name, as far as it can be told without the target.

use camino::{Utf8Path, Utf8PathBuf};

/// The kernel's limit, with the NUL.
const PATH_MAX: usize = 4096;
/// The limit of every file system in question.
const NAME_MAX: usize = 255;

/// Trees that no deployment holds: they are made anew at each boot, or belong to something else.
const FOREIGN: [(&str, &str); 10] = [
    ("/proc", "it is the kernel's; use /etc/sysctl.d or kernel arguments"),
    ("/sys", "it is the kernel's; use /etc/tmpfiles.d or udev rules"),
    ("/dev", "it is the kernel's; use udev rules"),
    ("/run", "it is made anew at each boot; use /etc/tmpfiles.d"),
    ("/tmp", "it is made anew at each boot; use /etc/tmpfiles.d"),
    ("/boot", "it belongs to the boot loader"),
    ("/efi", "it belongs to the boot loader"),
    ("/sysroot", "it belongs to OSTree"),
    ("/ostree", "it belongs to OSTree"),
    ("/var/run", "it is made anew at each boot; use /etc/tmpfiles.d"),
];

/// What others keep, or mcd itself.
const KEPT: [(&str, &str); 12] = [
    ("/etc/passwd", "a whole file would take users away; only the user core can be managed"),
    ("/etc/shadow", "a whole file would take users away; only the user core can be managed"),
    ("/etc/group", "a whole file would take groups away"),
    ("/etc/gshadow", "a whole file would take groups away"),
    ("/etc/.pwd.lock", "it is the lock of the user database"),
    ("/etc/mcd/applied.json", "mcd keeps its records there"),
    ("/etc/mcd/originals", "mcd keeps its records there"),
    ("/etc/systemd/system-preset/20-mcd.preset", "mcd writes it itself, from the units"),
    ("/usr/etc", "name the path below /etc"),
    ("/usr/lib/mcd", "mcd keeps its records there"),
    ("/var/lib/mcd", "mcd keeps its records there"),
    ("/usr/lib/ostree-boot", "it belongs to OSTree"),
];

/// The path of an entry, or why it is none.
pub(super) fn entry(text: &str) -> Result<Utf8PathBuf, String> {
    let path = clean(text)?;
    let refused = FOREIGN.iter().chain(&KEPT).find(|(tree, _)| path.starts_with(tree));
    match refused {
        Some((tree, why)) if path == *tree => Err(format!("this path cannot be managed: {why}")),
        Some((tree, why)) => Err(format!("nothing below {tree} can be managed: {why}")),
        None => Ok(path),
    }
}

/// An absolute path without detours.
pub(super) fn clean(text: &str) -> Result<Utf8PathBuf, String> {
    if text.is_empty() {
        return Err("a path is missing".to_owned());
    }
    if text.contains('\0') || text.chars().any(char::is_control) {
        return Err("a path holds no control characters".to_owned());
    }
    if !text.starts_with('/') {
        return Err("a path begins with /".to_owned());
    }
    if text.len() >= PATH_MAX || text.split('/').any(|name| name.len() > NAME_MAX) {
        return Err(format!("it is longer than a path ({PATH_MAX}) or a name in it ({NAME_MAX}) may be"));
    }
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.contains(&"..") {
        return Err("a path has no .. in it: write where it leads".to_owned());
    }
    if names.is_empty() {
        return Err("/ itself cannot be managed".to_owned());
    }
    let clean = format!("/{}", names.join("/"));
    if clean != text {
        return Err(format!("it must be written {clean}"));
    }
    Ok(clean.into())
}

/// The directories above a path, nearest first, without the root.
pub(super) fn above(path: &Utf8Path) -> impl Iterator<Item = &Utf8Path> {
    path.ancestors().skip(1).filter(|path| path.as_str() != "/")
}
