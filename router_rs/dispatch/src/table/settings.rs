//! How a deployment wants its calls routed.

use router_core::{EjectionConfig, Locality, Nanos, PolicyKind, RetryConfig, RouterConfig};
use router_protocol::grpc::CodeSet;

use crate::blame;

/// A deployment's settings for its routers; see `docs/reference/deployment-options.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterSettings {
    pub policy: PolicyKind,
    /// See [`RouterConfig::load_bound`].
    pub load_bound: f64,
    pub locality: Locality,
    /// How long a replica that has refused is avoided, how much longer after each further refusal,
    /// and the longest time.
    pub backoff_initial: Nanos,
    pub backoff_multiplier: f64,
    pub backoff_max: Nanos,
    /// How long a new replica takes to get its full share.
    pub slow_start: Nanos,
    pub retries: RetryConfig,
    /// Answers with these codes are retried, if their call may be.
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
