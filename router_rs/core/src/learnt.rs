//! The router's estimate of how fast replicas work, learnt from its own completions alone.
//!
//! The *level* of a replica is the number of calls in flight there, without those that have been
//! there for much longer than calls take (see `long_lived`). For each level the [`Pool`] records
//! how long replicas of the deployment were at it and how many calls ended meanwhile: the departure
//! rate `μ(level)`. That one table describes replicas that work on one call after the other (`μ` is
//! flat), on all at once (`μ` grows with the level), on a few at a time, or in batches, without a
//! setting that says which. By Little's law one more call at level `n` is answered after about
//! `(n + 1) / μ(n + 1)`.
//!
//! A [`Pace`] compares one replica with it.

mod long_lived;
mod pace;
#[cfg(test)]
mod tests;

pub(crate) use pace::{Departure, Leaving, Pace};

use crate::membership::Tier;
use crate::time::Nanos;

/// Levels from here on count as one. Arbitrary: from 32 on one more call changes little.
const LEVELS: usize = 33;
/// The weight, in departures, of the assumption that a level is as fast as the one below it.
const GUESS_WEIGHT: f64 = 8.0;
/// A level's evidence is halved beyond this many departures.
const DEPARTURES_MAX: f64 = 1024.0;
/// All evidence is halved once in this time, if it brought [`HALVING_DEPARTURES`]: observations
/// that do not recur fade, and are tried again.
const HALVING: Nanos = Nanos::from_secs(8);
const HALVING_DEPARTURES: u32 = 256;
/// The table is computed again after at most this many departures.
const REFRESH_DEPARTURES: u32 = 64;
/// Fewer departures prove nothing about a level.
const PROOF_DEPARTURES: f64 = 48.0;
/// More calls at a replica are not worthwhile if they speed it up by at most this part of the gain
/// of a replica that works on all of them at once.
const GROWTH: f64 = 0.2;
/// The required distance from that in standard deviations, because chance would find one of many
/// levels.
const GROWTH_DEVIATIONS: f64 = 5.0;
/// The part of a replica's time that may pass while it waits for its next call.
const IDLE_MAX: f64 = 1.0 / 32.0;
/// Up to here one call in reserve fills what goes by; beyond, it takes any number.
const IDLE_WITH_RESERVE_MAX: f64 = 1.0 / 4.0;

/// A call may take its mean time and this many mean deviations before it is long-lived, but at
/// least this many means (as in the timeout of Jacobson and Karels, "Congestion avoidance and
/// control", 1988, with four). Of lognormal times with σ = 1 one in four hundred does. The
/// scenarios hold with it; other values were not compared.
const LONG_LIVED_DEVIATIONS: f64 = 10.0;
const LONG_LIVED_MEANS: f64 = 4.0;
/// No shorter call is long-lived. Arbitrary; pauses of a scheduler or a collector are shorter.
const LONG_LIVED_MIN: Nanos = Nanos::from_millis(10);
/// A long-lived call counts as this many means in the mean: a few change little, and if nearly all
/// are long-lived, the mean follows them.
const LONG_LIVED_WEIGHT: f64 = 2.0;
/// The number of reports of other routers' calls from which replicas count as shared with them. Of
/// the last 32, so that three are enough.
const SHARED_MIN: f32 = 0.1;
/// The weight of one call in the mean.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;
/// The estimate before anything is known: any value will do, since all replicas have it. One call
/// after the other.
const FINISH_UNKNOWN_NS: f64 = 1e6;

/// The estimate shared by the replicas of one deployment.
#[derive(Debug)]
pub(crate) struct Pool {
    levels: [Level; LEVELS],
    /// `μ` in calls per nanosecond; 0 before the first departure.
    rates: [f64; LEVELS],
    /// `level / μ(level)`, never falling.
    finish_ns: [f64; LEVELS],
    departures: u32,
    refresh_at: u32,
    refreshed_departures: u32,
    halve_at: Nanos,
    /// By tier: time of a call outside the replica, which is what a freed place waits; 0: unknown.
    turnaround_ns: [f64; 3],
    useful: Option<u32>,
    /// Whether replicas are told apart, and long-lived calls from others, for policies that use the
    /// difference.
    tells_replicas: bool,
    /// Mean time of a call, its mean deviation, and mean level at which one ended; 0 before the
    /// first.
    call_ns: f64,
    deviation_ns: f64,
    call_level: f64,
    /// How many of the recent reports said that a replica had calls of other routers; a mean.
    shared: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    time_ns: f64,
    departures: f64,
}

// === impl Pool ===

