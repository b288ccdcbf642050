//! Whether a change of `registries.conf` (`containers-registries.conf(5)`) can break a pod that runs.
//!
//! A change is safe if every image that could be pulled can still be pulled from where it came from,
//! and means the same. What may be added is sources that are asked by digest only: the digest says
//! what they must give. Whatever is not known here is compared as it is, and counts as unsafe when it
//! changes: one drain too many is better than a pod that cannot start.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

/// What a change of `registries.conf` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Both say the same: comments, blank lines, order of keys.
    Same,
    /// Every image that could be pulled can still be pulled and means the same: no drain.
    Safe,
    /// It may not, and this is why.
    Unsafe(String),
}

/// Compares two versions; absent is an empty file.
pub fn compare(old: Option<&[u8]>, new: Option<&[u8]>) -> Meaning {
    let (old, new) = match (parse("before", old), parse("after", new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(reason), _) | (_, Err(reason)) => return Meaning::Unsafe(reason),
    };
    if old == new {
        return Meaning::Same;
    }
    match check(&old, &new) {
        Ok(()) => Meaning::Safe,
        Err(reason) => Meaning::Unsafe(reason),
    }
}

/// Why a change is not safe.
type Reason = String;

fn parse(when: &str, bytes: Option<&[u8]>) -> Result<Table, Reason> {
    let text = std::str::from_utf8(bytes.unwrap_or_default())
        .map_err(|_| format!("the file {when} the change is no text"))?;
    text.parse().map_err(|_| format!("the file {when} the change is no valid TOML"))
}

fn check(old: &Table, new: &Table) -> Result<(), Reason> {
    const JUDGED: [&str; 2] = ["unqualified-search-registries", "registry"];
    for key in old.keys().chain(new.keys()) {
        if !JUDGED.contains(&key.as_str()) && old.get(key) != new.get(key) {
            return Err(format!("{} changes", Shown(key)));
        }
    }
    let (before, after) = (search(old)?, search(new)?);
    if !after.starts_with(&before) {
        return Err("short image names may be looked up elsewhere".to_owned());
    }
    let (before, after) = (registries(old)?, registries(new)?);
    if let Some(gone) = before.keys().find(|prefix| !after.contains_key(*prefix)) {
        return Err(format!("registry {} goes", Shown(gone)));
    }
    for (prefix, registry) in &after {
        match before.get(prefix) {
            Some(old) => changed(old, registry)?,
            None => added(registry, &before)?,
        }
    }
    Ok(())
}

fn search(table: &Table) -> Result<Vec<&str>, Reason> {
    let wrong = || "unqualified-search-registries is no list of names".to_owned();
    let Some(list) = table.get("unqualified-search-registries") else { return Ok(Vec::new()) };
    let list = list.as_array().ok_or_else(wrong)?;
    list.iter().map(|name| name.as_str().ok_or_else(wrong)).collect()
}

/// One `[[registry]]`, with what is absent filled in.
#[derive(Debug, PartialEq)]
struct Registry {
    prefix: String,
    location: String,
    mirrors: Vec<Mirror>,
    is_blocked: bool,
    is_insecure: bool,
    /// `mirror-by-digest-only`: already counted in the mirrors; tells what a registry without any is
    /// meant for.
    is_by_digest: bool,
    /// What is not known here.
    rest: Table,
}

/// One `[[registry.mirror]]`.
#[derive(Debug, Clone, PartialEq)]
struct Mirror {
    location: String,
    pulls: Pulls,
    is_insecure: bool,
    rest: Table,
}

/// What a mirror is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pulls {
    All,
    ByDigest,
    ByTag,
}

