//! The controller's knowledge about deployments, and the look-up of a path in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use router_protocol::names;
use router_transcode::{MethodTable, ServiceRoute};
use smallvec::SmallVec;

use crate::entry::DeploymentEntry;
use crate::ranker::{Advice, Ranker};
use crate::table::llm::{LlmRoute, Models};
use crate::table::prefixes::Prefixes;
use crate::table::repeatable::Repeatable;
use crate::table::settings::RouterSettings;
use crate::table::split::{Share, Split};

/// The application that serves health and reflection on behalf of the whole mesh.
const MESH_APPLICATION: &str = "pyserve";

/// Services of which every application may have its own, but only the mesh's is visible.
const MESH_SERVICES: [&str; 4] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
];

/// One ready replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRoute {
    pub replica_id: String,
    pub node: String,
    pub zone: String,
    /// `host:port`
    pub address: String,
    /// Empty: it has none.
    pub unix_path: String,
    /// Calls that it takes at once from one router.
    pub max_ongoing_requests: u32,
    /// A peer at this address that does not prove the mesh token is not this replica.
    pub proves_itself: bool,
}

/// One deployment and its ready replicas.
#[derive(Clone, Debug)]
pub struct DeploymentRoute {
    pub application: String,
    pub deployment: String,
    pub services: Vec<ServiceRoute>,
    pub replicas: Vec<ReplicaRoute>,
    /// No replica is wanted: while there is none, calls end immediately.
    pub is_scaled_to_zero: bool,
    /// Calls that may be parked; `u32::MAX`: any number.
    pub max_queued_requests: u32,
    /// Upper bound for every call's time.
    pub request_timeout: Option<Duration>,
    /// A unary message up to this size is kept whole for a possible refusal.
    pub max_request_bytes: usize,
    pub router: RouterSettings,
    /// Plain HTTP below these prefixes goes here; `/`, or without a trailing slash.
    pub http_prefixes: Vec<String>,
    /// The status of plain HTTP answers when the queue is full.
    pub queue_full_status: StatusCode,
    /// Serialized `FileDescriptorProto`s of the services and of what they need.
    pub file_descriptors: Vec<Bytes>,
    /// The retry delay sent to clients when the queue is full; `None`: the router's estimate.
    pub retry_after: Option<Duration>,
    /// Paths of the methods that may be called again after a failure.
    pub idempotent_methods: Vec<String>,
    /// Deployments that take over a part of the calls from outside; the parts are at most 1
    /// together.
    pub traffic: Vec<Share>,
    /// Deployments that get a copy of a part of them.
    pub mirror: Vec<Share>,
    /// Orders the replicas for each call; `None`: only the policy decides.
    pub ranker: Option<Arc<dyn Ranker>>,
    /// Its models, if it is an engine for language models.
    pub llm: Option<LlmRoute>,
}

/// One version of the table, never changed once published.
#[derive(Debug, Default)]
pub struct Snapshot {
    deployments: Vec<Arc<Deployment>>,
    by_path: HashMap<Box<str>, Providers>,
    /// Services whose methods are not known.
    by_service: HashMap<Box<str>, Providers>,
    /// The routes of plain HTTP.
    by_prefix: Prefixes<Arc<Deployment>>,
    /// Those of the HTTP APIs for language models.
    models: Prefixes<Models<Arc<Deployment>>>,
    /// The descriptions of methods, for clients of other protocols.
    methods: MethodTable,
    /// There is, or has been, an application.
    has_served: bool,
}

/// A deployment as one version of the table describes it.
#[derive(Debug)]
pub struct Deployment {
    pub entry: Arc<DeploymentEntry>,
    /// An upper bound for each call's time.
    pub request_timeout: Option<Duration>,
    /// A unary message up to this size is kept whole for a possible refusal.
    pub request_bytes_max: usize,
    /// The status of plain HTTP answers when the queue is full.
    pub queue_full_status: StatusCode,
    /// The retry delay sent to clients then; `None`: the router's estimate.
    pub retry_after: Option<Duration>,
    pub repeatable: Repeatable,
    /// A user's policy, which orders the replicas for each call.
    pub(crate) advice: Option<Arc<Advice>>,
    /// Copies of calls that are on their way to it.
    pub mirrored: Arc<AtomicU32>,
    pub(crate) split: Split,
    /// It gets a part of another deployment's calls, so methods that both have belong to the other.
    pub(crate) is_shared: bool,
}

/// The routes that a deployment has registered.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    pub services: Vec<ServiceRoute>,
    pub http_prefixes: Vec<String>,
    pub traffic: Vec<Share>,
    pub mirror: Vec<Share>,
    pub llm: Option<LlmRoute>,
    /// It has replicas.
    pub is_ready: bool,
}

