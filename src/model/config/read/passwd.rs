//! `passwd` of an Ignition config: keys and password of the user `core`.

use super::document::Value;
use super::draft::{CoreDraft, Draft};
use super::field::{Field, Object, Report, texts};
use crate::model::config::Blob;

/// The user that can be managed.
const CORE: &str = "core";
/// Longer ones are no keys: the longest RSA keys in use have some 3 KB.
const KEY_MAX: usize = 64 << 10;
/// crypt(3)'s own limit.
const HASH_MAX: usize = 384;

/// What of a user is set when the machine is installed, with the spec version that it is of.
const FIRST_BOOT: [&str; 11] = [
    "uid",
    "gecos",
    "homeDir",
    "noCreateHome",
    "primaryGroup",
    "groups",
    "noUserGroup",
    "noLogInit",
    "shell",
    "system",
    "create",
];

/// Reads `passwd`.
pub(super) fn read(
    value: Option<&Value<'_>>,
    major: u64,
    at: &Field<'_>,
    into: &mut Draft,
    report: &mut Report,
) {
    let Some(mut passwd) = Object::read(value, at, report) else { return };
    passwd.refuse("groups", "groups are made when a machine is installed; leave it out", at, report);
    let list_at = at.name("users");
    for (index, value) in passwd.list("users", at, report).iter().enumerate() {
        let at = list_at.index(index);
        let Some(object) = Object::read(Some(value), &at, report) else { continue };
        if let Some(core) = user(object, &at, report) {
            into.insert_core(core, major == 2, &at, report);
        }
    }
    passwd.end(at, report);
}

fn user(mut object: Object<'_, '_>, at: &Field<'_>, report: &mut Report) -> Option<CoreDraft> {
    let name = object.text("name", at, report);
    if name != Some(CORE) {
        report.refuse(at.name("name"), "only the user core can be managed; make other users when installing");
        return None;
    }
    for name in FIRST_BOOT {
        object.refuse(
            name,
            "it is set when a machine is installed; only keys and password can be managed",
            at,
            report,
        );
    }
    if object.boolean("shouldExist", at, report) == Some(false) {
        report.refuse(at.name("shouldExist"), "the user core cannot be taken away");
    }
    let keys_at = at.name("sshAuthorizedKeys");
    let mut keys = Vec::new();
    for (index, text) in texts(object.list("sshAuthorizedKeys", at, report), &keys_at, report) {
        match key(text) {
            Ok(key) => keys.push(key),
            Err(reason) => report.refuse(keys_at.index(index), reason),
        }
    }
    let hash = object.text("passwordHash", at, report);
    let password = hash.and_then(|hash| match wrong_hash(hash) {
        None => Some(Blob::from(hash.as_bytes().to_vec())),
        Some(reason) => {
            report.refuse(at.name("passwordHash"), reason);
            None
        }
    });
    object.end(at, report);
    Some(CoreDraft { field: at.to_string(), keys, password })
}

/// One line of `authorized_keys`. A line end after it is what a YAML block brings along.
fn key(text: &str) -> Result<String, &'static str> {
    let key = text.trim();
    if key.is_empty() {
        return Err("a key is missing; for no keys write an empty list");
    }
    if key.contains(['\n', '\r']) {
        return Err("it has several lines: give each key as an item of its own");
    }
    if key.chars().any(char::is_control) {
        return Err("a key holds no control characters");
    }
    if key.len() > KEY_MAX {
        return Err("it is longer than any key");
    }
    if key.contains("PRIVATE KEY") {
        return Err("it is a private key; give the public one");
    }
    if !key.starts_with('#') && !key.contains([' ', '\t']) {
        return Err("a key has a type before it, as in ssh-ed25519 AAAA…");
    }
    Ok(key.to_owned())
}

/// Why this must not stand in `/etc/shadow`. Never says what it is.
fn wrong_hash(hash: &str) -> Option<&'static str> {
    if hash.is_empty() {
        return Some("an empty hash would let anybody in; leave it out to lock the password");
    }
    if hash == "*" || (hash.starts_with('!') && is_hash_text(hash.trim_start_matches('!'))) {
        return None;
    }
    let hashed = hash.strip_prefix('$').is_some_and(|rest| {
        let mut parts = rest.split('$');
        let id = parts.next().unwrap_or_default();
        let known = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        known && parts.next().is_some() && !rest.ends_with('$')
    });
    let traditional =
        hash.len() == 13 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte));
    match (hashed || traditional) && is_hash_text(hash) {
        true => None,
        false => Some("it is no hash of crypt(3), as `mkpasswd -m sha-512` or `openssl passwd -6` make it"),
    }
}

/// What crypt(5) allows, and fits into a field of `/etc/shadow`.
fn is_hash_text(text: &str) -> bool {
    text.len() <= HASH_MAX
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b':' | b';' | b'*' | b'!' | b'\\'))
}
