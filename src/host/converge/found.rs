//! What a root has at a path that nobody manages yet.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use anyhow::Result;
use camino::Utf8Path;
use cap_std_ext::cap_std::fs::File;

use super::look::{Eye, Sight, open_file};
use super::root::{Root, Way};
use crate::model::digest::Digest;
use crate::model::manifest::Node;

/// What is there; none for what a manifest cannot describe, or where there is no way to it.
pub fn found(root: &Root, path: &Utf8Path) -> Result<Option<Node>> {
    let eye = Eye::new(root);
    match eye.look(path)? {
        Sight::Nothing => Ok(Some(Node::Absent)),
        Sight::Found(it) => it.node(|| eye.digest(path, &it)),
        Sight::Blocked(_) => Ok(None),
    }
}

/// The bytes of the file there, if it is one that still has this digest.
pub fn found_content(root: &Root, path: &Utf8Path, digest: &Digest) -> Result<Option<Vec<u8>>> {
    let Some(Node::File { digest: now, .. }) = found(root, path)? else { return Ok(None) };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let way = Eye::new(root).way_to(parent)?;
    let Way::Open(folder) = &*way else { return Ok(None) };
    if now != *digest {
        return Ok(None);
    }
    let file: OwnedFd = open_file(folder, name)?;
    let mut bytes = Vec::new();
    File::from_std(file.into()).read_to_end(&mut bytes)?;
    Ok((Digest::of(&bytes) == *digest).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use cap_std_ext::cap_std::ambient_authority;
    use cap_std_ext::cap_std::fs::Dir;
    use rustix::fs::{FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_there_is_told_and_nobody_waits_for_a_pipe() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("it is there");
        dir.create_dir_all("etc/folder").expect("a folder");
        dir.write("etc/file", "text").expect("a file");
        dir.symlink("file", "etc/link").expect("a link");
        mknodat(&dir, "etc/pipe", FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
        let root = Root::new(dir);
        let at = |path: &str| found(&root, Utf8Path::new(path)).expect("no error");
        let text = Digest::of(b"text");
        assert!(matches!(at("/etc/file"), Some(Node::File { digest, size: 4, .. }) if digest == text));
        assert!(matches!(at("/etc/folder"), Some(Node::Directory { .. })));
        assert!(matches!(at("/etc/link"), Some(Node::Symlink { target, .. }) if target == "file"));
        assert_eq!(at("/etc/missing"), Some(Node::Absent));
        assert_eq!(at("/etc/missing/below"), Some(Node::Absent));
        assert_eq!(at("/etc/pipe"), None);
        assert_eq!(at("/etc/file/below"), None);

        let content = |path: &str, digest: &Digest| found_content(&root, Utf8Path::new(path), digest);
        assert_eq!(content("/etc/file", &text).expect("no error").as_deref(), Some(&b"text"[..]));
        assert_eq!(content("/etc/file", &Digest::of(b"other")).expect("no error"), None);
        assert_eq!(content("/etc/pipe", &text).expect("no error"), None);
    }
}
