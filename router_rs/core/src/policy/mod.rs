//! The choice among replicas that have room.
//!
//! A policy sees candidate states and a generator, and returns an index. It does not see calls,
//! queues or time, and it cannot send to a replica that the router ruled out.

mod p2c;

pub use p2c::P2c;

use std::fmt;

use crate::replica::{Load, Replica, ReplicaId, Tier};
use crate::rng::SplitMix64;

/// Which policy a router uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Power of two choices over in-flight counts, see [`P2c`].
    P2c,
    /// The one with the fewest calls.
    Least,
    /// One after the other.
    RoundRobin,
    /// The one that the call's session hashes to, unless it has far more calls than the others.
    ConsistentHash,
    /// The one that is expected to be done first.
    Predicted,
}

impl PolicyKind {
    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            Self::P2c => Box::new(P2c),
            Self::Least | Self::RoundRobin | Self::ConsistentHash | Self::Predicted => {
                Box::new(P2c)
            }
        }
    }
}

/// Picks one of several replicas with room.
pub trait Policy: fmt::Debug + Send {
    /// Returns an index below `candidates.len()`, which is at least 1.
    ///
    /// Must not allocate: it runs for every call, under the router's lock.
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize;
}

/// The replicas that may get a call, in no particular order.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    replicas: &'a [Replica],
    open: &'a [u32],
}

/// What a policy may know about one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which replica.
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
    /// `open` holds indices into `replicas`.
    pub(crate) fn new(replicas: &'a [Replica], open: &'a [u32]) -> Self {
        Self { replicas, open }
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
