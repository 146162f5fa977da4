//! Replicas that fail calls are left out for a while.

use crate::time::Nanos;

/// When a replica is left out, for how long, and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionConfig {
    /// Failures in a row that eject a replica; 0: none is ejected.
    pub fall: u32,
    /// Calls in a row that must succeed, one at a time, before it is a replica like others again.
    pub rise: u32,
    /// How long the first ejection lasts; each further one in a row lasts twice as long.
    pub interval: Nanos,
    /// How many percent of the members may be ejected at once, 0 to 100; of two always one.
    pub ejected_percent_max: u8,
}

impl Default for EjectionConfig {
    /// As Envoy counts failures, but half of the fleet, not a tenth: model fleets are small.
    fn default() -> Self {
        Self { fall: 5, rise: 2, interval: Nanos::from_secs(5), ejected_percent_max: 50 }
    }
}
