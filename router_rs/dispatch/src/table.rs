//! The routing table: deployments, their routers, and the snapshot in which calls are looked up.

pub(crate) mod llm;
mod prefixes;
mod repeatable;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod split;
pub(crate) mod view;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use router_core::{
    Measures, Nanos, ReplicaId, ReplicaSpec, RouterConfig, RouterStats, SplitMix64, Tier,
};
use router_io::tls::ClientTls;
use router_transcode::MethodSource;
use router_upstream::target::{ReplicaLimits, ReplicaTarget, Target};

use crate::clock::Clock;
use crate::entry::{DeploymentEntry, ReplicaModels};
use crate::ranker::Advice;
use crate::records::CallRecords;
use crate::replay_buffer::ReplayBudget;
use crate::table::repeatable::Repeatable;
use crate::table::snapshot::{Deployment, DeploymentRoute, Offers, ReplicaRoute, Snapshot};
use crate::table::split::{Split, hash};
use crate::tally::Ends;

/// Refusals after which a call parks (design 7).
const REFUSALS_MAX: u8 = 3;
/// Replicas report a model when its load begins, so a promise this old was not kept. Arbitrary: far
/// above what a call takes to get there, far below the time for which a wrong entry would cost
/// much.
const PROMISE_MAX: Nanos = Nanos::from_secs(10);
/// How long a call waits while no replica of its deployment can be reached. A living controller has
/// noticed by then, and announces others; its first announcement is awaited for as long.
const UNREACHABLE_MAX: Nanos = Nanos::from_secs(20);

/// Where the table's routers are, and the token that they can prove.
#[derive(Clone, Debug)]
pub struct TableConfig {
    pub node: String,
    pub zone: String,
    /// The mesh token; empty: prove nothing.
    pub token: Vec<u8>,
    pub seed: u64,
    /// For connections to replicas over TCP.
    pub tls: Option<Arc<ClientTls>>,
    pub limits: ReplicaLimits,
}

/// Deployments, their routers and their replicas; shared by ingress threads and channels.
#[derive(Debug)]
pub struct RoutingTable {
    config: TableConfig,
    token: Arc<[u8]>,
    clock: Clock,
    budget: Arc<ReplayBudget>,
    records: Option<Arc<CallRecords>>,
    /// Changes are serial; readers fetch the current snapshot only when `version` has changed.
    state: Mutex<State>,
    version: AtomicU64,
}

#[derive(Debug)]
struct State {
    snapshot: Arc<Snapshot>,
    deployments: BTreeMap<(String, String), Known>,
    seeds: SplitMix64,
}

/// The state of a deployment that is kept from one snapshot to the next.
#[derive(Debug)]
struct Known {
    entry: Arc<DeploymentEntry>,
    seed: u64,
    /// Copies of calls that are on their way to it.
    mirrored: Arc<AtomicU32>,
    /// How its router works now.
    config: RouterConfig,
    members: Vec<(ReplicaTarget, Arc<Target>)>,
    advice: Option<Arc<Advice>>,
}

impl Known {
    /// With the names for the ids of its members.
    fn named(&self) -> (Arc<DeploymentEntry>, Vec<(ReplicaId, String)>) {
        let name = |(replica, _): &(ReplicaTarget, Arc<Target>)| {
            (replica_id(replica), replica.replica_id.clone())
        };
        (Arc::clone(&self.entry), self.members.iter().map(name).collect())
    }
}

// === impl RoutingTable ===

impl RoutingTable {
    /// An empty table.
    pub fn new(config: TableConfig) -> Arc<Self> {
        Self::recorded(config, None)
    }

    /// Like [`RoutingTable::new`]; `records` judges all calls.
    pub fn recorded(config: TableConfig, records: Option<Arc<CallRecords>>) -> Arc<Self> {
        let state = State {
            snapshot: Arc::default(),
            deployments: BTreeMap::new(),
            seeds: SplitMix64::new(config.seed),
        };
        Arc::new(Self {
            token: config.token.clone().into(),
            config,
            clock: Clock::start(),
            budget: Arc::default(),
            records,
            state: Mutex::new(state),
            version: AtomicU64::new(1),
        })
    }

