//! `containers-policy.json(5)`: what a host demands of an image, by where it comes from.
//!
//! ```json
//! { "default": [REQUIREMENT…],
//!   "transports": { "docker": { "registry.example/os": [REQUIREMENT…], "": [REQUIREMENT…] } } }
//! ```
//!
//! The most specific scope that matches wins as a whole; all of its requirements must hold. The
//! parser is as strict as containers/image's where laxness could change a verdict: unknown or
//! doubled keys, empty lists, scopes that could never match. The parameters of the signature types
//! (keys, identities) are not looked at: what asks for a signature is judged by skopeo, which reads
//! the whole file again, and a field that a newer skopeo knows must not stop an older `mcd`.
//!
//! Only `/etc/containers/policy.json` counts. A per-user file is never read: what root's home holds
//! must not decide what a machine boots.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use cap_std::fs::Dir;
use fn_error_context::context;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::scope;
use crate::error::Fault;
use crate::model::digest::Digest;
use crate::model::image_ref::ImageReference;

/// Where the policy is, as people and skopeo name it.
pub const POLICY_PATH: &str = "/etc/containers/policy.json";

/// A policy with inline keys for hundreds of scopes is far below this.
const MAX_POLICY_SIZE: u64 = 4 << 20;

/// What a scope demands, the sum of its requirements. From lax to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Demand {
    /// `insecureAcceptAnything` and nothing else.
    AcceptAnything,
    /// `signedBy`, `sigstoreSigned` or `signedBaseLayer` is among them; or only skopeo can tell
    /// which scope holds. Either way skopeo must judge.
    Signed,
    /// `reject` is among them.
    Reject,
}

/// What the policy demands of one image, and where it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The policy file.
    pub file: String,
    /// The place in the file: `default`, `transports.docker["registry.example/os"]`.
    pub scope: String,
    /// What it demands.
    pub demand: Demand,
    /// The laxest demand that may hold: differs where only skopeo can tell which scope holds.
    pub(super) laxest: Demand,
    /// A scope that would name this image, for hints.
    suggested: String,
}

/// A parsed policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    file: String,
    digest: Digest,
    default: Demand,
    transports: BTreeMap<String, BTreeMap<String, Demand>>,
}

impl Requirement {
    /// Whether an image needs a signature here.
    pub fn asks_for_signature(&self) -> bool {
        self.demand == Demand::Signed
    }

    /// The scope that a person would add to the policy for this image.
    pub fn suggested_scope(&self) -> &str {
        &self.suggested
    }
}

impl Policy {
    /// Reads the policy of the machine whose root is `root`.
    #[context("Reading the signature policy")]
    pub fn load(root: &Dir) -> Result<Self> {
        let path = POLICY_PATH.trim_start_matches('/');
        let content = super::read_small(root, path, MAX_POLICY_SIZE).map_err(|error| unreadable(&error))?;
        let text = std::str::from_utf8(&content)
            .map_err(|error| broken(format!("byte {} is not UTF-8", error.valid_up_to())))?;
        Self::parse(text)
    }

    /// Parses a policy.
    pub fn parse(text: &str) -> Result<Self> {
        let json: Json = serde_json::from_str(text).map_err(|error| {
            // serde_json appends the position itself; ours comes first, as editors take it.
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            broken(format!("line {}, column {}: {message}", error.line(), error.column()))
        })?;
        Self::from_json(&json, Digest::of(text.as_bytes()))
            .map_err(|(place, reason)| broken(format!("{place}: {reason}")).into())
    }

    fn from_json(json: &Json, digest: Digest) -> Result<Self, Wrong> {
        let mut default = None;
        let mut transports = BTreeMap::new();
        for (key, value) in json.object("the policy")? {
            match key.as_str() {
                "default" => default = Some(requirements(value, "default")?),
                "transports" => {
                    for (transport, scopes) in value.object("transports")? {
                        transports.insert(transport.clone(), scopes_of(transport, scopes)?);
                    }
                }
                other => return wrong(other, "unknown key; expected \"default\" or \"transports\""),
            }
        }
        let Some(default) = default else {
            return wrong("default", "missing: the policy for everything that has no scope of its own");
        };
        Ok(Self { file: POLICY_PATH.to_owned(), digest, default, transports })
    }

