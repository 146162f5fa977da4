//! The options of one call.

use std::time::Instant;

use router_core::{Cost, Locality, Nanos, Offer, ReplicaId};

/// Options of one call, in addition to its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Calls of higher priority leave the queue first.
    pub priority: i8,
    /// The queue is fair between callers; 0: unknown.
    pub caller: u64,
    /// Instead of the deployment's.
    pub locality: Option<Locality>,
    /// It may be retried after it has started.
    pub is_idempotent: bool,
    /// Its replica can tell when work on it begins; until then it may be retried.
    pub tells_start: bool,
    /// The cost that its client has stated.
    pub cost: Option<Cost>,
}

/// A call that wants a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    pub deadline: Option<Instant>,
    /// Empty: none.
    pub model: &'a str,
    /// Empty: none.
    pub session: &'a str,
    /// The cache entries that it would like to find; empty: none.
    pub cache_keys: &'a [u64],
    pub options: CallOptions,
    /// The order in which replicas are tried; empty: the policy's.
    pub ranked: &'a [ReplicaId],
    /// The path of its method; empty where no replica reports costs.
    pub method: &'a str,
    /// The length of its request, as far as it is known.
    pub request_bytes: u64,
}

impl<'a> Wish<'a> {
    /// As the core counts time.
    pub(super) fn offer(&self, deadline: Option<Nanos>) -> Offer<'a> {
        Offer {
            deadline,
            model: self.model,
            session: self.session,
            cache_keys: self.cache_keys,
            priority: self.options.priority,
            caller: self.options.caller,
            locality: self.options.locality,
            ranked: self.ranked,
            cost: self.options.cost,
            method: self.method,
            request_bytes: self.request_bytes,
        }
    }
}
