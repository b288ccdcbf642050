//! What a boot would start, and what lies on the disk beside it.

use std::path::Path;

use mcd_test_support::listing::Listing;
use mcd_test_support::sysroot::{BootEntry, STATEROOT, Sysroot};
use serde_json::Value;

/// All that the next boot depends on, without what differs from run to run: ids, times and the
/// numbers of deployments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The boot menu in its order: arguments, kernel, origin of each entry.
    menu: Vec<String>,
    usr: Listing,
    etc: Listing,
    var: Listing,
    /// Of a root without OSTree.
    plain: Listing,
}

impl State {
    pub(super) fn of(sysroot: &Sysroot) -> Self {
        let entries = sysroot.boot_entries().unwrap();
        let Some(next) = entries.first() else { return Self::default() };
        let var = sysroot.path().join("ostree/deploy").join(STATEROOT).join("var");
        Self {
            menu: entries.iter().map(|entry| menu_line(sysroot, entry)).collect(),
            usr: Listing::of(&next.deployment.join("usr"), &|_| false).unwrap(),
            etc: with_record(&next.deployment.join("etc"), "mcd/applied.json", &|_| false),
            var: with_record(&var, "lib/mcd/applied.json", &is_own_record),
            plain: plain(&sysroot.path().join("plain")),
        }
    }

    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let mut told = Vec::new();
        if self.menu != other.menu {
            told.push(format!("menu {:#?} -> {:#?}", self.menu, other.menu));
        }
        let folders = [
            ("usr", &self.usr, &other.usr),
            ("etc", &self.etc, &other.etc),
            ("var", &self.var, &other.var),
            ("plain", &self.plain, &other.plain),
        ];
        for (name, own, theirs) in folders {
            told.extend(own.differences(theirs).into_iter().map(|line| format!("/{name}: {line}")));
        }
        told
    }
}

/// A root that no OSTree made.
fn plain(root: &Path) -> Listing {
    let mut listing = with_record(root, "etc/mcd/applied.json", &|path| {
        // What a cut run left is for the next one; in the end there must be none, see `remains`.
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_left = name.starts_with(".mcd-") || name == "converging.json";
        is_left || path.strip_prefix("var/").is_some_and(is_own_record)
    });
    let var = with_record(root, "var/lib/mcd/applied.json", &|_| false);
    if let Some(line) = var.line("var/lib/mcd/applied.json") {
        listing.replace("var/lib/mcd/applied.json", line.to_owned());
    }
    listing
}

/// Records in `/var` are compared by what they lead to, but for what was laid down there. And skopeo has
/// a cache of its own.
fn is_own_record(path: &str) -> bool {
    let is_told = path == "lib/mcd/applied.json" || path.starts_with("lib/mcd/originals");
    path.starts_with("lib/containers") || path.starts_with("lib/mcd") && !is_told
}

fn menu_line(sysroot: &Sysroot, entry: &BootEntry) -> String {
    let kernel = sysroot.path().join("boot").join(entry.linux.trim_start_matches('/'));
    let kernel = mcd_test_support::listing::describe(&kernel).unwrap();
    let origin = sysroot.origin(&entry.deployment_name()).unwrap();
    // Our id counts changes; a pin says what may be removed, not what boots.
    let is_told = |line: &str| {
        !line.is_empty()
            && !line.starts_with("id=")
            && line != "[libostree-transient]"
            && line != "pinned=true"
    };
    let origin: Vec<&str> = origin.lines().filter(|line| is_told(line)).collect();
    let name = entry.deployment_name();
    let commit = name.split('.').next().unwrap_or_default();
    format!(
        "{commit} {} | {} | {kernel} | {}",
        entry.title,
        entry.kernel_arguments().join(" "),
        origin.join(" ")
    )
}

/// A listing in which the record at `path` is what it says, without times and ids.
fn with_record(root: &Path, path: &str, skip: &dyn Fn(&str) -> bool) -> Listing {
    let mut listing = Listing::of(root, skip).unwrap();
    if let Ok(text) = std::fs::read(root.join(path)) {
        let mut record: Value =
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        forget_times(&mut record);
        listing.replace(path, record.to_string());
    }
    listing
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| name != "when" && name != "deployment_id");
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// The names of everything in the sysroot, with those numbers that toggle or count written as `N`.
/// Contents are compared elsewhere.
pub(super) fn remains(sysroot: &Sysroot) -> Vec<String> {
    let listing = Listing::names(sysroot.path(), &|path| {
        // What deployments hold is the state's business.
        let depth = path.matches('/').count();
        path.starts_with("ostree/deploy/fixture/deploy/") && depth > 4
    });
    let mut names: Vec<String> = listing.unwrap().paths().map(with_numbers_hidden).collect();
    names.sort();
    names.dedup();
    names
}

fn with_numbers_hidden(path: &str) -> String {
    let parts = path.split('/').map(|part| {
        // Boot versions, and the serial numbers of deployments of one commit.
        let is_boot = part.starts_with("boot.") || part.starts_with("loader.");
        let is_deployment = part.get(64..65) == Some(".");
        let is_entry = part.starts_with("ostree-") && part.ends_with(".conf");
        if is_boot || is_deployment || is_entry {
            part.chars()
                .enumerate()
                .map(|(at, letter)| {
                    if at >= usize::from(is_deployment) * 64 && letter.is_ascii_digit() {
                        'N'
                    } else {
                        letter
                    }
                })
                .collect()
        } else {
            part.to_owned()
        }
    });
    let path = parts.collect::<Vec<String>>().join("/");
    // libostree's refs of deployments, by boot version.
    match path.split_once("repo/refs/heads/ostree/") {
        Some((before, numbers)) if numbers.chars().all(|letter| letter.is_ascii_digit() || letter == '/') => {
            format!("{before}repo/refs/heads/ostree/{}", vec!["N"; numbers.split('/').count()].join("/"))
        }
        _ => path,
    }
}
