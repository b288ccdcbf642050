//! Which deployment a root is, and what belongs on it: found without libostree.
//!
//! `<sysroot>/ostree/deploy/STATEROOT/deploy/COMMIT.SERIAL` is the root itself, the same with `.origin`
//! a key file. The root that runs, or is about to, has the sysroot below `sysroot`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use cap_std_ext::cap_std::ambient_authority;
use cap_std_ext::cap_std::fs::Dir;
use fn_error_context::context;

use super::contents::{ContentStore, Contents, DeploymentTree, RepoObjects, Several};
use super::record::{Record, Stand, read_manifest, read_record};
use super::root::Root;
use crate::host::durable;
use crate::model::applied::{APPLIED_VERSION, Applied, CONTENT_STORE};
use crate::model::manifest::Manifest;
use crate::model::origin::Origin;
use crate::model::status::DeploymentName;
use crate::plan::boot::{Belongs, Seen, belongs};

/// The kernel argument that says which deployment starts.
const ARGUMENT: &str = "ostree=";

/// A deployment, found without libostree.
#[derive(Debug)]
pub struct Deployment {
    /// Its commit, 64 hex digits.
    pub commit: String,
    /// Its serial.
    pub serial: u32,
    /// Its stateroot.
    pub stateroot: String,
    /// Its origin.
    pub origin: Origin,
    /// The objects of the repo, if they can be reached.
    pub objects: Option<Dir>,
}

/// What belongs on a root now.
#[derive(Debug)]
pub struct Effective {
    /// The deployment; none on a root without OSTree, or where it could not be found.
    pub deployment: Option<Deployment>,
    /// Whether the root is a deployment.
    pub is_deployment: bool,
    /// The manifest in its commit.
    pub commit_manifest: Option<Manifest>,
    /// The record of `/etc`.
    pub etc: Stand,
    /// The record of `/var`, where there is a `/var`.
    pub var: Stand,
    /// The decision.
    pub belongs: Belongs,
    /// What to lay down: ids, commits and manifest; empty where nothing of ours belongs.
    pub to: Applied,
    /// What could not be read.
    pub warnings: Vec<String>,
}

impl Deployment {
    /// Its name.
    pub fn name(&self) -> DeploymentName {
        DeploymentName { checksum: self.commit.clone(), serial: self.serial }
    }
}

impl Effective {
    /// Whether another tool made the deployment: what the config has below `/usr` is not there.
    pub fn is_stranger(&self) -> bool {
        self.is_deployment && self.commit_manifest.is_none() && !self.to.manifest.entries.is_empty()
    }

    /// Where contents are found on such a root.
    pub fn contents(&self, root: &Root) -> Result<Several> {
        let mut all: Vec<Box<dyn Contents>> = Vec::new();
        if let Some(objects) = self.deployment.as_ref().and_then(|deployment| deployment.objects.as_ref()) {
            all.push(Box::new(RepoObjects(objects.try_clone()?)));
        }
        if self.is_deployment {
            all.push(Box::new(DeploymentTree(root.dir().try_clone()?)));
        }
        let store = match (root.var(), CONTENT_STORE.strip_prefix("var/")) {
            (Some(var), Some(below)) => var.open_dir(below),
            _ => root.dir().open_dir(CONTENT_STORE),
        };
        if let Ok(store) = store {
            all.push(Box::new(ContentStore(store)));
        }
        Ok(Several(all))
    }
}

/// What belongs on `root`.
#[context("Finding out what belongs on this root")]
pub fn effective(root: &Root) -> Result<Effective> {
    let mut warnings = Vec::new();
    let deployment = find(root).unwrap_or_else(|error| {
        warnings.push(format!("the deployment cannot be found: {error:#}"));
        None
    });
    let is_deployment = deployment.is_some() || looks_like_one(root);
    if is_deployment && deployment.is_none() {
        warnings.push("this root looks like a deployment, and no origin of it was found".to_owned());
    }
    let (commit_manifest, manifest_damaged) = match read_manifest(root) {
        Ok(manifest) => (manifest, false),
        Err(error) => {
            warnings.push(format!("the manifest in the commit cannot be read: {error:#}"));
            (None, true)
        }
    };
    let mut record = |record: Record| {
        let stand = read_record(root, record).unwrap_or_else(|error| Stand::Damaged(format!("{error:#}")));
        if let Stand::Damaged(why) = &stand {
            warnings.push(format!("the record /{} is damaged: {why}", record.path()));
        }
        stand
    };
    let (etc, var) = (record(Record::Etc), record(Record::Var));
    let belongs = belongs(&Seen {
        is_deployment,
        id: deployment.as_ref().and_then(|deployment| deployment.origin.id.as_deref()),
        commit: deployment.as_ref().map(|deployment| deployment.commit.as_str()),
        manifest: commit_manifest.as_ref(),
        manifest_damaged,
        etc: etc.known(),
        etc_damaged: matches!(etc, Stand::Damaged(_)),
        var: var.known(),
    });
    let to = target(belongs, deployment.as_ref(), commit_manifest.as_ref(), &etc, &var);
    Ok(Effective { deployment, is_deployment, commit_manifest, etc, var, belongs, to, warnings })
}

