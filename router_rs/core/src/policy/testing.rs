//! Fleets for tables of decisions.

use super::{Candidates, Glance, Policy, Scene};
use crate::demand::Demand;
use crate::learnt::Pool;
use crate::membership::{ReplicaId, ReplicaSpec, Tier};
use crate::replica::Replica;
use crate::rng::SplitMix64;
use crate::time::Nanos;

pub(crate) struct Fleet {
    replicas: Vec<Replica>,
    glances: Vec<Glance>,
    pool: Pool,
    demand: Demand,
}

impl Fleet {
    /// Replicas with ids 0, 1, … and so many calls each.
    pub(crate) fn with_in_flight(in_flight: &[u32]) -> Self {
        let pool = Pool::default();
        let replica = |(in_flight, id): (&u32, u64)| {
            let spec = ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: u32::MAX };
            let mut replica = Replica { in_flight: *in_flight, ..Replica::new(&spec) };
            for _ in 0..*in_flight {
                replica.pace.on_sent(&pool, Nanos::ZERO);
            }
            replica
        };
        let replicas: Vec<Replica> = in_flight.iter().zip(0..).map(replica).collect();
        let glances = replicas.iter().map(|replica| Glance::of(replica, &pool)).collect();
        Self { replicas, glances, pool, demand: Demand::default() }
    }

    /// As if each had had so many calls for `time`, below 16 s, and has none now.
    pub(crate) fn with_demand(mut self, calls: &[u32], time: Nanos) -> Self {
        let past = |calls| {
            let mut demand = Demand::default();
            demand.count(0, Nanos::ZERO);
            demand.count(calls, time);
            demand
        };
        for (replica, calls) in self.replicas.iter_mut().zip(calls) {
            replica.demand = past(*calls);
        }
        self.demand = past(calls.iter().sum());
        self
    }

    pub(crate) fn len(&self) -> u32 {
        self.replicas.len() as u32
    }

    pub(crate) fn candidates<'a>(&'a self, open: &'a [u32], session: u64) -> Candidates<'a> {
        let in_flight = self.replicas.iter().map(|replica| u64::from(replica.in_flight)).sum();
        let scene = Scene {
            now: Nanos::ZERO,
            session,
            in_flight,
            demand: self.demand,
            members: self.len(),
        };
        Candidates::new((&self.replicas, &self.glances), open, &self.pool, scene)
    }
}

/// The shares of 10 000 picks in per mille, each met within 25.
pub(crate) fn check_shares(expected: &[u32], policy: &mut dyn Policy, fleet: &Fleet, session: u64) {
    let open: Vec<u32> = (0..fleet.len()).collect();
    let mut rng = SplitMix64::new(42);
    let mut counts = vec![0_u32; open.len()];
    for _ in 0..10_000 {
        counts[policy.pick(fleet.candidates(&open, session), &mut rng)] += 1;
    }
    let near = |(share, count): (&u32, &u32)| (share * 10).abs_diff(*count) <= 250;
    assert!(
        expected.iter().zip(&counts).all(near),
        "{policy:?}: expected shares {expected:?} per mille, got {counts:?}"
    );
}