impl Default for Pool {
    fn default() -> Self {
        let mut finish_ns = [0.0; LEVELS];
        for (level, finish) in finish_ns.iter_mut().enumerate() {
            *finish = level as f64 * FINISH_UNKNOWN_NS;
        }
        Self {
            levels: [Level::default(); LEVELS],
            rates: [0.0; LEVELS],
            finish_ns,
            departures: 0,
            refresh_at: 1,
            refreshed_departures: 0,
            halve_at: Nanos::ZERO,
            turnaround_ns: [0.0; 3],
            useful: None,
            tells_replicas: false,
            call_ns: 0.0,
            deviation_ns: 0.0,
            call_level: 0.0,
            shared: 0.0,
        }
    }
}

impl Pool {
    /// Sets whether replicas are told apart, and long-lived calls from others. If not, no more
    /// calls become long-lived, and an answer costs less.
    pub(crate) fn tell_replicas(&mut self, tells_replicas: bool) {
        self.tells_replicas = tells_replicas;
        if !tells_replicas {
            self.call_ns = 0.0;
        }
    }

    /// Whether the policy uses what is learnt of each replica.
    #[inline]
    pub(crate) fn tells_replicas(&self) -> bool {
        self.tells_replicas
    }

    /// Whether any call has ended, which gives predictions a scale.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.rates[1] > 0.0
    }

    /// `μ(level)` of a replica like the others, in calls per nanosecond.
    #[inline]
    pub(crate) fn rate(&self, level: u32) -> f64 {
        self.rates[(level as usize).min(LEVELS - 1)]
    }

    /// How long the last of `level` calls takes at a replica like the others.
    #[inline]
    pub(crate) fn finish_ns(&self, level: u32) -> f64 {
        let index = (level as usize).min(LEVELS - 1);
        if index < LEVELS - 1 {
            self.finish_ns[index]
        } else {
            self.finish_ns[index] * f64::from(level) / (LEVELS - 1) as f64
        }
    }

    /// The number of calls that keep a replica busy if it takes `slowness` times as long as the
    /// others: more of them only wait there. `None`: unknown, or calls are so short that it would
    /// idle while the next is on its way.
    pub(crate) fn useful_for(&self, slowness: f32, tier: Tier) -> Option<u32> {
        let turnaround_ns = self.turnaround_ns(tier);
        let useful = self.useful.filter(|_| turnaround_ns > 0.0)?;
        let rate = self.rate(useful) / f64::from(slowness);
        let idle = turnaround_ns * rate / f64::from(useful);
        if idle <= IDLE_MAX {
            return Some(useful);
        }
        (idle <= IDLE_WITH_RESERVE_MAX).then_some(useful + 1)
    }

    /// The number of calls that keep an average replica busy; 1 if unknown.
    #[inline]
    pub(crate) fn useful_or_one(&self) -> u32 {
        self.useful.unwrap_or(1)
    }

    /// Mean time of a call outside a replica of this tier; 0: unknown.
    #[inline]
    pub(crate) fn turnaround_ns(&self, tier: Tier) -> f64 {
        self.turnaround_ns[tier as usize]
    }

    /// A call took `latency`, of which it spent `processing` in a replica of this tier.
    #[inline]
    pub(crate) fn on_turnaround(&mut self, tier: Tier, latency: Nanos, processing: Nanos) {
        let sample = latency.saturating_sub(processing).0 as f64;
        let mean = &mut self.turnaround_ns[tier as usize];
        if *mean == 0.0 {
            *mean = sample.max(1.0);
        } else {
            *mean += (sample - *mean) / 32.0;
        }
    }

    /// A replica has reported whether it has calls of other routers.
    #[inline]
    pub(crate) fn on_others(&mut self, has_others: bool) {
        self.shared += (f32::from(u8::from(has_others)) - self.shared) / 32.0;
    }

    /// Whether other routers send the replicas a noticeable number of calls.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared > SHARED_MIN
    }

    /// The age from which a call may be long-lived, at this level.
    #[inline]
    fn long_lived_after(&self, level: u32) -> Nanos {
        if self.call_ns == 0.0 {
            return Nanos::MAX;
        }
        let crowd = (f64::from(level) / self.call_level).max(1.0);
        let usual_ns = self.call_ns + self.deviation_ns * LONG_LIVED_DEVIATIONS;
        Nanos((usual_ns.max(self.call_ns * LONG_LIVED_MEANS) * crowd) as u64).max(LONG_LIVED_MIN)
    }

    /// Learns that a call was answered after `latency`, at a level that counts itself but no
    /// long-lived calls.
    ///
    /// The time to its first message is not used. It would identify a stream only at its end, when
    /// it is too late to correct the number of calls in flight. And a stream that sends all the
    /// time is work until its end, like any other call.
    #[inline(never)]
    fn learn_time(&mut self, latency: Nanos, level: u32) {
        let (latency_ns, level) = (latency.0 as f64, f64::from(level.max(1)));
        if self.call_ns == 0.0 {
            (self.call_ns, self.call_level) = (latency_ns.max(1.0), level);
            self.deviation_ns = self.call_ns;
            return;
        }
        let is_long_lived =
            latency > LONG_LIVED_MIN && latency > self.long_lived_after(level as u32);
        let sample_ns = if is_long_lived { self.call_ns * LONG_LIVED_WEIGHT } else { latency_ns };
        self.deviation_ns += ((sample_ns - self.call_ns).abs() - self.deviation_ns) * MEAN_WEIGHT;
        self.call_ns += (sample_ns - self.call_ns) * MEAN_WEIGHT;
        self.call_level += (level - self.call_level) * MEAN_WEIGHT;
    }

    #[inline]
    fn on_time(&mut self, level: u32, time_ns: f64) {
        self.levels[(level as usize).min(LEVELS - 1)].time_ns += time_ns;
    }

    /// Returns whether the table was computed again.
    #[inline]
    fn on_departure(&mut self, level: u32, now: Nanos) -> bool {
        let level = &mut self.levels[(level as usize).min(LEVELS - 1)];
        level.departures += 1.0;
        if level.departures > DEPARTURES_MAX {
            level.halve();
        }
        self.departures += 1;
        if self.departures < self.refresh_at {
            return false;
        }
        self.refresh(now);
        true
    }

    /// The number of departures until the table is computed again.
    #[inline]
    pub(crate) fn learns_after(&self) -> u32 {
        self.refresh_at - self.departures
    }

    #[cold]
    fn refresh(&mut self, now: Nanos) {
        let since = self.departures - self.refreshed_departures;
        if now >= self.halve_at && since >= HALVING_DEPARTURES {
            self.levels.iter_mut().for_each(Level::halve);
            self.refreshed_departures = self.departures;
            self.halve_at = now.saturating_add(HALVING);
        }
        if self.departures > u32::MAX / 2 {
            (self.departures, self.refreshed_departures) = (0, 0);
        }
        // Early on every departure matters.
        self.refresh_at = self.departures + self.departures.clamp(1, REFRESH_DEPARTURES);
        self.compute_rates();
        self.useful = self.find_useful();
    }

    fn compute_rates(&mut self) {
        let whole = self.sum(1, LEVELS - 1);
        if whole.departures <= 0.0 {
            return;
        }
        let mut below = whole.rate();
        let (mut call_ns, mut finish) = (1.0 / below, 0.0_f64);
        for index in 1..LEVELS {
            let Level { time_ns, departures } = self.levels[index];
            // For a level without data, the guess is all there is. Most are such.
            if time_ns > 0.0 || departures > 0.0 {
                call_ns = (time_ns + GUESS_WEIGHT * call_ns) / (departures + GUESS_WEIGHT);
                below = 1.0 / call_ns;
            }
            self.rates[index] = below;
            finish = finish.max(index as f64 * call_ns);
            self.finish_ns[index] = finish;
        }
    }

    /// The smallest level from which more calls do not end faster.
    fn find_useful(&self) -> Option<u32> {
        let (mut useful, mut above, mut above_weight) = (None, Level::default(), 0.0);
        for (index, level) in self.levels.iter().enumerate().skip(1).rev() {
            if index < LEVELS / 2 && level.is_enough(index as f64, above, above_weight) {
                useful = Some(index as u32);
            }
            above.time_ns += level.time_ns;
            above.departures += level.departures;
            above_weight += index as f64 * level.time_ns;
        }
        useful
    }

    fn sum(&self, first: usize, last: usize) -> Level {
        let mut sum = Level::default();
        for level in &self.levels[first..=last] {
            sum.time_ns += level.time_ns;
            sum.departures += level.departures;
        }
        sum
    }
}

impl Level {
    /// Whether replicas with more calls than `level` do not complete them faster. It matters how
    /// many more calls they had, so `above_weight` is the time at each level above times the level:
    /// hardly more calls prove nothing.
    fn is_enough(self, level: f64, above: Self, above_weight: f64) -> bool {
        if self.departures < PROOF_DEPARTURES || above.departures < PROOF_DEPARTURES {
            return false;
        }
        let possible = above_weight / above.time_ns / level - 1.0;
        let growth = above.rate() / self.rate() - 1.0;
        if growth > possible * GROWTH {
            return false;
        }
        let deviation = (1.0 / self.departures + 1.0 / above.departures).sqrt();
        possible - growth >= GROWTH_DEVIATIONS * deviation
    }

    fn rate(self) -> f64 {
        self.departures / self.time_ns.max(1.0)
    }

    fn halve(&mut self) {
        self.time_ns /= 2.0;
        self.departures /= 2.0;
    }
}
