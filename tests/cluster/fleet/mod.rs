//! A fleet: the daemons of many nodes in this process, with hosts that are simulated, against a real API
//! server, driven by `mcd controller`. `make fleet` measures how what they ask and need grows.

mod daemons;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use mcd_test_support::kube::{Audit, ControlPlane, Node, Request, node_token};
use serde_json::{Value, json};

use self::daemons::{Daemons, Member};
use crate::pools;
use crate::world::{GROUP, NAMESPACE, apply_manifests, key};

/// A step of a simulated host: prepare, reboot, verdict.
const PACE: Duration = Duration::from_millis(500);
/// Longer than a thousand nodes take on two cores, ten at a time.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Requests of an update with a reboot, a new process and its own cordon.
const UPDATE_MAX: f64 = 34.0;
/// A daemon that has seen its Node reports once more.
const SETTLED: Duration = Duration::from_secs(2);
/// So many callers make the fleet's nodes at a time.
const MAKERS: usize = 4;

/// What was measured of one roll-out.
#[derive(Debug)]
struct Measured {
    /// Of the daemons, while they start: all, and in the busiest second.
    start: (usize, usize),
    /// Of the daemons, for one update of all nodes: all, and in the busiest second.
    update: (usize, usize),
    /// Of the controller, for it.
    controller: usize,
    /// From the change of the config until the pool is Updated, in seconds.
    seconds: f64,
    /// Nodes that were cordoned at a time, at most.
    away: usize,
    /// Anonymous memory of this process that came with the daemons, in KiB.
    memory: u64,
    /// Connections to the API server.
    connections: usize,
    /// What the daemons asked for during the update.
    table: BTreeMap<String, usize>,
}

/// A fleet of `count` nodes.
struct Fleet {
    plane: ControlPlane,
    controller: mcd_test_support::process::Guarded,
    daemons: Daemons,
    /// Requests of the daemons until all had seen their Node.
    starting: Vec<Request>,
    memory: u64,
    count: usize,
}

impl Fleet {
    /// All Done with the first config, all daemons started within `spread`.
    fn start(count: usize, spread: Duration) -> Self {
        let plane = ControlPlane::api_server_only().unwrap();
        apply_manifests(&plane);
        config(&plane, "first=1");
        let pool = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": { "name": "worker" },
            "spec": { "nodeSelector": { "matchLabels": { "node-role.kubernetes.io/worker": "" } },
                "machineConfigSelector": { "matchLabels": { "mcd.test/pool": "worker" } } } });
        plane.admin().post(&format!("{GROUP}/machineconfigpools"), &pool).unwrap().ok().unwrap();
        let controller = pools::controller(&plane, "controller");
        let target = until(&plane, |pool| !pool["spec"]["configuration"]["name"].is_null());
        let target = target["spec"]["configuration"]["name"].as_str().unwrap().to_owned();
        let members = make_nodes(&plane, count, &target);
        let started = plane.audit().unwrap();
        let before = anonymous();
        let daemons = Daemons::start(&plane, members, &target, spread, PACE);
        daemons.until_ready(PATIENCE);
        until(&plane, |pool| pool["status"]["updatedMachineCount"] == count && is_updated(pool));
        // The reports of those that began last.
        let starting = loop {
            let known = of_daemons(&started).len();
            std::thread::sleep(SETTLED);
            let now = of_daemons(&started);
            if now.len() == known {
                break now;
            }
        };
        let memory = anonymous().saturating_sub(before);
        Self { plane, controller, daemons, starting, memory, count }
    }

    fn starting(self) -> Vec<Request> {
        self.starting
    }

    /// Rolls another config out.
    fn roll(&mut self, number: usize, max_unavailable: &Value) -> Measured {
        let pool = format!("{GROUP}/machineconfigpools/worker");
        let body = json!({ "spec": { "maxUnavailable": max_unavailable } });
        let before = self.plane.admin().patch(&pool, &body).unwrap().ok().unwrap();
        let before = before["spec"]["configuration"]["name"].clone();
        let audit = self.plane.audit().unwrap();
        self.daemons.forget_most();
        let begin = Instant::now();
        config(&self.plane, &format!("number={number}"));
        until(&self.plane, |pool| pool["spec"]["configuration"]["name"] != before && is_updated(pool));
        let seconds = begin.elapsed().as_secs_f64();
        let requests = audit.requests().unwrap();
        let update = of_daemons(&audit);
        let mut table = BTreeMap::new();
        for request in &update {
            *table.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
        }
        Measured {
            start: (self.starting.len(), busiest(&self.starting)),
            update: (update.len(), busiest(&update)),
            controller: requests.iter().filter(|one| one.user.ends_with(pools::ACCOUNT)).count(),
            seconds,
            away: self.daemons.most(),
            memory: self.memory,
            connections: connections(&self.plane.url()),
            table,
        }
    }

    fn line(&mut self, case: &str, measured: &Measured) -> Value {
        let count = self.count as f64;
        let pid = self.controller.child().id();
        json!({
            "nodes": self.count, "case": case, "seconds": measured.seconds, "away": measured.away,
            "start_requests": measured.start.0, "start_busiest": measured.start.1,
            "requests": measured.update.0, "busiest": measured.update.1,
            "per_node": measured.update.0 as f64 / count,
            "controller_requests": measured.controller,
            "daemon_kib": measured.memory as f64 / count,
            "controller_kib": anonymous_of(&pid.to_string()),
            "connections": measured.connections,
            "table": measured.table,
        })
    }
}

