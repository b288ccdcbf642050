//! What one document says, and how several become one [`Config`].
//!
//! The order of the files does not count, as in a cluster: MachineConfigs of the role `worker` come
//! first, each group by name, and what comes later wins field by field. So does Ignition merge.

use std::collections::{BTreeMap, BTreeSet};

use camino::{Utf8Path, Utf8PathBuf};

use super::field::{Field, Report};
use super::{disks, paths};
use crate::model::config::{Blob, Config, Contents, Core, Disks, Managed, Owner, Request, RequestKind, Unit};
use crate::model::image_ref::OsImage;

/// Where unit files of the administrator stand.
const UNIT_FOLDER: &str = "/etc/systemd/system";

/// One document.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// `metadata.name`, or the file's name.
    pub(super) name: String,
    /// Its place in the input, for people.
    pub(super) field: String,
    /// Its file and its number in there: the last resort of sorting.
    pub(super) origin: (String, usize),
    /// It is a MachineConfig.
    pub(super) is_machine_config: bool,
    /// Its role is `worker`: the base of all pools.
    pub(super) is_worker: bool,
    pub(super) image: Option<OsImage>,
    pub(super) kernel_arguments: Vec<String>,
    pub(super) fips: Option<bool>,
    pub(super) kernel_type: Option<String>,
    pub(super) extensions: Vec<String>,
    pub(super) extensions_image: Option<String>,
    /// It speaks of files, units and keys.
    pub(super) is_managed: bool,
    entries: BTreeMap<Utf8PathBuf, Request>,
    units: BTreeMap<String, UnitDraft>,
    core: Option<CoreDraft>,
    pub(super) disks: Disks,
}

/// A unit; what is not said may be said by another document.
#[derive(Debug, Default)]
pub(super) struct UnitDraft {
    pub(super) field: String,
    pub(super) contents: Option<Blob>,
    pub(super) enabled: Option<bool>,
    pub(super) mask: Option<bool>,
    pub(super) dropins: BTreeMap<String, Option<Blob>>,
}

/// The user `core`.
#[derive(Debug, Default)]
pub(super) struct CoreDraft {
    pub(super) field: String,
    pub(super) keys: Vec<String>,
    pub(super) password: Option<Blob>,
}

impl Draft {
    /// One that says nothing yet.
    pub(super) fn new(at: &Field<'_>) -> Self {
        Self { field: at.to_string(), ..Self::default() }
    }

    /// Adds an entry. A path is given once; in 2.x the last file of a path replaces the others.
    pub(super) fn insert(
        &mut self,
        path: Utf8PathBuf,
        request: Request,
        replaces: bool,
        at: &Field<'_>,
        report: &mut Report,
    ) {
        use std::collections::btree_map::Entry;
        match self.entries.entry(path) {
            Entry::Vacant(free) => drop(free.insert(request)),
            Entry::Occupied(mut taken) => {
                let (path, field) = (taken.key(), &taken.get().field);
                if replaces && matches!(taken.get().kind, RequestKind::File { .. }) {
                    report.warn(
                        at.name("path"),
                        format!("{path}: it replaces {field}, which has the same path"),
                    );
                    taken.insert(request);
                } else {
                    report.refuse(at.name("path"), format!("{path}: {field} has the same path; leave one"));
                }
            }
        }
    }

    /// Adds a unit. In 2.x the last one of a name wins, and earlier ones add drop-ins that it lacks.
    pub(super) fn insert_unit(
        &mut self,
        name: &str,
        mut unit: UnitDraft,
        replaces: bool,
        at: &Field<'_>,
        report: &mut Report,
    ) {
        if let Some(earlier) = self.units.remove(name) {
            let field = &earlier.field;
            if replaces {
                report.warn(at.name("name"), format!("{name}: it replaces {field}, which has the same name"));
                for (dropin, contents) in earlier.dropins {
                    unit.dropins.entry(dropin).or_insert(contents);
                }
            } else {
                report.refuse(at.name("name"), format!("{name}: {field} has the same name; leave one"));
            }
        }
        self.units.insert(name.to_owned(), unit);
    }

