//! The head of a request, and further facts about the call.

use std::time::Instant;

use http::request;
use router_call::Door;
use router_core::ReplicaId;
use router_protocol::cache_keys::{InvalidKeys, cache_keys};

use crate::wish::CallOptions;

/// See the module's documentation.
#[derive(Debug)]
pub struct Head {
    pub parts: request::Parts,
    pub door: Door,
    /// When the request arrived.
    pub received: Instant,
    /// For plain HTTP: the route prefix that matched, without a trailing slash.
    pub prefix: String,
    /// When a head came whose timeout is the one in the limits; `None`: it has another.
    pub timeout_since: Option<Instant>,
    pub options: CallOptions,
    /// The order in which replicas are tried; empty: the policy's.
    pub ranked: Vec<ReplicaId>,
    /// The cache entries that the call would like to find, as its metadata name them.
    pub cache_keys: Vec<u64>,
    /// This deployment's part of the calls, where several deployments share them.
    pub share: Option<f32>,
}

impl Head {
    /// A gRPC call without any of these but cache entries, which fail it if they are invalid.
    pub fn new(
        parts: request::Parts,
        door: Door,
        received: Instant,
        options: CallOptions,
    ) -> Result<Self, InvalidKeys> {
        Ok(Self {
            cache_keys: cache_keys(&parts.headers)?,
            parts,
            door,
            received,
            prefix: String::new(),
            timeout_since: None,
            options,
            ranked: Vec::new(),
            share: None,
        })
    }
}