fn of_daemons(audit: &Audit) -> Vec<Request> {
    let mut requests = audit.requests().unwrap();
    requests.retain(|one| !one.node.is_empty());
    requests
}

/// The pool's only config.
fn config(plane: &ControlPlane, argument: &str) {
    let body = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": { "name": "50-fleet", "labels": { "mcd.test/pool": "worker" } },
        "spec": { "kernelArguments": [argument], "config": { "ignition": { "version": "3.2.0" } } } });
    let configs = format!("{GROUP}/machineconfigs");
    let answer = plane.admin().post(&configs, &body).unwrap();
    if answer.status == 409 {
        plane.admin().patch(&format!("{configs}/50-fleet"), &body).unwrap().ok().unwrap();
    }
}

fn until(plane: &ControlPlane, ends: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let pool = plane.admin().get(&format!("{GROUP}/machineconfigpools/worker")).unwrap().body;
        if ends(&pool) {
            return pool;
        }
        assert!(start.elapsed() < PATIENCE, "the pool does not get there: {:#}", pool["status"]);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Updated with what it was rendered to.
fn is_updated(pool: &Value) -> bool {
    pool["status"]["configuration"]["name"] == pool["spec"]["configuration"]["name"]
        && pool["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["type"] == "Updated" && one["status"] == "True"))
}

/// Nodes that are Done with `target`, in three zones, and the token of each one's pod.
fn make_nodes(plane: &ControlPlane, count: usize, target: &str) -> Vec<Member> {
    let make = |index: usize| {
        let name = format!("fleet-{index:04}");
        let labels = json!({ "node-role.kubernetes.io/worker": "",
            "topology.kubernetes.io/zone": format!("zone-{}", index % 3) });
        let annotations =
            json!({ key("currentConfig"): target, key("desiredConfig"): target, key("state"): "Done" });
        let node = Node::create_with(plane, &name, labels, annotations).unwrap();
        let token = node_token(plane, NAMESPACE, crate::world::ACCOUNT, &node).unwrap();
        Member { node: name, token }
    };
    std::thread::scope(|scope| {
        let share = |maker: usize| (0..count).filter(move |index| index % MAKERS == maker);
        let makers: Vec<_> = (0..MAKERS)
            .map(|maker| scope.spawn(move || share(maker).map(make).collect::<Vec<_>>()))
            .collect();
        makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect()
    })
}

/// Requests in the busiest second.
fn busiest(requests: &[Request]) -> usize {
    let mut seconds: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests {
        *seconds.entry(request.received.get(..19).unwrap_or_default()).or_default() += 1;
    }
    seconds.into_values().max().unwrap_or_default()
}

fn anonymous() -> u64 {
    anonymous_of("self")
}

/// Memory of a process without the pages of its file, in KiB.
fn anonymous_of(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Connections of this process to the API server at `url`.
fn connections(url: &str) -> usize {
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_own = |inode: &str| own.iter().any(|link| link == &format!("socket:[{inode}]"));
    let remote = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| {
            fields.len() > 9 && fields[2].ends_with(&remote) && fields[3] == "01" && is_own(fields[9])
        })
        .count()
}

#[test]
fn a_small_fleet_is_rolled_out_within_its_bounds() {
    let mut fleet = Fleet::start(20, Duration::from_secs(3));
    let measured = fleet.roll(2, &json!("20%"));
    assert!((1..=4).contains(&measured.away), "{measured:#?}");
    let per_node = measured.update.0 as f64 / 20.0;
    assert!(per_node <= UPDATE_MAX, "{per_node} requests per node: {measured:#?}");
    assert!(measured.start.1 < measured.start.0, "the daemons start in different seconds: {measured:#?}");
    // Two watches each, and what all share.
    assert!(measured.connections <= 20 * 2 + 20, "{measured:#?}");
}

/// `make fleet`: `MCD_FLEET` has the numbers of nodes, `MCD_FLEET_RESULTS` the file that lines are added to.
#[test]
#[ignore = "minutes: make fleet"]
fn measure() {
    let counts = std::env::var("MCD_FLEET").unwrap_or_else(|_| "50".to_owned());
    let mut file = std::env::var("MCD_FLEET_RESULTS")
        .ok()
        .map(|path| std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap());
    let mut tell = |line: Value| {
        writeln!(std::io::stdout(), "{line}").unwrap();
        file.iter_mut().for_each(|file| writeln!(file, "{line}").unwrap());
    };
    for count in counts.split_whitespace().map(|count| count.parse().unwrap()) {
        let together = Fleet::start(count, Duration::ZERO).starting();
        tell(json!({ "nodes": count, "case": "together", "start_busiest": busiest(&together) }));
        let mut fleet = Fleet::start(count, Duration::from_secs(10));
        for (number, (case, max)) in [("ten", json!(10)), ("share", json!("10%"))].into_iter().enumerate() {
            let measured = fleet.roll(number + 2, &max);
            tell(fleet.line(case, &measured));
        }
    }
}
