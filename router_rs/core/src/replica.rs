//! What the router knows about one replica.

use crate::backoff::Backoff;
use crate::batch::BatchView;
use crate::learnt::{Pace, Pool};
use crate::router::{Demand, Health};
use crate::time::Nanos;

/// What a replica told about the calls of other routers counts half after this time. Tuned with four
/// routers in simulation: what counts for longer makes them all avoid the same replicas, then all
/// run there.
const OTHERS_HALVED: Nanos = Nanos::from_millis(60);
/// So many times the time of the others is slow.
const SLOW: f32 = 2.0;
/// How often a slow replica that nobody uses is tried: at ten calls a second and replica, one in
/// three hundred of what it would get.
const PROBE_INTERVAL: Nanos = Nanos::from_secs(3);

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
    /// Gets no new call beyond this while others wait for nothing; at most `capacity` counts.
    pub(crate) held: u32,
    pub(crate) pace: Pace,
    pub(crate) demand: Demand,
    /// If it takes its calls in steps.
    pub(crate) batch: Option<BatchView>,
    /// Calls of other routers there, and when it told of them.
    pub(crate) others: (u32, Nanos),
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
            held: u32::MAX,
            pace: Pace::default(),
            demand: Demand::default(),
            batch: None,
            others: (0, Nanos::ZERO),
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
        self.in_flight < self.capacity.min(self.held) && self.is_member && self.health.takes()
    }

    /// Nothing but a lack of room keeps it from getting calls.
    #[inline]
    pub(crate) fn is_in(&self) -> bool {
        self.is_member && !self.backoff.is_active() && self.health.takes()
    }

    /// How many more calls it could get if none were held back.
    pub(crate) fn spare(&self) -> u32 {
        if self.is_in() { self.capacity.saturating_sub(self.in_flight) } else { 0 }
    }

    /// Calls of other routers there, as far as known: what it told fades, because they end.
    #[inline]
    pub(crate) fn others(&self, now: Nanos) -> u32 {
        let (count, told_at) = self.others;
        if count == 0 {
            return 0;
        }
        let age = now.saturating_sub(told_at).0 / OTHERS_HALVED.0;
        count.checked_shr(age as u32).unwrap_or(0)
    }

    /// After how many nanoseconds one more call here is expected to be answered.
    #[inline]
    pub(crate) fn finish_ns(&self, pool: &Pool, now: Nanos) -> f64 {
        if let Some(batch) = &self.batch {
            return batch.finish_ns(now);
        }
        let others = self.others(now);
        let slowness = self.pace.slowness_at(pool, self.in_flight, others, now);
        pool.finish_ns(self.in_flight + others + 1) * slowness + pool.turnaround_ns(self.tier)
    }

    /// It was slow when it last worked, which is a while ago.
    #[inline]
    pub(crate) fn is_probe_due(&self, now: Nanos) -> bool {
        self.in_flight == 0
            && self.pace.slowness() > SLOW
            && now.saturating_sub(self.pace.counted_at()) >= PROBE_INTERVAL
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open_position != NOT_OPEN
    }
}
