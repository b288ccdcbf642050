//! A cluster that obeys.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::*;
use crate::model::pool::Pool;
use crate::plan::cluster::annotations::State;

pub(super) struct World {
    pub(super) pools: BTreeMap<String, Pool>,
    pub(super) sources: BTreeMap<String, Source>,
    pub(super) existing: BTreeMap<String, String>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) now: String,
    /// Rendering takes longer than all the rest.
    rendered: RefCell<Option<Memo>>,
}

type Memo = (BTreeMap<String, Source>, BTreeMap<String, Result<Rendered, String>>);

/// A pool of this name for the nodes and configs of its role.
pub(super) fn pool(name: &str, spec: Value, annotations: Value) -> Pool {
    let mut all = json!({
        "nodeSelector": { "matchLabels": { format!("node-role.kubernetes.io/{name}"): "" } },
        "machineConfigSelector": { "matchExpressions": [
            { "key": "role", "operator": "In", "values": ["worker", name] },
        ] },
    });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    Pool::read(&json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "generation": 1, "annotations": annotations },
        "spec": all,
    }))
}

/// A config of the role `role` with this kernel argument.
pub(super) fn source(name: &str, role: &str, argument: &str) -> Source {
    let text = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": name, "labels": { "machineconfiguration.openshift.io/role": role } },
        "spec": { "kernelArguments": [argument], "config": {} },
    });
    Source { labels: [("role".to_owned(), role.to_owned())].into(), text: text.to_string() }
}

impl World {
    /// A pool `worker` with one config and `count` nodes that have nothing yet.
    pub(super) fn new(count: usize, spec: Value, annotations: Value) -> Self {
        let mut world = Self {
            pools: [("worker".to_owned(), pool("worker", spec, annotations))].into(),
            sources: [("50-a".to_owned(), source("50-a", "worker", "a=1"))].into(),
            existing: BTreeMap::new(),
            nodes: BTreeMap::new(),
            now: "2026-01-01T00:00:00Z".to_owned(),
            rendered: RefCell::default(),
        };
        for index in 0..count {
            world.add(&format!("n{index:02}"), "", "2026-01-01T00:00:00Z");
        }
        world
    }

    /// The same, all nodes Done with what is rendered.
    pub(super) fn done(count: usize, spec: Value, annotations: Value) -> Self {
        let mut world = Self::new(count, spec, annotations);
        world.settle();
        world
    }

    pub(super) fn add(&mut self, name: &str, zone: &str, created: &str) {
        let node = Node {
            name: name.to_owned(),
            labels: [("node-role.kubernetes.io/worker".to_owned(), String::new())].into(),
            zone: zone.to_owned(),
            created: created.to_owned(),
            is_ready: true,
            ..Node::default()
        };
        self.nodes.insert(name.to_owned(), node);
    }

    /// Another value of the argument: another config.
    pub(super) fn set(&mut self, argument: &str) {
        self.sources.insert("50-a".to_owned(), source("50-a", "worker", argument));
    }

    pub(super) fn decide(&self) -> Vec<Action> {
        let mut memo = self.rendered.borrow_mut();
        let known =
            memo.take().filter(|(sources, of)| *sources == self.sources && of.len() == self.pools.len());
        let (_, rendered) = memo.insert(known.unwrap_or_else(|| {
            let each = self.pools.iter().map(|(name, pool)| (name.clone(), render(pool, &self.sources)));
            (self.sources.clone(), each.collect())
        }));
        next(&View {
            pools: &self.pools,
            rendered,
            existing: &self.existing,
            nodes: &self.nodes,
            now: &self.now,
        })
    }

    /// Decides and does it, until nothing more is to do; gives the nodes that were told, in order.
    pub(super) fn turn(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..8 {
            let actions = self.decide();
            if actions.is_empty() {
                return told;
            }
            for action in actions {
                self.act(action, &mut told);
            }
        }
        panic!("it does not come to rest: {:#?}", self.decide());
    }

    fn act(&mut self, action: Action, told: &mut Vec<String>) {
        match action {
            Action::Create { object, .. } => {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let metadata = &object["metadata"];
                self.existing.insert(text(&metadata["name"]), text(&metadata["ownerReferences"][0]["uid"]));
            }
            Action::Configure { pool, configuration } => {
                self.pools.get_mut(&pool).unwrap().configuration =
                    configuration["name"].as_str().unwrap().to_owned();
            }
            Action::Assign { node, config } => {
                self.nodes.get_mut(&node).unwrap().annotations.desired_config = config;
                told.push(node);
            }
            Action::Status { pool, status } => self.pools.get_mut(&pool).unwrap().status = status,
            Action::Remove(name) => drop(self.existing.remove(&name).unwrap()),
        }
    }

    /// The node ends as its daemon would say.
    pub(super) fn end(&mut self, name: &str, state: State, reason: &str) {
        let now = &mut self.nodes.get_mut(name).unwrap().annotations;
        now.state = Some(state);
        now.reason = reason.to_owned();
        if state == State::Done {
            now.current_config = now.desired_config.clone();
        }
    }

    /// Everything goes well to the end.
    pub(super) fn settle(&mut self) {
        for _ in 0..=self.nodes.len() {
            for name in self.turn() {
                self.end(&name, State::Done, "");
            }
        }
        assert_eq!(self.decide(), []);
    }

    /// What the pool is to have.
    pub(super) fn target(&self) -> String {
        self.pools["worker"].configuration.clone()
    }

    /// A condition of the pool: its status and its message.
    pub(super) fn condition(&self, kind: &str) -> (bool, String) {
        let all = self.pools["worker"].status["conditions"].as_array().unwrap();
        let one = all.iter().find(|one| one["type"] == kind).unwrap();
        (one["status"] == "True", one["message"].as_str().unwrap().to_owned())
    }
}
