//! The destination behind a front: a routing table, or one server.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, StatusCode, request};
use router_dispatch::{
    Deployment, Found, ReplayBudget, ReplayBuffer, RoutingTable, Snapshot, TableReader, Way,
};
use router_io::Remote;
use router_protocol::grpc::{Code, HttpFailure, QUEUE_FULL_DEFAULT, Status, describe_content_type};
use router_transcode::{self as transcode, MethodTable, Opened, Sees};
use router_upstream::target::Target;

use crate::access::Asker;
use crate::models;

/// Metadata that selects among applications with the same service.
pub(super) const APPLICATION: &str = "application";

/// Paths below it never reach an application: a front answers them itself.
pub(super) const OWN_PREFIX: &str = "/-/";

/// Where a front sends its calls.
#[derive(Debug)]
pub enum Backend {
    /// Deployments, by path.
    Table(Arc<RoutingTable>),
    /// One server, which takes everything.
    Server(Arc<FixedServer>),
}

/// A server behind a front of its own.
#[derive(Debug)]
pub struct FixedServer {
    pub server: Box<dyn ServerBehind>,
    /// Empty: a call cannot be retried at another server.
    pub budget: Arc<ReplayBudget>,
    /// The descriptions of its methods, for clients of other protocols.
    pub methods: ArcSwap<MethodTable>,
}

/// The interface of a server behind a front.
pub trait ServerBehind: Send + Sync + std::fmt::Debug {
    /// The target for calls of a client's connection; called once per connection, on its thread.
    fn target(&self, client: &Remote) -> Arc<Target>;

    /// Whether plain HTTP requests have a handler.
    fn takes_http(&self) -> bool;
}

/// One client's route to a server behind a front.
#[derive(Debug)]
pub(super) struct ServerWay {
    server: Arc<FixedServer>,
    pub target: Arc<Target>,
}

/// One connection's access to the lookups.
#[derive(Debug)]
pub(super) enum RouteLookup {
    Table(TableReader),
    Server(Arc<ServerWay>),
}

/// The upstream of a call.
#[derive(Clone, Debug)]
pub(super) enum Upstream {
    Deployment(Arc<Deployment>),
    Server(Arc<ServerWay>),
}

/// The route of a gRPC call.
#[derive(Debug)]
pub(super) struct GrpcRoute {
    pub upstream: Upstream,
    /// The deployment that gets a copy.
    pub mirror: Option<Arc<Deployment>>,
    /// This deployment's part of the calls, where several deployments share them.
    pub share: Option<f32>,
}

/// The route of a plain HTTP request, and the prefix that matched, without a trailing slash.
#[derive(Debug)]
pub(super) struct HttpRoute {
    pub upstream: Upstream,
    /// The deployment that gets a copy.
    pub mirror: Option<Arc<Deployment>>,
    /// As in [`GrpcRoute`].
    pub share: Option<f32>,
    pub prefix: String,
}

// === impl RouteLookup ===