    /// Replaces the table's content. A router keeps its calls, also when its settings change.
    /// Replicas that are gone get no new calls, and theirs continue. Parked calls of deployments
    /// that are gone end with `UNAVAILABLE`.
    pub fn apply(&self, deployments: Vec<DeploymentRoute>) {
        // Parsing descriptors takes time, during which the lock must not be held.
        let before = Arc::clone(&self.state.lock().snapshot);
        let methods = before.methods().next(deployments.iter().map(described));
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.deployments);
        let mut listed = Vec::with_capacity(deployments.len());
        for route in deployments {
            let name = (route.application.clone(), route.deployment.clone());
            let known = before.remove(&name);
            let known = known.unwrap_or_else(|| self.create(&route, &mut state.seeds));
            let known = self.update(known, &route);
            listed.push(listed_as(&known, route));
            state.deployments.insert(name, known);
        }
        let seed = state.seeds.next_u64();
        let has_served = !state.snapshot.is_starting();
        state.snapshot = Arc::new(Snapshot::new(listed, methods, has_served, seed));
        self.version.fetch_add(1, Ordering::Release);
        drop(state);
        for gone in before.into_values() {
            gone.entry.remove();
        }
    }

    /// The current state of the deployment. For callers that keep no reader.
    pub fn find_deployment(&self, application: &str, deployment: &str) -> Option<Arc<Deployment>> {
        let snapshot = Arc::clone(&self.state.lock().snapshot);
        snapshot.deployment(application, deployment).cloned()
    }

    /// The counts of each deployment's router, with the replicas' names.
    pub fn stats(&self) -> Vec<DeploymentStats> {
        let state = self.state.lock();
        state
            .deployments
            .iter()
            .map(|((application, deployment), known)| DeploymentStats {
                application: application.clone(),
                deployment: deployment.clone(),
                replica_ids: known.named().1,
                router: known.entry.stats(),
                descriptor_problems: state.snapshot.methods().problems(application, deployment),
            })
            .collect()
    }

    /// The times and ends of each deployment's calls.
    pub fn measures(&self) -> Vec<DeploymentMeasures> {
        let known: Vec<_> = self.state.lock().deployments.values().map(Known::named).collect();
        let of = |(entry, replica_ids): (Arc<DeploymentEntry>, _)| DeploymentMeasures {
            application: entry.application.clone(),
            deployment: entry.deployment.clone(),
            replica_ids,
            router: entry.measures(),
            ends: entry.tally.read(),
        };
        known.into_iter().map(of).collect()
    }

    /// The deployments whose policies did not answer in time, and how often: application, name, count.
    pub fn unanswered(&self) -> Vec<(String, String, u64)> {
        let state = self.state.lock();
        let of = |(application, deployment): &(String, String), known: &Known| {
            let count = known.advice.as_ref()?.unanswered();
            (count > 0).then(|| (application.clone(), deployment.clone(), count))
        };
        state.deployments.iter().filter_map(|(name, known)| of(name, known)).collect()
    }

    /// The replicas of a deployment; none if it is not in the table.
    pub fn replicas(&self, application: &str, deployment: &str) -> Vec<ReplicaModels> {
        let known = self.find_deployment(application, deployment);
        known.map_or_else(Vec::new, |deployment| deployment.entry.replica_models())
    }

    fn create(&self, route: &DeploymentRoute, seeds: &mut SplitMix64) -> Known {
        let seed = seeds.next_u64();
        let config = config_of(route, seed);
        let entry = Arc::new(DeploymentEntry::new(
            route.application.clone(),
            route.deployment.clone(),
            config,
            self.clock,
            Arc::clone(&self.budget),
            self.records.clone(),
        ));
        Known { entry, seed, mirrored: Arc::default(), config, members: Vec::new(), advice: None }
    }

    /// Gives the deployment its replicas; those that it had before keep their connections and
    /// counts.
    fn update(&self, known: Known, route: &DeploymentRoute) -> Known {
        let mut members = Vec::with_capacity(route.replicas.len());
        let mut specs = Vec::with_capacity(route.replicas.len());
        for replica in &route.replicas {
            let described = self.describe(replica);
            let target = known
                .members
                .iter()
                .find(|(before, _)| *before == described)
                .map_or_else(|| Target::replica(described.clone()), |(_, target)| target.clone());
            let spec = ReplicaSpec {
                id: replica_id(&described),
                tier: self.tier(replica),
                capacity: replica.max_ongoing_requests,
            };
            specs.push((spec, Arc::clone(&target)));
            members.push((described, target));
        }
        let targets: Vec<_> =
            specs.iter().map(|(spec, target)| (spec.id, Arc::clone(target))).collect();
        known.entry.set_retry_codes(route.router.retry_codes);
        let config = config_of(route, known.seed);
        let changed = (config != known.config).then_some(config);
        known.entry.apply(specs, changed, route.is_scaled_to_zero);
        watch::watch(&known.entry, targets);
        let advice = route.ranker.as_ref();
        let advice = advice.map(|ranker| Advice::of(Arc::clone(ranker), known.advice.as_ref()));
        Known { config, members, advice, ..known }
    }

    fn describe(&self, replica: &ReplicaRoute) -> ReplicaTarget {
        let is_near = replica.node == self.config.node && !replica.unix_path.is_empty();
        ReplicaTarget {
            replica_id: replica.replica_id.clone(),
            node: replica.node.clone(),
            address: replica.address.clone(),
            unix_path: is_near.then(|| PathBuf::from(&replica.unix_path)),
            token: Arc::clone(&self.token),
            proves_itself: replica.proves_itself,
            tls: self.config.tls.clone(),
            limits: self.config.limits,
        }
    }

    fn tier(&self, replica: &ReplicaRoute) -> Tier {
        if replica.node == self.config.node {
            Tier::Node
        } else if replica.zone == self.config.zone {
            Tier::Zone
        } else {
            Tier::Any
        }
    }
}