/// The deployments that registered one method or service, ordered by application.
type Providers = SmallVec<[Arc<Deployment>; 1]>;

/// The result of looking up a path.
#[derive(Debug)]
pub enum Found<'a> {
    Deployment(&'a Arc<Deployment>),
    /// The method is not registered.
    Nothing,
    /// Several applications registered it, and the call named none of them: their names.
    Ambiguous(Vec<&'a str>),
}

/// The route of a client's call.
#[derive(Clone, Debug)]
pub struct Way {
    pub deployment: Arc<Deployment>,
    /// Gets the same request; its answer is dropped.
    pub mirror: Option<Arc<Deployment>>,
    /// The part of the calls that goes to `deployment`; `None`: all of them.
    pub share: Option<f32>,
}

impl Deployment {
    pub fn application(&self) -> &str {
        &self.entry.application
    }

    fn precedence(&self) -> impl Ord {
        (self.is_shared, &self.entry.application, &self.entry.deployment)
    }

    /// Whether a path is that of one of its plain calls, `/application.Deployment/method`.
    fn has_plain_calls_at(&self, path: &str) -> bool {
        let rest = service_of(path).and_then(|name| name.strip_prefix(self.application()));
        let deployment = rest.and_then(|rest| rest.strip_prefix('.'));
        deployment.is_some_and(|deployment| deployment == self.entry.deployment)
    }
}

impl Snapshot {
    /// `deployments` come with their routes; `has_served`: there were some before.
    pub(crate) fn new(
        mut deployments: Vec<(Deployment, Offers)>,
        methods: MethodTable,
        has_served: bool,
        seed: u64,
    ) -> Self {
        let mut snapshot = Self { methods, has_served, ..Self::default() };
        share(&mut deployments, seed);
        let mut engines = Vec::new();
        for (deployment, offers) in deployments {
            snapshot.has_served |= deployment.application() != MESH_APPLICATION;
            let deployment = Arc::new(deployment);
            for service in offers.services {
                snapshot.add(&deployment, service);
            }
            for prefix in offers.http_prefixes {
                snapshot.by_prefix.insert(&prefix, Arc::clone(&deployment));
            }
            engines.extend(offers.llm.map(|llm| (Arc::clone(&deployment), llm)));
            snapshot.deployments.push(deployment);
        }
        for (path, providers) in &mut snapshot.by_path {
            arrange(providers, service_of(path).unwrap_or_default());
        }
        for (service, providers) in &mut snapshot.by_service {
            arrange(providers, service);
        }
        snapshot.add_models(engines);
        snapshot
    }

    /// Of two deployments with the same model, the one whose calls the other shares gets it, and
    /// otherwise the first by name.
    fn add_models(&mut self, mut engines: Vec<(Arc<Deployment>, LlmRoute)>) {
        engines.sort_by(|(a, _), (b, _)| a.precedence().cmp(&b.precedence()));
        for (deployment, LlmRoute { prefix, models }) in engines {
            let application = deployment.application();
            let known = self.models.get_or_insert_with(&prefix, || Models::of(application));
            if known.application() == application {
                known.add(&deployment, models);
            }
        }
    }

    fn add(&mut self, deployment: &Arc<Deployment>, service: ServiceRoute) {
        let Some(methods) = service.methods else {
            let providers = self.by_service.entry(service.name.into()).or_default();
            return providers.push(Arc::clone(deployment));
        };
        for method in methods {
            let path = format!("/{}/{method}", service.name);
            self.by_path.entry(path.into()).or_default().push(Arc::clone(deployment));
        }
    }

    /// Looks up `/pkg.Service/Method`; `application` selects among several that have the service.
    ///
    /// A plain call of a deployment may have the same path as another application's method. Without
    /// the name of an application, the method gets it.
    pub fn find(&self, path: &str, application: Option<&str>) -> Found<'_> {
        let of_path = self.by_path.get(path);
        let of_service = || service_of(path).and_then(|name| self.by_service.get(name));
        if let (Some(wanted), Some(_)) = (application, of_path) {
            let mut plain = of_service().into_iter().flatten();
            let is_wanted = |entry: &&Arc<Deployment>| {
                entry.application() == wanted && entry.has_plain_calls_at(path)
            };
            if let Some(named) = plain.find(is_wanted) {
                return Found::Deployment(named);
            }
        }
        let Some(providers) = of_path.or_else(of_service) else {
            return Found::Nothing;
        };
        match (&providers[..], application) {
            ([only], _) => Found::Deployment(only),
            (several, Some(wanted)) => several
                .iter()
                .find(|entry| entry.application() == wanted)
                .map_or(Found::Nothing, Found::Deployment),
            (several, None) => {
                let mut owners = several.iter().filter(|entry| !entry.is_shared);
                match (owners.next(), owners.next()) {
                    (Some(owner), None) => Found::Deployment(owner),
                    _ => {
                        Found::Ambiguous(several.iter().map(|entry| entry.application()).collect())
                    }
                }
            }
        }
    }

    /// The route of a client's call that leads to `deployment`, and the deployment that gets a
    /// copy.
    pub fn way(&self, deployment: &Arc<Deployment>, headers: &HeaderMap) -> Way {
        if deployment.split.is_empty() {
            return Way { deployment: Arc::clone(deployment), mirror: None, share: None };
        }
        let drawn = deployment.split.draw(names::session_id(headers).as_bytes());
        let at = |place: usize| Arc::clone(&self.deployments[place]);
        Way {
            deployment: drawn.instead.map_or_else(|| Arc::clone(deployment), at),
            mirror: drawn.mirror.map(at),
            share: deployment.split.share(drawn),
        }
    }

    /// No application has been deployed yet: a failed look-up may succeed soon.
    pub fn is_starting(&self) -> bool {
        !self.has_served
    }

    pub fn methods(&self) -> &MethodTable {
        &self.methods
    }

    /// The deployment that takes plain HTTP for `path`, with the prefix that matched (empty for
    /// `/`).
    pub fn find_http(&self, path: &str) -> Option<(&str, &Arc<Deployment>)> {
        let found = self.by_prefix.find(path)?;
        // Below a longer one is an application that takes none.
        let is_other = |(prefix, _): (&str, _)| prefix.len() > found.0.len();
        (!self.models.find(path).is_some_and(is_other)).then_some(found)
    }

    /// The models whose HTTP APIs may have `path`, and its part below their prefix. A longer prefix
    /// of plain HTTP takes precedence.
    pub fn find_models<'p>(&self, path: &'p str) -> Option<(&'p str, &Models<Arc<Deployment>>)> {
        let (prefix, models) = self.models.find(path)?;
        let is_longer = |(other, _): (&str, _)| other.len() > prefix.len();
        let is_plain = self.by_prefix.find(path).is_some_and(is_longer);
        (!is_plain).then(|| (&path[prefix.len()..], models))
    }

    /// The number of prefixes.
    pub fn http_prefixes_count(&self) -> usize {
        self.by_prefix.len()
    }

    /// The applications behind the prefixes.
    pub fn http_routes(&self) -> BTreeMap<&str, &str> {
        self.by_prefix.iter().map(|(prefix, found)| (prefix, found.application())).collect()
    }

    pub fn deployment(&self, application: &str, deployment: &str) -> Option<&Arc<Deployment>> {
        self.deployments.iter().find(|candidate| {
            candidate.entry.application == application && candidate.entry.deployment == deployment
        })
    }
}

