//! The head of a request, and what is known of the call beside it.

use std::time::Instant;

use http::request;
use router_call::Door;
use router_core::ReplicaId;

use crate::wish::CallOptions;

/// See the module's documentation.
#[derive(Debug)]
pub struct Head {
    pub parts: request::Parts,
    pub door: Door,
    /// When it came.
    pub received: Instant,
    /// Of plain HTTP: the route prefix that led here, without a slash at its end.
    pub prefix: String,
    /// When the head came with just the timeout that the limits hold; `None`: it has another.
    pub timeout_since: Option<Instant>,
    pub options: CallOptions,
    /// The order in which replicas are tried; empty: the policy's.
    pub ranked: Vec<ReplicaId>,
    /// The part of the calls that goes where this one does, where several deployments share them.
    pub share: Option<f32>,
}

impl Head {
    /// That of a gRPC call which comes from nowhere else.
    pub fn new(parts: request::Parts, door: Door, received: Instant, options: CallOptions) -> Self {
        let (prefix, ranked) = (String::new(), Vec::new());
        Self { parts, door, received, prefix, timeout_since: None, options, ranked, share: None }
    }
}
