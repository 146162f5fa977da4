//! How a deployment wants its calls routed, and what one call wants.

use std::time::{Duration, Instant};

use router_core::{
    EjectionConfig, Locality, Nanos, Offer, PolicyKind, ReplicaId, RetryConfig, RouterConfig,
};

use super::blame;
use super::snapshot::DeploymentRoute;
use crate::grpc::CodeSet;

/// Refusals after which a call parks (design 7).
const REFUSALS_MAX: u8 = 3;
/// Replicas report a model when its load begins, so a promise that old was not kept. Arbitrary:
/// far above what a call takes to get there, far below what a wrong entry would cost for long.
const PROMISE_MAX: Nanos = Nanos::from_secs(10);

/// What a deployment says about its routers; see `docs/reference/deployment-options.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterSettings {
    pub policy: PolicyKind,
    /// See [`RouterConfig::load_bound`].
    pub load_bound: f64,
    pub locality: Locality,
    /// How long a replica that has refused is left alone, how much longer after each further
    /// refusal, and the longest time.
    pub backoff_initial: Nanos,
    pub backoff_multiplier: f64,
    pub backoff_max: Nanos,
    /// How long a new replica takes to get its full share.
    pub slow_start: Nanos,
    pub retries: RetryConfig,
    /// Answers with these codes are tried again, if their call may be.
    pub retry_codes: CodeSet,
    pub hedging: bool,
    pub ejection: EjectionConfig,
}

impl Default for RouterSettings {
    fn default() -> Self {
        let core = RouterConfig::default();
        Self {
            policy: core.policy,
            load_bound: core.load_bound,
            locality: core.locality,
            backoff_initial: core.backoff_initial,
            backoff_multiplier: core.backoff_multiplier,
            backoff_max: core.backoff_max,
            slow_start: core.slow_start,
            retries: core.retries,
            retry_codes: blame::PASSING,
            hedging: core.hedging,
            ejection: core.ejection,
        }
    }
}

/// What the router of `route` is made of.
pub(super) fn config_of(route: &DeploymentRoute, seed: u64) -> RouterConfig {
    let settings = &route.router;
    RouterConfig {
        queue_len_max: route.max_queued_requests,
        refusals_max: REFUSALS_MAX,
        backoff_initial: settings.backoff_initial,
        backoff_multiplier: settings.backoff_multiplier,
        backoff_max: settings.backoff_max,
        model_wait_max: nanos(route.model_matching_timeout),
        promise_max: PROMISE_MAX,
        policy: settings.policy,
        load_bound: settings.load_bound,
        locality: settings.locality,
        slow_start: settings.slow_start,
        retries: settings.retries,
        hedging: settings.hedging,
        ejection: settings.ejection,
        seed,
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// What one call wants beside what its head says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Calls of higher priority leave the queue first.
    pub priority: i8,
    /// The queue is fair between callers; 0: nobody in particular.
    pub caller: u64,
    /// Instead of the deployment's.
    pub locality: Option<Locality>,
    /// It may be sent again after it has started.
    pub is_idempotent: bool,
}

/// A call that wants a place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish<'a> {
    pub deadline: Option<Instant>,
    /// Empty: none.
    pub model: &'a str,
    /// Empty: none.
    pub session: &'a str,
    pub options: CallOptions,
    /// The order in which replicas are tried; empty: the policy's.
    pub ranked: &'a [ReplicaId],
}

impl<'a> Wish<'a> {
    /// As the core counts time.
    pub(super) fn offer(&self, deadline: Option<Nanos>) -> Offer<'a> {
        Offer {
            deadline,
            model: self.model,
            session: self.session,
            priority: self.options.priority,
            caller: self.options.caller,
            locality: self.options.locality,
            ranked: self.ranked,
        }
    }
}