    /// Adds the user `core`. In 2.x keys are joined from the last entry to the first.
    pub(super) fn insert_core(&mut self, core: CoreDraft, joins: bool, at: &Field<'_>, report: &mut Report) {
        let Some(earlier) = self.core.take() else {
            self.core = Some(core);
            return;
        };
        if !joins {
            report.refuse(at.name("name"), format!("{} is core already; put both into one", earlier.field));
        }
        self.core = Some(CoreDraft {
            field: core.field,
            keys: unique(core.keys.into_iter().chain(earlier.keys)),
            password: core.password.or(earlier.password),
        });
    }
}

/// Joins all documents. What is wrong between them is reported.
pub(super) fn merge(mut drafts: Vec<Draft>, report: &mut Report) -> Config {
    drafts.sort_by(|one, other| {
        fn key(draft: &Draft) -> (bool, &str, &(String, usize)) {
            (!draft.is_worker, &draft.name, &draft.origin)
        }
        key(one).cmp(&key(other))
    });
    refuse_same_names(&drafts, report);
    let mut config = Config::default();
    let mut all = Draft::default();
    for draft in drafts {
        config.names.push(draft.name);
        config.image = draft.image.or(config.image);
        if draft.is_machine_config {
            config.kernel_arguments.get_or_insert_default().extend(draft.kernel_arguments);
        }
        config.fips = match (config.fips, draft.fips) {
            (Some(one), Some(other)) => Some(one || other),
            (one, other) => one.or(other),
        };
        config.kernel_type = draft.kernel_type.or(config.kernel_type);
        config.extensions.extend(draft.extensions);
        config.extensions_image = draft.extensions_image.or(config.extensions_image);
        all.is_managed |= draft.is_managed;
        for (path, request) in draft.entries {
            let merged = match all.entries.remove(&path) {
                Some(earlier) => merged(earlier, request),
                None => request,
            };
            all.entries.insert(path, merged);
        }
        for (name, unit) in draft.units {
            let merged = match all.units.remove(&name) {
                Some(earlier) => merged_unit(earlier, unit),
                None => unit,
            };
            all.units.insert(name, merged);
        }
        all.core = match (all.core.take(), draft.core) {
            (Some(earlier), Some(core)) => Some(CoreDraft {
                field: core.field,
                keys: unique(earlier.keys.into_iter().chain(core.keys)),
                password: core.password.or(earlier.password),
            }),
            (earlier, core) => core.or(earlier),
        };
        disks::merge(&mut all.disks, draft.disks, report);
    }
    config.extensions = unique(config.extensions);
    if all.is_managed {
        check(&all, report);
        config.managed = Some(finished(all));
    }
    config
}

fn refuse_same_names(drafts: &[Draft], report: &mut Report) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for draft in drafts.iter().filter(|draft| draft.is_machine_config) {
        if let Some(other) = seen.insert(&draft.name, &draft.field) {
            let message = format!("{other} has the name {} too; leave one", draft.name.escape_debug());
            report.refuse(format!("{}.name", metadata(&draft.field)), message);
        }
    }
}

/// `metadata` of a document at a field.
fn metadata(field: &str) -> String {
    let separator = if field.ends_with(']') { "." } else { ": " };
    format!("{field}{separator}metadata")
}

/// An entry that a later document says more of; another kind of thing replaces it.
fn merged(earlier: Request, later: Request) -> Request {
    let kind = match (earlier.kind, later.kind) {
        (
            RequestKind::File { contents, append, mode },
            RequestKind::File { contents: later_contents, append: later_append, mode: later_mode },
        ) => RequestKind::File {
            contents: later_contents.or(contents),
            append: append.into_iter().chain(later_append).collect(),
            mode: later_mode.or(mode),
        },
        (RequestKind::Directory { mode }, RequestKind::Directory { mode: later }) => {
            RequestKind::Directory { mode: later.or(mode) }
        }
        (RequestKind::Link { .. }, kind @ RequestKind::Link { .. }) => kind,
        (_, kind) => return Request { kind, ..later },
    };
    Request {
        field: later.field,
        kind,
        owner: Owner {
            user: later.owner.user.or(earlier.owner.user),
            group: later.owner.group.or(earlier.owner.group),
        },
        overwrite: later.overwrite.or(earlier.overwrite),
    }
}

fn merged_unit(earlier: UnitDraft, later: UnitDraft) -> UnitDraft {
    let mut dropins = earlier.dropins;
    for (name, contents) in later.dropins {
        let known = dropins.remove(&name).flatten();
        dropins.insert(name, contents.or(known));
    }
    UnitDraft {
        field: later.field,
        contents: later.contents.or(earlier.contents),
        enabled: later.enabled.or(earlier.enabled),
        mask: later.mask.or(earlier.mask),
        dropins,
    }
}

