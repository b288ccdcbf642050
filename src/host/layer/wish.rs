//! What is wanted at each path, whether a config asks for it now or a manifest did before.

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};

use super::accounts::Accounts;
use super::units::CONFIGURED;
use crate::model::config::{Blob, Contents, Id, Managed, Owner, Remark, Request, RequestKind, Unit};
use crate::model::digest::Digest;
use crate::model::manifest::{Enablement, Entry, Manifest, Node, Part, Password, Source};

/// Permissions of a file where nothing is said.
const FILE_MODE: u32 = 0o644;
/// Permissions of a directory where nothing is said.
const FOLDER_MODE: u32 = 0o755;
/// A link here masks a unit.
const MASK: &str = "/dev/null";

/// Something that is wanted at a path.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    /// As the config spells it.
    pub(super) asked: Utf8PathBuf,
    /// Where it stands in the input, for refusals.
    pub(super) field: String,
    pub(super) source: Source,
    pub(super) part: Part,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) what: What,
    /// Whether what the image has may be replaced.
    pub(super) overwrite: bool,
}

/// What is wanted.
#[derive(Debug, Clone)]
pub(super) enum What {
    File {
        /// None starts from what the image has.
        contents: Option<Content>,
        append: Option<Content>,
        mode: u32,
    },
    Directory {
        mode: u32,
    },
    Symlink(String),
    Absent,
}

/// Bytes of a file.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Bytes(Blob),
    /// What a manifest before had, or its last bytes.
    Held {
        digest: Digest,
        size: u64,
        object: Option<String>,
        last: Option<u64>,
    },
}

/// All wishes.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) all: Vec<Wish>,
    pub(super) enablement: BTreeMap<String, Enablement>,
    /// Where units stand in the input; none for those that were managed before.
    pub(super) unit_fields: BTreeMap<String, String>,
    pub(super) password: Option<Password>,
    pub(super) problems: Vec<Remark>,
    pub(super) warnings: Vec<String>,
}

impl Wishes {
    /// Adds what a config asks for.
    pub(super) fn add_config(
        &mut self,
        managed: &Managed,
        source: &Source,
        accounts: &Accounts,
        keys: &KeyPlace,
    ) {
        for (path, request) in &managed.entries {
            self.add_request(path, request, source, accounts, &managed.entries);
        }
        for (name, unit) in &managed.units {
            self.add_unit(name, unit, source);
        }
        let Some(core) = &managed.core else { return };
        match keys {
            KeyPlace::NoUser => {
                let what = if core.password_hash.is_some() { "keys and password" } else { "keys" };
                self.warnings.push(format!(
                    "{}: there is no user core on this host, its {what} are left out",
                    core.field
                ));
            }
            KeyPlace::At { path, uid, gid } => {
                if !core.keys.is_empty() {
                    let mut text = core.keys.join("\n").into_bytes();
                    text.push(b'\n');
                    self.all.push(Wish {
                        asked: path.clone(),
                        field: format!("{}.sshAuthorizedKeys", core.field),
                        source: source.clone(),
                        part: Part::Keys("core".to_owned()),
                        uid: *uid,
                        gid: *gid,
                        what: What::File {
                            contents: Some(Content::Bytes(Blob::from(text))),
                            append: None,
                            mode: 0o600,
                        },
                        overwrite: true,
                    });
                }
                let hash = core.password_hash.as_ref();
                let hash = hash.map_or("*".into(), |hash| String::from_utf8_lossy(hash.bytes()).into_owned());
                self.password = Some(Password { user: "core".to_owned(), hash });
            }
        }
    }

    /// Adds what was managed before, of all sources but one. Links that enable units are worked out
    /// anew.
    pub(super) fn carry(&mut self, before: &Manifest, but: Option<&Source>, keys: &KeyPlace) {
        let stays = |source: &Source| Some(source) != but;
        for entry in before.entries.iter().filter(|entry| stays(&entry.source)) {
            if !matches!(entry.part, Part::Storage | Part::Unit(_) | Part::Keys(_) | Part::Other(_)) {
                continue;
            }
            let mut wish = carried(entry, before.appended.get(&entry.path).copied());
            if let (Part::Keys(_), KeyPlace::At { path, uid, gid }) = (&entry.part, keys) {
                // Another image's sshd may look elsewhere.
                wish.asked.clone_from(path);
                (wish.uid, wish.gid) = (*uid, *gid);
            }
            self.all.push(wish);
        }
        for (unit, enablement) in before.enablement.iter().filter(|(_, one)| stays(&one.source)) {
            self.enablement.entry(unit.clone()).or_insert_with(|| enablement.clone());
        }
        if self.password.is_none() && but != Some(&Source::MachineConfig) {
            self.password.clone_from(&before.password);
        }
    }

