//! What the verbs of configuration work on.

use std::path::Path;

use anyhow::Result;
use camino::Utf8Path;
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;

use crate::error::Fault;
use crate::host::Host;
use crate::host::converge::Root;
use crate::options::config::Place;
use crate::pipeline::config::PlainRoot;

/// A place, opened.
#[derive(Debug)]
pub(super) enum Opened {
    /// An OSTree host.
    Host(Host),
    /// A root without OSTree.
    Root(PlainRoot),
}

/// Opens a place. Before any thread is started.
pub(super) fn open(place: &Place) -> Result<Opened> {
    Ok(match place {
        Place::Running => Opened::Host(Host::open(None)?),
        Place::Sysroot(path) => Opened::Host(Host::open(Some(utf8(path, "--sysroot")?))?),
        Place::Root(path) => Opened::Root(plain_root(path)?),
    })
}

fn utf8<'a>(path: &'a Path, flag: &str) -> Result<&'a Utf8Path, Fault> {
    Utf8Path::from_path(path)
        .ok_or_else(|| Fault::usage(format!("{flag} {}: the path is not valid UTF-8", path.display())))
}

fn plain_root(path: &Path) -> Result<PlainRoot> {
    let refuse = |error: std::io::Error| {
        Fault::usage(format!("cannot open the root {}", path.display())).why(error.to_string())
    };
    let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(refuse)?;
    if dir.is_dir("ostree/repo") || dir.is_dir("sysroot/ostree/repo") {
        return Err(Fault::refused(format!("{} is an OSTree host's root", path.display()))
            .why("its /usr belongs to a commit, and what runs there to a deployment")
            .next("leave --root out on the running host, or use --sysroot DIR for one that does not run")
            .into());
    }
    let id = |dir: &Dir| rustix::fs::fstat(dir).map(|stat| (stat.st_dev, stat.st_ino));
    let running = Dir::open_ambient_dir("/", ambient_authority()).map_err(refuse)?;
    let runs = id(&dir)? == id(&running)?;
    Ok(PlainRoot { root: Root::new(dir), runs })
}