impl RouteLookup {
    /// The subject of sentences about the front.
    pub(super) fn owner(&self) -> &'static str {
        match self {
            Self::Table(_) => "the ingress",
            Self::Server(_) => "the server",
        }
    }

    /// The environment variable that sets a limit, for sentences. Empty for a server, whose limits
    /// have other names.
    pub(super) fn variable(&self, name: &str) -> String {
        match self {
            Self::Table(_) => format!(" (PYSERVE_INGRESS_{name})"),
            Self::Server(_) => String::new(),
        }
    }

    /// `client` describes the connection that will make requests.
    pub(super) fn of(backend: &Backend, client: &Remote) -> Self {
        match backend {
            Backend::Table(table) => Self::Table(TableReader::new(Arc::clone(table))),
            Backend::Server(server) => {
                let target = server.server.target(client);
                Self::Server(Arc::new(ServerWay { server: Arc::clone(server), target }))
            }
        }
    }

    /// Finds the deployment that serves a gRPC method, and the one that gets a copy of the call if
    /// it is unary. The metadata key `application` selects among several.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` when none serves it, `INVALID_ARGUMENT` when several do and none is named.
    pub(super) fn grpc(
        &self,
        path: &str,
        headers: &HeaderMap,
        asker: &Asker<'_>,
    ) -> Result<GrpcRoute, Status> {
        let alone = |upstream| GrpcRoute { upstream, mirror: None, share: None };
        let reader = match self {
            Self::Server(server) => return Ok(alone(Upstream::Server(Arc::clone(server)))),
            Self::Table(reader) => reader,
        };
        let application = named(headers);
        reader.with(|table| match find(table, asker, path, application) {
            // The lookup is repeated after the access check, and the table may have changed
            // meanwhile.
            found if !is_open(table, asker, path, &found) => Err(asker.refuse(path)),
            Found::Deployment(deployment) if application.is_some() => {
                Ok(alone(Upstream::Deployment(Arc::clone(deployment))))
            }
            Found::Deployment(deployment) => {
                let Way { deployment, mirror, share } = table.way(deployment, headers);
                let is_unary = || table.methods().find(path, None).is_some_and(|m| m.is_unary());
                let mirror = mirror.filter(|_| is_unary());
                Ok(GrpcRoute { upstream: Upstream::Deployment(deployment), mirror, share })
            }
            Found::Nothing if table.is_starting() => {
                Err(Status::new(Code::Unavailable, NOTHING_YET))
            }
            Found::Nothing => {
                let near = did_you_mean(table, path, application, asker);
                let whose = match application {
                    Some(application) => format!(" of application {application}"),
                    None => String::new(),
                };
                let text = format!("no deployment{whose} serves {path}{near}");
                Err(Status::new(Code::Unimplemented, text))
            }
            Found::Ambiguous(applications) => Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "{path} is served by the applications {}: name one in the metadata \
                     \"{APPLICATION}\"",
                    applications.join(" and ")
                ),
            )),
        })
    }

    /// Whether a request is gRPC in another protocol. It learns nothing about paths that the caller
    /// may not see.
    pub(super) fn open(
        &self,
        parts: &request::Parts,
        limits: &transcode::Limits,
        asker: &Asker<'_>,
    ) -> Opened {
        let path = parts.uri.path();
        let reader = match self {
            Self::Server(way) => {
                let sees = |path: &str| asker.may(path);
                let opened = transcode::open(&way.server.methods.load(), parts, limits, &sees);
                return opened.unless(|| false);
            }
            Self::Table(reader) => reader,
        };
        reader.with(|table| {
            let sees = |path: &str| sees_method(table, asker, path, named(&parts.headers));
            let unseen = || transcode::open_unseen(table.methods(), parts, limits, &sees);
            if !asker.may(path) {
                return unseen();
            }
            // A prefix other than `/` takes precedence for such paths.
            let has_prefix = || table.find_http(path).is_some_and(|(prefix, _)| !prefix.is_empty());
            let opened = transcode::open(table.methods(), parts, limits, &sees).unless(has_prefix);
            let is_let_in = match &opened {
                Opened::Refused(_) => true,
                Opened::Call(call) => sees(call.head.uri.path()),
                Opened::NotOurs(_) => models::sees(table, asker, parts)
                    .unwrap_or_else(|| sees_plain(table, asker, path)),
                Opened::Answer(_) | Opened::Misspelt(_) => sees(path),
            };
            if is_let_in { opened } else { unseen() }
        })
    }

    /// Whether the caller may make this gRPC call.
    pub(super) fn sees_grpc(&self, path: &str, headers: &HeaderMap, asker: &Asker<'_>) -> bool {
        let is_more = || self.is_seen(|table| sees_method(table, asker, path, named(headers)));
        asker.may(path) && (!asker.names_applications() || is_more())
    }

    /// Whether the caller may make a request that is plain HTTP whatever its head says.
    pub(super) fn sees_http(&self, path: &str, asker: &Asker<'_>) -> bool {
        let is_more = || self.is_seen(|table| sees_plain(table, asker, path));
        asker.may(path) && (!asker.names_applications() || is_more())
    }

    fn is_seen(&self, sees: impl Fn(&Snapshot) -> bool) -> bool {
        match self {
            Self::Server(_) => true,
            Self::Table(reader) => reader.with(|table| sees(table)),
        }
    }

    /// Finds the deployment that takes plain HTTP for a path.
    ///
    /// # Errors
    /// 404 for an unknown path; 415 for the path of a gRPC method, which needs another content
    /// type.
    pub(super) fn http(
        &self,
        path: &str,
        headers: &HeaderMap,
        asker: &Asker<'_>,
    ) -> Result<HttpRoute, HttpFailure> {
        let reader = match self {
            Self::Server(way) if way.server.server.takes_http() => {
                let upstream = Upstream::Server(Arc::clone(way));
                return Ok(HttpRoute {
                    upstream,
                    mirror: None,
                    share: None,
                    prefix: String::new(),
                });
            }
            Self::Server(way) => {
                let sees = |path: &str| asker.may(path);
                let near = proposal(&way.server.methods.load(), path, &sees);
                let text =
                    format!("nothing is served at {path}: there is no plain HTTP here{near}");
                return Err(HttpFailure::new(StatusCode::NOT_FOUND, text));
            }
            Self::Table(reader) => reader,
        };
        reader.with(|table| match table.find_http(path) {
            // As for gRPC: the table may have changed since the access check.
            _ if !sees_plain(table, asker, path) => {
                Err(HttpFailure::of(&asker.refuse(path), QUEUE_FULL_DEFAULT))
            }
            Some((prefix, deployment)) => {
                let Way { deployment, mirror, share } = table.way(deployment, headers);
                let upstream = Upstream::Deployment(deployment);
                Ok(HttpRoute { upstream, mirror, share, prefix: prefix.to_owned() })
            }
            None if !matches!(table.find(path, None), Found::Nothing) => {
                let came = describe_content_type(headers);
                let text = format!(
                    "{came}, and {path} is a gRPC method: send application/grpc over HTTP/2"
                );
                Err(HttpFailure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
            }
            None if table.is_starting() => {
                Err(HttpFailure::new(StatusCode::SERVICE_UNAVAILABLE, NOTHING_YET))
            }
            None => {
                let near = did_you_mean(table, path, named(headers), asker);
                let text = match table.http_prefixes_count() {
                    0 => {
                        format!("no application has a route prefix: nothing leads to {path}{near}")
                    }
                    count => format!("none of {count} route prefixes leads to {path}{near}"),
                };
                let failure = HttpFailure::new(StatusCode::NOT_FOUND, text);
                // Word for word Ray Serve's, which its clients may look for; for a misspelt method
                // our text is more helpful.
                let body = near.is_empty().then(|| {
                    format!(
                        "Path '{path}' not found. Ping http://.../-/routes for available routes."
                    )
                });
                Err(HttpFailure { body: body.map(Into::into), ..failure })
            }
        })
    }

    /// Whether any route can exist: not before the first deploy.
    pub(super) fn is_populated(&self) -> bool {
        match self {
            Self::Server(_) => true,
            Self::Table(reader) => reader.with(|table| !table.is_starting()),
        }
    }

    /// The applications behind the prefixes, as JSON.
    pub(super) fn routes_json(&self) -> String {
        match self {
            Self::Server(_) => "{}".to_owned(),
            Self::Table(reader) => reader.with(|table| {
                serde_json::to_string(&table.http_routes())
                    .expect("invariant: a map of strings is JSON")
            }),
        }
    }
}