/// What is to be laid down.
fn target(
    belongs: Belongs,
    deployment: Option<&Deployment>,
    manifest: Option<&Manifest>,
    etc: &Stand,
    var: &Stand,
) -> Applied {
    let as_laid_down = |record: Option<&Applied>| {
        let record = record.cloned().unwrap_or_default();
        Applied { originals: Vec::new(), original_password: None, made: Vec::new(), ..record }
    };
    let here = Applied {
        version: APPLIED_VERSION,
        deployment_id: deployment.and_then(|deployment| deployment.origin.id.clone()),
        deployment_commit: deployment.map(|deployment| deployment.commit.clone()),
        ..Applied::default()
    };
    match belongs {
        Belongs::Record => as_laid_down(etc.known()),
        Belongs::VarRecord => as_laid_down(var.known()),
        Belongs::Commit => Applied {
            commit: here.deployment_commit.clone(),
            manifest: manifest.cloned().unwrap_or_default(),
            ..here
        },
        Belongs::Stranger => {
            let record = as_laid_down(etc.known());
            Applied { commit: record.commit, manifest: record.manifest, extra: record.extra, ..here }
        }
        Belongs::Nothing | Belongs::Unknown => here,
    }
}

/// A commit's tree keeps the defaults of `/etc` there; the root of a plain host has no such folder.
fn looks_like_one(root: &Root) -> bool {
    root.dir().is_dir("sysroot/ostree/deploy") || root.dir().is_dir("usr/etc")
}

fn find(root: &Root) -> Result<Option<Deployment>> {
    if let Ok(sysroot) = root.dir().open_dir("sysroot")
        && sysroot.is_dir("ostree/deploy")
    {
        if let Some(found) = by_inode(root, &sysroot)? {
            return Ok(Some(found));
        }
        return by_argument(root, &sysroot);
    }
    match root.at() {
        Some(at) => by_neighbours(at),
        None => Ok(None),
    }
}

/// The deployment that a root is; none on a root without OSTree.
pub fn deployment_of(root: &Root) -> Result<Option<Deployment>> {
    find(root)
}

/// The same, its name only.
pub fn deployment_name(root: &Root) -> Result<Option<DeploymentName>> {
    Ok(find(root)?.map(|deployment| deployment.name()))
}

/// All deployments below a physical root.
#[context("Reading the deployments on disk")]
pub fn all_deployments(sysroot: &Dir) -> Result<Vec<Deployment>> {
    let mut all = Vec::new();
    for stateroot in sysroot.read_dir("ostree/deploy")? {
        let stateroot = stateroot?.file_name().to_string_lossy().into_owned();
        let Ok(folder) = sysroot.open_dir(format!("ostree/deploy/{stateroot}/deploy")) else { continue };
        for item in folder.entries()? {
            let name = item?.file_name().to_string_lossy().into_owned();
            all.extend(read(&folder, &name, &stateroot, None)?);
        }
    }
    Ok(all)
}

/// The deployment whose folder the root is.
fn by_inode(root: &Root, sysroot: &Dir) -> Result<Option<Deployment>> {
    let own = rustix::fs::fstat(root.dir())?;
    for stateroot in sysroot.read_dir("ostree/deploy")? {
        let stateroot = stateroot?.file_name().to_string_lossy().into_owned();
        let folder = format!("ostree/deploy/{stateroot}/deploy");
        let Ok(items) = sysroot.read_dir(&folder) else { continue };
        for item in items {
            let name = item?.file_name().to_string_lossy().into_owned();
            if split_name(&name).is_none() {
                continue;
            }
            let stat = rustix::fs::statat(sysroot, format!("{folder}/{name}"), rustix::fs::AtFlags::empty())?;
            if (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino) {
                return read(&sysroot.open_dir(&folder)?, &name, &stateroot, objects(sysroot));
            }
        }
    }
    Ok(None)
}

