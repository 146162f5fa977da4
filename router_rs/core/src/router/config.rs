//! How a router behaves.

use super::types::Locality;
use crate::cost::Cost;
use crate::ejection::EjectionConfig;
use crate::policy::PolicyKind;
use crate::time::Nanos;

/// See the module's documentation. The defaults are those of the deployment options (`docs/reference`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterConfig {
    /// Calls that may be parked at once; `u32::MAX` means any number, 0 that none waits.
    pub queue_len_max: u32,
    /// What the parked calls may cost together; `None`: any amount. A call that costs more waits if
    /// no other does.
    pub queue_cost_max: Option<Cost>,
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
    /// Cache entries that the router knows of at most, each of any number of replicas.
    pub cache_keys_max: usize,
    /// The memory that they take at most, in bytes.
    pub cache_bytes_max: usize,
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
            queue_cost_max: None,
            refusals_max: 3,
            backoff_initial: Nanos::from_millis(25),
            backoff_multiplier: 2.0,
            backoff_max: Nanos::from_millis(500),
            unreachable_max: Nanos::from_secs(20),
            model_wait_max: Nanos::from_secs(1),
            promise_max: Nanos::from_secs(10),
            cache_keys_max: 1 << 17,
            cache_bytes_max: 32 << 20,
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

impl RouterConfig {
    /// Gives the option that deployments know as `name` (`docs/reference/routing.md`) a value:
    /// times in seconds, flags as 0 and 1. Bounds were checked where the option was written.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), NotSet> {
        let slot: &mut dyn Slot = match name {
            "max_queued_cost" => &mut self.queue_cost_max,
            "load_bound" => &mut self.load_bound,
            "prefer_local_node" => &mut self.locality.prefer_node,
            "prefer_local_zone" => &mut self.locality.prefer_zone,
            "initial_backoff_s" => &mut self.backoff_initial,
            "backoff_multiplier" => &mut self.backoff_multiplier,
            "max_backoff_s" => &mut self.backoff_max,
            "slow_start_s" => &mut self.slow_start,
            "max_attempts" => &mut self.retries.attempts_max,
            "retry_budget_percent" => &mut self.retries.budget_percent,
            "hedging" => &mut self.hedging,
            "ejection_fall" => &mut self.ejection.fall,
            "ejection_rise" => &mut self.ejection.rise,
            "ejection_interval_s" => &mut self.ejection.interval,
            "ejection_max_percent" => &mut self.ejection.ejected_percent_max,
            "model_matching_timeout_s" => &mut self.model_wait_max,
            _ => return Err(NotSet::NoSuchOption),
        };
        if slot.put(value) { Ok(()) } else { Err(NotSet::NoSuchValue) }
    }
}

/// Why [`RouterConfig::set`] has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSet {
    /// No option has the name.
    NoSuchOption,
    /// The option's type does not have the value.
    NoSuchValue,
}

/// A field that takes the number of an option, if its type has it.
trait Slot {
    fn put(&mut self, value: f64) -> bool;
}

impl Slot for f64 {
    fn put(&mut self, value: f64) -> bool {
        *self = if value.is_finite() { value } else { *self };
        value.is_finite()
    }
}

impl Slot for Option<Cost> {
    fn put(&mut self, value: f64) -> bool {
        let cost = Cost::new(value);
        *self = cost.or(*self);
        cost.is_some()
    }
}

impl Slot for Nanos {
    /// A time beyond what a clock can hold is as far away as it can be.
    fn put(&mut self, value: f64) -> bool {
        let is_time = value >= 0.0;
        if is_time {
            *self = Self((value * 1e9).round() as u64);
        }
        is_time
    }
}

impl Slot for u32 {
    fn put(&mut self, value: f64) -> bool {
        let is_count = value.fract() == 0.0 && (0.0..=f64::from(Self::MAX)).contains(&value);
        if is_count {
            *self = value as Self;
        }
        is_count
    }
}

impl Slot for u8 {
    fn put(&mut self, value: f64) -> bool {
        let mut count = 0_u32;
        let small = count.put(value).then(|| Self::try_from(count).ok()).flatten();
        *self = small.unwrap_or(*self);
        small.is_some()
    }
}

impl Slot for bool {
    fn put(&mut self, value: f64) -> bool {
        let mut flag = 0_u8;
        let is_flag = flag.put(value) && flag <= 1;
        *self = if is_flag { flag == 1 } else { *self };
        is_flag
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: f64) -> Result<RouterConfig, NotSet> {
        let mut config = RouterConfig::default();
        config.set(name, value).map(|()| config)
    }

    #[test]
    fn an_option_is_set_by_the_name_that_deployments_use() {
        assert_eq!(Nanos::from_millis(1_500), set("slow_start_s", 1.5).unwrap().slow_start);
        assert_eq!(7, set("ejection_fall", 7.0).unwrap().ejection.fall);
        assert_eq!(3, set("max_attempts", 3.0).unwrap().retries.attempts_max);
        assert!(set("hedging", 1.0).unwrap().hedging);
        assert_eq!(Cost::new(2.5), set("max_queued_cost", 2.5).unwrap().queue_cost_max);
        let wide = RouterConfig { load_bound: 1.5, ..RouterConfig::default() };
        assert_eq!(wide, set("load_bound", 1.5).unwrap());
        assert_eq!(Nanos::MAX, set("max_backoff_s", f64::INFINITY).unwrap().backoff_max);
    }

    #[test]
    fn a_value_that_its_type_does_not_have_changes_nothing() {
        for (name, value) in [
            ("slow_start_s", -1.0),
            ("slow_start_s", f64::NAN),
            ("ejection_fall", 0.5),
            ("ejection_fall", -1.0),
            ("max_attempts", 256.0),
            ("hedging", 2.0),
            ("max_queued_cost", -1.0),
            ("load_bound", f64::INFINITY),
        ] {
            let mut config = RouterConfig::default();
            assert_eq!(Err(NotSet::NoSuchValue), config.set(name, value), "{name}={value}");
            assert_eq!(RouterConfig::default(), config, "{name}={value}");
        }
        assert_eq!(Some(NotSet::NoSuchOption), set("slow_start", 1.0).err());
    }
}