/// The answer to clients that come before the first deploy.
pub(super) const NOTHING_YET: &str = "no application has been deployed here yet; come again soon";

/// The application that a call names.
fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(APPLICATION).and_then(|value| value.to_str().ok())
}

/// The deployment that serves a method. Among several applications, only those count that the
/// caller may call.
fn find<'a>(
    table: &'a Snapshot,
    asker: &Asker<'_>,
    path: &str,
    application: Option<&str>,
) -> Found<'a> {
    match table.find(path, application) {
        Found::Ambiguous(mut several) if asker.names_applications() => {
            several.retain(|application| asker.may_reach(path, Some(application)));
            match &several[..] {
                [] => Found::Nothing,
                [only] => table.find(path, Some(only)),
                _ => Found::Ambiguous(several),
            }
        }
        found => found,
    }
}

/// Whether the caller may make a call, given which deployment serves it. Before the first deploy
/// there is nothing to hide, and early callers get an answer that says so.
fn is_open(table: &Snapshot, asker: &Asker<'_>, path: &str, found: &Found<'_>) -> bool {
    !asker.names_applications()
        || match found {
            Found::Deployment(deployment) => asker.may_reach(path, Some(deployment.application())),
            Found::Nothing => table.is_starting() || asker.may_reach(path, None),
            Found::Ambiguous(_) => true,
        }
}

