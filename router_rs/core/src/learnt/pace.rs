//! How one replica does compared with the pool: how many calls ended there over how many should
//! have. Time counts as it passes, so a replica that hangs looks slow before anything ends there.

use super::Pool;
use crate::time::Nanos;

/// A replica's own evidence is halved beyond this many calls, ended and expected.
const PACE_MAX: f32 = 200.0;
/// As many calls as the guess that a replica is like the others weighs.
const PACE_GUESS: f32 = 2.0;
/// The same where a replica is left alone for what it is thought to be: chance must not do that.
const PACE_GUESS_SURE: f64 = 8.0;
/// A failure weighs like so many calls that should have ended and did not.
const FAILURE_WEIGHT: f32 = 4.0;
/// After so long without a call what is known of a replica weighs like one call.
const PACE_FADES: Nanos = Nanos::from_secs(1);
/// Six times the expected time may pass between two departures before it tells. Tuned with unequal
/// replicas and variable work, where long gaps are common.
const SILENCE_WEIGHT: f64 = 1.0 / 6.0;
/// A stay at a level that is shorter than this share of an earlier one, is part of one departure of
/// many; an earlier one fades with each event.
const DWELT_SHARE: f32 = 1.0 / 8.0;
const DWELT_FADES: f32 = 0.9;

/// How a call left a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It was answered.
    Answered,
    /// The replica is to blame.
    Failed,
    /// Says nothing about the replica.
    Other,
}

/// How one replica does compared with the pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Until when time is counted.
    counted_at: Nanos,
    /// When the last call ended, or the first of those now in flight was sent.
    moved_at: Nanos,
    /// The level at which the replica last was for long, which is where calls that end together
    /// came from, and how long.
    dwelt: (u32, f32),
    ended: f32,
    expected: f32,
}

impl Pace {
    /// Counts the time up to `now`, at which the replica has `own` calls of this router and
    /// `others` of others. Must come before either changes.
    #[inline]
    pub(crate) fn count(&mut self, pool: &mut Pool, own: u32, others: u32, now: Nanos) {
        let time_ns = now.saturating_sub(self.counted_at).0 as f64;
        self.counted_at = self.counted_at.max(now);
        if own == 0 || time_ns == 0.0 {
            return;
        }
        let level = own + others;
        let share = f64::from(own) / f64::from(level);
        let pace = 1.0 / f64::from(self.slowness());
        pool.on_time(level, time_ns * share * pace);
        self.dwelt.1 *= DWELT_FADES;
        if time_ns as f32 >= self.dwelt.1 * DWELT_SHARE {
            self.dwelt = (level, time_ns as f32);
        }
        // However long it was silent, the next calls may change what is thought of it.
        self.expected += ((time_ns * share * pool.rate(level)) as f32).min(PACE_MAX / 2.0);
        self.halve_if_much();
    }

    /// A call is sent to the replica, which has `own` others; time is counted up to `now`.
    #[inline]
    pub(crate) fn on_sent(&mut self, own: u32, idle_since: Nanos, now: Nanos) {
        if own > 0 {
            return;
        }
        self.moved_at = now;
        if now.saturating_sub(idle_since) > PACE_FADES && self.expected > 1.0 {
            self.ended /= self.expected;
            self.expected = 1.0;
        }
    }

    /// A call leaves the replica; time is counted up to `now`. Returns whether the pool's table was
    /// computed again.
    #[inline]
    pub(crate) fn on_departure(
        &mut self,
        pool: &mut Pool,
        departure: Departure,
        now: Nanos,
    ) -> bool {
        let is_known = pool.is_known();
        match departure {
            Departure::Answered => {
                self.moved_at = now;
                if is_known {
                    self.ended += 1.0;
                    self.halve_if_much();
                }
                pool.on_departure(self.dwelt.0.max(1), now)
            }
            Departure::Failed => {
                self.expected += FAILURE_WEIGHT;
                self.halve_if_much();
                false
            }
            Departure::Other => false,
        }
    }

    /// Until when time is counted: the last time a call came or went.
    pub(crate) fn counted_at(&self) -> Nanos {
        self.counted_at
    }

    /// How many times the pool's time a call takes here; 1 for a replica like the others.
    #[inline]
    pub(crate) fn slowness(&self) -> f32 {
        (self.expected + PACE_GUESS) / (self.ended + PACE_GUESS)
    }

    /// As [`Pace::slowness`] with the time since the last event, at which the replica has `own`
    /// calls of this router and `others` of others.
    #[inline]
    pub(crate) fn slowness_at(&self, pool: &Pool, own: u32, others: u32, now: Nanos) -> f64 {
        if own == 0 {
            return f64::from(self.slowness());
        }
        let mut rate = pool.rate(own + others);
        if others > 0 {
            rate *= f64::from(own) / f64::from(own + others);
        }
        let due = now.saturating_sub(self.counted_at).0 as f64 * rate;
        let silence = now.saturating_sub(self.moved_at).0 as f64 * rate * SILENCE_WEIGHT;
        let expected = f64::from(self.expected + PACE_GUESS) + due;
        (expected / f64::from(self.ended + PACE_GUESS)).max(silence)
    }

    /// At most [`Pace::slowness`]: how slow it is even if chance was against it.
    pub(crate) fn sure_share(&self) -> f64 {
        let (ended, expected) = (f64::from(self.ended), f64::from(self.expected));
        let sure = (expected + PACE_GUESS_SURE) / (ended + PACE_GUESS_SURE);
        (sure / f64::from(self.slowness())).min(1.0)
    }

    #[inline]
    fn halve_if_much(&mut self) {
        if self.ended + self.expected > PACE_MAX {
            self.ended /= 2.0;
            self.expected /= 2.0;
        }
    }
}
