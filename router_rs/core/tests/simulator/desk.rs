//! One of the routers of a simulation, and its checkers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use router_core::{LeaseRequest, Nanos, ReplicaId, Router, WaiterId};

use super::field::Latencies;

/// Repetitions over the calls of the last ten seconds, and those that are always allowed.
pub(super) const BUDGET_PERCENT: u8 = 20;
const REPETITIONS_MIN: usize = 10;
/// No call waits longer than this plus what arrived before it has passed: `queue::HORIZON`.
const HORIZON: Nanos = Nanos::from_secs(5);
/// Of these calls one may rest, which replicas have refused, while others go where it was refused.
const RESTS: Nanos = Nanos::from_millis(500);
/// How long after news of a failure every send is checked, otherwise every 16th.
pub(super) const WATCHED: Nanos = Nanos::from_secs(1);

/// One router and what is known about it without asking it.
pub(super) struct Desk {
    pub(super) router: Router,
    pub(super) parked: BTreeMap<WaiterId, u32>,
    /// Parked calls that take any replica, by arrival.
    pub(super) patient: BTreeSet<(Nanos, u32)>,
    pub(super) in_flight: BTreeMap<ReplicaId, u32>,
    /// Asks of this router that stand at gates.
    pub(super) asked: BTreeSet<LeaseRequest>,
    pub(super) offered: u64,
    pub(super) completed: u64,
    pub(super) budget: RetryBudget,
    pub(super) watched_until: Nanos,
    pub(super) sends: u64,
    /// The latencies that a foreign rule reads.
    pub(super) latencies: Latencies,
}

// === impl Desk ===

impl Desk {
    /// Counts a call that goes to `replica`, and checks that it may get one.
    pub(super) fn sent(&mut self, replica: ReplicaId, is_leased: bool, now: Nanos) -> u32 {
        self.sends += 1;
        if now < self.watched_until || self.sends.is_multiple_of(16) {
            let stats = self.router.stats();
            let found = stats.replicas.iter().find(|stats| stats.id == replica);
            let found = found.expect("the router knows where it sends");
            assert!(found.is_member, "{replica:?} is no member any more");
            // A lease says that there is a place, so the backoff has no reason any more.
            let backoff_until = found.backoff_until.filter(|_| !is_leased);
            for until in [backoff_until, found.ejected_until].into_iter().flatten() {
                assert!(until <= now, "{replica:?} is to be left alone: {found:?}");
            }
        }
        let in_flight = self.in_flight.entry(replica).or_default();
        *in_flight += 1;
        *in_flight
    }

    pub(super) fn back(&mut self, replica: ReplicaId) {
        *self.in_flight.get_mut(&replica).expect("it has been sent a call") -= 1;
    }

    /// A call that was offered at `offered_at` is sent: nobody who has waited since longer than the
    /// horizon before that may wait still.
    pub(super) fn check_turn(&self, offered_at: Nanos) {
        if let Some((first, call)) = self.patient.first() {
            let overtaken_for = offered_at.saturating_sub(*first);
            assert!(
                overtaken_for <= HORIZON.saturating_add(RESTS),
                "call {call} is overtaken after {overtaken_for}"
            );
        }
    }

    pub(super) fn check_end(&self) {
        let stats = self.router.stats();
        assert_eq!((0, 0), (stats.in_flight, stats.parked), "{stats:?}");
        assert_eq!((self.offered, self.completed), (stats.offered, stats.completed), "{stats:?}");
        assert_eq!((0, 0), (stats.stale_tickets, stats.stale_waiters), "{stats:?}");
    }
}

// === impl RetryBudget ===

/// When a router was offered calls and when it repeated some, lately.
#[derive(Debug, Default)]
pub(super) struct RetryBudget {
    calls: VecDeque<Nanos>,
    repetitions: VecDeque<Nanos>,
}

impl RetryBudget {
    pub(super) fn call(&mut self, now: Nanos) {
        self.calls.push_back(now);
        forget(&mut self.calls, now, Nanos::from_secs(10));
    }

    pub(super) fn repeat(&mut self, now: Nanos) {
        forget(&mut self.calls, now, Nanos::from_secs(10));
        self.repetitions.push_back(now);
        // The router counts by seconds, of which the last one is not over.
        forget(&mut self.repetitions, now, Nanos::from_secs(9));
        let (calls, repetitions) = (self.calls.len(), self.repetitions.len());
        let allowed = (calls * usize::from(BUDGET_PERCENT) / 100).max(REPETITIONS_MIN);
        assert!(repetitions <= allowed, "{repetitions} repetitions of {calls} calls");
    }
}

fn forget(times: &mut VecDeque<Nanos>, now: Nanos, age: Nanos) {
    while times.front().is_some_and(|at| now.saturating_sub(*at) > age) {
        times.pop_front();
    }
}
