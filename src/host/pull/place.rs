//! Where an entry of a plain layer goes in the commit.
//!
//! * `/etc` goes to `usr/etc`, from where OSTree makes each deployment's `/etc`.
//! * `/var` goes to `usr/share/factory/var`: before libostree 2024.3 a commit's `/var` reaches no
//!   deployment, and systemd-tmpfiles copies from there.
//! * Below `/dev`, `/proc`, `/run`, `/sys`, `/tmp` the running system mounts something: dropped.
//! * On an OSTree base, other top-level names than `/usr` are dropped: they are links into `/var` or
//!   mount points there. A plain image keeps them.

use anyhow::{Result, bail, ensure};

use super::limits::MAX_DEPTH;

/// Mount points of the running system.
const MOUNTED: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// Where object files of the base lie in container storage.
const REPO: [&str; 3] = ["sysroot", "ostree", "repo"];

/// What lies below the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// An OSTree commit.
    Ostree,
    /// Nothing: a plain image.
    None,
}

/// Where an entry goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// To this path in the commit; empty for the root.
    At(Vec<String>),
    /// Nowhere; the top-level name it was under.
    Dropped(String),
    /// It is a file of the base's repo: the path below `sysroot/ostree/repo`.
    Repo(String),
}

/// Decides where a path of a layer goes.
pub(super) fn place(path: &[u8], base: Base) -> Result<Place> {
    let Ok(text) = std::str::from_utf8(path) else {
        bail!("the path '{}' is not UTF-8, which OSTree needs", String::from_utf8_lossy(path));
    };
    ensure!(!text.contains('\0'), "a path contains a NUL");
    let mut parts = Vec::new();
    for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
        ensure!(part != "..", "the path '{text}' leaves the image");
        ensure!(part.len() <= 255, "the path '{text}' has a name longer than 255 bytes, the limit");
        parts.push(part.to_owned());
    }
    ensure!(parts.len() <= MAX_DEPTH, "the path '{text}' is deeper than {MAX_DEPTH}, the limit");
    if parts.len() > REPO.len() && parts.iter().zip(REPO).all(|(part, name)| part == name) {
        return Ok(Place::Repo(parts[REPO.len()..].join("/")));
    }
    let Some(top) = parts.first().cloned() else { return Ok(Place::At(parts)) };
    let rest = parts.iter().skip(1).cloned();
    Ok(match top.as_str() {
        "usr" => Place::At(parts),
        "etc" => Place::At(["usr", "etc"].map(str::to_owned).into_iter().chain(rest).collect()),
        "var" => {
            Place::At(["usr", "share", "factory", "var"].map(str::to_owned).into_iter().chain(rest).collect())
        }
        name if MOUNTED.contains(&name) && parts.len() > 1 => Place::Dropped(top),
        name if MOUNTED.contains(&name) || base == Base::None => Place::At(parts),
        _ => Place::Dropped(top),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_where_a_commit_wants_them() {
        let at =
            |path: &str| Place::At(path.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect());
        let dropped = |top: &str| Place::Dropped(top.to_owned());
        for (path, ostree, plain) in [
            ("./", at(""), at("")),
            ("./usr/bin/x", at("usr/bin/x"), at("usr/bin/x")),
            ("/usr//bin/./x/", at("usr/bin/x"), at("usr/bin/x")),
            ("etc", at("usr/etc"), at("usr/etc")),
            ("etc/.wh.x", at("usr/etc/.wh.x"), at("usr/etc/.wh.x")),
            ("var/lib/ü", at("usr/share/factory/var/lib/ü"), at("usr/share/factory/var/lib/ü")),
            ("run", at("run"), at("run")),
            ("run/lock", dropped("run"), dropped("run")),
            ("opt/x", dropped("opt"), at("opt/x")),
            (".wh.opt", dropped(".wh.opt"), at(".wh.opt")),
        ] {
            assert_eq!(place(path.as_bytes(), Base::Ostree).unwrap(), ostree, "{path}");
            assert_eq!(place(path.as_bytes(), Base::None).unwrap(), plain, "{path}");
        }
        let repo = place(b"sysroot/ostree/repo/objects/ab/cd.file", Base::Ostree).unwrap();
        assert_eq!(repo, Place::Repo("objects/ab/cd.file".to_owned()));
    }

    #[test]
    fn hostile_paths_are_refused() {
        let deep = "a/".repeat(MAX_DEPTH + 1);
        let long = "x".repeat(256);
        for path in [
            b"../etc/passwd".as_slice(),
            b"usr/../../x",
            b"usr/\xff",
            b"usr/a\0b",
            deep.as_bytes(),
            long.as_bytes(),
        ] {
            assert!(place(path, Base::Ostree).is_err(), "{}", String::from_utf8_lossy(path));
        }
    }
}
