//! The router's record of one replica.

use crate::backoff::Backoff;
use crate::batch::{BatchLoad, BatchView};
use crate::cost::CostLoad;
use crate::demand::Demand;
use crate::ejection::Health;
use crate::learnt::{Pace, Pool};
use crate::membership::{ReplicaId, ReplicaSpec, Tier};
use crate::time::Nanos;

/// What a replica told about the calls of other routers counts half after this time: they end.
/// Arbitrary; nothing is chosen by it.
const OTHERS_HALVED: Nanos = Nanos::from_millis(60);
/// So many times the time of the others is slow.
const SLOW: f32 = 2.0;
/// How often a slow replica that nobody uses is tried: at ten calls a second and replica, one in
/// three hundred of what it would get.
const PROBE_INTERVAL: Nanos = Nanos::from_secs(3);

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
    /// How long the replica worked on that call and could work on no other meanwhile, as an event
    /// loop that the call held from its start to its end; `None`: it could, or does not say.
    pub alone: Option<Nanos>,
    /// The state of its batcher, if it has one.
    pub batch: Option<BatchLoad>,
    /// The costs of its requests, if it reports any.
    pub cost: Option<CostLoad>,
}

/// Marks a replica that is not in the fleet's open list.
pub(crate) const NOT_OPEN: u32 = u32::MAX;

