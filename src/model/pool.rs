//! A MachineConfigPool (`machineconfiguration.openshift.io/v1`), as far as a roll-out needs it.
//!
//! The fields are the operator's. Two settings that it does not have are annotations ([`CANARY`],
//! [`HALT_AFTER`]), so that one object serves both.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// So many nodes get a new configuration first, and the others only when these are Done; 0: none.
/// Default [`CANARY_DEFAULT`].
pub const CANARY: &str = "machineconfiguration.openshift.io/mcd-canary";
/// After so many nodes that fail with a configuration no further node gets it. Default
/// [`HALT_AFTER_DEFAULT`].
pub const HALT_AFTER: &str = "machineconfiguration.openshift.io/mcd-halt-after";
/// One node shows what a configuration does.
pub const CANARY_DEFAULT: usize = 1;
/// A second failure would teach nothing.
pub const HALT_AFTER_DEFAULT: usize = 1;

/// The pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`: what owns rendered configs.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// It is being deleted.
    pub is_leaving: bool,
    /// What was wished; none if it cannot be read.
    pub spec: Result<Spec, String>,
    /// `spec.configuration.name`: what was rendered last, empty for none.
    pub configuration: String,
    /// `status`, as it was written last.
    pub status: Value,
}

/// `spec` and the annotations, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The nodes.
    pub nodes: Selector,
    /// The MachineConfigs.
    pub configs: Selector,
    /// No node gets another configuration.
    pub paused: bool,
    /// So many nodes may be unavailable at a time.
    pub max_unavailable: MaxUnavailable,
    /// So many nodes go first.
    pub canary: usize,
    /// So many failures halt.
    pub halt_after: usize,
}

/// `spec.maxUnavailable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// So many.
    Number(usize),
    /// Of all nodes of the pool, rounded down.
    PerCent(usize),
}

impl MaxUnavailable {
    /// Of a pool of `count` nodes; at least one, else nothing would ever happen.
    pub fn of(self, count: usize) -> usize {
        let number = match self {
            Self::Number(number) => number,
            Self::PerCent(share) => count.saturating_mul(share) / 100,
        };
        number.max(1)
    }

    fn read(value: Option<&Value>) -> Result<Self, String> {
        let refuse = |value: &Value| {
            format!("spec.maxUnavailable: {value} is neither a number nor a share such as \"10%\"")
        };
        match value {
            None | Some(Value::Null) => Ok(Self::Number(1)),
            Some(value @ Value::Number(number)) => {
                let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
                number.map(Self::Number).ok_or_else(|| refuse(value))
            }
            Some(value @ Value::String(text)) => match text.strip_suffix('%') {
                Some(share) => share.parse().ok().filter(|share| *share <= 100).map(Self::PerCent),
                None => text.parse().ok().map(Self::Number),
            }
            .ok_or_else(|| refuse(value)),
            Some(other) => Err(refuse(other)),
        }
    }
}

/// A label selector. One that is absent selects nothing, an empty one everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Expression>>,
    #[serde(skip)]
    is_absent: bool,
}

/// One of `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Whether it selects what has these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut wanted = self.match_labels.iter().flatten();
        !self.is_absent
            && wanted.all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().flatten().all(|one| one.holds(labels.get(&one.key)))
    }

    fn read(value: Option<&Value>, field: &str) -> Result<Self, String> {
        match value {
            None | Some(Value::Null) => Ok(Self { is_absent: true, ..Self::default() }),
            Some(value) => serde_path_to_error::deserialize(value)
                .map_err(|error| format!("{field}.{}: {}", error.path(), error.inner())),
        }
    }
}

