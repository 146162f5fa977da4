#![allow(clippy::disallowed_types)] // policies have to be `Send`, and nobody else locks
//! Rules that others use, in the shipping router: what a default of ours has to be worth.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use router_core::{Candidates, Least, Nanos, Policy, ReplicaId, SplitMix64};

use super::scenario::Scenario;

/// A latency weighs 1/e after this time (Finagle's `decayTime`, linkerd's `default_decay`).
const DECAY_NS: f64 = 10e9;
/// Of a replica that has answered nothing; linkerd's `default_rtt`.
const UNKNOWN_NS: f64 = 30e6;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Peak-EWMA over two random choices (Finagle, linkerd).
    PeakEwma,
    /// The same over all replicas.
    PeakEwmaOfAll,
    /// The fewest calls, each bound late: the scenario says on how many a replica works at once,
    /// and no more are sent there. Real routers do not have this information.
    LateLeast,
    /// `PeakEwmaOfAll`, bound as late.
    LatePeakEwma,
}

/// The mean latency of each replica, which a higher one replaces at once.
pub(crate) type Latencies = Arc<Mutex<BTreeMap<ReplicaId, Peak>>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Peak {
    mean_ns: f64,
    at: Nanos,
}

#[derive(Debug)]
struct PeakEwma {
    latencies: Latencies,
    is_of_two: bool,
}

// === impl Field ===

impl Field {
    pub(crate) const ALL: [Self; 4] =
        [Self::PeakEwma, Self::PeakEwmaOfAll, Self::LateLeast, Self::LatePeakEwma];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PeakEwma => "peak-EWMA",
            Self::PeakEwmaOfAll => "peak-EWMA of all",
            Self::LateLeast => "least, late",
            Self::LatePeakEwma => "peak-EWMA of all, late",
        }
    }

    /// The policy reads `latencies`.
    pub(crate) fn policy(self, latencies: &Latencies) -> Box<dyn Policy> {
        let latencies = Arc::clone(latencies);
        match self {
            Self::PeakEwma => Box::new(PeakEwma { latencies, is_of_two: true }),
            Self::PeakEwmaOfAll | Self::LatePeakEwma => {
                Box::new(PeakEwma { latencies, is_of_two: false })
            }
            Self::LateLeast => Box::new(Least),
        }
    }

    /// The world in which its router is: where calls are bound late, places are those that work.
    pub(crate) fn world(self, scenario: &Scenario) -> Scenario {
        let limit = match self {
            Self::LateLeast | Self::LatePeakEwma => scenario.works_on(),
            Self::PeakEwma | Self::PeakEwmaOfAll => None,
        };
        Scenario { limit: limit.unwrap_or(scenario.limit), ..scenario.clone() }
    }
}

// === impl Peak ===

impl Peak {
    pub(crate) fn record(latencies: &Latencies, replica: ReplicaId, latency: Nanos, now: Nanos) {
        let mut latencies = latencies.lock().expect("nobody panics with it");
        let sample_ns = latency.0 as f64;
        let peak = latencies.entry(replica).or_insert(Self { mean_ns: sample_ns, at: now });
        let kept = peak.kept(now);
        let mean_ns = peak.mean_ns * kept + sample_ns * (1.0 - kept);
        *peak = Self { mean_ns: mean_ns.max(sample_ns), at: now };
    }

    fn kept(self, now: Nanos) -> f64 {
        (-(now.saturating_sub(self.at).0 as f64) / DECAY_NS).exp()
    }
}

// === impl PeakEwma ===

impl PeakEwma {
    fn cost(&self, candidates: Candidates<'_>, index: usize) -> f64 {
        let latencies = self.latencies.lock().expect("nobody panics with it");
        let peak = latencies.get(&candidates.id(index));
        // Without answers it decays, as theirs do, so that a slow replica is tried again.
        let mean_ns = peak.map_or(UNKNOWN_NS, |peak| peak.mean_ns * peak.kept(candidates.now()));
        mean_ns * f64::from(candidates.in_flight(index) + 1)
    }
}

impl Policy for PeakEwma {
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        let cost = |index: &usize| self.cost(candidates, *index);
        let sooner = |one: &usize, other: &usize| cost(one).total_cmp(&cost(other));
        if self.is_of_two && candidates.len() > 1 {
            let (first, second) = rng.distinct_pair_below(candidates.len() as u32);
            return [first as usize, second as usize].into_iter().min_by(sooner).unwrap_or(0);
        }
        // From a random one on, so that ties fall at random.
        let (len, from) = (candidates.len(), rng.below(candidates.len() as u32) as usize);
        (0..len).map(|index| (from + index) % len).min_by(sooner).unwrap_or(0)
    }
}
