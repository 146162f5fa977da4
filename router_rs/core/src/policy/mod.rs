//! The choice among replicas that have room.
//!
//! A policy sees candidate states, the call's session and a generator, and returns an index. It
//! does not see queues, and it cannot send to a replica that the router ruled out.

mod consistent_hash;
mod glance;
mod kind;
mod late_binding;
mod least;
mod p2c;
mod predicted;
mod round_robin;
#[cfg(test)]
pub(crate) mod testing;

pub use consistent_hash::ConsistentHash;
pub(crate) use glance::Glance;
pub use kind::PolicyKind;
pub use late_binding::LateBinding;
pub use least::Least;
pub use p2c::P2c;
pub use predicted::Predicted;
pub use round_robin::RoundRobin;

use std::fmt;

use crate::cost::CostChoice;
use crate::demand::Demand;
use crate::learnt::Pool;
use crate::membership::{ReplicaId, Tier};
use crate::replica::{Load, Replica};
use crate::rng::SplitMix64;
use crate::time::Nanos;

/// Picks one of several replicas with room.
pub trait Policy: fmt::Debug + Send {
    /// Returns an index below `candidates.len()`, which is at least 1.
    ///
    /// Must not allocate: it runs for every call, under the router's lock.
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize;

    /// The one of the candidates to which calls of this session belong, however loaded it is; the
    /// candidates may be full. `None`: to any.
    fn home(&self, _candidates: Candidates<'_>) -> Option<usize> {
        None
    }

    /// How it chooses where every replica reports its costs: by these, or as elsewhere.
    fn by_cost(&self) -> CostChoice {
        CostChoice::Never
    }

    /// How it chooses, for people.
    fn rule(&self) -> &'static str {
        "a policy from outside"
    }

    /// Calls may wait in the router for the first replica that is free, where replicas say that they
    /// work on one at a time.
    fn binds_late(&self) -> bool {
        false
    }

    /// Calls may wait in the router although replicas have room, where the router has learnt that
    /// they would only wait there, or that a better replica will be free sooner.
    fn is_patient(&self) -> bool {
        false
    }
}

/// The replicas that may get a call, in no particular order.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    replicas: &'a [Replica],
    glances: &'a [Glance],
    open: &'a [u32],
    pool: &'a Pool,
    scene: Scene,
}

/// The inputs of a pick besides the candidates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) now: Nanos,
    /// A hash of the call's session; 0: it has none.
    pub(crate) session: u64,
    /// Calls of this router at all members.
    pub(crate) in_flight: u64,
    /// The same of late, see [`Candidates::demand`].
    pub(crate) demand: Demand,
    pub(crate) members: u32,
}

/// The facts about one replica that a policy may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The replica.
    pub id: ReplicaId,
    /// How far away it is.
    pub tier: Tier,
    /// Calls of this router there; below `capacity`.
    pub in_flight: u32,
    /// Calls this router may have there; `u32::MAX` means no limit.
    pub capacity: u32,
    /// What the replica last said about itself; it grows old when no call ends there.
    pub reported: Option<Load>,
}

impl<'a> Candidates<'a> {
    /// `open` holds indices into `replicas`, each of which has its glance.
    pub(crate) fn new(
        (replicas, glances): (&'a [Replica], &'a [Glance]),
        open: &'a [u32],
        pool: &'a Pool,
        scene: Scene,
    ) -> Self {
        Self { replicas, glances, open, pool, scene }
    }

    /// When the pick happens.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.scene.now
    }

    /// A number for the call's session, equal for equal sessions; 0 for a call without one.
    #[inline]
    pub fn session(&self) -> u64 {
        self.scene.session
    }

    /// Calls of this router at all members, candidates or not.
    #[inline]
    pub fn fleet_in_flight(&self) -> u64 {
        self.scene.in_flight
    }

    /// How many calls of this router the candidate had of late: their integral over time, in
    /// nanoseconds, of which older parts count less.
    #[inline]
    pub fn demand(&self, index: usize) -> u64 {
        let replica = &self.replicas[self.open[index] as usize];
        replica.demand.past(replica.in_flight, self.scene.now)
    }

    /// The same of all members together.
    #[inline]
    pub fn fleet_demand(&self) -> u64 {
        self.scene.demand.past(self.scene.in_flight as u32, self.scene.now)
    }

    /// How many nanoseconds a call without company takes; before the first has ended any value.
    #[inline]
    pub fn alone_ns(&self) -> f64 {
        self.pool.finish_ns(1)
    }

    /// How many members the deployment has, candidates or not.
    #[inline]
    pub fn fleet_len(&self) -> u32 {
        self.scene.members
    }

    /// After how many nanoseconds one more call there is expected to be answered. Before the first
    /// call has ended anywhere, the values mean nothing but their order.
    #[inline]
    pub fn finish_ns(&self, index: usize) -> f64 {
        self.replicas[self.open[index] as usize].finish_ns(self.pool, self.scene.now)
    }

    /// At most [`Candidates::finish_ns`], and known sooner; no probe is due there. `None`: neither
    /// is known.
    #[inline]
    pub fn finish_ns_at_least(&self, index: usize) -> Option<f64> {
        let glance = self.glances[self.open[index] as usize];
        let least_ns = glance.least_ns(self.pool, self.scene.now);
        debug_assert!(!least_ns.is_some_and(|least_ns| least_ns > self.finish_ns(index)));
        debug_assert!(least_ns.is_none() || !self.is_probe_due(index));
        least_ns
    }

    /// It was slow, has had no call for a while, and may have recovered.
    #[inline]
    pub fn is_probe_due(&self, index: usize) -> bool {
        self.replicas[self.open[index] as usize].is_probe_due(self.pool, self.scene.now)
    }

    /// As `get(index).id`.
    #[inline]
    pub fn id(&self, index: usize) -> ReplicaId {
        self.replicas[self.open[index] as usize].id
    }

    /// As `get(index).in_flight`.
    #[inline]
    pub fn in_flight(&self, index: usize) -> u32 {
        self.replicas[self.open[index] as usize].in_flight
    }

    /// How many there are; at least 1 when a policy is asked.
    #[inline]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// There is none; never so when a policy is asked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The candidate at `index`, which must be below [`Candidates::len`].
    #[inline]
    pub fn get(&self, index: usize) -> Candidate {
        let replica = &self.replicas[self.open[index] as usize];
        Candidate {
            id: replica.id,
            tier: replica.tier,
            in_flight: replica.in_flight,
            capacity: replica.capacity,
            reported: replica.reported,
        }
    }
}
