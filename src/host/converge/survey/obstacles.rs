//! What would make a step fail: immutable files, read-only mounts, full file systems.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{IFlags, StatVfsMountFlags};

use super::{Act, Problem, ProblemKind, Survey};
use crate::host::converge::look::{Eye, Kind, open_file};
use crate::host::converge::root::Way;

/// What a file takes on disk is rounded up to this.
const BLOCK: u64 = 4096;
/// Room that records and directories may take.
const MARGIN: u64 = 256 * 1024;

/// Room that is needed on one file system.
#[derive(Debug)]
struct Need {
    dir: Rc<Way>,
    at: Utf8PathBuf,
    bytes: u64,
    inodes: u64,
}

/// What would make the steps fail, as far as it can be seen before.
pub(super) fn find(eye: &Eye<'_>, survey: &Survey) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let mut needs: BTreeMap<u64, Need> = BTreeMap::new();
    let mut seen: BTreeSet<Utf8PathBuf> = BTreeSet::new();
    for step in &survey.steps {
        let Some((dir, at)) = nearest(eye, step.path.parent().unwrap_or(Utf8Path::new("/")))? else {
            continue;
        };
        let Way::Open(open) = &*dir else { continue };
        if seen.insert(at.clone()) {
            problems.extend(of_directory(open, &at));
        }
        if step.old.is_some() && is_immutable_at(open, &step.path) {
            problems.push(immutable(&step.path));
        }
        let bytes = match &step.act {
            Act::Put { size, .. } => size.next_multiple_of(BLOCK),
            Act::Make(_) | Act::Swap(_) => BLOCK,
            _ => 0,
        };
        add(&mut needs, &dir, &at, bytes);
    }
    if survey.changes() || survey.record_differs() {
        let folder = Utf8PathBuf::from(format!("/{}", survey.record.folder()));
        if let Some((dir, at)) = nearest(eye, &folder)? {
            if let Way::Open(open) = &*dir
                && seen.insert(at.clone())
            {
                problems.extend(of_directory(open, &at));
            }
            let copies = survey.copies.iter().map(|copy| copy.size.next_multiple_of(BLOCK)).sum::<u64>();
            add(&mut needs, &dir, &at, copies + MARGIN);
        }
    }
    problems.extend(needs.into_values().filter_map(no_room));
    Ok(problems)
}

fn add(needs: &mut BTreeMap<u64, Need>, dir: &Rc<Way>, at: &Utf8Path, bytes: u64) {
    let Way::Open(open) = &**dir else { return };
    let Ok(stat) = rustix::fs::fstat(open) else { return };
    let new = || Need { dir: dir.clone(), at: at.to_owned(), bytes: 0, inodes: 0 };
    let need = needs.entry(stat.st_dev).or_insert_with(new);
    need.bytes += bytes;
    need.inodes += 1;
}

/// The directory, or the nearest above it that is there.
fn nearest(eye: &Eye<'_>, path: &Utf8Path) -> Result<Option<(Rc<Way>, Utf8PathBuf)>> {
    for path in path.ancestors() {
        let way = eye.way_to(path)?;
        if let Way::Open(_) = &*way {
            return Ok(Some((way, path.to_owned())));
        }
    }
    Ok(None)
}

fn of_directory(dir: &Dir, at: &Utf8Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    if is_immutable(dir) {
        problems.push(immutable(at));
    }
    if rustix::fs::fstatvfs(dir).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        problems.push(Problem {
            path: at.to_owned(),
            kind: ProblemKind::ReadOnly,
            why: "its file system is mounted read-only".to_owned(),
            next: format!("mount it writable: `mount -o remount,rw {at}`"),
        });
    }
    problems
}

fn immutable(at: &Utf8Path) -> Problem {
    Problem {
        path: at.to_owned(),
        kind: ProblemKind::Immutable,
        why: "it has the attribute immutable or append-only".to_owned(),
        next: format!("take it away: `chattr -ia {at}`"),
    }
}

/// Not every file system has attributes: those that have none have nothing immutable.
fn is_immutable(file: impl std::os::fd::AsFd) -> bool {
    let flags = rustix::fs::ioctl_getflags(file).unwrap_or(IFlags::empty());
    flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND)
}

fn is_immutable_at(dir: &Dir, path: &Utf8Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    match super::super::look::look_at(dir, name, false) {
        Ok(Some(found)) if matches!(found.kind, Kind::File | Kind::Directory) => {
            open_file(dir, name).is_ok_and(|file| is_immutable(&file))
        }
        _ => false,
    }
}

fn no_room(need: Need) -> Option<Problem> {
    let Way::Open(dir) = &*need.dir else { return None };
    let stat = rustix::fs::fstatvfs(dir).ok()?;
    // What is kept for root is root's.
    let free = stat.f_bfree.saturating_mul(stat.f_frsize);
    let why = if free < need.bytes {
        format!("{} bytes are needed on its file system, {free} are free", need.bytes)
    } else if stat.f_files > 0 && stat.f_ffree < need.inodes {
        format!(
            "{} files are to be made on its file system, and it has room for {}",
            need.inodes, stat.f_ffree
        )
    } else {
        return None;
    };
    Some(Problem {
        path: need.at,
        kind: ProblemKind::NoSpace,
        why,
        next: "make room, for instance with `mcd cleanup`".to_owned(),
    })
}