impl Expression {
    fn holds(&self, value: Option<&String>) -> bool {
        let is_listed = value.is_some_and(|value| self.values.iter().flatten().any(|one| one == value));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl Pool {
    /// The pool that this object is.
    pub fn read(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            is_leaving: metadata["deletionTimestamp"].is_string(),
            spec: Spec::read(object),
            configuration: text(&object["spec"]["configuration"]["name"]),
            status: object["status"].clone(),
        }
    }

    /// `master` or `worker`: others take nodes from them.
    pub fn is_standard(&self) -> bool {
        matches!(self.name.as_str(), "master" | "worker")
    }
}

impl Spec {
    fn read(object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let annotation = |name: &str, default: usize, least: usize| {
            let Some(text) = object["metadata"]["annotations"][name].as_str() else { return Ok(default) };
            let number = text.trim().parse().ok().filter(|number| *number >= least);
            number.ok_or_else(|| format!("annotation {name}: it must be a number, at least {least}"))
        };
        let paused = match &spec["paused"] {
            Value::Null => false,
            Value::Bool(paused) => *paused,
            _ => return Err("spec.paused: it must be true or false".to_owned()),
        };
        Ok(Self {
            nodes: Selector::read(spec.get("nodeSelector"), "spec.nodeSelector")?,
            configs: Selector::read(spec.get("machineConfigSelector"), "spec.machineConfigSelector")?,
            paused,
            max_unavailable: MaxUnavailable::read(spec.get("maxUnavailable"))?,
            canary: annotation(CANARY, CANARY_DEFAULT, 0)?,
            halt_after: annotation(HALT_AFTER, HALT_AFTER_DEFAULT, 1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn spec(spec: Value) -> Result<Spec, String> {
        Pool::read(&json!({ "metadata": { "name": "worker" }, "spec": spec })).spec
    }

    #[test]
    fn selectors_select_as_in_kubernetes() {
        let read = |value: Value| spec(json!({ "nodeSelector": value })).unwrap().nodes;
        let node = labels(&[("role", "infra"), ("zone", "a")]);
        for (selector, selects) in [
            (Value::Null, false),
            (json!({}), true),
            (json!({ "matchLabels": { "role": "infra" } }), true),
            (json!({ "matchLabels": { "role": "infra", "zone": "b" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "role", "operator": "In", "values": ["worker", "infra"] }] }),
                true,
            ),
            (
                json!({ "matchExpressions": [{ "key": "role", "operator": "NotIn", "values": ["infra"] }] }),
                false,
            ),
            (json!({ "matchExpressions": [{ "key": "other", "operator": "NotIn", "values": ["x"] }] }), true),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "Exists" }] }), true),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "DoesNotExist" }] }), false),
        ] {
            assert_eq!(read(selector.clone()).selects(&node), selects, "{selector}");
        }
    }

    #[test]
    fn max_unavailable_is_a_number_or_a_share_and_at_least_one() {
        let of =
            |value: Value, count| spec(json!({ "maxUnavailable": value })).unwrap().max_unavailable.of(count);
        for (value, count, expected) in [
            (Value::Null, 50, 1),
            (json!(3), 50, 3),
            (json!("3"), 50, 3),
            (json!(0), 50, 1),
            (json!("10%"), 55, 5),
            (json!("10%"), 5, 1),
            (json!("100%"), 7, 7),
        ] {
            assert_eq!(of(value.clone(), count), expected, "{value} of {count}");
        }
    }

    #[test]
    fn what_cannot_be_read_names_the_field() {
        for (value, field) in [
            (json!({ "maxUnavailable": "ten" }), "spec.maxUnavailable"),
            (json!({ "maxUnavailable": "101%" }), "spec.maxUnavailable"),
            (json!({ "maxUnavailable": -1 }), "spec.maxUnavailable"),
            (json!({ "maxUnavailable": [] }), "spec.maxUnavailable"),
            (json!({ "paused": "yes" }), "spec.paused"),
            (json!({ "nodeSelector": { "matchLabels": 1 } }), "spec.nodeSelector.matchLabels"),
            (
                json!({ "machineConfigSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }),
                "spec.machineConfigSelector.matchExpressions[0].operator",
            ),
        ] {
            let error = spec(value).unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
        let object = json!({ "metadata": { "annotations": { CANARY: "few" } }, "spec": {} });
        assert!(Pool::read(&object).spec.unwrap_err().contains("mcd-canary"));
        let object = json!({ "metadata": { "annotations": { HALT_AFTER: "0" } }, "spec": {} });
        assert!(Pool::read(&object).spec.unwrap_err().contains("mcd-halt-after"));
    }
}