/// Gives every deployment its split, with those that can serve.
fn share(deployments: &mut [(Deployment, Offers)], seed: u64) {
    let place = |share: &Share| {
        deployments.iter().position(|(deployment, _)| {
            let entry = &deployment.entry;
            entry.application == share.application && entry.deployment == share.deployment
        })
    };
    let places = |shares: &[Share]| -> Vec<(f64, usize)> {
        shares.iter().filter_map(|share| Some((share.weight, place(share)?))).collect()
    };
    let all: Vec<_> = deployments
        .iter()
        .map(|(_, offers)| (places(&offers.traffic), places(&offers.mirror)))
        .collect();
    for (index, (mut traffic, mut mirror)) in all.into_iter().enumerate() {
        for (_, place) in traffic.iter().chain(&mirror) {
            deployments[*place].0.is_shared = true;
        }
        let is_ready = |(_, place): &(f64, usize)| deployments[*place].1.is_ready;
        traffic.retain(is_ready);
        mirror.retain(is_ready);
        deployments[index].0.split = Split::new(traffic, mirror, seed);
    }
}

/// Sorts the providers. Health and reflection are the mesh's own where it has them.
fn arrange(providers: &mut Providers, service: &str) {
    providers.sort_by(|a, b| a.application().cmp(b.application()));
    let is_of_mesh = |entry: &Arc<Deployment>| entry.application() == MESH_APPLICATION;
    if MESH_SERVICES.contains(&service) && providers.iter().any(is_of_mesh) {
        providers.retain(|entry| entry.application() == MESH_APPLICATION);
    }
}

fn service_of(path: &str) -> Option<&str> {
    let (service, method) = path.strip_prefix('/')?.rsplit_once('/')?;
    (!service.is_empty() && !method.is_empty()).then_some(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_service_and_a_method() {
        for (path, expected) in [
            ("/a.B/C", Some("a.B")),
            ("/a.B/", None),
            ("//C", None),
            ("a.B/C", None),
            ("/a.B", None),
            ("/", None),
            ("*", None),
        ] {
            assert_eq!(expected, service_of(path), "{path}");
        }
    }
}