/// Whether the caller may call a method of the deployment that serves it.
fn sees_method(table: &Snapshot, asker: &Asker<'_>, path: &str, application: Option<&str>) -> bool {
    asker.may(path) && is_open(table, asker, path, &find(table, asker, path, application))
}

/// Whether the caller may make a plain request of the deployment that takes its path; requests
/// answered here belong to no application.
fn sees_plain(table: &Snapshot, asker: &Asker<'_>, path: &str) -> bool {
    if !asker.names_applications() || table.is_starting() {
        return true;
    }
    let found = table.find_http(path).filter(|_| !path.starts_with(OWN_PREFIX));
    asker.may_reach(path, found.map(|(_, deployment)| deployment.application()))
}

/// The end of a sentence about an unknown path; empty if no similar method path is allowed to the
/// caller.
fn did_you_mean(
    table: &Snapshot,
    path: &str,
    application: Option<&str>,
    asker: &Asker<'_>,
) -> String {
    proposal(table.methods(), path, &|path| sees_method(table, asker, path, application))
}

fn proposal(methods: &MethodTable, path: &str, sees: Sees<'_>) -> String {
    methods.near(path, sees).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

// === impl Upstream ===

impl Upstream {
    /// The upper bound for every call's time; the default for plain HTTP.
    pub(super) fn request_timeout(&self) -> Option<Duration> {
        match self {
            Self::Deployment(deployment) => deployment.request_timeout,
            Self::Server(_) => None,
        }
    }

    /// Whether a call of that method may be sent again after it has started.
    pub(super) fn is_idempotent(&self, path: &str) -> bool {
        match self {
            Self::Deployment(deployment) => deployment.repeatable.has_method(path),
            Self::Server(_) => false,
        }
    }

    /// Whether plain HTTP requests may until work on them has begun.
    pub(super) fn tells_starts(&self) -> bool {
        matches!(self, Self::Deployment(deployment) if deployment.repeatable.tells_starts())
    }

    /// Whether a plain HTTP request may; `path` is relative to the application's prefix.
    pub(super) fn may_repeat(&self, verb: &Method, path: &str) -> bool {
        match self {
            Self::Deployment(deployment) => deployment.repeatable.has_request(verb, path),
            Self::Server(_) => verb.is_idempotent(),
        }
    }

    pub(super) fn queue_full_status(&self) -> StatusCode {
        match self {
            Self::Deployment(deployment) => deployment.queue_full_status,
            Self::Server(_) => QUEUE_FULL_DEFAULT,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Deployment(deployment) => deployment.retry_after,
            Self::Server(_) => None,
        }
    }

    /// Reserves room for the bytes that a call sends before it is known to have started.
    pub(super) fn replay_buffer(&self) -> ReplayBuffer {
        match self {
            Self::Deployment(deployment) => ReplayBuffer::new(
                Arc::clone(&deployment.entry.budget),
                deployment.request_bytes_max,
            ),
            Self::Server(way) => ReplayBuffer::new(Arc::clone(&way.server.budget), 0),
        }
    }
}
