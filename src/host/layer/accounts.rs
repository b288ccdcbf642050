//! Users and groups by name, as the machine that is configured will know them.

use std::collections::HashMap;

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use cap_std_ext::cap_std::fs::Dir;

use super::target::{Target, resolve};
use crate::model::config::Id;

/// Files of users, in the order in which they count: the host's own, then the image's.
const PASSWD: [&str; 2] = ["/etc/passwd", "/usr/lib/passwd"];
/// Files of groups.
const GROUP: [&str; 2] = ["/etc/group", "/usr/lib/group"];

/// Where homes are. Daemons have theirs elsewhere.
const HOMES: [&str; 4] = ["/root", "/home", "/var/home", "/var/roothome"];

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: String,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    users: HashMap<String, User>,
    groups: HashMap<String, u32>,
}

impl Accounts {
    /// Reads them. `etc` is the `/etc` that will be merged into the target's: what it says counts
    /// first, since it stays.
    pub(super) fn read(target: &dyn Target, etc: Option<&Dir>) -> Result<Self> {
        let mut accounts = Self::default();
        if let Some(etc) = etc {
            accounts.add_users(&etc.read("passwd").unwrap_or_default());
            accounts.add_groups(&etc.read("group").unwrap_or_default());
        }
        for path in PASSWD {
            accounts.add_users(&read(target, path)?);
        }
        for path in GROUP {
            accounts.add_groups(&read(target, path)?);
        }
        Ok(accounts)
    }

    pub(super) fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Homes that belong to people, with their owners: what is made below one belongs to its owner.
    pub(super) fn homes(&self, target: &dyn Target) -> Result<Vec<(Utf8PathBuf, u32, u32)>> {
        let mut homes = Vec::new();
        for user in self.users.values() {
            let home = Utf8Path::new(&user.home);
            if HOMES.iter().any(|folder| home.starts_with(folder))
                && !HOMES[1..].contains(&home.as_str())
                && let Ok(inside) = resolve(target, &home.join("inside"))?
                && let Some(home) = inside.parent()
            {
                homes.push((home.to_owned(), user.uid, user.gid));
            }
        }
        homes.sort();
        Ok(homes)
    }

    /// The number of a user, or what is missing.
    pub(super) fn uid(&self, id: Option<&Id>) -> Result<u32, String> {
        match id {
            None => Ok(0),
            Some(Id::Number(number)) => Ok(*number),
            Some(Id::Name(name)) => match self.users.get(name) {
                Some(user) => Ok(user.uid),
                None => Err(format!("no user {name:?} in the passwd files of the host and the image")),
            },
        }
    }

    /// The number of a group, or what is missing.
    pub(super) fn gid(&self, id: Option<&Id>) -> Result<u32, String> {
        match id {
            None => Ok(0),
            Some(Id::Number(number)) => Ok(*number),
            Some(Id::Name(name)) => match self.groups.get(name) {
                Some(gid) => Ok(*gid),
                None => Err(format!("no group {name:?} in the group files of the host and the image")),
            },
        }
    }

    fn add_users(&mut self, text: &[u8]) {
        for line in String::from_utf8_lossy(text).lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, uid, gid, _, home, ..] = fields[..]
                && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
            {
                let user = User { uid, gid, home: home.to_owned() };
                self.users.entry(name.to_owned()).or_insert(user);
            }
        }
    }

    fn add_groups(&mut self, text: &[u8]) {
        for line in String::from_utf8_lossy(text).lines() {
            let mut fields = line.split(':');
            if let (Some(name), Some(gid)) = (fields.next(), fields.nth(1).and_then(|gid| gid.parse().ok())) {
                self.groups.entry(name.to_owned()).or_insert(gid);
            }
        }
    }
}

fn read(target: &dyn Target, path: &str) -> Result<Vec<u8>> {
    let path = Utf8Path::new(path);
    match target.look(path)? {
        Some(found) if matches!(found.kind, super::target::Kind::File(_)) => target.read(path),
        _ => Ok(Vec::new()),
    }
}