/// The router's record of one replica.
///
/// Invariant: `is_open()` has the value of `has_room()` at the last change, and the record's place
/// in the fleet's open list is `open_position`.
///
/// The fields used by each call come first, in as few cache lines as possible.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Replica {
    /// Calls of this router there. `in_flight ≤ capacity`, unless the capacity was lowered or calls
    /// were pinned to the replica.
    pub(crate) in_flight: u32,
    pub(crate) capacity: u32,
    /// Gets no new call beyond this, long-lived calls not counted: it would only wait there.
    pub(crate) held: u32,
    /// Index in the fleet's open list, or [`NOT_OPEN`].
    pub(crate) open_position: u32,
    pub(crate) tier: Tier,
    /// In the last snapshot. False: it only waits for its last calls to end.
    pub(crate) is_member: bool,
    /// Calls take 2 to the power of that times as long as at the fastest, beyond doubt.
    pub(crate) octaves: u8,
    /// Calls of other routers there, and when it reported them.
    pub(crate) others: (u32, Nanos),
    pub(crate) pace: Pace,
    /// Since when it has had calls and answered none; of no meaning while it has none.
    pub(crate) quiet_since: Nanos,
    /// After so long without an answer it may take one call more, by the calls of then: those that
    /// came later, if they are shorter, say nothing of how long it may be silent.
    pub(crate) patience: Nanos,
    /// By its last word it could work on another call beside so many.
    pub(crate) overlaps: u32,
    /// The last attempt found no connection.
    pub(crate) is_unreached: bool,
    /// If it takes its calls in steps.
    pub(crate) batch: Option<BatchView>,
    pub(crate) demand: Demand,
    pub(crate) health: Health,
    pub(crate) backoff: Backoff,
    pub(crate) id: ReplicaId,
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
            octaves: 0,
            backoff: Backoff::default(),
            health: Health::default(),
            reported: None,
            held: u32::MAX,
            pace: Pace::default(),
            quiet_since: Nanos::ZERO,
            patience: Nanos::ZERO,
            overlaps: 0,
            is_unreached: false,
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
        !self.is_held_back()
            && self.in_flight < self.capacity
            && self.is_member
            && self.health.takes()
    }

    /// It could take more calls, but they would only wait there.
    #[inline]
    pub(crate) fn is_held_back(&self) -> bool {
        self.pace.working() >= self.held
    }

    /// Nothing but a lack of room keeps it from getting calls.
    #[inline]
    pub(crate) fn is_in(&self) -> bool {
        self.is_member && !self.backoff.is_active() && self.health.takes()
    }

    /// When calls there become long-lived next, if they are all that keeps others out.
    #[inline]
    pub(crate) fn long_lived_at(&self) -> Option<Nanos> {
        (self.is_held_back() && self.is_in()).then(|| self.pace.next_long_lived())
    }

    /// For how long it has answered nothing, beside what calls take at a fast one.
    #[inline]
    pub(crate) fn quiet(&self, now: Nanos) -> Nanos {
        Nanos(now.saturating_sub(self.quiet_since).0 >> self.octaves)
    }

    /// How many calls more it may take because it has been silent, if it may be so for `patience` by
    /// the calls of now.
    #[inline]
    pub(crate) fn eased(&self, patience: Nanos, now: Nanos) -> u32 {
        let each = self.patience.max(patience).0.max(1);
        u32::try_from(self.quiet(now).0 / each).unwrap_or(u32::MAX)
    }

    /// When it may take one call more than at `now`, if it stays silent.
    pub(crate) fn eases_at(&self, patience: Nanos, now: Nanos) -> Nanos {
        let each = self.patience.max(patience).saturating_mul(1 << self.octaves);
        let times = u64::from(self.eased(patience, now)) + 1;
        self.quiet_since.saturating_add(each.saturating_mul(times))
    }

    /// How many more calls it could get if none were held back.
    pub(crate) fn spare(&self) -> u32 {
        if self.is_in() { self.capacity.saturating_sub(self.in_flight) } else { 0 }
    }

    /// Calls of other routers there, as far as known, for people: a choice by them only makes
    /// routers run after each other.
    pub(crate) fn others(&self, now: Nanos) -> u32 {
        let (count, told_at) = self.others;
        let age = now.saturating_sub(told_at).0 / OTHERS_HALVED.0;
        count.checked_shr(age as u32).unwrap_or(0)
    }

    /// After how many nanoseconds one more call here is expected to be answered.
    #[inline]
    pub(crate) fn finish_ns(&self, pool: &Pool, now: Nanos) -> f64 {
        if let Some(batch) = &self.batch {
            return batch.finish_ns(now);
        }
        if self.pace.is_behind(now) {
            return self.late_finish_ns(pool, now);
        }
        self.finish_at(&self.pace, pool, now)
    }

    #[cold]
    #[inline(never)]
    fn late_finish_ns(&self, pool: &Pool, now: Nanos) -> f64 {
        self.finish_at(&self.pace.at(pool, now), pool, now)
    }

    #[inline]
    fn finish_at(&self, pace: &Pace, pool: &Pool, now: Nanos) -> f64 {
        let slowness = pace.slowness_at(pool, now);
        pool.finish_ns(pace.level() + 1) * slowness + pool.turnaround_ns(self.tier)
    }

    /// Calls there that are not long-lived, and how many times the pool's time one
    /// takes, with the time since the last event.
    pub(crate) fn level_and_slowness(&self, pool: &Pool, now: Nanos) -> (u32, f64) {
        let pace = self.pace.at(pool, now);
        (pace.level(), pace.slowness_at(pool, now))
    }

    /// It was slow when it last worked, which is a while ago.
    #[inline]
    pub(crate) fn is_probe_due(&self, pool: &Pool, now: Nanos) -> bool {
        if self.pace.is_behind(now) {
            return self.is_late_probe_due(pool, now);
        }
        self.pace.is_worth_a_probe(pool, SLOW, PROBE_INTERVAL, now)
    }

    /// If nothing happens there, [`Replica::is_probe_due`] says no until then, and all that ended is
    /// counted.
    #[inline]
    pub(crate) fn no_probe_before(&self, pool: &Pool) -> Nanos {
        self.pace.no_probe_before(pool, PROBE_INTERVAL)
    }

    #[cold]
    #[inline(never)]
    fn is_late_probe_due(&self, pool: &Pool, now: Nanos) -> bool {
        self.pace.at(pool, now).is_worth_a_probe(pool, SLOW, PROBE_INTERVAL, now)
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open_position != NOT_OPEN
    }
}