fn registries(table: &Table) -> Result<BTreeMap<String, Registry>, Reason> {
    let wrong = || "registry is no list of tables".to_owned();
    let mut registries = BTreeMap::new();
    let Some(list) = table.get("registry") else { return Ok(registries) };
    for item in list.as_array().ok_or_else(wrong)? {
        let registry = Registry::read(item.as_table().ok_or_else(wrong)?)?;
        let prefix = registry.prefix.clone();
        if let Some(other) = registries.insert(prefix.clone(), registry)
            && registries.get(&prefix) != Some(&other)
        {
            return Err(format!("registry {} stands twice, and differs", Shown(&prefix)));
        }
    }
    Ok(registries)
}

impl Registry {
    fn read(table: &Table) -> Result<Self, Reason> {
        let mut rest = table.clone();
        let location = take_name(&mut rest, "location")?;
        let prefix = Some(take_name(&mut rest, "prefix")?).filter(|prefix| !prefix.is_empty());
        let prefix = prefix.unwrap_or_else(|| location.clone());
        if prefix.is_empty() {
            return Err("a registry has neither prefix nor location".to_owned());
        }
        let is_by_digest = take_flag(&mut rest, "mirror-by-digest-only")?;
        let wrong = || format!("mirrors of {} are no list of tables", Shown(&prefix));
        let mirrors = match rest.remove("mirror") {
            None => Vec::new(),
            Some(Value::Array(list)) => list
                .into_iter()
                .map(|item| match item {
                    Value::Table(mirror) => Mirror::read(mirror, is_by_digest),
                    _ => Err(wrong()),
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(wrong()),
        };
        let mut locations: Vec<&str> =
            mirrors.iter().map(|mirror: &Mirror| mirror.location.as_str()).collect();
        locations.sort_unstable();
        if let Some(twice) = locations.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("registry {}: mirror {} stands twice", Shown(&prefix), Shown(twice[0])));
        }
        let is_blocked = take_flag(&mut rest, "blocked")?;
        let is_insecure = take_flag(&mut rest, "insecure")?;
        Ok(Self { prefix, location, mirrors, is_blocked, is_insecure, is_by_digest, rest })
    }

    fn mirror(&self, location: &str) -> Option<&Mirror> {
        self.mirrors.iter().find(|mirror| mirror.location == location)
    }

    /// Mirrors that are asked for tags, in the order in which they are asked: the first that answers
    /// says what a tag means.
    fn by_tag(&self) -> impl Iterator<Item = &str> {
        self.mirrors
            .iter()
            .filter(|mirror| mirror.pulls != Pulls::ByDigest)
            .map(|mirror| mirror.location.as_str())
    }

    /// Whether this registry is asked for the image names below a prefix: by name, or, for
    /// `*.example.com`, by the hosts of a domain.
    fn covers(&self, prefix: &str) -> bool {
        if let Some(domain) = self.prefix.strip_prefix('*') {
            let host = prefix.split(['/', ':', '@']).next().unwrap_or_default();
            return host.ends_with(domain);
        }
        prefix.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(['/', ':', '@']))
    }
}

impl Mirror {
    fn read(mut table: Table, is_by_digest: bool) -> Result<Self, Reason> {
        let location = take_name(&mut table, "location")?;
        let wrong = || format!("mirror {}: pull-from-mirror has no known value", Shown(&location));
        let pulls = match table.remove("pull-from-mirror") {
            _ if is_by_digest => Pulls::ByDigest,
            None => Pulls::All,
            Some(Value::String(text)) => match text.as_str() {
                "" | "all" => Pulls::All,
                "digest-only" => Pulls::ByDigest,
                "tag-only" => Pulls::ByTag,
                _ => return Err(wrong()),
            },
            Some(_) => return Err(wrong()),
        };
        let is_insecure = take_flag(&mut table, "insecure")?;
        Ok(Self { location, pulls, is_insecure, rest: table })
    }
}

fn take_name(table: &mut Table, key: &str) -> Result<String, Reason> {
    match table.remove(key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.trim_end_matches('/').to_owned()),
        Some(_) => Err(format!("{key} of a registry is no text")),
    }
}

