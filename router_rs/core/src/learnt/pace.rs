//! The pace of one replica compared with the pool: the number of calls that ended there over the
//! number that should have. Time counts as it passes, so a replica that hangs looks slow before
//! anything ends there.

use super::Pool;
use super::long_lived::Calls;
use crate::time::Nanos;

/// A replica's own evidence is halved beyond this many calls, ended and expected.
const PACE_MAX: f32 = 200.0;
/// The weight, in calls, of the assumption that a replica is like the others.
const PACE_GUESS: f32 = 2.0;
/// The weight of a failure: this many calls that should have ended and did not.
const FAILURE_WEIGHT: f32 = 4.0;
/// A difference from the others counts from this many standard deviations of the evidence on, and
/// this many more calls; below, replicas count as equal. Two calls of ten times the usual time are
/// enough; calls that only came together with one slow call are not.
const SURE_DEVIATIONS: f32 = 2.0;
const SURE_GUESS: f32 = 16.0;
/// The first answers of a replica count as at most this many calls late: a process that imports,
/// compiles and connects takes many times what follows.
const YOUNG_ANSWERS: u32 = 10;
const MISSED_YOUNG_MAX: f32 = 2.0;
/// However long a replica was silent, the next calls can change its estimate. Tuned: with 16, a
/// replica that turned ten times slower is found too late; without a bound, streams look like slow
/// calls.
const MISSED_MAX: f32 = 40.0;
/// After this long without a call, the knowledge of a replica has the weight of this many calls,
/// and of one if other routers have sent calls meanwhile.
const PACE_FADES: Nanos = Nanos::from_secs(1);
const FADED_CALLS: f32 = 16.0;
/// If the next answer comes before this many calls should have ended, the replica has recovered.
const RECOVERED_MAX: f32 = 1.5;
/// How many times the expected time may pass between two departures before it counts. Tuned with
/// unequal replicas and variable work, where long gaps are common.
const SILENCE_WEIGHT: f32 = 1.0 / 6.0;
/// A stay at a level that is shorter than this share of an earlier one belongs to one of several
/// departures together; an earlier one fades with each event.
const DWELT_SHARE: f32 = 1.0 / 8.0;
const DWELT_FADES: f32 = 0.9;

/// How a call left a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It was answered.
    Answered,
    /// The replica is to blame.
    Failed,
    /// Proves nothing about the replica.
    Other,
}

/// A call that leaves a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) departure: Departure,
    /// Since it was sent.
    pub(crate) latency: Nanos,
    /// [`Pace::generation`] when it was sent.
    pub(crate) generation: u32,
}

/// The pace of one replica compared with the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    calls: Calls,
    /// The time up to which it is counted.
    counted_at: Nanos,
    /// The level at which the replica last was for long, and how long: the level from which calls
    /// that ended together came.
    dwelt: (u32, f32),
    ended: f32,
    /// Until the last one did.
    expected: f32,
    /// Derived from the two, and stored because a pick reads it for every replica.
    usual: Usual,
    /// How many calls should have ended since then.
    silent: f32,
    /// The number of calls it has answered, up to [`YOUNG_ANSWERS`].
    answers: u32,
    /// It was slow, and then had no call for a while.
    is_tried: bool,
    /// Long-lived calls since which none ended: they may block the replica, so they still count for
    /// the level and the pace. At most `calls.long_lived()`.
    blocking: u32,
    /// How many calls should have ended for each one there, in the current generation and in the
    /// one before.
    due_each: (f32, f32),
    /// The last time at which calls were in flight that are not long-lived.
    worked_at: Nanos,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            calls: Calls::default(),
            counted_at: Nanos::ZERO,
            dwelt: (0, 0.0),
            ended: 0.0,
            expected: 0.0,
            usual: Usual::of(0.0, 0.0),
            silent: 0.0,
            answers: 0,
            is_tried: false,
            blocking: 0,
            due_each: (0.0, 0.0),
            worked_at: Nanos::ZERO,
        }
    }
}

/// The pace according to a replica's ended and expected calls.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// `1 / (ended + PACE_GUESS)`.
    per_ended: f32,
    /// How many times the pool's time a call takes; any difference counts.
    slowness: f32,
    /// The same, 1 where the difference may be chance.
    sure_slowness: f32,
}

impl Usual {
    #[inline]
    fn of(ended: f32, expected: f32) -> Self {
        let per_ended = 1.0 / (ended + PACE_GUESS);
        let slowness = (expected + PACE_GUESS) * per_ended;
        let (all, missed) = (expected + ended + SURE_GUESS, expected - ended);
        let is_sure = missed > 0.0 && missed * missed > SURE_DEVIATIONS * SURE_DEVIATIONS * all;
        Self { per_ended, slowness, sure_slowness: if is_sure { slowness } else { 1.0 } }
    }
}

// === impl Pace: what happens ===