/// What cannot stand beside each other.
fn check(all: &Draft, report: &mut Report) {
    let mut paths: BTreeMap<Utf8PathBuf, String> = BTreeMap::new();
    for (name, unit) in &all.units {
        let file = Utf8Path::new(UNIT_FOLDER).join(name);
        let dropins = unit.dropins.keys().map(|dropin| file.with_file_name(format!("{name}.d")).join(dropin));
        for path in dropins.collect::<Vec<_>>() {
            paths.insert(path, unit.field.clone());
        }
        paths.insert(file, unit.field.clone());
        warn_of_unit(name, unit, report);
    }
    for (path, request) in &all.entries {
        if let Some(unit) = paths.get(path) {
            let message = format!("{path}: {unit} writes this path; leave one");
            report.refuse(format!("{}.path", request.field), message);
        }
        if let RequestKind::Link { target, hard: true } = &request.kind {
            let is_file = |it: &Request| matches!(it.kind, RequestKind::File { .. });
            if !all.entries.get(Utf8Path::new(target)).is_some_and(is_file) {
                let message = format!("{path}: a hard link leads to a file of the same config only");
                report.refuse(format!("{}.target", request.field), message);
            }
        }
    }
    let is_passable = |request: &Request| matches!(request.kind, RequestKind::Directory { .. });
    let entries = all.entries.iter().map(|(path, request)| (path, &request.field));
    for (path, field) in entries.chain(&paths) {
        let blocked = paths::above(path).find_map(|above| Some((above, all.entries.get(above)?)));
        if let Some((above, request)) = blocked.filter(|(_, request)| !is_passable(request)) {
            let message = format!("{path}: {above} is no directory, see {}", request.field);
            report.refuse(field, message);
        } else if let Some((above, unit)) = paths::above(path).find_map(|above| paths.get_key_value(above)) {
            report.refuse(field, format!("{path}: {above} is no directory, see {unit}"));
        }
    }
}

fn warn_of_unit(name: &str, unit: &UnitDraft, report: &mut Report) {
    let masked = unit.mask == Some(true);
    if masked && unit.contents.is_some() {
        report.warn(
            format!("{}.mask", unit.field),
            format!("{name}: a masked unit has no contents; they are not written"),
        );
    }
    if masked && unit.enabled == Some(true) {
        report.warn(
            format!("{}.enabled", unit.field),
            format!("{name}: a masked unit is not started, enabled or not"),
        );
    }
    let text = unit.contents.as_ref().map(|contents| String::from_utf8_lossy(contents.bytes()));
    let installs = |text: &str| text.lines().any(|line| line.trim() == "[Install]");
    let lacks = text.is_some_and(|text| !installs(&text));
    let dropped_in =
        unit.dropins.values().flatten().any(|dropin| installs(&String::from_utf8_lossy(dropin.bytes())));
    if unit.enabled == Some(true) && !masked && lacks && !dropped_in {
        report.warn(
            format!("{}.enabled", unit.field),
            format!("{name}: its contents have no [Install], so that nothing enables it"),
        );
    }
}

/// What no document said is what it means now.
fn finished(all: Draft) -> Managed {
    let empty = || Contents::Inline(Blob::from(Vec::new()));
    let entries = all.entries.into_iter().map(|(path, mut request)| {
        if let RequestKind::File { contents, append, .. } = &mut request.kind
            && append.is_empty()
            && request.overwrite != Some(false)
        {
            contents.get_or_insert_with(empty);
        }
        (path, request)
    });
    let units = all.units.into_iter().map(|(name, unit)| {
        let dropins = unit
            .dropins
            .into_iter()
            .map(|(name, contents)| (name, contents.unwrap_or_else(|| Blob::from(Vec::new()))));
        let unit = Unit {
            field: unit.field,
            contents: unit.contents,
            enabled: unit.enabled,
            mask: unit.mask,
            dropins: dropins.collect(),
        };
        (name, unit)
    });
    Managed {
        entries: entries.collect(),
        units: units.collect(),
        core: all.core.map(|core| Core {
            field: core.field,
            keys: unique(core.keys),
            password_hash: core.password,
        }),
        disks: all.disks,
    }
}

/// Each once, where it came first.
pub(super) fn unique(items: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}