/// A deployment of the next snapshot, and its routes.
fn listed_as(known: &Known, route: DeploymentRoute) -> (Deployment, Offers) {
    let deployment = Deployment {
        entry: Arc::clone(&known.entry),
        request_timeout: route.request_timeout,
        request_bytes_max: route.max_request_bytes,
        queue_full_status: route.queue_full_status,
        retry_after: route.retry_after,
        repeatable: Repeatable::new(route.idempotent_methods),
        advice: known.advice.clone(),
        mirrored: Arc::clone(&known.mirrored),
        split: Split::default(),
        is_shared: false,
    };
    let offers = Offers {
        services: route.services,
        http_prefixes: route.http_prefixes,
        traffic: route.traffic,
        mirror: route.mirror,
        llm: route.llm,
        is_ready: !route.replicas.is_empty(),
    };
    (deployment, offers)
}

fn described(route: &DeploymentRoute) -> MethodSource<'_> {
    MethodSource {
        application: &route.application,
        deployment: &route.deployment,
        services: &route.services,
        files: &route.file_descriptors,
    }
}

/// The configuration of the router for `route`.
fn config_of(route: &DeploymentRoute, seed: u64) -> RouterConfig {
    RouterConfig {
        queue_len_max: route.max_queued_requests,
        refusals_max: REFUSALS_MAX,
        unreachable_max: UNREACHABLE_MAX,
        promise_max: PROMISE_MAX,
        seed,
        ..route.router.config
    }
}

/// The same in every process: routers that hash sessions must agree on the replica.
fn replica_id(replica: &ReplicaTarget) -> ReplicaId {
    ReplicaId(hash(format!("{} {}", replica.replica_id, replica.address).as_bytes()))
}

/// The counts of one deployment.
#[derive(Clone, Debug)]
pub struct DeploymentStats {
    pub application: String,
    pub deployment: String,
    /// The names for the ids in `router`; replicas that left have none.
    pub replica_ids: Vec<(ReplicaId, String)>,
    pub router: RouterStats,
    /// Why its descriptors, or parts of them, cannot be used by clients in other protocols.
    pub descriptor_problems: Vec<String>,
}

/// The times and ends of one deployment's calls.
#[derive(Clone, Debug)]
pub struct DeploymentMeasures {
    pub application: String,
    pub deployment: String,
    /// As in [`DeploymentStats`].
    pub replica_ids: Vec<(ReplicaId, String)>,
    pub router: Measures,
    pub ends: Ends,
}

/// One thread's view of the table. A look-up costs one atomic load while nothing changes, and no
/// two threads write the same cache line (which a read lock or a shared reference count would do).
#[derive(Debug)]
pub struct TableReader {
    table: Arc<RoutingTable>,
    version: Cell<u64>,
    snapshot: RefCell<Arc<Snapshot>>,
}

impl TableReader {
    pub fn new(table: Arc<RoutingTable>) -> Self {
        Self { table, version: Cell::new(0), snapshot: RefCell::default() }
    }

    /// Hands the current snapshot to `look`, which must not read the table again.
    pub fn with<T>(&self, look: impl FnOnce(&Snapshot) -> T) -> T {
        if self.table.version.load(Ordering::Acquire) != self.version.get() {
            let state = self.table.state.lock();
            self.version.set(self.table.version.load(Ordering::Acquire));
            *self.snapshot.borrow_mut() = Arc::clone(&state.snapshot);
        }
        look(&self.snapshot.borrow())
    }
}