impl Pace {
    /// Counts the time up to `now`. Call it before any of its calls come or go.
    #[inline]
    pub(crate) fn count(&mut self, pool: &mut Pool, now: Nanos) {
        if !pool.tells_replicas() {
            return self.count_plainly(pool, now);
        }
        if self.is_behind(now) {
            self.catch_up(pool, now);
        }
        let (level, time_ns) = self.pass(pool, now);
        pool.on_time(level, time_ns);
    }

    /// A call is sent to the replica; time is counted up to `now`.
    #[inline]
    pub(crate) fn on_sent(&mut self, pool: &Pool, now: Nanos) {
        if self.level() == 0 {
            if pool.tells_replicas() {
                self.fade(pool, now);
            }
            self.counted_at = self.counted_at.max(now);
        }
        if self.calls.level() == 0 {
            self.due_each = (0.0, 0.0);
        }
        self.calls.on_sent(pool, now);
    }

    /// A call leaves the replica; time is counted up to `now`. Returns whether the pool's table was
    /// computed again.
    #[inline]
    pub(crate) fn on_departure(&mut self, pool: &mut Pool, leaving: Leaving, now: Nanos) -> bool {
        let level = self.level();
        let was_long_lived = self.calls.on_ended(leaving.generation);
        if !pool.tells_replicas() {
            let counts = leaving.departure == Departure::Answered && !was_long_lived;
            return counts && pool.on_departure(self.dwelt.0.max(1), now);
        }
        let may_block = self.blocking > 0;
        self.blocking = self.blocking.min(self.calls.long_lived());
        let is_known = pool.is_known();
        match leaving.departure {
            Departure::Answered => {
                pool.learn_time(leaving.latency, level);
                if is_known && (may_block || !was_long_lived) {
                    self.ended += 1.0;
                    self.count_missed(may_block && !was_long_lived);
                }
                self.on_evidence();
                if was_long_lived {
                    return false;
                }
                pool.on_departure(self.dwelt.0.max(1), now)
            }
            Departure::Failed => {
                self.expected += FAILURE_WEIGHT;
                self.on_evidence();
                false
            }
            Departure::Other => false,
        }
    }

    /// A call has ended: the calls that should have ended before count. If the silence was due to
    /// long-lived calls, as a call that ends beside them proves, none counts.
    #[inline]
    fn count_missed(&mut self, is_beside_blocking: bool) {
        let missed = std::mem::take(&mut self.silent);
        if is_beside_blocking {
            self.blocking = 0;
            return;
        }
        if std::mem::take(&mut self.is_tried) && missed < RECOVERED_MAX {
            (self.ended, self.expected) = (1.0, 1.0);
            return;
        }
        let is_young = self.answers < YOUNG_ANSWERS;
        self.answers += u32::from(is_young);
        self.expected += missed.min(if is_young { MISSED_YOUNG_MAX } else { MISSED_MAX });
    }

    /// The learnt times have changed, and with them how long calls may take.
    pub(crate) fn on_learnt(&mut self, pool: &Pool, now: Nanos) {
        self.calls.on_limit(pool, now);
    }

    /// After this long without a call little is known of a replica.
    #[inline]
    fn fade(&mut self, pool: &Pool, now: Nanos) {
        if now.saturating_sub(self.worked_at) <= PACE_FADES {
            return;
        }
        self.is_tried = self.slowness(pool) > 1.0 && !pool.is_shared();
        let expected = self.expected + std::mem::take(&mut self.silent);
        let weight = if pool.is_shared() { 1.0 } else { FADED_CALLS };
        if expected > weight {
            self.ended *= weight / expected;
            self.expected = weight;
            self.usual = Usual::of(self.ended, self.expected);
        }
    }

    #[inline]
    fn on_evidence(&mut self) {
        if self.ended + self.expected > PACE_MAX {
            self.ended /= 2.0;
            self.expected /= 2.0;
        }
        self.usual = Usual::of(self.ended, self.expected);
    }
}

// === impl Pace: time ===

impl Pace {
    /// Calls may have become long-lived since the last event.
    #[inline]
    pub(crate) fn is_behind(&self, now: Nanos) -> bool {
        self.calls.look_at() <= now
    }