    fn add_request(
        &mut self,
        path: &Utf8Path,
        request: &Request,
        source: &Source,
        accounts: &Accounts,
        all: &BTreeMap<Utf8PathBuf, Request>,
    ) {
        let (kind, owner) = match &request.kind {
            RequestKind::Link { target, hard: true } => match linked_file(path, target, all) {
                Some(other) => (&other.kind, &other.owner),
                None => {
                    let message = format!(
                        "the hard link leads to {target}, which is no file of this config; make it a symbolic link"
                    );
                    self.problems.push(Remark { field: request.field.clone(), message });
                    return;
                }
            },
            kind => (kind, &request.owner),
        };
        let Some((uid, gid)) = self.numbers(&request.field, owner, accounts) else { return };
        let what = match kind {
            RequestKind::File { contents, append, mode } => {
                let contents = contents.as_ref().map(|contents| self.bytes(&request.field, contents));
                let parts: Vec<Blob> =
                    append.iter().filter_map(|part| self.bytes(&request.field, part)).collect();
                let appended: Vec<u8> = parts.iter().flat_map(Blob::bytes).copied().collect();
                let contents = match contents {
                    Some(None) => return,
                    Some(Some(bytes)) => Some(Content::Bytes(bytes)),
                    // Without contents and additions it is an empty file.
                    None if append.is_empty() => Some(Content::Bytes(Blob::from(Vec::new()))),
                    None => None,
                };
                let append = (!append.is_empty()).then(|| Content::Bytes(Blob::from(appended)));
                What::File { contents, append, mode: mode.unwrap_or(FILE_MODE) }
            }
            RequestKind::Directory { mode } => What::Directory { mode: mode.unwrap_or(FOLDER_MODE) },
            RequestKind::Link { target, .. } => What::Symlink(target.clone()),
        };
        self.all.push(Wish {
            asked: path.to_owned(),
            field: request.field.clone(),
            source: source.clone(),
            part: Part::Storage,
            uid,
            gid,
            what,
            overwrite: request.overwrite != Some(false),
        });
    }

    fn add_unit(&mut self, name: &str, unit: &Unit, source: &Source) {
        let mut add = |path: String, what: What| {
            self.all.push(Wish {
                asked: path.into(),
                field: unit.field.clone(),
                source: source.clone(),
                part: Part::Unit(name.to_owned()),
                uid: 0,
                gid: 0,
                what,
                overwrite: true,
            });
        };
        let file = |bytes: &Blob| What::File {
            contents: Some(Content::Bytes(bytes.clone())),
            append: None,
            mode: FILE_MODE,
        };
        let masked = unit.mask == Some(true);
        match (&unit.contents, unit.mask) {
            (_, Some(true)) => add(format!("{CONFIGURED}/{name}"), What::Symlink(MASK.to_owned())),
            (Some(contents), _) => add(format!("{CONFIGURED}/{name}"), file(contents)),
            // Takes away the image's mask; anything else there stays.
            (None, Some(false)) => add(format!("{CONFIGURED}/{name}"), What::Absent),
            (None, None) => {}
        }
        for (dropin, contents) in &unit.dropins {
            add(format!("{CONFIGURED}/{name}.d/{dropin}"), file(contents));
        }
        if masked && unit.enabled == Some(true) {
            self.warnings.push(format!("{}: a masked unit cannot be enabled", unit.field));
        }
        if !masked && (unit.enabled.is_some() || unit.contents.is_some()) {
            let enablement = Enablement { enabled: unit.enabled, source: source.clone() };
            self.enablement.insert(name.to_owned(), enablement);
            self.unit_fields.insert(name.to_owned(), unit.field.clone());
        }
    }

    fn numbers(&mut self, field: &str, owner: &Owner, accounts: &Accounts) -> Option<(u32, u32)> {
        // A user's own group is not asked for: root's is meant where nothing is said, as Ignition does.
        let uid = accounts.uid(owner.user.as_ref());
        let gid = accounts.gid(owner.group.as_ref());
        for (part, id, number) in [("user", &owner.user, &uid), ("group", &owner.group, &gid)] {
            if let (Some(Id::Name(_)), Err(message)) = (id, number) {
                let field = format!("{field}.{part}.name");
                self.problems.push(Remark { field, message: message.clone() });
            }
        }
        Some((uid.ok()?, gid.ok()?))
    }

    fn bytes(&mut self, field: &str, contents: &Contents) -> Option<Blob> {
        match contents {
            Contents::Inline(bytes) => Some(bytes.clone()),
            Contents::Remote { .. } => {
                let message = "its remote contents were not fetched".to_owned();
                self.problems.push(Remark { field: field.to_owned(), message });
                None
            }
        }
    }
}

/// Where the keys of `core` belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// There is no such user.
    NoUser,
    At {
        path: Utf8PathBuf,
        uid: u32,
        gid: u32,
    },
}

fn linked_file<'a>(
    path: &Utf8Path,
    target: &str,
    all: &'a BTreeMap<Utf8PathBuf, Request>,
) -> Option<&'a Request> {
    let target = path.parent().unwrap_or(Utf8Path::new("/")).join(target);
    all.get(&target).filter(|request| matches!(request.kind, RequestKind::File { .. }))
}

fn carried(entry: &Entry, appended: Option<u64>) -> Wish {
    let (uid, gid) = match &entry.node {
        Node::File { uid, gid, .. } | Node::Directory { uid, gid, .. } | Node::Symlink { uid, gid, .. } => {
            (*uid, *gid)
        }
        Node::Absent => (0, 0),
    };
    let what = match &entry.node {
        Node::File { digest, size, mode, object, .. } => {
            let held = |last| {
                Some(Content::Held { digest: digest.clone(), size: *size, object: object.clone(), last })
            };
            match appended {
                Some(last) => What::File { contents: None, append: held(Some(last)), mode: *mode },
                None => What::File { contents: held(None), append: None, mode: *mode },
            }
        }
        Node::Directory { mode, .. } => What::Directory { mode: *mode },
        Node::Symlink { target, .. } => What::Symlink(target.clone()),
        Node::Absent => What::Absent,
    };
    let asked = entry.asked.clone().unwrap_or_else(|| entry.path.clone());
    Wish {
        field: format!("{asked}, managed before"),
        asked,
        source: entry.source.clone(),
        part: entry.part.clone(),
        uid,
        gid,
        what,
        overwrite: true,
    }
}
