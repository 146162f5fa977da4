//! What the router knows about one replica.

use crate::backoff::Backoff;
use crate::router::Health;
use crate::time::Nanos;

/// Names a replica. Opaque: the driver interns whatever it knows the replica by, and never gives
/// the number of one replica to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// How far away a replica is; [`Locality`](crate::Locality) says what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// On the router's own node.
    Node,
    /// In the router's zone.
    Zone,
    /// Anywhere.
    Any,
}

/// One replica of a membership snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// Which replica.
    pub id: ReplicaId,
    /// How far away it is.
    pub tier: Tier,
    /// Calls it may have in flight from this router (`max_ongoing_requests`); `u32::MAX` means
    /// no limit, 0 means that nothing is sent there.
    pub capacity: u32,
}

/// A replica's own count, as it reported it in a trailer or in a refusal.
///
/// It covers the calls of all routers, so it may exceed what this router has in flight there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Calls past the replica's gate.
    pub in_flight: u32,
    /// The gate's limit; `u32::MAX` means none.
    pub limit: u32,
    /// How long the call that brings this was past the gate; `None`: none brought it.
    pub processing: Option<Nanos>,
    /// What its batcher does, if it has one.
    pub batch: Option<BatchLoad>,
}

/// What the batcher of a replica says about itself. A *step* is one run of the batched function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLoad {
    /// The most calls of one step.
    pub size_max: u32,
    /// Calls that wait for the next step.
    pub waiting: u32,
    /// How long the step that runs now is expected to go on; 0: none runs.
    pub busy: Nanos,
    /// How long the first of those that wait may wait for others, from now.
    pub window: Nanos,
    /// A step's expected time is `step_fixed + calls × step_per_call`.
    pub step_fixed: Nanos,
    /// See `step_fixed`.
    pub step_per_call: Nanos,
}

/// Marks a replica that is not in the fleet's open list.
pub(crate) const NOT_OPEN: u32 = u32::MAX;

/// The router's record of one replica.
///
/// Invariant: `is_open()` says what `has_room()` said at the last change, and the record's place in
/// the fleet's open list is `open_position`.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) tier: Tier,
    pub(crate) capacity: u32,
    /// Calls of this router there. `in_flight ≤ capacity`, unless the capacity was lowered or calls
    /// were pinned to the replica.
    pub(crate) in_flight: u32,
    /// Index in the fleet's open list, or [`NOT_OPEN`].
    pub(crate) open_position: u32,
    /// In the last snapshot. False: it only waits for its last calls to end.
    pub(crate) is_member: bool,
    pub(crate) backoff: Backoff,
    pub(crate) health: Health,
    pub(crate) reported: Option<Load>,
    /// When its slow start began and ends; equal: it had none.
    pub(crate) warm_up: (Nanos, Nanos),
}

/// The share of a replica whose slow start begins, in 256ths: it has to get some calls to warm up
/// at all. Arbitrary; Envoy's default is the same tenth.
const WARMTH_MIN: u64 = 26;

impl Replica {
    pub(crate) fn new(spec: &ReplicaSpec) -> Self {
        Self {
            id: spec.id,
            tier: spec.tier,
            capacity: spec.capacity,
            in_flight: 0,
            open_position: NOT_OPEN,
            is_member: true,
            backoff: Backoff::default(),
            health: Health::default(),
            reported: None,
            warm_up: (Nanos::ZERO, Nanos::ZERO),
        }
    }

    /// Gets its full share only at `warm_at`.
    pub(crate) fn warm_up(&mut self, now: Nanos, warm_at: Nanos) {
        self.warm_up = (now, warm_at);
    }

    /// How much of its share it gets, in 256ths; grows evenly with the time.
    #[inline]
    pub(crate) fn warmth_of_256(&self, now: Nanos) -> u32 {
        let (start, end) = self.warm_up;
        if now >= end {
            return 256;
        }
        let (elapsed, whole) = (now.saturating_sub(start).0, end.saturating_sub(start).0);
        let warmth = u128::from(elapsed) * 256 / u128::from(whole.max(1));
        (warmth as u64).clamp(WARMTH_MIN, 256) as u32
    }

    /// May get a new call now.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.may_take() && !self.backoff.is_active()
    }

    /// May get a new call if it was not left alone.
    #[inline]
    pub(crate) fn may_take(&self) -> bool {
        self.is_member && self.in_flight < self.capacity && self.health.takes()
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open_position != NOT_OPEN
    }
}