    /// As it is at `now`.
    #[cold]
    pub(crate) fn at(&self, pool: &Pool, now: Nanos) -> Self {
        let mut pace = *self;
        while pace.is_behind(now) {
            pace.pass(pool, pace.calls.look_at());
            pace.look(pool);
        }
        pace
    }

    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, pool: &mut Pool, now: Nanos) {
        while self.is_behind(now) {
            let (level, time_ns) = self.pass(pool, self.calls.look_at());
            pool.on_time(level, time_ns);
            self.look(pool);
        }
    }

    /// Calls may become long-lived. If no other has ended since they came, they may block the
    /// replica.
    fn look(&mut self, pool: &Pool) {
        let Some(fresh) = self.calls.look(pool) else { return };
        let (current, previous) = self.due_each;
        self.due_each = (0.0, current);
        // They came at some time of the previous generation.
        let due_each = current + previous / 2.0;
        if fresh > 0 && (self.silent >= due_each || self.blocking > 0) {
            self.blocking += fresh;
        }
    }

    /// Where replicas are not told apart, only the level counts.
    #[inline]
    fn count_plainly(&mut self, pool: &mut Pool, now: Nanos) {
        let (level, time_ns) = (self.calls.level(), now.saturating_sub(self.counted_at).0 as f64);
        if level == 0 || time_ns == 0.0 {
            return;
        }
        self.counted_at = now;
        self.dwell(level, time_ns);
        pool.on_time(level, time_ns);
    }

    #[inline]
    fn dwell(&mut self, level: u32, time_ns: f64) {
        self.dwelt.1 *= DWELT_FADES;
        if time_ns as f32 >= self.dwelt.1 * DWELT_SHARE {
            self.dwelt = (level, time_ns as f32);
        }
    }

    /// Advances the time with the same calls. Returns the level and the time to add to the pool.
    #[inline]
    fn pass(&mut self, pool: &Pool, now: Nanos) -> (u32, f64) {
        let level = self.level();
        let time_ns = now.saturating_sub(self.counted_at).0 as f64;
        if level == 0 || time_ns == 0.0 {
            return (0, 0.0);
        }
        self.counted_at = now;
        let due = (time_ns * pool.rate(level)) as f32;
        self.silent += due;
        if self.calls.level() > 0 {
            self.worked_at = now;
        }
        if self.blocking > 0 {
            return (0, 0.0);
        }
        let pace = 1.0 / f64::from(self.usual_slowness(pool));
        if self.calls.look_at() < Nanos::MAX {
            self.due_each.0 += due / level as f32;
        }
        self.dwell(level, time_ns);
        (level, time_ns * pace)
    }
}

// === impl Pace: what follows ===

impl Pace {
    /// Calls of this router there that are not long-lived, as of the last event.
    #[inline]
    pub(crate) fn working(&self) -> u32 {
        self.calls.level()
    }

    /// Like [`Pace::working`], with those that may block the replica.
    #[inline]
    pub(crate) fn level(&self) -> u32 {
        self.calls.level() + self.blocking
    }

    /// Calls of this router there that are long-lived.
    #[cfg(test)]
    pub(crate) fn long_lived(&self) -> u32 {
        self.calls.long_lived()
    }

    /// The generation of a call that was just sent, which must be given back at its end.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.calls.generation()
    }

    /// About when calls there become long-lived next, if they do not end.
    pub(crate) fn next_long_lived(&self) -> Nanos {
        self.calls.next_long_lived()
    }

    /// How many times the pool's time a call takes here; 1 for a replica like the others.
    #[inline]
    pub(crate) fn slowness(&self, pool: &Pool) -> f32 {
        self.slowness_after(pool, self.silent)
    }

    /// The slowness from ended calls alone. It is not below 1: the time of a fast replica counts
    /// fully in the pool, and that of a slow one as if it were not slow, so the pool is soon as
    /// fast as the fastest.
    ///
    /// Where other routers send calls as well, their effect on a replica is not visible otherwise,
    /// so any difference counts, also below 1.
    #[inline]
    pub(crate) fn usual_slowness(&self, pool: &Pool) -> f32 {
        if pool.is_shared() { self.usual.slowness } else { self.usual.sure_slowness }
    }

    /// Like [`Pace::usual_slowness`], when this many calls should have ended since the last one
    /// did.
    #[inline]
    fn slowness_after(&self, pool: &Pool, silent: f32) -> f32 {
        let usual = &self.usual;
        let (usual, per_silent) = if pool.is_shared() {
            (usual.slowness, usual.per_ended)
        } else {
            (usual.sure_slowness, 0.0)
        };
        (usual + silent * per_silent).max(silent * SILENCE_WEIGHT)
    }

    /// Whether it takes this many times the time of the others, and has been unused for this long
    /// except by long-lived calls.
    #[inline]
    pub(crate) fn is_worth_a_probe(
        &self,
        pool: &Pool,
        slow: f32,
        after: Nanos,
        now: Nanos,
    ) -> bool {
        self.calls.level() == 0
            && now.saturating_sub(self.worked_at) >= after
            && (self.blocking > 0
                || self.slowness(pool) > if pool.is_shared() { slow } else { 1.0 })
    }

    /// Until then it is not behind, and not worth a probe `after` this long, if nothing happens.
    #[inline]
    pub(crate) fn no_probe_before(&self, pool: &Pool, after: Nanos) -> Nanos {
        if self.calls.level() > 0 || (self.blocking == 0 && self.slowness(pool) <= 1.0) {
            return self.calls.look_at();
        }
        self.worked_at.saturating_add(after)
    }

    /// Like [`Pace::slowness`] with the time since the last event. It must not be behind.
    #[inline]
    pub(crate) fn slowness_at(&self, pool: &Pool, now: Nanos) -> f64 {
        let level = self.level();
        if level == 0 {
            return f64::from(self.slowness(pool));
        }
        let due = now.saturating_sub(self.counted_at).0 as f64 * pool.rate(level);
        f64::from(self.slowness_after(pool, self.silent + due as f32))
    }
}
