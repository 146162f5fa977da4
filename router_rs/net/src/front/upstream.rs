//! What is behind a front: a routing table, or one server.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, request};

use crate::client::dial::Target;
use crate::dispatch::{Deployment, Found, Kept, KeptBudget, RoutingTable, TableReader};
use crate::grpc::{Code, HttpFailure, QUEUE_FULL_DEFAULT, Status};
use crate::transcode::{self, MethodTable, Opened};

/// Metadata that picks among applications with the same service.
pub(super) const APPLICATION: &str = "application";

/// What a front leads to.
#[derive(Debug)]
pub(crate) enum Source {
    /// Deployments, by path.
    Table(Arc<RoutingTable>),
    /// One server that takes everything.
    #[allow(dead_code)] // the replica's own doors are still to come
    Server(Arc<FixedServer>),
}

/// A server that takes whatever comes to its front.
#[derive(Debug)]
pub(crate) struct FixedServer {
    pub target: Arc<Target>,
    pub budget: Arc<KeptBudget>,
    /// Of plain HTTP requests whose client says nothing.
    pub request_timeout: Option<Duration>,
    /// What is known of its methods for clients of other protocols.
    pub methods: MethodTable,
}

/// One connection's way to look things up.
#[derive(Debug)]
pub(super) enum Directory {
    Table(TableReader),
    Server(Arc<FixedServer>),
}

/// Who takes a call.
#[derive(Clone, Debug)]
pub(super) enum Upstream {
    Deployment(Arc<Deployment>),
    Server(Arc<FixedServer>),
}

/// Who takes a plain HTTP request, and the prefix that led there, without a slash at its end.
#[derive(Debug)]
pub(super) struct HttpRoute {
    pub upstream: Upstream,
    pub prefix: String,
}

// === impl Directory ===

impl Directory {
    pub(super) fn of(source: &Source) -> Self {
        match source {
            Source::Table(table) => Self::Table(TableReader::new(Arc::clone(table))),
            Source::Server(server) => Self::Server(Arc::clone(server)),
        }
    }

    /// Who serves a gRPC method; `application` picks among several.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` when nobody does, `INVALID_ARGUMENT` when several do and none is named.
    pub(super) fn grpc(&self, path: &str, application: Option<&str>) -> Result<Upstream, Status> {
        let reader = match self {
            Self::Server(server) => return Ok(Upstream::Server(Arc::clone(server))),
            Self::Table(reader) => reader,
        };
        reader.with(|table| match table.find(path, application) {
            Found::Deployment(deployment) => Ok(Upstream::Deployment(Arc::clone(deployment))),
            Found::Nothing => Err(Status::new(
                Code::Unimplemented,
                match application {
                    Some(application) => {
                        format!("no deployment of application {application} serves {path}")
                    }
                    None => format!("no deployment serves {path}"),
                },
            )),
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

    /// Whether a request is gRPC in the words of another protocol.
    pub(super) fn open(&self, parts: &request::Parts, limits: &transcode::Limits) -> Opened {
        match self {
            Self::Server(server) => transcode::open(&server.methods, parts, limits),
            Self::Table(reader) => {
                reader.with(|table| transcode::open(table.methods(), parts, limits))
            }
        }
    }

    /// Who takes plain HTTP for a path.
    ///
    /// # Errors
    /// 404 for an unknown path; 415 for that of a gRPC method, which wants another content type.
    pub(super) fn http(&self, path: &str) -> Result<HttpRoute, HttpFailure> {
        let reader = match self {
            Self::Server(server) => {
                let upstream = Upstream::Server(Arc::clone(server));
                return Ok(HttpRoute { upstream, prefix: String::new() });
            }
            Self::Table(reader) => reader,
        };
        reader.with(|table| match table.find_http(path) {
            Some((prefix, deployment)) => Ok(HttpRoute {
                upstream: Upstream::Deployment(Arc::clone(deployment)),
                prefix: prefix.to_owned(),
            }),
            None if !matches!(table.find(path, None), Found::Nothing) => Err(HttpFailure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("{path} is a gRPC method: send application/grpc over HTTP/2"),
            )),
            None => Err(HttpFailure::new(
                StatusCode::NOT_FOUND,
                format!("none of {} route prefixes leads to {path}", table.http_prefixes_count()),
            )),
        })
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

// === impl Upstream ===

impl Upstream {
    /// Upper bound for every call's time; of plain HTTP the default.
    pub(super) fn request_timeout(&self) -> Option<Duration> {
        match self {
            Self::Deployment(deployment) => deployment.request_timeout,
            Self::Server(server) => server.request_timeout,
        }
    }

    pub(super) fn queue_full_status(&self) -> StatusCode {
        match self {
            Self::Deployment(deployment) => deployment.queue_full_status,
            Self::Server(_) => QUEUE_FULL_DEFAULT,
        }
    }

    /// Room for what a call sends before it is known to have started.
    pub(super) fn keep(&self) -> Kept {
        match self {
            Self::Deployment(deployment) => {
                Kept::new(Arc::clone(&deployment.entry.budget), deployment.request_bytes_max)
            }
            Self::Server(server) => Kept::new(Arc::clone(&server.budget), 0),
        }
    }
}