    /// The digest of the policy's text: what passed under one policy is not proved under another.
    /// It does not cover the key files that the policy names.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// What the policy demands of `image`.
    ///
    /// Looks at the file system for images in local files: scopes name their real path.
    pub fn requirement(&self, image: &ImageReference) -> Result<Requirement> {
        let transport = image.transport.policy_name();
        let candidates = scope::Candidates::of(image)?;
        let none = BTreeMap::new();
        let found = candidates.find(self.transports.get(transport).unwrap_or(&none), self.default);
        let place = |scope: &str| format!("transports.{transport}[{scope:?}]");
        Ok(Requirement {
            file: self.file.clone(),
            scope: found.scope.as_deref().map_or_else(|| "default".to_owned(), place),
            demand: if found.laxest == found.strictest { found.strictest } else { Demand::Signed },
            laxest: found.laxest,
            suggested: place(candidates.suggestion()),
        })
    }
}

/// The place in the file, and what is wrong there.
type Wrong = (String, String);

fn wrong<T>(place: impl Into<String>, reason: impl Into<String>) -> Result<T, Wrong> {
    Err((place.into(), reason.into()))
}

fn unreadable(error: &std::io::Error) -> Fault {
    let what = format!("no image can be trusted without the signature policy {POLICY_PATH}");
    let fault = Fault::refused(what);
    if error.kind() != std::io::ErrorKind::NotFound {
        return fault.why(format!("it cannot be read: {error}"));
    }
    fault.why("there is no such file, or it is a link that leads nowhere").next(
        "install the package that brings it (containers-common; on Debian \
         golang-github-containers-common), or write one: see containers-policy.json(5)",
    )
}

fn broken(why: String) -> Fault {
    Fault::refused(format!("the signature policy {POLICY_PATH} is not valid"))
        .why(why)
        .next("correct the file: see containers-policy.json(5); until then no image is trusted")
}

fn scopes_of(transport: &str, json: &Json) -> Result<BTreeMap<String, Demand>, Wrong> {
    let place = format!("transports.{transport}");
    let mut scopes = BTreeMap::new();
    for (name, value) in json.object(&place)? {
        let place = format!("{place}[{name:?}]");
        if let Err(reason) = scope::validate(transport, name) {
            return wrong(place, reason);
        }
        scopes.insert(name.clone(), requirements(value, &place)?);
    }
    Ok(scopes)
}

/// All requirements of a list must hold, so the strictest one names the demand.
fn requirements(json: &Json, place: &str) -> Result<Demand, Wrong> {
    let Json::Array(items) = json else {
        return wrong(place, "expected a list of requirements");
    };
    let mut sum = None;
    for (index, item) in items.iter().enumerate() {
        let demand = requirement(item, &format!("{place}[{index}]"))?;
        sum = sum.max(Some(demand));
    }
    match sum {
        Some(demand) => Ok(demand),
        None => wrong(
            place,
            "the list is empty; write {\"type\": \"insecureAcceptAnything\"} or {\"type\": \"reject\"}",
        ),
    }
}

fn requirement(json: &Json, place: &str) -> Result<Demand, Wrong> {
    let fields = json.object(place)?;
    let kind = match fields.iter().find(|(key, _)| key == "type") {
        Some((_, Json::String(kind))) => kind.as_str(),
        Some(_) => return wrong(format!("{place}.type"), "expected a text"),
        None => return wrong(format!("{place}.type"), "missing"),
    };
    let demand = match kind {
        "insecureAcceptAnything" => Demand::AcceptAnything,
        "reject" => Demand::Reject,
        // No tool implements signedBaseLayer: skopeo refuses every image for it, in its own words.
        "signedBy" | "sigstoreSigned" | "signedBaseLayer" => return Ok(Demand::Signed),
        other => return wrong(format!("{place}.type"), format!("unknown requirement type {other:?}")),
    };
    match fields.iter().find(|(key, _)| key != "type") {
        Some((key, _)) => {
            wrong(format!("{place}.{key}"), format!("unknown key in a requirement of type {kind:?}"))
        }
        None => Ok(demand),
    }
}

/// JSON that keeps what serde_json's own value forgets: a doubled key, which a policy must not have.
#[derive(Debug, Clone, PartialEq)]
enum Json {
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    String(String),
    /// A number, a truth value or null: nothing in a policy's frame is one.
    Other,
}

impl Json {
    fn object(&self, place: &str) -> Result<&[(String, Json)], Wrong> {
        match self {
            Self::Object(fields) => Ok(fields),
            _ => wrong(place, "expected an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if fields.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
            fields.push((key, map.next_value()?));
        }
        Ok(Json::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }
}

#[cfg(test)]
mod tests;