fn take_flag(table: &mut Table, key: &str) -> Result<bool, Reason> {
    match table.remove(key) {
        None => Ok(false),
        Some(Value::Boolean(flag)) => Ok(flag),
        Some(_) => Err(format!("{key} of a registry is neither true nor false")),
    }
}

/// A registry that was there and is there.
fn changed(old: &Registry, new: &Registry) -> Result<(), Reason> {
    let name = Shown(&new.prefix);
    for (what, differs) in [
        ("location", old.location != new.location),
        ("blocked", old.is_blocked != new.is_blocked),
        ("insecure", old.is_insecure != new.is_insecure),
        ("a key that mcd does not know", old.rest != new.rest),
    ] {
        if differs {
            return Err(format!("registry {name}: {what} changes"));
        }
    }
    for mirror in &old.mirrors {
        let shown = Shown(&mirror.location);
        let Some(now) = new.mirror(&mirror.location) else {
            return Err(format!("registry {name}: mirror {shown} goes"));
        };
        if now.pulls != mirror.pulls && now.pulls != Pulls::ByDigest {
            return Err(format!("registry {name}: mirror {shown} is asked for tags"));
        }
        if (now.is_insecure, &now.rest) != (mirror.is_insecure, &mirror.rest) {
            return Err(format!("registry {name}: how mirror {shown} is reached changes"));
        }
    }
    for mirror in &new.mirrors {
        if old.mirror(&mirror.location).is_none() && mirror.pulls != Pulls::ByDigest {
            let shown = Shown(&mirror.location);
            return Err(format!("registry {name}: new mirror {shown} is asked for tags"));
        }
    }
    // None was added for tags and some may have gone over to digests: what is left must keep its order.
    let left: Vec<&str> = new.by_tag().collect();
    if !old.by_tag().filter(|location| left.contains(location)).eq(left.iter().copied()) {
        return Err(format!("registry {name}: the order of mirrors that are asked for tags changes"));
    }
    Ok(())
}

/// A registry that is new: it must only add sources that are asked by digest, and take no image name
/// away from a registry that serves it now.
fn added(new: &Registry, before: &BTreeMap<String, Registry>) -> Result<(), Reason> {
    let name = Shown(&new.prefix);
    let mut reasons = [
        ("is blocked", new.is_blocked),
        ("is insecure", new.is_insecure),
        ("leads elsewhere", new.location != new.prefix),
        ("has a key that mcd does not know", !new.rest.is_empty()),
        ("is asked for tags", new.mirrors.iter().any(|mirror| mirror.pulls != Pulls::ByDigest)),
        ("has no mirrors", new.mirrors.is_empty() && !new.is_by_digest),
    ]
    .into_iter();
    if let Some((reason, _)) = reasons.find(|(_, holds)| *holds) {
        return Err(format!("new registry {name} {reason}"));
    }
    // The longest prefix is asked, and nobody else.
    let serving = before.values().filter(|old| old.covers(&new.prefix)).max_by_key(|old| old.prefix.len());
    let Some(old) = serving else { return Ok(()) };
    let rest = new.prefix.strip_prefix(&old.prefix).unwrap_or_default();
    let has = |mirror: &Mirror| {
        let below = format!("{}{rest}", mirror.location);
        mirror.pulls == Pulls::ByDigest
            && new.mirror(&below).is_some_and(|now| now.is_insecure == mirror.is_insecure)
    };
    let is_plain = !old.is_blocked && !old.is_insecure && old.location == old.prefix && old.rest.is_empty();
    if is_plain && old.mirrors.iter().all(has) {
        return Ok(());
    }
    Err(format!("new registry {name} takes images from {}", Shown(&old.prefix)))
}

/// A name from the file, in quotes, at a length for people.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Longer names are cut: registry hosts and paths are far shorter.
        const LONGEST: usize = 80;
        let kept: String = self.0.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        f.write_str(&kept)
    }
}
