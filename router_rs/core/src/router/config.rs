//! How a router behaves.

use super::types::Locality;
use crate::ejection::EjectionConfig;
use crate::policy::PolicyKind;
use crate::time::Nanos;

/// See the module's documentation. The defaults are those of the deployment options (`docs/reference`).
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Calls that may be parked at once; `u32::MAX` means any number, 0 that none waits.
    pub queue_len_max: u32,
    /// After this many refusals in a row a call parks instead of trying the next replica.
    pub refusals_max: u8,
    /// How long a replica is left alone after its first refusal.
    pub backoff_initial: Nanos,
    /// How much longer after each further one; at least 1.
    pub backoff_multiplier: f64,
    /// The longest time a replica is left alone.
    pub backoff_max: Nanos,
    /// How long a call waits while no replica can be reached at all.
    pub unreachable_max: Nanos,
    /// How long a call waits for a replica that has its model while others have room.
    pub model_wait_max: Nanos,
    /// How long a replica that was sent a call counts as having the call's model without saying so.
    pub promise_max: Nanos,
    /// The policy that picks replicas.
    pub policy: PolicyKind,
    /// Of [`PolicyKind::ConsistentHash`]: how many times the mean of the calls in flight a replica
    /// may have of late; above 1.
    pub load_bound: f64,
    /// The preference for near replicas.
    pub locality: Locality,
    /// How long a new replica takes to get its full share; 0: it has it at once.
    pub slow_start: Nanos,
    /// Whether, and how often, calls that started are sent again.
    pub retries: RetryConfig,
    /// Whether slow idempotent calls are sent to a second replica as well.
    pub hedging: bool,
    /// When a replica that fails calls is left out.
    pub ejection: EjectionConfig,
    /// Every random choice follows from it.
    pub seed: u64,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            queue_len_max: 10_000,
            refusals_max: 3,
            backoff_initial: Nanos::from_millis(25),
            backoff_multiplier: 2.0,
            backoff_max: Nanos::from_millis(500),
            unreachable_max: Nanos::from_secs(20),
            model_wait_max: Nanos::from_secs(1),
            promise_max: Nanos::from_secs(10),
            policy: PolicyKind::LateBinding,
            load_bound: 1.25,
            locality: Locality::default(),
            slow_start: Nanos::ZERO,
            retries: RetryConfig::default(),
            hedging: false,
            ejection: EjectionConfig::default(),
            seed: 0,
        }
    }
}

/// How often a call that may be repeated is sent, and how much that may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// How often one call is sent at most; 1: calls that started are not sent again.
    pub attempts_max: u8,
    /// Repetitions (and hedges) in percent of the calls offered, 0 to 100; 0: none at all.
    pub budget_percent: u8,
}

impl Default for RetryConfig {
    /// Off; with the usual budget of a fifth when it is switched on (Finagle, Linkerd).
    fn default() -> Self {
        Self { attempts_max: 1, budget_percent: 20 }
    }
}