/// The deployment that the kernel's arguments name: the root may be an overlay of it (composefs). Only
/// for the root that runs or is about to.
fn by_argument(root: &Root, sysroot: &Dir) -> Result<Option<Deployment>> {
    if !root.at().is_some_and(|at| at == Path::new("/") || at == Path::new("/sysroot")) {
        return Ok(None);
    }
    let proc = Dir::open_ambient_dir("/proc", ambient_authority()).context("Opening /proc")?;
    let arguments = proc.read_to_string("cmdline").context("Reading the kernel's arguments")?;
    let named = arguments.split_ascii_whitespace().find_map(|argument| argument.strip_prefix(ARGUMENT));
    let Some(link) = named.and_then(|path| path.strip_prefix('/')) else { return Ok(None) };
    let folder = sysroot.canonicalize(link).with_context(|| format!("Following {ARGUMENT}/{link}"))?;
    let parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    let ["ostree", "deploy", stateroot, "deploy", name] = parts.as_slice() else { return Ok(None) };
    let above = sysroot.open_dir(format!("ostree/deploy/{stateroot}/deploy"))?;
    read(&above, name, stateroot, objects(sysroot))
}

/// The root is the folder of a deployment in a sysroot that is not booted.
fn by_neighbours(at: &Path) -> Result<Option<Deployment>> {
    let (Some(name), Some(above)) = (at.file_name().and_then(|name| name.to_str()), at.parent()) else {
        return Ok(None);
    };
    let stateroot = above.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    if split_name(name).is_none() {
        return Ok(None);
    }
    let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
    let objects = above.ancestors().nth(3).and_then(|ostree| open(&ostree.join("repo/objects")).ok());
    read(&open(above)?, name, &stateroot.unwrap_or_default(), objects)
}

fn objects(sysroot: &Dir) -> Option<Dir> {
    sysroot.open_dir("ostree/repo/objects").ok()
}

/// Commit and serial of a deployment's folder.
fn split_name(name: &str) -> Option<(&str, u32)> {
    let (commit, serial) = name.split_once('.')?;
    let is_commit = commit.len() == 64 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((commit, serial.parse().ok().filter(|_| is_commit)?))
}

fn read(above: &Dir, name: &str, stateroot: &str, objects: Option<Dir>) -> Result<Option<Deployment>> {
    let Some((commit, serial)) = split_name(name) else { return Ok(None) };
    // A deployment without an origin is one whose origin says nothing.
    let origin = durable::read(above, &format!("{name}.origin"))?.unwrap_or_default();
    let keys = parse_key_file(&String::from_utf8_lossy(&origin));
    let get = |group: &str, key: &str| keys.get(&(group.to_owned(), key.to_owned())).cloned();
    Ok(Some(Deployment {
        commit: commit.to_owned(),
        serial,
        stateroot: stateroot.to_owned(),
        origin: Origin::from_keys(get),
        objects,
    }))
}

/// The keys of a key file, by group and key. What is no key is passed over; of several the last counts.
fn parse_key_file(text: &str) -> BTreeMap<(String, String), String> {
    let mut keys = BTreeMap::new();
    let mut group = None;
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.trim_end().strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            group = Some(name.to_owned());
        } else if let (Some(group), Some((key, value))) = (&group, line.split_once('=')) {
            keys.insert((group.clone(), key.trim_end().to_owned()), unescape(value.trim_start()));
        }
    }
    keys
}

fn unescape(value: &str) -> String {
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('s') => text.push(' '),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files() {
        let text = "# by hand\n[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/os:1\n\
                    \n[mcd]\nid = 20261201-1\nnote=a\\sb\\\\c\n[broken\nx\n";
        let keys = parse_key_file(text);
        let get = |group: &str, key: &str| keys.get(&(group.to_owned(), key.to_owned())).cloned();
        assert_eq!(get("mcd", "id").unwrap(), "20261201-1");
        assert_eq!(get("mcd", "note").unwrap(), "a b\\c");
        let origin = Origin::from_keys(get);
        assert_eq!(origin.id.as_deref(), Some("20261201-1"));
        assert_eq!(origin.image.unwrap().image.location, "quay.io/os");
        assert_eq!(parse_key_file(""), BTreeMap::new());
        assert_eq!(parse_key_file("x=1\n"), BTreeMap::new());
    }

    #[test]
    fn names_of_deployments() {
        let commit = "0f".repeat(32);
        assert_eq!(split_name(&format!("{commit}.2")), Some((commit.as_str(), 2)));
        for other in [format!("{commit}.2.origin"), format!("{commit}.x"), "etc.0".to_owned(), commit.clone()]
        {
            assert_eq!(split_name(&other), None, "{other}");
        }
    }
}
